"""Eq. 11 in blocks of nodes: the same numbers, with only one [rows, P] block in memory.

``dense.py`` derives the gradient. Forwards, c takes one pass over the blocks and o a second;
backwards, ds takes one, dv and dGamma a second, and dGamma flows to q and k through the similarity
of the block. Blocks are recomputed in every pass: had autograd kept them, the peak would be that of
``eager``. Sums over blocks are float32 at least, whatever the type of the inputs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from graphglow.ops.eager import EPS, Kernel, similarity

BLOCK_ELEMENTS = 4_000_000
"""Entries of one block of Gamma over all batch entries and heads (16 MB in float32)."""


def row_blocks(n: int, rows: int) -> Iterator[slice]:
    """Slices of at most ``rows`` that cover range(n)."""
    return (slice(start, min(start + rows, n)) for start in range(0, n, rows))


def chunked(
    v: Tensor,
    q: Tensor,
    k: Tensor,
    threshold: float | None,
    kernel: Kernel,
    heads: int,
    rows: int | None = None,
) -> Tensor:
    """``rows`` nodes at a time; by default as many as :data:`BLOCK_ELEMENTS` allows."""
    if rows is None:
        per_row = k.shape[-2] * (1 if kernel == "identity" else heads) * k.shape[:-2].numel()
        rows = max(1, BLOCK_ELEMENTS // max(1, per_row))
    gamma_of = partial(similarity, threshold=threshold, kernel=kernel, heads=heads)
    return cast(Tensor, _Chunked.apply(v, q, k, gamma_of, rows))  # type: ignore[no-untyped-call]


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, v: Tensor, q: Tensor, k: Tensor, gamma_of: Callable[..., Tensor], rows: int
    ) -> Tensor:
        wide = torch.promote_types(v.dtype, torch.float32)
        to_pivots = v.new_zeros(*k.shape[:-1], v.shape[-1], dtype=wide)  # [.., P, F]
        column_sum = v.new_zeros(k.shape[:-1], dtype=wide)  # [.., P]
        for block in row_blocks(q.shape[-2], rows):
            gamma = gamma_of(q[..., block, :], k)  # [.., rows, P]
            to_pivots += gamma.mT @ v[..., block, :]
            column_sum += gamma.sum(-2, dtype=wide)
        to_pivots = (to_pivots / column_sum.clamp_min(EPS)[..., None]).to(v.dtype)

        out = torch.empty_like(v)
        row_sum = v.new_empty(v.shape[:-1], dtype=wide)  # [.., N]
        for block in row_blocks(q.shape[-2], rows):
            gamma = gamma_of(q[..., block, :], k)
            row_sum[..., block] = gamma.sum(-1, dtype=wide)
            out[..., block, :] = gamma @ to_pivots / row_sum[..., block].clamp_min(EPS)[..., None]
        ctx.save_for_backward(v, q, k, to_pivots, column_sum, row_sum, out)
        ctx.gamma_of, ctx.rows = gamma_of, rows
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        v, q, k, to_pivots, column_sum, row_sum, out = ctx.saved_tensors
        g = grad / row_sum.clamp_min(EPS)[..., None]  # [.., N, F]  g_u / r_u
        d_row_sum = -(g * out).sum(-1) * (row_sum >= EPS)  # [.., N]
        g = g.to(v.dtype)

        d_to_pivots = torch.zeros_like(to_pivots, dtype=row_sum.dtype)
        for block in row_blocks(q.shape[-2], ctx.rows):
            d_to_pivots += ctx.gamma_of(q[..., block, :], k).mT @ g[..., block, :]
        d_sum = d_to_pivots / column_sum.clamp_min(EPS)[..., None]  # [.., P, F]
        d_column_sum = -(d_sum * to_pivots).sum(-1) * (column_sum >= EPS)  # [.., P]
        d_sum = d_sum.to(v.dtype)

        dv, dq = torch.empty_like(v), torch.empty_like(q)
        dk = torch.zeros_like(k, dtype=row_sum.dtype)
        for block in row_blocks(q.shape[-2], ctx.rows):
            with torch.enable_grad():
                q_block = q[..., block, :].detach().requires_grad_()
                k_block = k.detach().requires_grad_()
                gamma = ctx.gamma_of(q_block, k_block)
            d_gamma = g[..., block, :] @ to_pivots.mT + d_row_sum[..., block, None]
            d_gamma += v[..., block, :] @ d_sum.mT + d_column_sum[..., None, :]
            dq[..., block, :], dk_block = torch.autograd.grad(
                gamma, (q_block, k_block), d_gamma.to(gamma.dtype)
            )
            dk += dk_block
            dv[..., block, :] = gamma.detach() @ d_sum
        return dv, dq, dk.to(k.dtype), None, None
