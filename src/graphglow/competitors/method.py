"""What a competitor is: an entry of METHODS, and a model that the training loop can train."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphglow.gnn.propagation import Dropout, drop
from graphglow.gnn.train import Task, cross_entropy
from graphglow.graph import Graph
from graphglow.settings import RunConfig

Family = Literal["gnn", "control", "structure", "graphglow"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """An entry of ``METHODS``."""

    family: Family
    summary: str
    """What it is and where it comes from, in a line."""
    config: type[RunConfig]
    build: Callable[[Graph, Any], Task]
    """From a graph and a config to what the loop trains."""
    backbone: str | None = None
    """The GNN inside, if there is one; a config that names one goes before it."""
    pair_bytes: int = 0
    """What training takes at least for each of the N^2 pairs of nodes, where it has all of them."""


class Competitor(nn.Module, Task):
    """A model of a competitor on one graph, as the loop trains it.

    To add one: subclass, give it ``forward(dropout)`` -> logits [N, C], where a ``dropout`` of None
    means evaluation, or a ``loss`` and ``logits`` of its own, and add an entry to ``METHODS``.
    Initial weights are drawn from ``start``, what a training step draws comes from ``generator``.

    Args:
        graph: The graph, on its device already, in the dtype to compute in.
        config: Settings of the method.
    """

    def __init__(self, graph: Graph, config: Any) -> None:
        nn.Module.__init__(self)
        Task.__init__(self, graph, config)
        self.config = config

    @classmethod
    def build(cls, graph: Graph, config: Any) -> "Competitor":
        return cls(graph, config).to(graph.device, graph.adj.values.dtype)

    def loss(self) -> Tensor:
        return self.training_loss(self(self.dropout))

    def training_loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy of logits [N, C] on the training nodes."""
        return cross_entropy(logits, self.graph.train, self.train_labels)

    @torch.no_grad()
    def logits(self) -> Tensor:
        logits: Tensor = self(None)
        return logits

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.parameters()]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of Adam, where settings of their own differ from the config's."""
        return [{"params": list(self.parameters())}]

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:  # type: ignore[override]
        """Adam, made once the model is on its device."""
        return torch.optim.Adam(
            self.parameter_groups(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
            capturable=self.graph.y.is_cuda,
        )


def two_layer_gcn(
    adjacency: Any, degree: Tensor, xw: Tensor, weights: Sequence[Tensor], dropout: Dropout | None
) -> Tensor:
    """GCN on D^-1/2 (A + I) D^-1/2: A [N, N], its row sums [N, 1], X W [N, H] -> logits [N, C].

    ``weights`` are those behind X W: the first bias, the second matrix, its bias.
    """
    bias, matrix, last_bias = weights
    scale = (1 + degree).rsqrt()

    def propagate(v: Tensor) -> Tensor:
        v = scale * v
        spread: Tensor = scale * (adjacency @ v + v)
        return spread

    hidden = propagate(xw) + bias
    return propagate(drop(torch.relu(hidden), dropout) @ matrix) + last_bias
