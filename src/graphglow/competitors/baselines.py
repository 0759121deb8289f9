"""Methods without a structure learner: plain GNNs, and MLP, LINK and LINKX, which pass no messages.

The GNNs are the backbones on the input graph alone; where each differs from its paper stands in
its docstring in :mod:`graphglow.gnn.backbones`.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphglow.competitors.method import Competitor, Method
from graphglow.gnn.propagation import Dropout, drop, glorot, glorots, vector
from graphglow.gnn.train import GNNTask, Task
from graphglow.graph import Graph
from graphglow.settings import BackboneName, GNNConfig, RunConfig


@dataclass(frozen=True, kw_only=True)
class PlainConfig(RunConfig):
    """A GNN on the input graph."""

    hidden: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of layers."""


@dataclass(frozen=True, kw_only=True)
class GATConfig(PlainConfig):
    """GAT on the input graph."""

    attention_heads: int = 8
    """Attention heads; their largest common divisor with the width is used."""


@dataclass(frozen=True, kw_only=True)
class PropagationConfig(PlainConfig):
    """APPNP or GPR-GNN on the input graph."""

    teleport: float = 0.1
    """alpha: weight of a node's own prediction in each propagation (of gpr, at the start)."""
    steps: int = 10
    """K: number of propagations."""


@dataclass(frozen=True, kw_only=True)
class GCNIIConfig(PlainConfig):
    """GCNII on the input graph."""

    num_layers: int = 8
    """Number of propagations, between two dense layers."""
    teleport: float = 0.1
    """alpha: share of the first layer in every other one."""


def _gnn(backbone: BackboneName, summary: str, config: type[PlainConfig] = PlainConfig) -> Method:
    def build(graph: Graph, settings: Any) -> Task:
        return GNNTask(graph, GNNConfig(backbone=backbone, **asdict(settings)))

    return Method(family="gnn", summary=summary, config=config, build=build, backbone=backbone)


PLAIN_GNNS: dict[str, Method] = {
    "gcn": _gnn("gcn", "GCN (Kipf and Welling, ICLR 2017)"),
    "sage": _gnn("sage", "GraphSAGE, mean of all neighbours (Hamilton et al., NeurIPS 2017)"),
    "gat": _gnn("gat", "GAT (Velickovic et al., ICLR 2018)", GATConfig),
    "appnp": _gnn("appnp", "APPNP (Gasteiger et al., ICLR 2019)", PropagationConfig),
    "gpr": _gnn("gpr", "GPR-GNN (Chien et al., ICLR 2021)", PropagationConfig),
    "h2gcn": _gnn("h2gcn", "H2GCN (Zhu et al., NeurIPS 2020)"),
    "gcnii": _gnn("gcnii", "GCNII (Chen et al., ICML 2020)", GCNIIConfig),
}


@dataclass(frozen=True, kw_only=True)
class MLPConfig(PlainConfig):
    """An MLP on the features, or LINKX: its layers are those behind its two branches."""

    least: ClassVar = RunConfig.least | {"num_layers": 1}


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
        self.matrices = glorots(layers, self.start)
        self.biases = nn.ParameterList([vector(behind) for _, behind in layers])

    def forward(self, dropout: Dropout | None) -> Tensor:
        hidden: Tensor = drop(self.graph.x, dropout) @ self.matrices[0] + self.biases[0]
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
        logits: Tensor = drop(self.graph.neighbours, dropout) @ self.weight_adj
        return logits + self.bias  # [N, C]


class LINKWithFeatures(LINK):
    """LINK that reads the node's features too: logits = A W_A + X W_X + b."""

    def __init__(self, graph: Graph, config: LINKConfig) -> None:
        super().__init__(graph, config)
        self.weight_x = nn.Parameter(torch.zeros(graph.num_features, graph.num_classes))

    def forward(self, dropout: Dropout | None) -> Tensor:
        return super().forward(dropout) + drop(self.graph.x, dropout) @ self.weight_x


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
        self.matrices = glorots(layers, self.start)
        self.biases = nn.ParameterList([vector(behind) for _, behind in layers])

    def forward(self, dropout: Dropout | None) -> Tensor:
        from_adj = drop(self.graph.neighbours, dropout) @ self.weight_adj + self.bias_adj
        from_x = drop(self.graph.x, dropout) @ self.weight_x + self.bias_x
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
