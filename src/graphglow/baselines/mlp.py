"""MLP: the control that sees features and no graph."""

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


class MLP(Model):
    """L dense layers on the features, relu between them. No edge is read."""

    def __init__(self, graph: Graph, config: MLPConfig) -> None:
        super().__init__(graph, config)
        generator = torch.Generator().manual_seed(config.seed)
        widths = [graph.num_features] + [config.hidden] * (config.num_layers - 1)
        pairs = list(pairwise([*widths, graph.num_classes]))
        self.weights = nn.ParameterList([glorot(a, b, generator) for a, b in pairs])
        self.biases = nn.ParameterList([vector(b) for _, b in pairs])

    def forward(self, dropout: Dropout | None) -> Tensor:
        hidden: Tensor = drop_features(self.graph.x, dropout) @ self.weights[0] + self.biases[0]
        for weight, bias in zip(list(self.weights)[1:], list(self.biases)[1:], strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ weight + bias
        return hidden  # [N, C]


METHOD = Method(
    family="control",
    summary="MLP on the features, no graph",
    config=MLPConfig,
    build=of_model(MLP),
    space={**SHARED_SPACE, "hidden": HIDDEN, "weight_decay": WEIGHT_DECAY},
)
