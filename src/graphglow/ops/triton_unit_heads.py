"""The weighted unit vectors of :mod:`graphglow.ops.unit_heads`, one kernel each way.

A program holds a block of rows of z and goes through the heads one by one, so that the
intermediate products [N, H, D] exist in registers only.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 32


@triton.jit
def _forward(
    z_ptr, w_ptr, q_ptr, inverse_ptr,
    n, w_batch, scale, constant, shortest,
    D: tl.constexpr, H: tl.constexpr, WIDTH: tl.constexpr, CONSTANT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    inside = (row < n)[:, None] & (d < D)[None, :]
    row = row + batch * n
    z = tl.load(z_ptr + row[:, None] * D + d[None, :], mask=inside, other=0.0)  # [BN, BD]
    for h in tl.static_range(H):
        w = tl.load(w_ptr + batch * w_batch + h * D + d, mask=d < D, other=0.0)
        a = z * w[None, :]
        length = tl.sqrt(tl.sum(a * a, axis=1))
        inverse = tl.where(length >= shortest, scale / length, 0.0)  # [BN]
        tl.store(q_ptr + row[:, None] * WIDTH + h * D + d[None, :], a * inverse[:, None], inside)
        tl.store(inverse_ptr + row * H + h, inverse, row < (batch + 1) * n)
    if CONSTANT > 0:
        c = tl.arange(0, CONSTANT)
        value = tl.where(c == 0, constant, 0.0)[None, :] + tl.zeros([BLOCK_N, 1], tl.float32)
        keep = (row < (batch + 1) * n)[:, None] & (c < CONSTANT)[None, :]
        tl.store(q_ptr + row[:, None] * WIDTH + H * D + c[None, :], value, keep)


@triton.jit
def _backward(
    z_ptr, w_ptr, q_ptr, inverse_ptr, grad_ptr, dz_ptr, dw_ptr,
    n, w_batch, length_factor,
    D: tl.constexpr, H: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    NEED_Z: tl.constexpr, NEED_W: tl.constexpr,
):  # fmt: skip
    block, batch = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    row = block * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    inside = (row < n)[:, None] & (d < D)[None, :]
    row = row + batch * n
    dz = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    if NEED_W:
        z = tl.load(z_ptr + row[:, None] * D + d[None, :], mask=inside, other=0.0)
    for h in tl.static_range(H):
        at = row[:, None] * WIDTH + h * D + d[None, :]
        q = tl.load(q_ptr + at, mask=inside, other=0.0)
        grad = tl.load(grad_ptr + at, mask=inside, other=0.0)
        inverse = tl.load(inverse_ptr + row * H + h, mask=row < (batch + 1) * n, other=0.0)
        along = tl.sum(q * grad, axis=1) * length_factor
        da = (grad - q * along[:, None]) * inverse[:, None]  # [BN, BD]
        if NEED_Z:
            w = tl.load(w_ptr + batch * w_batch + h * D + d, mask=d < D, other=0.0)
            dz += da * w[None, :]
        if NEED_W:  # one partial sum per program: no atomics, the same result every time
            part = tl.sum(da * z, axis=0)
            place = ((batch * tl.num_programs(0) + block) * H + h) * D + d
            tl.store(dw_ptr + place, part, d < D)
    if NEED_Z:
        tl.store(dz_ptr + row[:, None] * D + d[None, :], dz, inside)


def forward(
    z: Tensor,
    weight: Tensor,
    scale: float,
    constant: float,
    constant_columns: int,
    shortest: float,
) -> tuple[Tensor, Tensor]:
    """Return q [.., N, W] and the factors inverse [.., N, H] that made its vectors short."""
    n, (h, d) = z.shape[-2], weight.shape[-2:]
    z, weight = z.contiguous(), weight.contiguous()
    width = h * d + constant_columns
    q = z.new_empty(*z.shape[:-1], width)
    inverse = z.new_empty(*z.shape[:-1], h)
    _forward[_grid(z)](
        z, weight, q, inverse, n, h * d if weight.ndim > 2 else 0, scale, constant, shortest,
        D=d, H=h, WIDTH=width, CONSTANT=constant_columns,
        BLOCK_N=ROWS, BLOCK_D=triton.next_power_of_2(d), num_warps=4,
    )  # fmt: skip
    return q, inverse


def backward(
    z: Tensor,
    weight: Tensor,
    q: Tensor,
    inverse: Tensor,
    grad: Tensor,
    length_factor: float,
    need_z: bool,
    need_w: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of z and of the weight."""
    n, (h, d) = z.shape[-2], weight.shape[-2:]
    z, weight, grad = z.contiguous(), weight.contiguous(), grad.contiguous()
    grid = _grid(z)
    dz = torch.empty_like(z) if need_z else z
    dw = z.new_empty(*z.shape[:-2], grid[0], h, d) if need_w else z
    _backward[grid](
        z, weight, q, inverse, grad, dz, dw, n, h * d if weight.ndim > 2 else 0, length_factor,
        D=d, H=h, WIDTH=q.shape[-1], BLOCK_N=ROWS, BLOCK_D=triton.next_power_of_2(d),
        NEED_Z=need_z, NEED_W=need_w, num_warps=4,
    )  # fmt: skip
    summed: Any = dw.sum(-3).sum_to_size(weight.shape) if need_w else None
    return dz if need_z else None, summed


def _grid(z: Tensor) -> tuple[int, int]:
    return triton.cdiv(z.shape[-2], ROWS), z.shape[:-2].numel()
