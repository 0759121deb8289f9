"""Predict, then propagate: an MLP on the features, whose logits travel over the mixed structure."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.checks import at_least, in_unit_interval
from graphglow.gnn.backbones.backbone import Backbone, Shape, glorots, row, vectors
from graphglow.gnn.dropout import Dropout, drop
from graphglow.gnn.latent_gnn import Encoded, MixedPropagation, encode
from graphglow.graphs import Graph


@dataclass(frozen=True, kw_only=True)
class PropagationSettings:
    """Of APPNP and GPR-GNN; 0.1 and 10 in their papers, for citation graphs."""

    teleport: float = 0.1
    """alpha: weight of the features against the messages (of gpr, at the start)."""
    steps: int = 10
    """K: number of propagations."""

    def __post_init__(self) -> None:
        in_unit_interval("teleport", self.teleport)
        at_least("steps", self.steps, 1)


class PropagatedMLP(Backbone):
    """What APPNP and GPR-GNN share: the MLP h0 = W^(L-1) relu(.. relu(X W^0 + b^0) ..) + b^(L-1).

    Only logits are propagated, and those are C wide. The embeddings for the next structure are
    mix(X W^0) + b^0: the MLP's first layer, before its relu, after one step over the structure.
    """

    settings_class = PropagationSettings
    shardable = True
    settings: PropagationSettings

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        self.weights = glorots(shape.layers, generator)
        self.biases = vectors(shape.layers)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        weights, biases = list(self.weights), [row(bias) for bias in self.biases]
        encoded = encode(graph, weights[0], kind=self.shape.encoder, dropout=dropout)
        xw, axw = encoded.cached
        h0 = xw + biases[0]
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            h0 = drop(torch.relu(h0), dropout) @ weight + bias
        return Encoded(encoded.z0, (xw, axw, h0))  # h0 [.., N, C]

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        xw, axw, h0 = encoded.cached
        z = mix(xw, input_part=axw) + row(self.biases[0])  # [.., N, D]
        return z, self.propagate(h0, mix)

    @abstractmethod
    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        """Send the MLP's logits over the structure: [.., N, C] -> [.., N, C]."""
