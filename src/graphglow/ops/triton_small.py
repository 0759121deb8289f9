"""The small kernels: products of tiles, sparse products, unit vectors per head; no atomics."""

import torch
import triton
import triton.language as tl
from torch import Tensor

HEAD_ROWS = 32
"""Rows of z that one program of the unit vectors holds."""


@triton.jit
def multiply(a, b, acc, PRECISION: tl.constexpr):
    """Add a b to acc: [M, K], [K, N] -> [M, N].

    PRECISION of float32 tiles is "tf32", "bf16" (both are rounded), or "bf16x3": each is split into
    two bfloat16 numbers, 16 bits in all, and three of the four products of the parts are added. The
    tensor cores take bfloat16 from any layout and at twice the rate of tf32.
    """
    if PRECISION == "bf16":
        acc = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
    elif PRECISION == "bf16x3":
        a_high, b_high = a.to(tl.bfloat16), b.to(tl.bfloat16)
        a_low = (a - a_high.to(tl.float32)).to(tl.bfloat16)
        b_low = (b - b_high.to(tl.float32)).to(tl.bfloat16)
        acc = tl.dot(a_low, b_high, acc)
        acc = tl.dot(a_high, b_low, acc)
        acc = tl.dot(a_high, b_high, acc)
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def spmm_kernel(
    crow, col, values, dense, out, rows, dense_rows, value_stride,
    F: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """One row of S dense [B, N, F], entries by blocks; grid (rows, feature chunks, batch)."""
    row, batch = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    dense += batch * dense_rows * F
    values += batch * value_stride
    total = tl.zeros([BLOCK_F], tl.float32)
    end = tl.load(crow + row + 1).to(tl.int64)
    for start in tl.range(tl.load(crow + row).to(tl.int64), end, BLOCK_E):
        entry = start + tl.arange(0, BLOCK_E)
        there = entry < end
        column = tl.load(col + entry, mask=there, other=0).to(tl.int64)
        value = tl.load(values + entry, mask=there, other=0.0)
        mask = there[:, None] & (f < F)[None, :]
        gathered = tl.load(dense + column[:, None] * F + f[None, :], mask=mask, other=0.0)
        total += tl.sum(value[:, None] * gathered, 0)
    tl.store(out + (batch * rows + row) * F + f, total, mask=f < F)


def spmm(
    crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], dense: Tensor
) -> Tensor:
    """S dense [.., N, F] in one launch for a whole batch (the library: three, and no batch)."""
    dense, values = dense.contiguous(), values.contiguous()
    rows, features = shape[0], dense.shape[-1]
    out = dense.new_empty(*dense.shape[:-2], rows, features)
    if out.numel() == 0:
        return out
    block_f = min(64, triton.next_power_of_2(features))
    block_e = max(16, min(128, 1024 // block_f))
    grid = rows, triton.cdiv(features, block_f), dense.shape[:-2].numel()
    spmm_kernel[grid](
        crow, col, values, dense, out, rows, shape[1], values.shape[-1] if values.ndim > 1 else 0,
        F=features, BLOCK_E=block_e, BLOCK_F=block_f, num_warps=1,
    )  # fmt: skip
    return out


@triton.jit
def unit_heads_kernel(
    z_ptr, w_ptr, q_ptr, inverse_ptr, n, w_batch, scale, shortest,
    D: tl.constexpr, H: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """A block of rows of z, head by head: products [N, H, D] exist in registers only."""
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


@triton.jit
def grad_unit_heads_kernel(
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
        if NEED_W:
            place = ((batch * tl.num_programs(0) + block) * H + h) * D + d
            tl.store(dw_ptr + place, tl.sum(da * z, axis=0), d < D)
    if NEED_Z:
        tl.store(dz_ptr + row[:, None] * D + d[None, :], dz, inside)


def unit_heads_forward(
    z: Tensor, weight: Tensor, q: Tensor, scale: float, shortest: float
) -> Tensor:
    """Fill the heads of q [.., N, W]; return the factors [.., N, H] that made them short."""
    h, d = weight.shape[-2:]
    z, weight, inverse = z.contiguous(), weight.contiguous(), z.new_empty(*z.shape[:-1], h)
    grid = triton.cdiv(z.shape[-2], HEAD_ROWS), z.shape[:-2].numel()
    unit_heads_kernel[grid](
        z, weight, q, inverse, z.shape[-2], h * d if weight.ndim > 2 else 0, scale, shortest,
        D=d, H=h, WIDTH=q.shape[-1], BLOCK_N=HEAD_ROWS, BLOCK_D=triton.next_power_of_2(d),
        num_warps=4,
    )  # fmt: skip
    return inverse


def unit_heads_backward(
    z: Tensor, weight: Tensor, q: Tensor, inverse: Tensor, grad: Tensor, length_factor: float,
    need_z: bool, need_w: bool,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of z and of the weight."""
    h, d = weight.shape[-2:]
    z, weight, grad = z.contiguous(), weight.contiguous(), grad.contiguous()
    grid = triton.cdiv(z.shape[-2], HEAD_ROWS), z.shape[:-2].numel()
    dz = torch.empty_like(z) if need_z else None
    dw = z.new_empty(*z.shape[:-2], grid[0], h, d) if need_w else None
    grad_unit_heads_kernel[grid](
        z, weight, q, inverse, grad, dz, dw, z.shape[-2], h * d if weight.ndim > 2 else 0,
        length_factor, D=d, H=h, WIDTH=q.shape[-1], BLOCK_N=HEAD_ROWS,
        BLOCK_D=triton.next_power_of_2(d), NEED_Z=need_z, NEED_W=need_w, num_warps=4,
    )  # fmt: skip
    return dz, None if dw is None else dw.sum(-3).sum_to_size(weight.shape)
