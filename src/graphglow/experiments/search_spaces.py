"""What a search draws from: Appendix C for GraphGLOW, and what wider searches have besides."""

from collections.abc import Mapping
from typing import Any

from graphglow.baselines.method import HIDDEN, Space
from graphglow.baselines.variants import BACKBONES, OBJECTIVES, PIVOT_SPACE
from graphglow.experiments.paper.lines import WIDER

STEPS: Space = {"learner_learning_rate": (0.01, 0.1)}
"""The step size of theta, the one setting of pre-training that moves targets by much: a small one
leaves theta near its random start, a large one fits it to the sources."""
PRETRAIN_SPACE: Space = {
    **STEPS,
    "learner.embedding_size": HIDDEN,
    "learner.num_heads": (4, 6),
    "objective": OBJECTIVES["objective"],
    "episodes": (1, 2, 3),
    "refinements": PIVOT_SPACE["refinements"],
}
"""Appendix C, what makes a structure learner: its shape (d, H), the weights of its objective
(alpha, rho; a frozen learner has none), theta's step, E, and T. The GNN's learning rate, dropout,
lambda, P and the tolerance are settings of both parts. Here the transfer's are searched, and
pre-training keeps its defaults: one learner then serves all trials that differ in them only, as it
serves all targets. The encoder is that of the target.
"""
TRANSFER_SPACE: Space = {n: v for n, v in PIVOT_SPACE.items() if n != "embedding_size"}
"""Appendix C, what the target's GNN is trained with; its width is the learner's d."""
OF_WIDER: Space = {**BACKBONES, "encoder": ("gcn",)}
"""On the target, beside the space of the method: the GNN too; the encoder is fixed in exchange."""


def base_and_extra(name: str) -> tuple[str, Space]:
    """The method that a search of this name is of, and what is searched besides."""
    return (WIDER[name][0], OF_WIDER) if name in WIDER else (name, {})


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted names as settings in settings: ``a.b`` is ``b`` of ``a``."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        inner = out
        for step in path:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return out
