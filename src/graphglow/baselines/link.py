"""LINK: logistic regression on the rows of the adjacency matrix."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphglow.baselines.method import SHARED_SPACE, Method, of_model
from graphglow.baselines.model import Model
from graphglow.gnn import Dropout
from graphglow.gnn.backbones.backbone import vector
from graphglow.gnn.dropout import drop_features
from graphglow.graphs import Graph
from graphglow.training.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class LINKConfig(RunConfig):
    """LINK: a linear model of which nodes a node is joined to."""

    dropout: float = 0.0
    """Share of the inputs dropped in training."""
    weight_decay: float = 1e-3
    """L2 penalty on the weights."""


class LINK(Model):
    """Zheleva and Getoor (WWW 2009): logits = A W_A + b.

    A is the pattern of the graph without self-loops. The weights start at zero: the problem is
    convex, and no seed matters without dropout.

    Shapes:
        weight_adj [N, C]
    """

    def __init__(self, graph: Graph, config: LINKConfig) -> None:
        super().__init__(graph, config)
        self.weight_adj = nn.Parameter(torch.zeros(graph.num_nodes, graph.num_classes))
        self.bias = vector(graph.num_classes)

    def forward(self, dropout: Dropout | None) -> Tensor:
        logits: Tensor = drop_features(self.graph.neighbours, dropout) @ self.weight_adj
        return logits + self.bias  # [N, C]


class LINKWithFeatures(LINK):
    """LINK that reads the node's features too: logits = A W_A + X W_X + b.

    Shapes:
        weight_adj [N, C], weight_x [D, C]
    """

    def __init__(self, graph: Graph, config: LINKConfig) -> None:
        super().__init__(graph, config)
        self.weight_x = nn.Parameter(torch.zeros(graph.num_features, graph.num_classes))

    def forward(self, dropout: Dropout | None) -> Tensor:
        return super().forward(dropout) + drop_features(self.graph.x, dropout) @ self.weight_x


SPACE = {
    "learning_rate": SHARED_SPACE["learning_rate"],
    "dropout": SHARED_SPACE["dropout"],
    "weight_decay": (0.0, 1e-4, 1e-3, 1e-2),
}
METHOD = Method(
    family="control",
    summary="LINK: logistic regression on adjacency rows (Zheleva and Getoor, WWW 2009)",
    config=LINKConfig,
    build=of_model(LINK),
    space=SPACE,
)
METHOD_WITH_FEATURES = Method(
    family="control",
    summary="LINK with features: logistic regression on adjacency rows and features",
    config=LINKConfig,
    build=of_model(LINKWithFeatures),
    space=SPACE,
)
