"""Methods that learn no structure: GNNs on the input graph; MLP, LINK and LINKX as controls."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from graphglow.checks import at_least
from graphglow.competitors.method import GNN_SPACE, SHARED_SPACE, Method, Model, of_model
from graphglow.gnn import Dropout, drop, drop_features, glorot, vector
from graphglow.gnn.backbones.backbone import glorots, vectors
from graphglow.graph import Graph
from graphglow.settings import PaperConfig, RunConfig
from graphglow.training.task import GraphTask, Task


@dataclass(frozen=True, kw_only=True)
class GNNConfig(RunConfig):
    """A GNN on the input graph."""

    hidden: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of layers, at least 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("hidden", self.hidden, 1)
        self.model()

    def model(self, backbone: str = "gcn") -> PaperConfig:
        """The same settings as the engine reads them."""
        settings = {name: value for name, value in asdict(self).items() if name != "hidden"}
        return PaperConfig(backbone=backbone, **settings)


@dataclass(frozen=True, kw_only=True)
class GATConfig(GNNConfig):
    """GAT on the input graph."""

    attention_heads: int = 8
    """Attention heads; their largest common divisor with the width is used."""


@dataclass(frozen=True, kw_only=True)
class PropagationConfig(GNNConfig):
    """APPNP or GPR-GNN on the input graph."""

    teleport: float = 0.1
    """alpha: weight of a node's own prediction in each propagation (of gpr, at the start)."""
    steps: int = 10
    """K: number of propagations."""


@dataclass(frozen=True, kw_only=True)
class GCNIIConfig(GNNConfig):
    """GCNII on the input graph."""

    num_layers: int = 8
    """Number of propagations, between two dense layers."""
    teleport: float = 0.1
    """alpha: share of the first layer in every other one."""


def two_hops(graph: Graph, config: GNNConfig) -> int:
    """Bytes of H2GCN's two-hop pattern at most: a node's pairs of neighbours, each counted once.

    An entry takes an index and a value, and while it is made three more numbers.
    """
    degree = graph.adj.crow.diff().double() - 1
    return int(32 * min(float(degree.square().sum()), float(graph.num_nodes) ** 2))


def _gnn(
    backbone: str,
    summary: str,
    config: type[GNNConfig] = GNNConfig,
    memory: Callable[[Graph, Any], int] | None = None,
    **space: tuple[Any, ...],
) -> Method:
    """A backbone without a structure learner."""

    def build(graph: Graph, configs: Sequence[Any]) -> Task:
        return GraphTask(graph, None, configs[0].hidden, [c.model(backbone) for c in configs])

    space = {**GNN_SPACE, **space}
    method = Method("gnn", summary, config, build, space, backbone=backbone, batched=True)
    return method if memory is None else replace(method, memory=memory, lighter="gcn")


ALPHA = (0.1, 0.2, 0.5)
PURE_GNNS: dict[str, Method] = {
    "gcn": _gnn("gcn", "GCN (Kipf and Welling, ICLR 2017)"),
    "sage": _gnn("sage", "GraphSAGE, mean of all neighbours (Hamilton et al., NeurIPS 2017)"),
    "gat": _gnn("gat", "GAT (Velickovic et al., ICLR 2018)", GATConfig, attention_heads=(2, 4)),
    "appnp": _gnn(
        "appnp", "APPNP (Gasteiger et al., ICLR 2019)", PropagationConfig, teleport=ALPHA
    ),
    "gpr": _gnn("gpr", "GPR-GNN (Chien et al., ICLR 2021)", PropagationConfig, teleport=ALPHA),
    "h2gcn": _gnn("h2gcn", "H2GCN (Zhu et al., NeurIPS 2020)", memory=two_hops),
    "gcnii": _gnn(
        "gcnii", "GCNII (Chen et al., ICML 2020)", GCNIIConfig, num_layers=(4, 8, 16, 32)
    ),
}
"""Appendix C: two layers; heads of GAT; alpha of APPNP and GPR-GNN with K = 10."""


@dataclass(frozen=True, kw_only=True)
class MLPConfig(RunConfig):
    """An MLP on the features."""

    hidden: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of layers; 1 is logistic regression."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("hidden", self.hidden, 1)
        at_least("num_layers", self.num_layers, 1)


@dataclass(frozen=True, kw_only=True)
class LINKXConfig(MLPConfig):
    """LINKX, as its authors have it: no messages."""

    num_layers: int = 2
    """Layers of the MLP behind the two branches; each branch has one."""


@dataclass(frozen=True, kw_only=True)
class LINKConfig(RunConfig):
    """LINK: a linear model of which nodes a node is joined to."""

    dropout: float = 0.0
    """Share of the inputs dropped in training."""
    weight_decay: float = 1e-3
    """L2 penalty on the weights."""


class MLP(Model):
    """L dense layers on the features, relu between them. No edge is read."""

    def __init__(self, graph: Graph, config: MLPConfig) -> None:
        super().__init__(graph, config)
        hidden = [config.hidden] * (config.num_layers - 1)
        layers = list(pairwise([graph.num_features, *hidden, graph.num_classes]))
        self.weights = glorots(layers, torch.Generator().manual_seed(config.seed))
        self.biases = vectors(layers)

    def forward(self, dropout: Dropout | None) -> Tensor:
        hidden: Tensor = drop_features(self.graph.x, dropout) @ self.weights[0] + self.biases[0]
        for weight, bias in zip(list(self.weights)[1:], list(self.biases)[1:], strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ weight + bias
        return hidden  # [N, C]


class LINK(Model):
    """Zheleva and Getoor (WWW 2009): logits = A W_A + b.

    A is the pattern of the graph without self-loops. The weights start at zero: the problem is
    convex, and no seed matters without dropout.
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


class LINKX(Model):
    """Large Scale Learning on Non-Homophilous Graphs (Lim et al., NeurIPS 2021).

    h_A = A W_A + b_A and h_X = X W_X + b_X; then MLP(relu([h_A, h_X] W + b + h_A + h_X)). A is the
    pattern of the graph without self-loops. The branches are single layers, as in most of the
    paper's settings.
    """

    def __init__(self, graph: Graph, config: LINKXConfig) -> None:
        super().__init__(graph, config)
        generator = torch.Generator().manual_seed(config.seed)
        width = config.hidden
        self.weight_adj = glorot(graph.num_nodes, width, generator)
        self.weight_x = glorot(graph.num_features, width, generator)
        self.weight_both = glorot(2 * width, width, generator)
        self.bias_adj, self.bias_x, self.bias_both = (vector(width) for _ in range(3))
        layers = list(pairwise([width] * config.num_layers + [graph.num_classes]))
        self.weights, self.biases = glorots(layers, generator), vectors(layers)

    def forward(self, dropout: Dropout | None) -> Tensor:
        from_adj = drop_features(self.graph.neighbours, dropout) @ self.weight_adj + self.bias_adj
        from_x = drop_features(self.graph.x, dropout) @ self.weight_x + self.bias_x
        both = torch.cat([from_adj, from_x], dim=-1) @ self.weight_both + self.bias_both
        hidden = both + from_adj + from_x  # [N, H]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ weight + bias
        return hidden  # [N, C]


def _control(summary: str, config: type[RunConfig], model: type[Model]) -> Method:
    space = GNN_SPACE
    if config is LINKConfig:
        space = {**SHARED_SPACE, "weight_decay": (0.0, 1e-4, 1e-3, 1e-2)}
    return Method("control", summary, config, of_model(model), space)


CONTROLS: dict[str, Method] = {
    "mlp": _control("MLP on the features, no graph", MLPConfig, MLP),
    "link": _control(
        "LINK: logistic regression on adjacency rows (Zheleva and Getoor, WWW 2009)",
        LINKConfig,
        LINK,
    ),
    "link-features": _control(
        "LINK with features: logistic regression on adjacency rows and features",
        LINKConfig,
        LINKWithFeatures,
    ),
    "linkx": _control(
        "LINKX: adjacency rows and features by MLPs (Lim et al., NeurIPS 2021)", LINKXConfig, LINKX
    ),
}
