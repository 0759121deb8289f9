"""SIGN: an MLP on what a node's neighbourhoods of growing size have to say."""

import torch
from torch import Tensor

from graphglow.gnn.backbones.backbone import Backbone, Shape, glorots, row, vectors
from graphglow.gnn.latent_gnn import Dropout, Encoded, MixedPropagation, drop, drop_features
from graphglow.graphs import Graph


class SIGN(Backbone):
    """Scalable Inception Graph Neural Networks (Frasca et al., 2020): an MLP on hops.

        h = sum_k M^k X W_k + b,  k = 0 .. L;    logits = relu(.. relu(h) W ..) + b

    with M the mixed structure and L - 1 layers behind h. Where M is fixed, the hops [X, M X, ..,
    M^L X] are made once, and a node's own rows of them are all that it trains on
    (:meth:`of_hops`); where M is learned, products with W_k come first, as in a GCN. Both are the
    same sum. Dropout differs: there it drops features, here entries of the hops.

    Differs from the paper: hops meet in the first layer, not behind a layer of each one's own.
    """

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        first, *others = shape.layers
        self.hop_weights = glorots([first] * (shape.num_layers + 1), generator)
        self.weights = glorots(others, generator)
        self.biases = vectors(shape.layers)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        x = drop_features(graph.x, dropout)
        xw = tuple(x @ weight for weight in self.hop_weights)
        return Encoded(graph.adj @ xw[0] if self.shape.encoder == "gcn" else xw[0], xw)

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        *nearer, total = encoded.cached  # [.., N, D] each
        for xw in reversed(nearer):
            total = xw + mix(total)
        return self._behind(total, dropout)

    def of_hops(self, hops: Tensor, dropout: Dropout | None) -> Tensor:
        parts = zip(hops, self.hop_weights, strict=True)
        total = torch.stack([drop(hop, dropout) @ weight for hop, weight in parts]).sum(0)
        return self._behind(total, dropout)[1]

    def _behind(self, total: Tensor, dropout: Dropout | None) -> tuple[Tensor, Tensor]:
        """The layers behind the sum over hops [.., M, D]: h before its relu, and logits."""
        first, *biases = (row(bias) for bias in self.biases)
        h = hidden = total + first
        for weight, bias in zip(self.weights, biases, strict=True):
            hidden = drop(torch.relu(hidden), dropout) @ weight + bias
        return h, hidden
