"""The encoder: node embeddings before any structure is learned (Z^0 of Alg. 2 and 3)."""

from typing import Literal, NamedTuple

from torch import Tensor

from graphglow.gnn.dropout import Dropout, drop_features
from graphglow.graphs import Graph
from graphglow.ops.sparse import SparseMatrix

Encoder = Literal["gcn", "mlp"]


class Encoded(NamedTuple):
    """What one forward pass computes once, whatever the number of refinements.

    Beside z0, the tensors and the graph's operators that a backbone's own ``forward`` asks for:
    it knows their number and order, nobody else reads them.

    Shapes:
        z0 [.., N, D] embeddings for the first structure; cached: the backbone's own;
        operators [N, N] each
    """

    z0: Tensor
    cached: tuple[Tensor, ...]
    operators: tuple[SparseMatrix, ...] = ()


def encode(graph: Graph, weight: Tensor, *, kind: Encoder, dropout: Dropout | None) -> Encoded:
    """Z^0 = A_norm X W0 (``gcn``) or X W0 (``mlp``); W0 is the first layer's weight, no activation.

    Cached are X W0 and A_norm X W0.

    Shapes:
        weight [.., features, D] -> z0 and both cached [.., N, D]
    """
    xw = drop_features(graph.x, dropout) @ weight
    axw = graph.adj @ xw
    return Encoded(axw if kind == "gcn" else xw, (xw, axw))
