"""GraphSAGE with the mean of the neighbours."""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphglow.gnn.backbones.backbone import Backbone, BackboneShape, glorot, row, vector
from graphglow.gnn.dropout import Dropout, drop, drop_features
from graphglow.gnn.encoder import Encoded
from graphglow.gnn.latent_gnn import MixedPropagation
from graphglow.graphs import Graph


class SAGE(Backbone):
    """Mean aggregator of GraphSAGE (Hamilton et al., NeurIPS 2017).

    h^(l+1) = relu(h W_self + mix(h) W_neigh + b), no relu at the end; mix is
    lambda * mean over the neighbours without the node itself + (1 - lambda) * latent. The
    embeddings for the next structure are h^(L-1) before its relu. Differs from the paper: the
    mixed structure, all neighbours instead of a sample, and no scaling to unit length.
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
        self.self_weights = nn.ParameterList([glorot(a, b, generator) for a, b in pairs])
        self.neighbour_weights = nn.ParameterList([glorot(a, b, generator) for a, b in pairs])
        self.biases = nn.ParameterList([vector(b) for _, b in pairs])

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        mean, x = graph.neighbour_mean, drop_features(graph.x, dropout)
        own, other = x @ self.self_weights[0], x @ self.neighbour_weights[0]  # [.., N, D]
        spread = mean @ other
        z0 = own + spread if self.shape.encoder == "gcn" else own
        return Encoded(z0, (own, other, spread), (mean,))

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        own, other, spread = encoded.cached
        mix = replace(mix, adj=encoded.operators[0])
        hidden = before_relu = own + mix(other, input_part=spread) + row(self.biases[0])
        layers = zip(
            list(self.self_weights)[1:],
            list(self.neighbour_weights)[1:],
            list(self.biases)[1:],
            strict=True,
        )
        for self_weight, neighbour_weight, bias in layers:
            before_relu = hidden
            h = drop(torch.relu(hidden), dropout)
            hidden = h @ self_weight + mix(h @ neighbour_weight) + row(bias)
        return before_relu, hidden  # h^(L-1) before its relu [.., N, D], h^L [.., N, C]
