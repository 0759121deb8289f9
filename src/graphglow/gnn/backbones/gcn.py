"""GCN, the backbone of the paper."""

import torch
from torch import Tensor

from graphglow.gnn.backbones.backbone import Backbone, LastLayer, Shape, glorots, vectors
from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation, drop, encode
from graphglow.graph import Graph


class GCN(Backbone):
    """Algorithm 1 with L layers: Z^(l+1) = relu(mix(Z^(l) W^(l)) + b^(l)), no relu at the end.

    Differs from the paper's Algorithm 1 in two ways. There are biases, as in common GCNs. And the
    embeddings for the next structure are Z^(L-1) before its relu, as Z^0 is: behind a relu, all
    cosines under tied weights are >= 0, so that a cut at 0 cuts nothing, and nodes whose
    attended units are all off have no similarity to anything.
    """

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        self.weights = glorots(shape.layers, generator)
        self.biases = vectors(shape.layers)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        return encode(graph, self.weights[0], kind=self.shape.encoder, dropout=dropout)

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        weights, biases = list(self.weights), list(self.biases)
        xw, axw = encoded.cached
        hidden = mix(xw, input_part=axw) + biases[0]  # [N, D]
        for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
            hidden = mix(drop(torch.relu(hidden), dropout) @ weight) + bias
        logits = mix(drop(torch.relu(hidden), dropout) @ weights[-1]) + biases[-1]
        return hidden, logits  # Z^(L-1) before its relu [N, D], Z^(L) [N, C]

    def last_layer(self, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
        hidden, _ = self(encoded, mix, None)
        said = torch.relu(hidden) @ self.weights[-1]
        return LastLayer(mix.adj, said, torch.zeros_like(said), self.biases[-1])
