"""GCN, the backbone of the paper."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from graphglow.gnn.backbones.backbone import Backbone, BackboneShape, glorot
from graphglow.gnn.dropout import Dropout, drop
from graphglow.gnn.encoder import Encoded, encode
from graphglow.gnn.latent_gnn import MixedPropagation
from graphglow.graphs import Graph


class GCN(Backbone):
    """Algorithm 1 with L layers: Z^(l+1) = relu(mix(Z^(l) W^(l)) + b^(l)), no relu at the end.

    Differs from the paper's Algorithm 1 in two ways. There are biases, as in common GCNs. And the
    embeddings for the next structure are Z^(L-1) before its relu, as Z^0 is: behind a relu, all
    cosines under tied weights are >= 0, so that a cut at 0 cuts nothing, and nodes whose
    attended units are all off have no similarity to anything.
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
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(b)) for _, b in pairs])

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        return encode(graph, self.weights[0], kind=self.shape.encoder, dropout=dropout)

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        weights, biases = list(self.weights), [bias[..., None, :] for bias in self.biases]
        xw, axw = encoded.cached
        hidden = mix(xw, input_part=axw) + biases[0]  # [.., N, D]
        for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
            hidden = mix(drop(torch.relu(hidden), dropout) @ weight) + bias
        logits = mix(drop(torch.relu(hidden), dropout) @ weights[-1]) + biases[-1]
        return hidden, logits  # Z^(L-1) before its relu [.., N, D], Z^(L) [.., N, C]
