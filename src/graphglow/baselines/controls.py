"""Controls that learn no structure and pass no messages: MLP, LINK and LINKX."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphglow.baselines.method import GNN_SPACE, SHARED_SPACE, Method, Model, of_model
from graphglow.checks import at_least
from graphglow.gnn import Dropout
from graphglow.gnn.backbones.backbone import glorot, vector
from graphglow.gnn.dropout import drop, drop_features
from graphglow.graphs import Graph
from graphglow.training.config import RunConfig


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


def _layers(
    widths: Sequence[int], generator: torch.Generator
) -> tuple[nn.ParameterList, nn.ParameterList]:
    """Weights and biases of dense layers between these widths."""
    pairs = list(pairwise(widths))
    weights = nn.ParameterList([glorot(a, b, generator) for a, b in pairs])
    return weights, nn.ParameterList([vector(b) for _, b in pairs])


class MLP(Model):
    """L dense layers on the features, relu between them. No edge is read."""

    def __init__(self, graph: Graph, config: MLPConfig) -> None:
        super().__init__(graph, config)
        generator = torch.Generator().manual_seed(config.seed)
        hidden = [config.hidden] * (config.num_layers - 1)
        widths = [graph.num_features, *hidden, graph.num_classes]
        self.weights, self.biases = _layers(widths, generator)

    def forward(self, dropout: Dropout | None) -> Tensor:
        hidden: Tensor = drop_features(self.graph.x, dropout) @ self.weights[0] + self.biases[0]
        for weight, bias in zip(list(self.weights)[1:], list(self.biases)[1:], strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ weight + bias
        return hidden  # [N, C]


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
        widths = [width] * config.num_layers + [graph.num_classes]
        self.weights, self.biases = _layers(widths, generator)

    def forward(self, dropout: Dropout | None) -> Tensor:
        graph = self.graph
        from_adj = drop_features(graph.neighbours, dropout) @ self.weight_adj + self.bias_adj
        from_x = drop_features(graph.x, dropout) @ self.weight_x + self.bias_x
        both = torch.cat([from_adj, from_x], dim=-1) @ self.weight_both + self.bias_both
        hidden = both + from_adj + from_x  # [N, H]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ weight + bias
        return hidden  # [N, C]


LINK_SPACE = {**SHARED_SPACE, "weight_decay": (0.0, 1e-4, 1e-3, 1e-2)}
CONTROLS: dict[str, Method] = {
    "mlp": Method(
        family="control",
        summary="MLP on the features, no graph",
        config=MLPConfig,
        build=of_model(MLP),
        space=GNN_SPACE,
    ),
    "link": Method(
        family="control",
        summary="LINK: logistic regression on adjacency rows (Zheleva and Getoor, WWW 2009)",
        config=LINKConfig,
        build=of_model(LINK),
        space=LINK_SPACE,
    ),
    "link-features": Method(
        family="control",
        summary="LINK with features: logistic regression on adjacency rows and features",
        config=LINKConfig,
        build=of_model(LINKWithFeatures),
        space=LINK_SPACE,
    ),
    "linkx": Method(
        family="control",
        summary="LINKX: adjacency rows and features by MLPs (Lim et al., NeurIPS 2021)",
        config=LINKXConfig,
        build=of_model(LINKX),
        space=GNN_SPACE,
    ),
}
