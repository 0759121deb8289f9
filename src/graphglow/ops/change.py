"""How far embeddings moved in one refinement."""

import torch
from torch import Tensor

from graphglow.triton_support import launching_on, triton_usable


@torch.no_grad()
def squared_change(z: Tensor, z_next: Tensor) -> Tensor:
    """|z_next - z|^2 and |z|^2 of each run: [.., N, D] twice -> [.., 2]."""
    if z.dtype == torch.float32 and triton_usable(z.device):
        from graphglow.ops.triton_change import partial_changes  # an optional dependency

        with launching_on(z):
            return partial_changes(z, z_next).sum(-2)
    norms = [torch.linalg.vector_norm(t, dim=(-2, -1)) for t in (z_next - z, z)]
    return torch.stack(norms, dim=-1).square()
