"""What a competitor is: an entry of METHODS, and a model that the training loop can train."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from graphglow.gnn import Dropout
from graphglow.gnn.train import Task, cross_entropy
from graphglow.graph import Graph
from graphglow.settings import RunConfig

Family = Literal["gnn", "control", "structure", "graphglow"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A competitor, and what it can do."""

    family: Family
    summary: str
    """What it is and where it comes from, in a line."""
    config: type[RunConfig]
    build: Callable[[Graph, Any], Task]
    """From a graph and a config to what the loop trains."""
    backbone: str | None = None
    """The GNN inside, if there is one; where the config names one too, by default."""
    memory: Callable[[Graph, Any], int] | None = None
    """The bytes that training takes, estimated from sizes alone, where they grow with N^2."""
    lighter: str | None = None
    """The method to try where that does not fit."""


class Model(nn.Module, Task):
    """A competitor on one graph, as the loop trains it.

    To add one: subclass, give it ``forward(dropout)``, logits [N, C] where dropout is None in
    evaluation, or a ``loss`` and ``logits`` of its own, and add an entry to ``METHODS``. Initial
    weights are drawn from ``start``, what a training step draws comes from ``generator``;
    evaluation draws nothing, or the same every time.

    Args:
        graph: On its device already, in the dtype to compute in.
        config: Settings of the method.
    """

    capturable: ClassVar[bool] = True
    """Whether a training step never reads from the GPU, so that it can be recorded."""

    def __init__(self, graph: Graph, config: Any) -> None:
        nn.Module.__init__(self)
        self.start = torch.Generator().manual_seed(config.seed)
        self.generator = torch.Generator(graph.y.device).manual_seed(config.seed)
        capture = config.capture and self.capturable
        Task.__init__(self, graph, (self.generator,), capture=capture)
        self.config = config
        self.dropout = Dropout(config.dropout, self.generator)
        self.one = torch.ones((), dtype=torch.int64, device=graph.y.device)

    @classmethod
    def build(cls, graph: Graph, config: Any) -> "Model":
        return cls(graph, config).to(graph.y.device, graph.adj.values.dtype)

    def loss(self) -> Tensor:
        """The training objective, to descend on; of labels it reads the training nodes' only."""
        return self.training_loss(self(self.dropout))

    @torch.no_grad()
    def logits(self) -> Tensor:
        out: Tensor = self(None)
        return out

    def training_loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy on the training nodes, of logits [N, C]."""
        graph = self.graph
        return cross_entropy(logits, graph.train, graph.y[graph.train])

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What Adam trains, and how where that differs from the config: one group by default."""
        return [{"params": list(self.parameters())}]

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam, made once the model is on its device."""
        return torch.optim.Adam(
            self.parameter_groups(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
            capturable=self.graph.y.is_cuda,
        )

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.parameters()]

    def train_step(self) -> tuple[Tensor, Tensor]:
        return self.descend(self.loss()), self.one

    def descend(self, loss: Tensor) -> Tensor:
        """One step of the optimizer; return the loss before it."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()
