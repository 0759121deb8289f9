"""Predict, then propagate: an MLP on the features, whose logits travel over the mixed structure."""

from abc import abstractmethod
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphglow.gnn.backbones.backbone import Backbone, BackboneShape, glorot, row, vector
from graphglow.gnn.dropout import Dropout, drop
from graphglow.gnn.encoder import Encoded, encode
from graphglow.gnn.latent_gnn import MixedPropagation
from graphglow.graphs import Graph


class PropagatedMLP(Backbone):
    """What APPNP and GPR-GNN share: the MLP h0 = W^(L-1) relu(.. relu(X W^0 + b^0) ..) + b^(L-1).

    Only logits are propagated, and those are C wide. The embeddings for the next structure are
    mix(X W^0) + b^0: the MLP's first layer, before its relu, after one step over the structure.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        shape: BackboneShape,
        generator: torch.Generator,
    ) -> None:
        super().__init__(num_features, num_classes, shape, generator)
        widths = [num_features] + [shape.hidden] * (shape.num_layers - 1) + [num_classes]
        pairs = list(pairwise(widths))
        self.weights = nn.ParameterList([glorot(a, b, generator) for a, b in pairs])
        self.biases = nn.ParameterList([vector(b) for _, b in pairs])

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
