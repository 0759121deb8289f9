"""LINKX under a learned structure: a branch on adjacency rows beside one on features."""

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.gnn.backbones.backbone import Backbone, Shape, glorot, glorots, vector, vectors
from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation, drop, drop_features
from graphglow.graph import Graph


class LINKX(Backbone):
    """Large Scale Learning on Non-Homophilous Graphs (Lim et al., NeurIPS 2021), and mixing.

    h_A = A W_A + b_A and h_X = X W_X + b_X, where row u of A says which nodes u is joined to,
    scaled to unit length as features are; then

        h^0 = h_A + h_X + [h_A, h_X] W
        h^l = h^0 + mix(relu(h^(l-1)) W^l) + b^l        for l = 1 .. L - 1
        logits = relu(h^(L-1)) W_out + b_out

    Differs from the paper: there are no messages in LINKX; here the learned structure enters by
    the second line, beside h^0, which keeps a node's own row. The branches are single layers. A is
    the pattern, without weights or self-loops, and its entries are dropped like features; LINKX
    does not scale its rows. W_A has a row per node, so a trained model belongs to its graph.

    Shapes:
        weight_adj [N, D]
    """

    inductive = False

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        width = shape.hidden
        mixed = [(width, width)] * (shape.num_layers - 1)
        self.weight_adj = glorot(shape.num_nodes, width, generator)
        self.weight_x = glorot(shape.num_features, width, generator)
        self.bias_adj, self.bias_x = vector(width), vector(width)
        self.weight_both = glorot(2 * width, width, generator)
        self.weights, self.biases = glorots(mixed, generator), vectors(mixed)
        self.weight_out = glorot(width, shape.num_classes, generator)
        self.bias_out = vector(shape.num_classes)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        if self.weight_adj.shape[0] != graph.num_nodes:
            raise InputError(
                "linkx must run on the graph it was built for, of "
                f"{self.weight_adj.shape[0]} nodes; got one of {graph.num_nodes}"
            )
        from_adj = drop_features(graph.neighbour_rows, dropout) @ self.weight_adj + self.bias_adj
        from_x = drop_features(graph.x, dropout) @ self.weight_x + self.bias_x
        both = torch.cat([from_adj, from_x], dim=-1)  # [N, 2 D]
        first = from_adj + from_x + both @ self.weight_both  # h^0
        return Encoded(graph.adj @ first if self.shape.encoder == "gcn" else first, (first,))

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        (first,) = encoded.cached
        hidden = first
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = first + mix(drop(torch.relu(hidden), dropout) @ weight) + bias
        logits = drop(torch.relu(hidden), dropout) @ self.weight_out + self.bias_out
        return hidden, logits  # h^(L-1) [N, D], [N, C]
