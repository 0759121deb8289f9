"""GCNII: deep GCN with initial residual and identity mapping."""

import math

import torch
from torch import Tensor

from graphglow.gnn.backbones.backbone import Backbone, Shape, glorot, glorots, vector
from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation, drop, encode
from graphglow.graph import Graph


class GCNII(Backbone):
    """Simple and Deep GCN (Chen et al., ICML 2020), between two dense layers.

    H^0 = relu(X W_in + b_in); for l = 1 .. L, with beta_l = log(theta / l + 1),

        S^l = (1 - alpha) mix(H^(l-1)) + alpha H^0
        H^l = relu((1 - beta_l) S^l + beta_l S^l W^l)

    and logits = H^L W_out + b_out. The embeddings for the next structure are H^L before its relu.
    Differs from the paper: the mixed structure, and one weight decay for all weights. L is the
    number of propagations and counts neither dense layer.
    """

    THETA = 0.5
    """How fast layers turn into the identity; the paper's value for Cora."""

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        width = shape.hidden
        self.weight_in, self.bias_in = glorot(shape.num_features, width, generator), vector(width)
        self.weights = glorots([(width, width)] * shape.num_layers, generator)
        self.weight_out = glorot(width, shape.num_classes, generator)
        self.bias_out = vector(shape.num_classes)

    def beta(self, layer: int) -> float:
        """beta_l of layer l = 1 .. L."""
        return math.log(self.THETA / layer + 1)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        encoded = encode(graph, self.weight_in, kind=self.shape.encoder, dropout=dropout)
        return Encoded(encoded.z0, (torch.relu(encoded.cached[0] + self.bias_in),))

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        (first,) = encoded.cached  # H^0 [N, D]
        hidden, before_relu, alpha = first, first, self.shape.teleport
        for layer, weight in enumerate(self.weights, start=1):
            spread = (1 - alpha) * mix(drop(hidden, dropout)) + alpha * first
            before_relu = torch.lerp(spread, spread @ weight, self.beta(layer))
            hidden = torch.relu(before_relu)
        return before_relu, drop(hidden, dropout) @ self.weight_out + self.bias_out
