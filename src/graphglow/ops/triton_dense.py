"""The fused kernels of :mod:`graphglow.ops.dense`: Gamma in memory, everything around it in tiles.

On a small graph a GPU spends its time starting kernels, not computing. Here making Gamma with its
sums takes two launches, passing messages three, and the gradient of a pass three. What several
programs add up is written once per program and summed by a second kernel: no atomics, so results
are reproducible. Matrices are float32 and contiguous, batch first; Gamma may be bfloat16. It has
zero columns up to a multiple of :data:`ALIGNED`: all its rows then start on the boundaries that
wide loads need. n nodes, p pivots (with the zero columns), F features, W the factors' width.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from graphglow.ops import dense
from graphglow.ops.dense import FUSED_WIDTH, tf32_products
from graphglow.ops.eager import EPS as SMALLEST_SUM
from graphglow.ops.triton_small import multiply

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
    MAKE: tl.constexpr, W: tl.constexpr, CUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """One tile of Gamma = delta(q k^T), and its part of the sums; unless MAKE, q k^T is there.

    Grid (nodes, pivots, batch) -> gamma [B, N, P], row_parts [B, pivot blocks, N], column_parts
    [B, node blocks, P].
    """
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    place = gamma + (batch * n + row)[:, None] * p + column[None, :]
    there = aligned((row < n)[:, None], column, p, BLOCK_P)
    if MAKE:
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
    else:
        tile = tl.load(place, mask=there, other=0.0).to(tl.float32)
    if CUT:
        tile = tl.where(tile > threshold, tile, 0.0)
    if MAKE or CUT:
        tl.store(place, tile.to(gamma.dtype.element_ty), mask=there)
    row_at = (batch * tl.num_programs(1) + tl.program_id(1)) * n + row
    tl.store(row_parts + row_at, tl.sum(tile, 1), mask=row < n)
    column_at = (batch * tl.num_programs(0) + tl.program_id(0)) * p + column
    tl.store(column_parts + column_at, tl.sum(tile, 0), mask=column < p)


@triton.jit
def inverse_sums(parts, inverse, block, length, splits, batch, BLOCK: tl.constexpr):
    """1 / max(sum, EPS) of one block: parts [B, splits, length] -> inverse [B, length]."""
    at = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.range(splits):
        total += tl.load(parts + (batch * splits + split) * length + at, at < length, 0.0)
    tl.store(inverse + batch * length + at, 1.0 / tl.maximum(total, EPS), at < length)


@triton.jit
def inverse_sums_kernel(
    row_parts, column_parts, inverse_rows, inverse_columns, n, p, row_splits, column_splits,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Inverse sums of the rows, then of the columns. Grid (blocks of n, then of p; batch)."""
    block, batch, row_blocks = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.cdiv(n, BLOCK)
    if block < row_blocks:
        inverse_sums(row_parts, inverse_rows, block, n, row_splits, batch, BLOCK)
    else:
        inverse_sums(column_parts, inverse_columns, block - row_blocks, p, column_splits, batch,
                     BLOCK)  # fmt: skip


@triton.jit
def to_pivots_kernel(
    gamma, x, inverse_rows, parts, n, p, rows_per_split,
    F: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Gamma^T x over a split of the nodes, of x / r where ``inverse_rows`` [B, N] is not None.

    Grid (pivots, splits, batch): x [B, N, F] -> parts [B, splits, P, F].
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
        if inverse_rows is not None:
            values *= tl.load(inverse_rows + here, mask=row < n, other=0.0)[:, None]
        total = multiply(tl.trans(tile).to(tl.float32), values, total, PRECISION)
    at = ((batch * tl.num_programs(1) + tl.program_id(1)) * p + column)[:, None] * F + f[None, :]
    tl.store(parts + at, total, within(column[:, None] < p, f, F, BLOCK_F))


@triton.jit
def finish_pivots_kernel(
    parts, inverse_columns, c, out, dm, p, splits,
    F: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Sum the splits and divide by the column sums: c, or given c ds and dm = -(ds . c).

    Grid (pivots, batch): parts [B, splits, P, F] -> out [B, P, F], dm [B, P].
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
    if c is not None:
        to_pivots = tl.load(c + batch * p * F + entry, mask=inside, other=0.0)
        d_sum = tl.where(inverse < CLAMPED, -tl.sum(total * to_pivots, 1), 0.0)
        tl.store(dm + batch * p + column, d_sum, mask=column < p)


@triton.jit
def to_nodes_kernel(
    gamma, x, inverse_rows, out, n, pivots, p,
    F: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Gamma x, over r where ``inverse_rows`` [B, N] is not None.

    Grid (nodes, column chunks, batch): x [B, pivots, F] -> out [B, N, F].
    """
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    here = batch * n + row
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    total = tl.zeros([BLOCK_N, BLOCK_F], tl.float32)
    for start in tl.range(0, pivots, BLOCK_P):
        column = start + tl.arange(0, BLOCK_P)
        there = aligned((row < n)[:, None], column, p, BLOCK_P)
        tile = tl.load(gamma + here[:, None] * p + column[None, :], mask=there, other=0.0)
        wide = within((column < pivots)[:, None], f, F, BLOCK_F)
        values = tl.load(x + (batch * pivots + column)[:, None] * F + f[None, :], wide, 0.0)
        total = multiply(tile.to(tl.float32), values, total, PRECISION)
    if inverse_rows is not None:
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

    Grid (nodes, pivots, batch): v, g, out [B, N, F], c, ds [B, P, F], dm [B, P] -> d_gamma.
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


@dataclass(frozen=True)
class Tiles:
    """How one kernel is cut into programs, each of which makes [rows, columns]."""

    rows: int
    inner: int
    """Length of the products that it adds up in one step."""
    columns: int
    """Where these are features, 0: a program has all of them."""
    num_warps: int = 4
    num_stages: int = 2

    @property
    def launch(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


TILES = {
    "gamma": Tiles(64, 64, 64, num_stages=3),
    "cut": Tiles(32, 0, 128),
    "to_pivots": Tiles(64, 32, 0, num_stages=4),
    "to_nodes": Tiles(16, 64, 0, num_stages=3),
    "to_many_nodes": Tiles(64, 64, 0, num_stages=3),
    "grad_gamma": Tiles(64, 0, 64),
    "grad_q": Tiles(64, 32, 64, num_stages=4),
}
"""Chosen for graphs of a few thousand nodes on an H200, by ``benchmarks/tune_tiles.py``."""
MANY_NODES = 4096
"""From here on, 64 nodes per program still make enough programs."""
PROGRAMS = 264
"""Programs that fill a large GPU; passes over many nodes are split into about as many."""


def gamma_backward(
    grad: Tensor, q: Tensor, k: Tensor, precision: str, need_q: bool, need_k: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of q and k from that of Gamma, which is zero where Gamma is cut."""
    own = grad[..., : k.shape[-2]]
    dq = dk = None
    with tf32_products(precision == "tf32"):
        if need_q and precision == "float32":  # of these, only this is faster than the library
            dq = to_nodes(k.contiguous(), grad.contiguous(), None, precision, TILES["grad_q"])
        elif need_q:
            dq = (own @ k.to(grad.dtype)).to(q.dtype)
        if need_k:
            dk = (own.mT @ q.to(grad.dtype)).to(k.dtype)
    return dq, dk


def make_gamma(
    q: Tensor, k: Tensor, threshold: float | None, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Gamma [.., N, P], 1 / row sums [.., N, 1] and 1 / column sums [.., P, 1].

    In float32 the product is made here; in the others the library's is faster. P is aligned.
    """
    batch, n, pivots, make = q.shape[:-2], q.shape[-2], k.shape[-2], precision == "float32"
    p = triton.cdiv(pivots, ALIGNED.value) * ALIGNED.value
    tiles = TILES["gamma" if make else "cut"]
    grid = triton.cdiv(n, tiles.rows), triton.cdiv(p, tiles.columns), batch.numel()
    row_parts = q.new_empty(*batch, grid[1], n)
    column_parts = q.new_empty(*batch, grid[0], p)
    if make:
        q, k = q.contiguous(), k.contiguous()
        gamma = q.new_empty(*batch, n, p)
    else:
        k = functional.pad(k, (0, 0, 0, p - pivots))
        if precision == "bfloat16":
            q, k = q.bfloat16(), k.bfloat16()
        with tf32_products(precision == "tf32"):
            gamma = (q @ k.mT).contiguous()
    gamma_kernel[grid](
        q, k, gamma, row_parts, column_parts, threshold or 0.0, n, pivots, p,
        MAKE=make, W=q.shape[-1], CUT=threshold is not None, PRECISION=PRODUCTS[precision],
        BLOCK_N=tiles.rows, BLOCK_P=tiles.columns,
        BLOCK_W=min(tiles.inner, _padded(q.shape[-1])), **tiles.launch,
    )  # fmt: skip
    inverse_rows = row_parts.new_empty(*batch, n, 1)
    inverse_columns = row_parts.new_empty(*batch, p, 1)
    inverse_sums_kernel[triton.cdiv(n, 128) + triton.cdiv(p, 128), batch.numel()](
        row_parts, column_parts, inverse_rows, inverse_columns, n, p, grid[1], grid[0],
        BLOCK=128, num_warps=4,
    )  # fmt: skip
    return gamma, inverse_rows, inverse_columns


def propagate_forward(
    v: Tensor, gamma: Tensor, inverse_rows: Tensor, inverse_columns: Tensor, precision: str
) -> tuple[Tensor, Tensor]:
    """Messages at the pivots c [.., P, F] and at the nodes out [.., N, F]."""
    v = v.contiguous()
    c = to_pivots(v, gamma, inverse_columns, precision)[0]
    return c, to_nodes(c, gamma, inverse_rows, precision, _message_tiles(gamma))


def propagate_backward(
    grad: Tensor,
    saved: tuple[Tensor, ...],
    cut: bool,
    need_v: bool,
    need_gamma: bool,
    precision: str,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of v, and of Gamma where it is not cut."""
    v, gamma, inverse_rows, inverse_columns, c, out = saved
    grad, v = grad.contiguous(), v.contiguous()
    ds, dm = to_pivots(grad, gamma, inverse_columns, precision, inverse_rows, c)
    dv = to_nodes(ds, gamma, None, precision, _message_tiles(gamma)) if need_v else None
    if not need_gamma:
        return dv, None
    (n, p), features, tiles = gamma.shape[-2:], v.shape[-1], TILES["grad_gamma"]
    d_gamma = torch.empty_like(gamma)
    grid = triton.cdiv(n, tiles.rows), triton.cdiv(p, tiles.columns), v.shape[:-2].numel()
    grad_gamma_kernel[grid](
        gamma, v, grad, out, inverse_rows, c, ds, dm, d_gamma, n, p,
        F=features, CUT=cut, PRECISION=PRODUCTS[precision],
        BLOCK_N=tiles.rows, BLOCK_P=tiles.columns, BLOCK_F=_padded(features), **tiles.launch,
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
        F=features, PRECISION=PRODUCTS[precision],
        BLOCK_N=tiles.inner, BLOCK_P=tiles.rows, BLOCK_F=block_f, **tiles.launch,
    )  # fmt: skip
    out, dm = x.new_empty(*batch, p, features), x.new_empty(*batch, p)
    finish_pivots_kernel[triton.cdiv(p, 8), batch.numel()](
        parts, inverse_columns, c, out, dm, p, splits,
        F=features, BLOCK_P=8, BLOCK_F=block_f, num_warps=2,
    )  # fmt: skip
    return out, dm


def to_nodes(
    x: Tensor, gamma: Tensor, inverse_rows: Tensor | None, precision: str, tiles: Tiles
) -> Tensor:
    """Gamma x [.., N, F], with ``inverse_rows`` over r."""
    (n, p), (pivots, features), runs = gamma.shape[-2:], x.shape[-2:], x.shape[:-2].numel()
    block_f = min(tiles.columns or FUSED_WIDTH, _padded(features))
    out = x.new_empty(*x.shape[:-2], n, features)
    to_nodes_kernel[triton.cdiv(n, tiles.rows), triton.cdiv(features, block_f), runs](
        gamma, x, inverse_rows, out, n, pivots, p,
        F=features, PRECISION=PRODUCTS[precision],
        BLOCK_N=tiles.rows, BLOCK_P=tiles.inner, BLOCK_F=block_f, **tiles.launch,
    )  # fmt: skip
    return out


def _message_tiles(gamma: Tensor) -> Tiles:
    nodes = gamma.shape[:-1].numel()
    return TILES["to_nodes" if nodes < MANY_NODES else "to_many_nodes"]


def _padded(width: int) -> int:
    return max(16, int(triton.next_power_of_2(width)))
