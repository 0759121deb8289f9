"""One line of the table of methods: everything that the doors need to know of a competitor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from graphglow.baselines.model import Model, ModelTask
from graphglow.graphs import Graph
from graphglow.training.config import RunConfig
from graphglow.training.loop import Task

Family = Literal["gnn", "control", "structure", "graphglow"]
Space = Mapping[str, tuple[Any, ...]]

SHARED_SPACE: Space = {
    "learning_rate": (0.001, 0.005, 0.01, 0.05),
    "dropout": (0.0, 0.2, 0.3, 0.5, 0.6),
}
"""Appendix C: what the paper searches for every method."""
HIDDEN = (16, 32, 64, 96)
"""Appendix C: hidden channels."""
WEIGHT_DECAY = (0.0, 5e-5, 5e-4, 5e-3, 2e-2)
"""Appendix C does not say what was searched; here it is the same for every method that has one."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A competitor.

    ``build`` turns a graph and the configs of one or more runs into what the loop trains; more
    than one only where ``batched``. ``memory`` estimates, from sizes alone, the bytes that
    training takes where these grow with N^2.
    """

    family: Family
    summary: str
    """What it is and where it comes from, in a line."""
    config: type[RunConfig]
    build: Callable[[Graph, Sequence[Any]], Task]
    space: Space
    """The settings that ``search`` tries, by field of the config: Appendix C where it has them."""
    backbone: str | None = None
    """The GNN inside, if there is one; where the config names one too, by default."""
    batched: bool = False
    """Whether several runs can be trained as one program."""
    memory: Callable[[Graph, Any], int] | None = None
    lighter: str | None = None
    """What to try, in the error, where it does not fit."""


def of_model(
    model: Callable[[Graph, Any], Model], *, capture: bool = True
) -> Callable[[Graph, Sequence[Any]], Task]:
    """The ``build`` of a method that is a :class:`Model`."""

    def build(graph: Graph, configs: Sequence[Any]) -> Task:
        (config,) = configs
        built = model(graph, config).to(graph.y.device, graph.adj.values.dtype)
        return ModelTask(built, config, capture=capture)

    return build
