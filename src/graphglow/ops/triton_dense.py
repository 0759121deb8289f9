"""The fused kernels of :mod:`graphglow.ops.dense`: Gamma in memory, everything around it in tiles.

On a small graph a GPU spends its time starting kernels, not computing. Here making Gamma with its
sums takes two launches, passing messages three, and the gradient of a pass three. What several
programs add up is written once per program and summed by a second kernel: no atomics, so results
are reproducible.

Matrices are float32 and contiguous, batch first; Gamma may be bfloat16. Gamma has zero columns up
to a multiple of :data:`ALIGNED`: all its rows then start on the boundaries that wide loads need. n
nodes, p pivots (with the zero columns), F features, W the width of the factors.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from graphglow.ops import dense
from graphglow.ops.similarity import EPS as SMALLEST_SUM
from graphglow.ops.tf32 import tf32_products
from graphglow.ops.triton_product import multiply

EPS = tl.constexpr(SMALLEST_SUM)
CLAMPED = tl.constexpr(dense.CLAMPED)
ALIGNED = tl.constexpr(dense.FUSED_COLUMNS)
"""Columns of Gamma come in multiples of this."""
PRODUCTS = {"float32": "bf16x3", "tf32": "tf32", "bfloat16": "bf16"}
"""How each precision of the package multiplies."""


@triton.jit
def within(rows, f, F: tl.constexpr, BLOCK_F: tl.constexpr):
    """The mask of a tile [rows, F]: of the rows alone where features fill all tiles."""
    if F % BLOCK_F != 0:
        rows = rows & (f < F)[None, :]
    return rows


@triton.jit
def aligned(rows, column, p, BLOCK_P: tl.constexpr):
    """The mask of a tile [rows, P] of Gamma: of the rows alone where blocks end with Gamma."""
    if BLOCK_P > ALIGNED:
        rows = rows & (column < p)[None, :]
    return rows


@triton.jit
def gamma_kernel(
    q, k, gamma, row_parts, column_parts, threshold, n, pivots, p,
    W: tl.constexpr, CUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """One tile of Gamma = delta(q k^T), and its part of the sums. Grid (nodes, pivots, batch).

    Shapes:
        -> gamma [B, N, P], row_parts [B, pivot blocks, N], column_parts [B, node blocks, P]
    """
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    q_rows = q + (batch * n + row)[:, None] * W
    k_rows = k + (batch * pivots + column)[None, :] * W
    tile = tl.zeros([BLOCK_N, BLOCK_P], tl.float32)
    for start in tl.range(0, W, BLOCK_W):
        w = start + tl.arange(0, BLOCK_W)
        near, far = (row < n)[:, None], (column < pivots)[None, :]
        if W % BLOCK_W != 0:
            near, far = near & (w < W)[None, :], far & (w < W)[:, None]
        a = tl.load(q_rows + w[None, :], mask=near, other=0.0)
        b = tl.load(k_rows + w[:, None], mask=far, other=0.0)
        tile = multiply(a, b, tile, PRECISION)
    if CUT:
        tile = tl.where(tile > threshold, tile, 0.0)
    at = (batch * n + row)[:, None] * p + column[None, :]
    mask = aligned((row < n)[:, None], column, p, BLOCK_P)
    tl.store(gamma + at, tile.to(gamma.dtype.element_ty), mask=mask)
    row_at = (batch * tl.num_programs(1) + tl.program_id(1)) * n + row
    tl.store(row_parts + row_at, tl.sum(tile, 1), mask=row < n)
    column_at = (batch * tl.num_programs(0) + tl.program_id(0)) * p + column
    tl.store(column_parts + column_at, tl.sum(tile, 0), mask=column < p)


@triton.jit
def cut_kernel(
    gamma, row_parts, column_parts, threshold, n,
    P: tl.constexpr, CUT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Cut one tile of q k^T in place, and make its part of the sums. Grid (nodes, pivots, batch).

    Shapes:
        gamma [B, N, P] -> row_parts [B, pivot blocks, N], column_parts [B, node blocks, P]
    """
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    place = gamma + (batch * n + row)[:, None] * P + column[None, :]
    there = within((row < n)[:, None], column, P, BLOCK_P)
    raw = tl.load(place, mask=there, other=0.0)
    tile = raw.to(tl.float32)
    if CUT:
        tile = tl.where(tile > threshold, tile, 0.0)
        tl.store(place, tile.to(gamma.dtype.element_ty), mask=there)
    row_at = (batch * tl.num_programs(1) + tl.program_id(1)) * n + row
    tl.store(row_parts + row_at, tl.sum(tile, 1), mask=row < n)
    column_at = (batch * tl.num_programs(0) + tl.program_id(0)) * P + column
    tl.store(column_parts + column_at, tl.sum(tile, 0), mask=column < P)


@triton.jit
def inverse_sums_kernel(
    row_parts, column_parts, inverse_rows, inverse_columns, n, p, row_splits, column_splits,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """1 / max(sum, EPS) of the rows, then of the columns. Grid (blocks of n, then of p; batch)."""
    batch = tl.program_id(1).to(tl.int64)
    row_blocks = tl.cdiv(n, BLOCK)
    if tl.program_id(0) < row_blocks:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], tl.float32)
        for split in tl.range(row_splits):
            total += tl.load(row_parts + (batch * row_splits + split) * n + at, at < n, 0.0)
        tl.store(inverse_rows + batch * n + at, 1.0 / tl.maximum(total, EPS), at < n)
    else:
        at = (tl.program_id(0) - row_blocks) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], tl.float32)
        for split in tl.range(column_splits):
            total += tl.load(column_parts + (batch * column_splits + split) * p + at, at < p, 0.0)
        tl.store(inverse_columns + batch * p + at, 1.0 / tl.maximum(total, EPS), at < p)


@triton.jit
def to_pivots_kernel(
    gamma, x, inverse_rows, parts, n, p, rows_per_split,
    F: tl.constexpr, SCALE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Gamma^T x over a split of the nodes; SCALE: of x / r. Grid (pivots, splits, batch).

    Shapes:
        x [B, N, F], inverse_rows [B, N] -> parts [B, splits, P, F]
    """
    batch = tl.program_id(2).to(tl.int64)
    column = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    f = tl.arange(0, BLOCK_F)
    total = tl.zeros([BLOCK_P, BLOCK_F], tl.float32)
    first = tl.program_id(1) * rows_per_split
    for start in tl.range(first, tl.minimum(first + rows_per_split, n), BLOCK_N):
        row = start + tl.arange(0, BLOCK_N)
        here = batch * n + row
        there = aligned((row < n)[:, None], column, p, BLOCK_P)
        tile = tl.load(gamma + here[:, None] * p + column[None, :], mask=there, other=0.0)
        inside = within((row < n)[:, None], f, F, BLOCK_F)
        values = tl.load(x + here[:, None] * F + f[None, :], inside, 0.0)
        if SCALE:
            values *= tl.load(inverse_rows + here, mask=row < n, other=0.0)[:, None]
        total = multiply(tl.trans(tile).to(tl.float32), values, total, PRECISION)
    at = ((batch * tl.num_programs(1) + tl.program_id(1)) * p + column)[:, None] * F + f[None, :]
    tl.store(parts + at, total, within(column[:, None] < p, f, F, BLOCK_F))


@triton.jit
def finish_pivots_kernel(
    parts, inverse_columns, c, out, dm, p, splits,
    F: tl.constexpr, BACKWARD: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Sum the splits and divide by the column sums: c, or BACKWARD ds and dm = -(ds . c).

    Grid (pivots, batch).

    Shapes:
        parts [B, splits, P, F] -> out [B, P, F], dm [B, P]
    """
    batch = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    f = tl.arange(0, BLOCK_F)
    inside = within(column[:, None] < p, f, F, BLOCK_F)
    entry = column[:, None] * F + f[None, :]
    total = tl.zeros([BLOCK_P, BLOCK_F], tl.float32)
    for split in tl.range(splits):
        total += tl.load(parts + (batch * splits + split) * p * F + entry, mask=inside, other=0.0)
    inverse = tl.load(inverse_columns + batch * p + column, mask=column < p, other=0.0)
    total *= inverse[:, None]
    tl.store(out + batch * p * F + entry, total, mask=inside)
    if BACKWARD:
        to_pivots = tl.load(c + batch * p * F + entry, mask=inside, other=0.0)
        d_sum = tl.where(inverse < CLAMPED, -tl.sum(total * to_pivots, 1), 0.0)
        tl.store(dm + batch * p + column, d_sum, mask=column < p)


@triton.jit
def to_nodes_kernel(
    gamma, c, inverse_rows, out, n, p,
    F: tl.constexpr, SCALE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Gamma c, SCALE: over r. Grid (nodes, batch). Shapes: c [B, P, F] -> out [B, N, F]."""
    batch = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    here = batch * n + row
    f = tl.arange(0, BLOCK_F)
    total = tl.zeros([BLOCK_N, BLOCK_F], tl.float32)
    for start in tl.range(0, p, BLOCK_P):
        column = start + tl.arange(0, BLOCK_P)
        there = aligned((row < n)[:, None], column, p, BLOCK_P)
        tile = tl.load(gamma + here[:, None] * p + column[None, :], mask=there, other=0.0)
        wide = within(column[:, None] < p, f, F, BLOCK_F)
        values = tl.load(c + (batch * p + column)[:, None] * F + f[None, :], wide, 0.0)
        total = multiply(tile.to(tl.float32), values, total, PRECISION)
    if SCALE:
        total *= tl.load(inverse_rows + here, mask=row < n, other=0.0)[:, None]
    inside = within((row < n)[:, None], f, F, BLOCK_F)
    tl.store(out + here[:, None] * F + f[None, :], total, inside)


@triton.jit
def grad_gamma_kernel(
    gamma, v, g, out, inverse_rows, c, ds, dm, d_gamma, n, p,
    F: tl.constexpr, CUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """One tile of dGamma = (g c^T - g . out) / r + v ds^T + dm, zero where Gamma is cut.

    Grid (nodes, pivots, batch).

    Shapes:
        v, g, out [B, N, F], c, ds [B, P, F], dm [B, P] -> d_gamma [B, N, P]
    """
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    f = tl.arange(0, BLOCK_F)
    here, pivot = batch * n + row, batch * p + column
    near, far = here[:, None] * F + f[None, :], pivot[:, None] * F + f[None, :]
    inside = within((row < n)[:, None], f, F, BLOCK_F)
    wide = within(column[:, None] < p, f, F, BLOCK_F)
    scaled = tl.load(g + near, mask=inside, other=0.0)
    inverse = tl.load(inverse_rows + here, mask=row < n, other=0.0)
    scaled *= inverse[:, None]  # g / r
    dr = -tl.sum(scaled * tl.load(out + near, mask=inside, other=0.0), 1)
    dr = tl.where(inverse < CLAMPED, dr, 0.0)
    grad = dr[:, None] + tl.load(dm + pivot, mask=column < p, other=0.0)[None, :]
    c_tile = tl.load(c + far, mask=wide, other=0.0)
    grad = multiply(scaled, tl.trans(c_tile), grad, PRECISION)
    ds_tile = tl.load(ds + far, mask=wide, other=0.0)
    grad = multiply(tl.load(v + near, inside, 0.0), tl.trans(ds_tile), grad, PRECISION)
    there = aligned((row < n)[:, None], column, p, BLOCK_P)
    place = here[:, None] * p + column[None, :]
    if CUT:
        grad = tl.where(tl.load(gamma + place, mask=there, other=0.0) > 0.0, grad, 0.0)
    tl.store(d_gamma + place, grad.to(d_gamma.dtype.element_ty), mask=there)


@triton.jit
def grad_q_kernel(
    d_gamma, k, dq, n, pivots, p,
    W: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Gradient of q = dGamma k. Grid (rows, columns, batch).

    Shapes:
        d_gamma [B, N, P], k [B, P, W] -> dq [B, N, W]
    """
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    total = tl.zeros([BLOCK_R, BLOCK_W], tl.float32)
    for start in tl.range(0, pivots, BLOCK_I):
        i = start + tl.arange(0, BLOCK_I)
        at = (batch * n + row)[:, None] * p + i[None, :]
        a = tl.load(d_gamma + at, mask=aligned((row < n)[:, None], i, p, BLOCK_I), other=0.0)
        b_at = (batch * pivots + i)[:, None] * W + w[None, :]
        b = tl.load(k + b_at, mask=within((i < pivots)[:, None], w, W, BLOCK_W), other=0.0)
        total = multiply(a.to(tl.float32), b, total, PRECISION)
    at = (batch * n + row)[:, None] * W + w[None, :]
    tl.store(dq + at, total, mask=within((row < n)[:, None], w, W, BLOCK_W))


@dataclass(frozen=True)
class Tiles:
    """How one kernel is cut into programs."""

    rows: int
    """Rows of what a program makes."""
    inner: int
    """Length of the products that it adds up in one step."""
    columns: int
    """Columns of what a program makes; where these are features, a program has all of them."""
    num_warps: int = 4
    num_stages: int = 2


TILES = {
    "gamma": Tiles(64, 64, 64, num_stages=3),
    "cut": Tiles(32, 0, 128),
    "to_pivots": Tiles(64, 32, 0, num_stages=4),
    "to_nodes": Tiles(16, 64, 0, num_stages=3),
    "to_many_nodes": Tiles(64, 64, 0, num_stages=3),
    "grad_gamma": Tiles(64, 0, 64),
    "grad_q": Tiles(64, 32, 64, num_stages=4),
}
"""Chosen for graphs of a few thousand nodes on an H200, by ``benchmarks/tune.py dense``."""
MANY_NODES = 4096
"""From here on, 64 nodes per program still make enough programs."""
PROGRAMS = 264
"""Programs that fill a large GPU; passes over many nodes are split into about as many."""


def gamma_backward(
    grad: Tensor, q: Tensor, k: Tensor, precision: str, need_q: bool, need_k: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of q and k from that of Gamma, which is zero where Gamma is cut.

    Only dq in float32 is faster here than in the library.
    """
    pivots = k.shape[-2]
    dq = dk = None
    if need_q and precision == "float32":
        dq = _grad_q(grad.contiguous(), k.contiguous(), q)
    with tf32_products(precision == "tf32"):
        if need_q and dq is None:
            dq = (grad[..., :pivots] @ k.to(grad.dtype)).to(q.dtype)
        if need_k:
            dk = (grad[..., :pivots].mT @ q.to(grad.dtype)).to(k.dtype)
    return dq, dk


def _grad_q(grad: Tensor, k: Tensor, q: Tensor) -> Tensor:
    out, tiles = torch.empty_like(q, memory_format=torch.contiguous_format), TILES["grad_q"]
    (n, p), pivots, w = grad.shape[-2:], k.shape[-2], k.shape[-1]
    block_w = min(tiles.columns, _padded(w))
    grid = triton.cdiv(n, tiles.rows), triton.cdiv(w, block_w), k.shape[:-2].numel()
    grad_q_kernel[grid](
        grad, k, out, n, pivots, p, W=w, PRECISION=PRODUCTS["float32"],
        BLOCK_R=tiles.rows, BLOCK_I=tiles.inner, BLOCK_W=block_w,
        num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    return out


def make_gamma(
    q: Tensor, k: Tensor, threshold: float | None, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Gamma [.., N, P], 1 / row sums [.., N, 1] and 1 / column sums [.., P, 1].

    In float32 the product is made here; in the others the library's is faster. P is aligned.
    """
    batch, n, pivots = q.shape[:-2], q.shape[-2], k.shape[-2]
    p = triton.cdiv(pivots, ALIGNED.value) * ALIGNED.value
    tiles = TILES["gamma"] if precision == "float32" else TILES["cut"]
    grid = triton.cdiv(n, tiles.rows), triton.cdiv(p, tiles.columns), batch.numel()
    row_parts = q.new_empty(*batch, grid[1], n)
    column_parts = q.new_empty(*batch, grid[0], p)
    if precision == "float32":
        q, k, w = q.contiguous(), k.contiguous(), q.shape[-1]
        gamma = q.new_empty(*batch, n, p)
        gamma_kernel[grid](
            q, k, gamma, row_parts, column_parts, threshold or 0.0, n, pivots, p,
            W=w, CUT=threshold is not None, PRECISION=PRODUCTS[precision],
            BLOCK_N=tiles.rows, BLOCK_P=tiles.columns, BLOCK_W=min(tiles.inner, _padded(w)),
            num_warps=tiles.num_warps, num_stages=tiles.num_stages,
        )  # fmt: skip
    else:
        k = functional.pad(k, (0, 0, 0, p - pivots))
        if precision == "bfloat16":
            q, k = q.bfloat16(), k.bfloat16()
        with tf32_products(precision == "tf32"):
            gamma = (q @ k.mT).contiguous()
        cut_kernel[grid](
            gamma, row_parts, column_parts, threshold or 0.0, n,
            P=p, CUT=threshold is not None, BLOCK_N=tiles.rows, BLOCK_P=tiles.columns,
            num_warps=tiles.num_warps,
        )  # fmt: skip
    inverse_rows = row_parts.new_empty(*batch, n, 1)
    inverse_columns = row_parts.new_empty(*batch, p, 1)
    block = 128
    inverse_sums_kernel[triton.cdiv(n, block) + triton.cdiv(p, block), batch.numel()](
        row_parts, column_parts, inverse_rows, inverse_columns, n, p, grid[1], grid[0],
        BLOCK=block, num_warps=4,
    )  # fmt: skip
    return gamma, inverse_rows, inverse_columns


def propagate_forward(
    v: Tensor, gamma: Tensor, inverse_rows: Tensor, inverse_columns: Tensor, precision: str
) -> tuple[Tensor, Tensor]:
    """Messages at the pivots c [.., P, F] and at the nodes out [.., N, F]."""
    v = v.contiguous()
    c = to_pivots(v, gamma, inverse_columns, precision)[0]
    return c, to_nodes(c, gamma, inverse_rows, precision)


def propagate_backward(
    grad: Tensor,
    v: Tensor,
    gamma: Tensor,
    inverse_rows: Tensor,
    inverse_columns: Tensor,
    c: Tensor,
    out: Tensor,
    *,
    cut: bool,
    precision: str,
    need_v: bool,
    need_gamma: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of v, and of Gamma where it is not cut."""
    grad, v = grad.contiguous(), v.contiguous()
    ds, dm = to_pivots(grad, gamma, inverse_columns, precision, inverse_rows, c)
    dv = to_nodes(ds, gamma, None, precision) if need_v else None
    if not need_gamma:
        return dv, None
    (n, p), features, tiles = gamma.shape[-2:], v.shape[-1], TILES["grad_gamma"]
    d_gamma = torch.empty_like(gamma)
    grid = triton.cdiv(n, tiles.rows), triton.cdiv(p, tiles.columns), v.shape[:-2].numel()
    grad_gamma_kernel[grid](
        gamma, v, grad, out, inverse_rows, c, ds, dm, d_gamma, n, p,
        F=features, CUT=cut, PRECISION=PRODUCTS[precision],
        BLOCK_N=tiles.rows, BLOCK_P=tiles.columns, BLOCK_F=_padded(features),
        num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    return dv, d_gamma


def to_pivots(
    x: Tensor,
    gamma: Tensor,
    inverse_columns: Tensor,
    precision: str,
    inverse_rows: Tensor | None = None,
    c: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gamma^T x / m [.., P, F]; with ``inverse_rows`` and c, of x / r, and dm [.., P]."""
    (n, p), features, batch, tiles = gamma.shape[-2:], x.shape[-1], x.shape[:-2], TILES["to_pivots"]
    pivot_blocks, blocks = triton.cdiv(p, tiles.rows), triton.cdiv(n, tiles.inner)
    splits = min(blocks, max(1, PROGRAMS // (pivot_blocks * batch.numel())))
    rows_per_split = triton.cdiv(blocks, splits) * tiles.inner
    splits = triton.cdiv(n, rows_per_split)
    parts = x.new_empty(*batch, splits, p, features)
    block_f = _padded(features)
    to_pivots_kernel[pivot_blocks, splits, batch.numel()](
        gamma, x, inverse_rows, parts, n, p, rows_per_split,
        F=features, SCALE=inverse_rows is not None, PRECISION=PRODUCTS[precision],
        BLOCK_N=tiles.inner, BLOCK_P=tiles.rows, BLOCK_F=block_f,
        num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    out, dm = x.new_empty(*batch, p, features), x.new_empty(*batch, p)
    finish_pivots_kernel[triton.cdiv(p, 8), batch.numel()](
        parts, inverse_columns, c, out, dm, p, splits,
        F=features, BACKWARD=c is not None, BLOCK_P=8, BLOCK_F=block_f, num_warps=2,
    )  # fmt: skip
    return out, dm


def to_nodes(c: Tensor, gamma: Tensor, inverse_rows: Tensor | None, precision: str) -> Tensor:
    """Gamma c [.., N, F], with ``inverse_rows`` over r."""
    (n, p), features, runs = gamma.shape[-2:], c.shape[-1], c.shape[:-2].numel()
    tiles = TILES["to_nodes" if n * runs < MANY_NODES else "to_many_nodes"]
    out = c.new_empty(*c.shape[:-2], n, features)
    to_nodes_kernel[triton.cdiv(n, tiles.rows), runs](
        gamma, c, inverse_rows, out, n, p,
        F=features, SCALE=inverse_rows is not None, PRECISION=PRODUCTS[precision],
        BLOCK_N=tiles.rows, BLOCK_P=tiles.inner, BLOCK_F=_padded(features),
        num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip
    return out


def _padded(width: int) -> int:
    padded: Any = max(16, triton.next_power_of_2(width))
    return int(padded)
