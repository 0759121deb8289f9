"""LINKX: adjacency rows and features, each through an MLP of its own, then both through one."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphglow.baselines.method import HIDDEN, SHARED_SPACE, WEIGHT_DECAY, Method, of_model
from graphglow.baselines.model import Model
from graphglow.checks import at_least
from graphglow.gnn import Dropout
from graphglow.gnn.backbones.backbone import glorot, vector
from graphglow.gnn.dropout import drop, drop_features
from graphglow.graphs import Graph
from graphglow.training.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class LINKXConfig(RunConfig):
    """LINKX, as its authors have it: no messages."""

    hidden: int = 64
    """Width of all hidden layers."""
    num_layers: int = 2
    """Layers of the MLP behind the two branches; each branch has one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("hidden", self.hidden, 1)
        at_least("num_layers", self.num_layers, 1)


class LINKX(Model):
    """Large Scale Learning on Non-Homophilous Graphs (Lim et al., NeurIPS 2021).

    h_A = A W_A + b_A and h_X = X W_X + b_X; then MLP(relu([h_A, h_X] W + b + h_A + h_X)). A is the
    pattern of the graph without self-loops. The branches are single layers, as in most of the
    paper's settings.

    Shapes:
        weight_adj [N, H]
    """

    def __init__(self, graph: Graph, config: LINKXConfig) -> None:
        super().__init__(graph, config)
        generator = torch.Generator().manual_seed(config.seed)
        width = config.hidden
        self.weight_adj = glorot(graph.num_nodes, width, generator)
        self.weight_x = glorot(graph.num_features, width, generator)
        self.weight_both = glorot(2 * width, width, generator)
        self.bias_adj, self.bias_x, self.bias_both = (vector(width) for _ in range(3))
        pairs = list(pairwise([width] * config.num_layers + [graph.num_classes]))
        self.weights = nn.ParameterList([glorot(a, b, generator) for a, b in pairs])
        self.biases = nn.ParameterList([vector(b) for _, b in pairs])

    def forward(self, dropout: Dropout | None) -> Tensor:
        graph = self.graph
        from_adj = drop_features(graph.neighbours, dropout) @ self.weight_adj + self.bias_adj
        from_x = drop_features(graph.x, dropout) @ self.weight_x + self.bias_x
        both = torch.cat([from_adj, from_x], dim=-1) @ self.weight_both + self.bias_both
        hidden = both + from_adj + from_x  # [N, H]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ weight + bias
        return hidden  # [N, C]


METHOD = Method(
    family="control",
    summary="LINKX: adjacency rows and features by MLPs (Lim et al., NeurIPS 2021)",
    config=LINKXConfig,
    build=of_model(LINKX),
    space={**SHARED_SPACE, "hidden": HIDDEN, "weight_decay": WEIGHT_DECAY},
)
