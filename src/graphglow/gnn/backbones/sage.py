"""GraphSAGE with the mean of the neighbours."""

from dataclasses import replace

import torch
from torch import Tensor

from graphglow.gnn.backbones.backbone import Backbone, LastLayer, Shape, glorots, vectors
from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation, drop, drop_features
from graphglow.graph import Graph


class SAGE(Backbone):
    """Mean aggregator of GraphSAGE (Hamilton et al., NeurIPS 2017).

    h^(l+1) = relu(h W_self + mix(h) W_neigh + b), no relu at the end; mix is
    lambda * mean over the neighbours without the node itself + (1 - lambda) * latent. The
    embeddings for the next structure are h^(L-1) before its relu. Differs from the paper: the
    mixed structure, all neighbours instead of a sample, and no scaling to unit length.
    """

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        self.self_weights = glorots(shape.layers, generator)
        self.neighbour_weights = glorots(shape.layers, generator)
        self.biases = vectors(shape.layers)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        mean, x = graph.neighbour_mean, drop_features(graph.x, dropout)
        own, other = x @ self.self_weights[0], x @ self.neighbour_weights[0]  # [N, D]
        spread = mean @ other
        z0 = own + spread if self.shape.encoder == "gcn" else own
        return Encoded(z0, (own, other, spread), (mean,))

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        own, other, spread = encoded.cached
        mix = replace(mix, adj=encoded.operators[0])
        hidden = before_relu = own + mix(other, input_part=spread) + self.biases[0]
        layers = zip(
            list(self.self_weights)[1:],
            list(self.neighbour_weights)[1:],
            list(self.biases)[1:],
            strict=True,
        )
        for self_weight, neighbour_weight, bias in layers:
            before_relu = hidden
            h = drop(torch.relu(hidden), dropout)
            hidden = h @ self_weight + mix(h @ neighbour_weight) + bias
        return before_relu, hidden  # h^(L-1) before its relu [N, D], h^L [N, C]

    def last_layer(self, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
        hidden = torch.relu(self(encoded, mix, None)[0])
        (mean,) = encoded.operators
        own = hidden @ self.self_weights[-1]
        return LastLayer(mean, hidden @ self.neighbour_weights[-1], own, self.biases[-1])
