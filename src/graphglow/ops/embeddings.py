"""Of embeddings: unit vectors per head, the factors of a mean of cosines (Eq. 9); their change."""

import math
from typing import Any, cast

import torch
from torch import Tensor

from graphglow.linalg.triton_support import kernels_for, launching_on

CONSTANT_COLUMNS = 8
"""A constant is one column and seven zeros: rows stay aligned, and matrix products fast."""
SHORTEST = 1e-30
"""A vector shorter than this counts as zero: its inverse length might overflow."""


@torch.no_grad()
def squared_change(z: Tensor, z_next: Tensor) -> Tensor:
    """|z_next - z|^2 and |z|^2 of each run: [.., N, D] twice -> [.., 2]."""
    norms = [torch.linalg.vector_norm(t, dim=(-2, -1)) for t in (z_next - z, z)]
    return torch.stack(norms, dim=-1).square()


def unit_heads(z: Tensor, weight: Tensor, constant: float | None = None) -> Tensor:
    """Return q with ``q_u . k_p = mean_h cos(w_h * z_u, w_h * z_p)``: H unit vectors over sqrt(H).

    With a ``constant`` c, ``q_u . k_p = (c^2 + mean_h cos) / 2``. A zero vector stays zero and
    passes no gradient. Beside q itself, which propagation keeps anyway, the backward pass keeps
    only z and one number per node and head.

    Shapes:
        z [.., N, D], weight [H, D] or [.., H, D] -> [.., N, H*D], or [.., N, H*D + 8]
    """
    return cast(Tensor, _UnitHeads.apply(z, weight, constant))  # type: ignore[no-untyped-call]


class _UnitHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, constant: float | None) -> Tensor:
        assert weight.ndim == 2 or weight.shape[:-2] == z.shape[:-2]
        h, d = weight.shape[-2:]
        half = 1.0 if constant is None else 0.5
        ctx.length_factor = h / half  # 1 / |q_h|^2
        ctx.kernels = kernels_for(z, "triton_small", "ops")
        q = z.new_empty(*z.shape[:-1], h * d + (0 if constant is None else CONSTANT_COLUMNS))
        forward = _forward if ctx.kernels is None else ctx.kernels.unit_heads_forward
        with launching_on(z):
            inverse = forward(z, weight, q, math.sqrt(half / h), SHORTEST)
        if constant is not None:
            q[..., h * d] = constant * math.sqrt(half)
            q[..., h * d + 1 :] = 0
        ctx.save_for_backward(z, weight, q, inverse)
        return q

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        backward = _backward if ctx.kernels is None else ctx.kernels.unit_heads_backward
        z, weight, q, inverse = ctx.saved_tensors
        need_z, need_w, _ = ctx.needs_input_grad
        with launching_on(z):
            dz, dw = backward(z, weight, q, inverse, grad, ctx.length_factor, need_z, need_w)
        return dz, dw, None


def _forward(z: Tensor, weight: Tensor, q: Tensor, scale: float, shortest: float) -> Tensor:
    """Fill the heads of q [.., N, W]; return the factors [.., N, H] that made them short."""
    heads = _split(q, *weight.shape[-2:])  # a view
    torch.mul(z[..., :, None, :], weight[..., None, :, :], out=heads)
    length = torch.linalg.vector_norm(heads, dim=-1)  # [.., N, H]
    inverse: Tensor = (scale / length).masked_fill_(length < shortest, 0)
    heads.mul_(inverse[..., None])
    return inverse


def _backward(
    z: Tensor, weight: Tensor, q: Tensor, inverse: Tensor, grad: Tensor, length_factor: float,
    need_z: bool, need_w: bool,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of z and of the weight."""
    h, d = weight.shape[-2:]
    q, grad = _split(q, h, d), _split(grad, h, d)
    along = (q * grad).sum(-1, keepdim=True) * length_factor
    d_heads = torch.addcmul(grad, q, along, value=-1).mul_(inverse[..., None])
    dw = (d_heads * z[..., :, None, :]).sum(-3).sum_to_size(weight.shape) if need_w else None
    dz = d_heads.mul_(weight[..., None, :, :]).sum(-2) if need_z else None
    return dz, dw


def _split(q: Tensor, h: int, d: int) -> Tensor:
    """[.., N, H*D + constant] -> [.., N, H, D], a view."""
    return q[..., : h * d].unflatten(-1, (h, d))  # type: ignore[no-untyped-call,no-any-return]
