"""What a competitor is: a line of the table of methods, and a model with a loss and logits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphglow.gnn import Dropout
from graphglow.graph import Graph
from graphglow.paper.objective import supervised_loss
from graphglow.settings import RunConfig
from graphglow.training.adam import Adam
from graphglow.training.task import Task

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
GNN_SPACE: Space = {**SHARED_SPACE, "hidden": HIDDEN, "weight_decay": WEIGHT_DECAY}
"""What methods with a hidden layer search at least."""

Build = Callable[[Graph, Sequence[Any]], Task]
"""From a graph and the configs of one or more runs to what the loop trains."""


@dataclass(frozen=True)
class Method:
    """A competitor."""

    family: Family
    summary: str
    """What it is and where it comes from, in a line."""
    config: type[RunConfig]
    build: Build
    space: Space
    """The settings that ``search`` tries, by field of the config: Appendix C where it has them."""
    backbone: str | None = None
    """The GNN inside, if there is one; where the config names one too, by default."""
    batched: bool = False
    """Whether several runs can be trained as one program."""
    memory: Callable[[Graph, Any], int] | None = None
    """The bytes that training takes, estimated from sizes alone, where these grow with N^2."""
    lighter: str | None = None
    """What to try, in the error, where it does not fit."""


class Model(nn.Module):
    """A competitor on one graph.

    To add one: subclass, give it ``forward(dropout)``, logits [N, C] where dropout is None in
    evaluation, or a ``loss`` and ``logits`` of its own, and add a line to ``METHODS``. Weights are
    drawn from a generator seeded with ``config.seed``; what a training step draws comes from
    ``dropout`` alone, and evaluation draws nothing, or the same every time.

    The graph is on its device already, in the dtype to compute in.
    """

    def __init__(self, graph: Graph, config: RunConfig) -> None:
        super().__init__()
        self.graph = graph

    def loss(self, dropout: Dropout) -> Tensor:
        """The training objective, to descend on; of labels it reads the training nodes' only."""
        return self.training_loss(self(dropout))

    def logits(self) -> Tensor:
        """Evaluate all nodes: [N, C]. A function of weights and graph."""
        out: Tensor = self(None)
        return out

    def optimizers(self, config: RunConfig) -> list[Adam]:
        """Those that train it: by default one, for all weights."""
        return [Adam(self.parameters(), config.learning_rate, config.weight_decay)]

    def training_loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy on the training nodes, of logits [.., N, C]: [..]."""
        graph = self.graph
        return supervised_loss(logits, graph.train, graph.y[graph.train])


class SingleTask(Task):
    """One run of a competitor."""

    def __init__(self, graph: Graph, config: RunConfig) -> None:
        generator = torch.Generator(graph.y.device).manual_seed(config.seed)
        super().__init__(graph, (generator,), capture=config.capture)
        self.dropout = Dropout((config.dropout,), self.generators)
        self.one = torch.ones((), dtype=torch.int64, device=graph.y.device)


class ModelTask(SingleTask):
    """A :class:`Model` in training."""

    def __init__(self, model: Model, config: Any) -> None:
        super().__init__(model.graph, config)
        self.model, self.optimizers = model, model.optimizers(config)

    @property
    def weights(self) -> list[Tensor]:
        return [optimizer.flat for optimizer in self.optimizers]

    def train_step(self) -> tuple[Tensor, Tensor]:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.model.loss(self.dropout)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach(), self.one

    @torch.no_grad()
    def logits(self) -> Tensor:
        return self.model.logits()


def of_model(
    model: Callable[[Graph, Any], Any], task: Callable[[Any, Any], Task] = ModelTask
) -> Build:
    """The ``build`` of a method that is a :class:`Model`."""

    def build(graph: Graph, configs: Sequence[Any]) -> Task:
        (config,) = configs
        return task(model(graph, config).to(graph.y.device, graph.adj.values.dtype), config)

    return build
