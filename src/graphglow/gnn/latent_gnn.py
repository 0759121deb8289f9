"""Algorithm 1: the first embeddings, and messages over input graph and latent graph at once."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from graphglow.gnn.dropout import Dropout, drop_features
from graphglow.graphs import Graph
from graphglow.ops.sparse import SparseMatrix
from graphglow.structure import Structure

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


@dataclass(frozen=True)
class MixedPropagation:
    """lambda * MP_1(v, A) + (1 - lambda) * MP_2(v, A_hat): Eq. 12 before weights and activation.

    Algorithm 1 multiplies by W after propagating; both propagations are linear, so backbones
    here multiply first, where the result is narrower. ``input_weight`` is lambda: one number, or
    [B, 1, 1] where the runs of a batch differ.
    """

    adj: SparseMatrix
    latent: Structure | None
    input_weight: float | Tensor

    def __call__(self, v: Tensor, *, input_part: Tensor | None = None) -> Tensor:
        """Propagate v [.., N, F]; pass ``input_part = A_norm v`` where it is already known."""
        shared = self.input_weight if isinstance(self.input_weight, float) else None
        if self.latent is None or shared == 1:
            return self.adj @ v if input_part is None else input_part
        through_latent = self.latent.propagate(v)
        if shared == 0:
            return through_latent
        through_input = self.adj @ v if input_part is None else input_part
        return torch.lerp(through_latent, through_input, self.input_weight)
