"""One entry of a table or one point of a figure, and what tables and figures need to make them.

A cell is a method on a target, with what is special about it, and the paper's figure beside it
where there is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphglow.experiments.lines import PRETRAINED
from graphglow.experiments.paper import CITATION, SOCIAL, Accuracy
from graphglow.training.config import ModelConfig


class Damage(NamedTuple):
    """What is done to the target before training: see :mod:`graphglow.graphs.perturb`."""

    kind: str
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One entry of a table or one point of a figure; with a seed, one run.

    ``settings`` and ``pretraining`` are what the cell itself asks for; they go before tuned ones.
    """

    experiment: str
    key: str
    """Unique within the experiment."""
    label: str
    """How the row or curve is called for people."""
    method: str
    target: str
    sources: tuple[str, ...] = ()
    """Of methods in ``PRETRAINED``, the graphs that their learner is trained on."""
    series: str | None = None
    """Which of several curves or variants of the experiment it belongs to."""
    x: float | None = None
    """The swept value."""
    tuned_as: str | None = None
    """Whose tuned settings it takes, if not its method's: see ``OURS`` and ``TUNED_AS``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the run on the target."""
    pretraining: Mapping[str, Any] = field(default_factory=dict)
    damage: Damage | None = None
    observe_every: int | None = None
    """Epochs between two looks at the learned graph."""
    timed: bool = False
    """Whether its seconds are the point: then it runs alone, and warm."""
    paper: Accuracy | None = None

    @property
    def split(self) -> str:
        """Whose split of the target's labels is used."""
        return split_of(self.target)


def split_of(graph: str) -> str:
    """The authors' split for the Facebook graphs, the public one for the citation graphs."""
    if graph in SOCIAL:
        return "authors"
    return "public" if graph in CITATION else "random seed 0"


def sources_for(method: str, sources: tuple[str, ...]) -> tuple[str, ...]:
    """The sources, for a method whose learner is trained on them; for any other, none."""
    return sources if method in PRETRAINED else ()


def by_degree(latent_degree: float) -> dict[str, Any]:
    """Settings on a target: c, and the lambda that it puts aside left alone."""
    return {"latent_degree": latent_degree, "input_weight": ModelConfig.input_weight}
