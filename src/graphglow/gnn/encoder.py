"""The encoder: node embeddings before any structure is learned (Z^0 of Alg. 2 and 3)."""

from typing import Literal, NamedTuple

from torch import Tensor

from graphglow.gnn.dropout import Dropout, drop_features
from graphglow.graphs import Graph

Encoder = Literal["gcn", "mlp"]


class Encoded(NamedTuple):
    """What one forward pass computes once, whatever the number of refinements.

    Shapes:
        z0 [.., N, D] embeddings for the first structure; xw [.., N, D] = X W0;
        axw [.., N, D] = A_norm X W0
    """

    z0: Tensor
    xw: Tensor
    axw: Tensor


def encode(graph: Graph, weight: Tensor, *, kind: Encoder, dropout: Dropout | None) -> Encoded:
    """Z^0 = A_norm X W0 (``gcn``) or X W0 (``mlp``); W0 is the first layer's weight, no activation.

    Shapes:
        weight [.., features, D]
    """
    xw = drop_features(graph.x, dropout) @ weight
    axw = graph.adj @ xw
    return Encoded(axw if kind == "gcn" else xw, xw, axw)
