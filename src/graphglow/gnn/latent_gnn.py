"""Message passing over the input graph and the latent graph at once (Eq. 12, Algorithm 1)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.ops.sparse import SparseMatrix
from graphglow.structure import Structure


def by_degree(adj: SparseMatrix, latent_degree: float) -> Tensor:
    """Lambda of each node, d / (d + c): the learned graph counts as c more neighbours. [N, 1].

    d is how many nodes of A_norm it hears, itself among them. Nodes with many neighbours are heard
    as in the input graph, and those with few lean on what was learned.
    """
    degree = adj.crow.diff().to(adj.values.dtype)[:, None]
    return degree / (degree + latent_degree)


@dataclass(frozen=True)
class MixedPropagation:
    """lambda * MP_1(v, A) + (1 - lambda) * MP_2(v, A_hat): Eq. 12 before weights and activation.

    Algorithm 1 multiplies by W after propagating; both propagations are linear, so backbones
    here multiply first, where the result is narrower. ``input_weight`` is lambda: one number,
    [B, 1, 1] where the runs of a batch differ, or [N, 1] where nodes do (:func:`by_degree`).
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
