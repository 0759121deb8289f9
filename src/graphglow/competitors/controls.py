"""Controls that pass no messages: MLP, LINK and LINKX."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphglow.competitors.method import Competitor, Method
from graphglow.gnn.backbone import glorot, glorots, vector, vectors
from graphglow.gnn.propagation import Dropout, drop, drop_features
from graphglow.graph import Graph
from graphglow.settings import RunConfig


@dataclass(frozen=True, kw_only=True)
class MLPConfig(RunConfig):
    """An MLP on the features, or LINKX."""

    hidden: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of layers; of linkx, of the MLP behind its two branches, which have one each."""


@dataclass(frozen=True, kw_only=True)
class LINKConfig(RunConfig):
    """LINK: a linear model of which nodes a node is joined to."""

    dropout: float = 0.0
    """Share of the inputs dropped in training."""
    weight_decay: float = 1e-3
    """L2 penalty on the weights."""


class MLP(Competitor):
    """L dense layers on the features, relu between them. No edge is read."""

    def __init__(self, graph: Graph, config: MLPConfig) -> None:
        super().__init__(graph, config)
        hidden = [config.hidden] * (config.num_layers - 1)
        layers = list(pairwise([graph.num_features, *hidden, graph.num_classes]))
        self.matrices, self.biases = glorots(layers, self.start), vectors(layers)

    def forward(self, dropout: Dropout | None) -> Tensor:
        hidden: Tensor = drop_features(self.graph.x, dropout) @ self.matrices[0] + self.biases[0]
        for matrix, bias in zip(list(self.matrices)[1:], list(self.biases)[1:], strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ matrix + bias
        return hidden  # [N, C]


class LINK(Competitor):
    """Zheleva and Getoor (WWW 2009): logits = A W_A + b, A without self-loops or edge weights.

    Differs from the paper: Adam and early stopping instead of a solver, and entries of A may be
    dropped. The weights start at zero: the problem is convex, and without dropout no seed matters.
    """

    def __init__(self, graph: Graph, config: LINKConfig) -> None:
        super().__init__(graph, config)
        self.weight_adj = nn.Parameter(torch.zeros(graph.num_nodes, graph.num_classes))
        self.bias = vector(graph.num_classes)

    def forward(self, dropout: Dropout | None) -> Tensor:
        logits: Tensor = drop_features(self.graph.neighbours, dropout) @ self.weight_adj
        return logits + self.bias  # [N, C]


class LINKWithFeatures(LINK):
    """LINK that reads the node's features too: logits = A W_A + X W_X + b."""

    def __init__(self, graph: Graph, config: LINKConfig) -> None:
        super().__init__(graph, config)
        self.weight_x = nn.Parameter(torch.zeros(graph.num_features, graph.num_classes))

    def forward(self, dropout: Dropout | None) -> Tensor:
        return super().forward(dropout) + drop_features(self.graph.x, dropout) @ self.weight_x


class LINKX(Competitor):
    """Large Scale Learning on Non-Homophilous Graphs (Lim et al., NeurIPS 2021).

    h_A = A W_A + b_A and h_X = X W_X + b_X; then MLP(relu([h_A, h_X] W + b + h_A + h_X)). A is the
    pattern of the graph without self-loops. Differs from the paper: the branches are always single
    layers, as in most of its settings.
    """

    def __init__(self, graph: Graph, config: MLPConfig) -> None:
        super().__init__(graph, config)
        width = config.hidden
        self.weight_adj = glorot(graph.num_nodes, width, self.start)
        self.weight_x = glorot(graph.num_features, width, self.start)
        self.weight_both = glorot(2 * width, width, self.start)
        self.bias_adj, self.bias_x, self.bias_both = (vector(width) for _ in range(3))
        layers = list(pairwise([width] * config.num_layers + [graph.num_classes]))
        self.matrices, self.biases = glorots(layers, self.start), vectors(layers)

    def forward(self, dropout: Dropout | None) -> Tensor:
        from_adj = drop_features(self.graph.neighbours, dropout) @ self.weight_adj + self.bias_adj
        from_x = drop_features(self.graph.x, dropout) @ self.weight_x + self.bias_x
        both = torch.cat([from_adj, from_x], dim=-1) @ self.weight_both + self.bias_both
        hidden = both + from_adj + from_x  # [N, H]
        for matrix, bias in zip(self.matrices, self.biases, strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ matrix + bias
        return hidden  # [N, C]


def _control(summary: str, config: type[RunConfig], model: type[Competitor]) -> Method:
    return Method(family="control", summary=summary, config=config, build=model.build)


LINK_PAPER = "logistic regression on adjacency rows (Zheleva and Getoor, WWW 2009)"
LINK_FEATURES = "LINK with features: logistic regression on adjacency rows and features"
LINKX_PAPER = "LINKX: adjacency rows and features by MLPs (Lim et al., NeurIPS 2021)"
CONTROLS: dict[str, Method] = {
    "mlp": _control("MLP on the features, no graph", MLPConfig, MLP),
    "link": _control(f"LINK: {LINK_PAPER}", LINKConfig, LINK),
    "link-features": _control(LINK_FEATURES, LINKConfig, LINKWithFeatures),
    "linkx": _control(LINKX_PAPER, MLPConfig, LINKX),
}
