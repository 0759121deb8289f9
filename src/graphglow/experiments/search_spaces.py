"""What a search draws from: Appendix C's spaces for GraphGLOW, and what ours have besides."""

from typing import NamedTuple

from graphglow.baselines.method import HIDDEN, Space
from graphglow.baselines.variants import BACKBONES, OBJECTIVES, PIVOT_SPACE
from graphglow.experiments.cells import OURS, SHARP, WIDER

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


class Extra(NamedTuple):
    """What is searched beside the space of a method, or instead of a part of it."""

    target: Space
    """Of the run on the target."""
    learner: Space
    """Of the structure learner."""


NOTHING = Extra({}, {})
EXTRAS = {
    **dict.fromkeys(WIDER, Extra({**BACKBONES, "encoder": ("gcn",)}, {})),
    **dict.fromkeys(
        SHARP,
        Extra(
            {"input_weight": tuple(value for value in PIVOT_SPACE["input_weight"] if value < 1)},
            {"delta": ("exp",)},
        ),
    ),
}
"""By the name of a search."""


def base_and_extra(name: str) -> tuple[str, Extra]:
    """The method that a search of this name is of, and what is searched besides."""
    return (OURS[name][0] if name in EXTRAS else name), EXTRAS.get(name, NOTHING)
