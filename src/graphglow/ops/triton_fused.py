"""Eq. 11 fused for the GPU: the numbers of ``chunked``, with no tile of Gamma outside the chip.

``dense.py`` derives the gradient and names c, m, r, ds, dm and dr. Gamma and its transpose are made
of q and k alike, so two kernels serve both directions. Each holds a block of rows of one side
("near") and streams blocks of the other ("far") past it: a tile of Gamma is [near, far] and enters
the second product from the left, out of registers. Near are the pivots on the way there, the nodes
on the way back; passes with pivots near are split over the nodes, and the parts are summed
afterwards: no atomics, so results are reproducible.

Matrices are contiguous, batch first. Offsets of rows are int64 (N W passes 2^31), offsets inside a
tile int32. Rows and columns that are not there are read as zeros and add nothing to any product.
Factors wider than BLOCK_W are read in chunks of it, features in chunks of BLOCK_F. All sums are
float32; float32 inputs are multiplied as ``precision`` says, 16-bit ones as they are.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphglow.linalg.triton_support import launching_on
from graphglow.ops.eager import EPS
from graphglow.ops.triton_small import multiply

DotPrecision = Literal["tf32", "bf16x3"]
Pass = Literal["messages", "grad_messages", "gradients"]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

SMALLEST_SUM = tl.constexpr(EPS)
STREAMED_WIDTH = 64
"""Columns of q and k read at a time where a tile does not hold the whole width."""
NARROWEST_SPLIT = 64
"""Least width of a tile of bf16x3 products where q and k are at most 64 wide: Triton 3.6 compiles
narrower ones to code that gives wrong numbers on an H200 (NaN, or reads out of bounds)."""
FEW_ROWS = 32
"""Near rows of a program where the usual number would leave multiprocessors idle."""
HOPPER_SHARED_MEMORY = 227 * 1024


@dataclass(frozen=True)
class Tiles:
    """How one pass is cut into programs, each with ``near`` rows, which it holds."""

    near: int
    far: int
    """Rows that it streams at a time."""
    num_warps: int
    num_stages: int
    block_w: int = 256
    """Factors up to this wide are held whole; wider ones are multiplied 64 columns at a time."""
    block_g: int = 256
    """Columns of dq or dk that one program makes."""
    per_sm: int = 1
    """Programs that fit on one multiprocessor: decides how many splits fill the GPU."""


TILES: dict[tuple[Pass, str], Tiles] = {
    ("messages", "16-bit"): Tiles(128, 64, 8, 3),
    ("grad_messages", "16-bit"): Tiles(64, 64, 4, 2, per_sm=2),
    ("gradients", "16-bit"): Tiles(128, 32, 8, 3),
    ("messages", "tf32"): Tiles(64, 64, 4, 2),
    ("grad_messages", "tf32"): Tiles(64, 32, 4, 2),
    ("gradients", "tf32"): Tiles(64, 32, 8, 2, block_w=64),
    ("messages", "bf16x3"): Tiles(128, 64, 8, 3, block_w=64),
    ("grad_messages", "bf16x3"): Tiles(128, 64, 8, 3, block_w=64),
    ("gradients", "bf16x3"): Tiles(128, 64, 8, 2, block_w=64, block_g=128),
}
"""Chosen for the H200, by ``benchmarks/tune_tiles.py``."""
SMALL_TILES = Tiles(32, 32, 4, 2, block_w=64, block_g=128)
"""For chips with less shared memory than Hopper, whatever the pass."""


@triton.jit
def row_pointer(matrix, row, WIDTH: tl.constexpr):
    return matrix + tl.cast(row, tl.int64) * WIDTH


@triton.jit
def load_tile(
    rows, rows_left, first, last,
    WIDTH: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """[ROWS, COLUMNS] of the matrix at pointer ``rows``, from column ``first`` on.

    Zeros after ``rows_left`` rows and from column ``last`` on; EVEN: no such column is asked for.
    """
    row, column = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)[None, :]
    mask = row < rows_left
    if not EVEN:
        mask = mask & (column < last)
    return tl.load(rows + row * WIDTH + column, mask=mask, other=0.0)


@triton.jit
def store_tile(
    rows, tile, rows_left, first, last,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows_left) & (column < last)
    tl.store(rows + row * WIDTH + column, tile.to(rows.dtype.element_ty), mask=mask)


@triton.jit
def load_numbers(numbers, left, ROWS: tl.constexpr):
    offset = tl.arange(0, ROWS)
    return tl.load(numbers + offset, mask=offset < left, other=0.0)


@triton.jit
def product(
    acc, near_tile, far_tile, near, far, near_left, far_left,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    NEAR: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Return acc + near far^T [NEAR, FAR]: that of the tiles, if one BLOCK holds all columns."""
    if WIDTH <= BLOCK:
        tl.static_assert(near_tile.shape[1] == BLOCK)
        acc = multiply(near_tile, tl.trans(far_tile), acc, PRECISION)
    else:
        EVEN: tl.constexpr = WIDTH % BLOCK == 0
        for column in tl.range(0, WIDTH, BLOCK):
            a = load_tile(near, near_left, column, WIDTH, WIDTH, EVEN, NEAR, BLOCK)
            b = load_tile(far, far_left, column, WIDTH, WIDTH, EVEN, FAR, BLOCK)
            acc = multiply(a, tl.trans(b), acc, PRECISION)
    return acc


@triton.jit(do_not_specialize=["nears", "fars", "fars_per_split"])
def messages_kernel(
    near, far, x, scale, parts, sum_parts, threshold, nears, fars, fars_per_split,
    NORMALISE: tl.constexpr, F: tl.constexpr, W: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr, NEAR: tl.constexpr, FAR: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Gamma x over a split of the far rows, and the sums of Gamma's rows where they are wanted.

    ``scale`` (or None) multiplies the columns of Gamma; NORMALISE: the result is divided by the
    sums. Grid (near blocks, splits of the far rows, batch * feature chunks): near [B, M, W], far
    [B, L, W], x [B, L, F], scale [B, L] -> parts [S, B, M, F], sum_parts [S, B, M] or None.
    """
    EVEN_W: tl.constexpr = W % BLOCK_W == 0
    CHUNKS: tl.constexpr = (F + BLOCK_F - 1) // BLOCK_F
    first, split = tl.program_id(0) * NEAR, tl.program_id(1)
    batch, feature = tl.program_id(2) // CHUNKS, tl.program_id(2) % CHUNKS * BLOCK_F
    near_left, far_start = nears - first, tl.cast(batch, tl.int64) * fars
    near_rows = row_pointer(near, tl.cast(batch, tl.int64) * nears + first, W)
    near_tile = load_tile(near_rows, near_left, 0, W, W, EVEN_W, NEAR, BLOCK_W)

    total = tl.full((NEAR, BLOCK_F), 0.0, tl.float32)
    sums = tl.full((NEAR,), 0.0, tl.float32)
    zero = tl.full((NEAR, FAR), 0.0, tl.float32)
    start = split * fars_per_split
    for there in tl.range(start, tl.minimum(fars, start + fars_per_split), FAR):
        left = fars - there
        far_rows = row_pointer(far, far_start + there, W)
        far_tile = load_tile(far_rows, left, 0, W, W, EVEN_W, FAR, BLOCK_W)
        x_rows = row_pointer(x, far_start + there, F)
        x_tile = load_tile(x_rows, left, feature, F, F, F % BLOCK_F == 0, FAR, BLOCK_F)
        gamma = product(zero, near_tile, far_tile, near_rows, far_rows, near_left, left,
                        W, BLOCK_W, PRECISION, NEAR, FAR)  # fmt: skip
        if CUT:
            gamma = tl.where(gamma > threshold, gamma, 0.0)
        if scale is not None:
            gamma = gamma * load_numbers(scale + far_start + there, left, FAR)[None, :]
        if sum_parts is not None:
            sums += tl.sum(gamma, 1)
        total = multiply(gamma.to(x_tile.dtype), x_tile, total, PRECISION)

    if NORMALISE:
        total = total / tl.maximum(sums, SMALLEST_SUM)[:, None]
    row = (split * (tl.num_programs(2) // CHUNKS) + tl.cast(batch, tl.int64)) * nears + first
    store_tile(row_pointer(parts, row, F), total, near_left, feature, F, F, NEAR, BLOCK_F)
    if sum_parts is not None:  # noqa: SIM102 (the one is known to the compiler, the other not)
        if feature == 0:
            offset = tl.arange(0, NEAR)
            tl.store(sum_parts + row + offset, sums, mask=offset < near_left)


@triton.jit(do_not_specialize=["nears", "fars", "fars_per_split", "splits"])
def gradients_kernel(
    near, near_a, near_b, near_sum, far, far_a, far_b, far_sum, scale, parts, messages,
    threshold, nears, fars, fars_per_split, splits,
    NODES_NEAR: tl.constexpr, F: tl.constexpr, W: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr, NEAR: tl.constexpr, FAR: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """DGamma far over a split of the far rows: the gradient of the near factor::

        dGamma = a_near a_far^T / r + b_near b_far^T + sum_near + sum_far, zero where Gamma is cut

    with a, b and sum being g, v and dr of the nodes, c, ds and dm of the pivots; ``scale`` is 1/r
    of the nodes, on whichever side these are. ``messages`` (or None) takes Gamma b_far, where one
    chunk holds F. Grid (near blocks, splits of the far rows * chunks of the width, batch): near
    [B, M, W], far [B, L, W], near_a, near_b [B, M, F], far_a, far_b [B, L, F], near_sum [B, M],
    far_sum [B, L] -> parts [S, B, M, W], messages [B, M, F].
    """
    EVEN_G: tl.constexpr = W % BLOCK_G == 0
    EVEN_F: tl.constexpr = F % BLOCK_F == 0
    start, batch = tl.program_id(0) * NEAR, tl.cast(tl.program_id(2), tl.int64)
    split, first = tl.program_id(1) % splits, tl.program_id(1) // splits * BLOCK_G
    near_left, row, far_start = nears - start, batch * nears + start, batch * fars
    near_rows = row_pointer(near, row, W)
    a_rows, b_rows = row_pointer(near_a, row, F), row_pointer(near_b, row, F)
    near_tile = load_tile(near_rows, near_left, first, W, W, EVEN_G, NEAR, BLOCK_G)
    a_tile = load_tile(a_rows, near_left, 0, F, F, EVEN_F, NEAR, BLOCK_F)
    b_tile = load_tile(b_rows, near_left, 0, F, F, EVEN_F, NEAR, BLOCK_F)
    near_term = load_numbers(near_sum + row, near_left, NEAR)
    if NODES_NEAR:
        inverse = load_numbers(scale + row, near_left, NEAR)[:, None]

    total = tl.full((NEAR, BLOCK_G), 0.0, tl.float32)
    passed = tl.full((NEAR, BLOCK_F), 0.0, tl.float32)
    zero = tl.full((NEAR, FAR), 0.0, tl.float32)
    begin = split * fars_per_split
    for there in tl.range(begin, tl.minimum(fars, begin + fars_per_split), FAR):
        left, far_row = fars - there, far_start + there
        far_rows = row_pointer(far, far_row, W)
        far_a_rows, far_b_rows = row_pointer(far_a, far_row, F), row_pointer(far_b, far_row, F)
        far_tile = load_tile(far_rows, left, first, W, W, EVEN_G, FAR, BLOCK_G)
        far_a_tile = load_tile(far_a_rows, left, 0, F, F, EVEN_F, FAR, BLOCK_F)
        far_b_tile = load_tile(far_b_rows, left, 0, F, F, EVEN_F, FAR, BLOCK_F)
        if not NODES_NEAR:
            inverse = load_numbers(scale + far_row, left, FAR)[None, :]
        d_gamma = product(zero, a_tile, far_a_tile, a_rows, far_a_rows, near_left, left,
                          F, BLOCK_F, PRECISION, NEAR, FAR)  # fmt: skip
        far_term = load_numbers(far_sum + far_row, left, FAR)
        d_gamma = d_gamma * inverse + (near_term[:, None] + far_term[None, :])
        d_gamma = product(d_gamma, b_tile, far_b_tile, b_rows, far_b_rows, near_left, left,
                          F, BLOCK_F, PRECISION, NEAR, FAR)  # fmt: skip
        gamma = product(zero, near_tile, far_tile, near_rows, far_rows, near_left, left,
                        W, BLOCK_W, PRECISION, NEAR, FAR)  # fmt: skip
        if CUT:  # kept entries are above 0
            gamma = tl.where(gamma > threshold, gamma, 0.0)
            d_gamma = tl.where(gamma > 0.0, d_gamma, 0.0)
        if messages is not None:
            passed = multiply(gamma.to(far_b_tile.dtype), far_b_tile, passed, PRECISION)
        total = multiply(d_gamma.to(far_tile.dtype), far_tile, total, PRECISION)

    if messages is not None:
        store_tile(row_pointer(messages, row, F), passed, near_left, 0, F, F, NEAR, BLOCK_F)
    row = (split * tl.num_programs(2) + batch) * nears + start
    store_tile(row_pointer(parts, row, W), total, near_left, first, W, W, NEAR, BLOCK_G)


@dataclass(frozen=True)
class Problem:
    """The sizes and settings of one call; tensors are [batch, rows, columns] and contiguous."""

    batch: int
    n: int
    p: int
    f: int
    w: int
    threshold: float | None
    dtype: torch.dtype
    precision: DotPrecision
    chip: tuple[int, int]
    """Multiprocessors, and bytes of shared memory that one program may use."""

    def launch(self, name: Pass, nodes_near: bool) -> tuple[int, int, int, dict[str, Any]]:
        """Blocks of near rows, splits of the far ones, rows in each, and the kernel's constants."""
        multiprocessors, shared_memory = self.chip
        tiles = TILES[name, self.precision if self.dtype == torch.float32 else "16-bit"]
        if shared_memory < HOPPER_SHARED_MEMORY:
            tiles = SMALL_TILES
        elif nodes_near and self.batch * self.n < 64 * multiprocessors:
            tiles = replace(tiles, near=FEW_ROWS)
        nears, fars = (self.n, self.p) if nodes_near else (self.p, self.n)
        wide = self.dtype != torch.float32 and name != "gradients"
        block_f, held = min(128 if wide else 64, self._padded(self.f)), tiles.block_w
        chunks, gradient = triton.cdiv(self.f, block_f), {}
        width = self._padded(self.w)
        if name == "gradients":
            block_g = tiles.block_g if self.w <= tiles.block_g else min(tiles.block_g, 128)
            held, gradient = min(held, block_g), {"BLOCK_G": min(block_g, width)}
            chunks = triton.cdiv(self.w, gradient["BLOCK_G"])
        near_blocks, far_blocks = triton.cdiv(nears, tiles.near), triton.cdiv(fars, tiles.far)
        splits = 1
        if not nodes_near:  # as many as keep the GPU busy
            slots = multiprocessors * tiles.per_sm
            splits = min(far_blocks, max(1, slots // (near_blocks * self.batch * chunks)))
        far_blocks_each = triton.cdiv(far_blocks, splits)
        constants = {
            "F": self.f, "W": self.w, "CUT": self.threshold is not None,
            "PRECISION": self.precision, "NEAR": tiles.near, "FAR": tiles.far, "BLOCK_F": block_f,
            "BLOCK_W": width if self.w <= held else min(STREAMED_WIDTH, width), **gradient,
            "num_warps": tiles.num_warps, "num_stages": tiles.num_stages,
        }  # fmt: skip
        splits = triton.cdiv(far_blocks, far_blocks_each)
        return near_blocks, splits, far_blocks_each * tiles.far, constants

    def _padded(self, width: int) -> int:
        """The power of two that a tile's ``width`` columns are padded to."""
        narrow = self.precision == "bf16x3" and self.w <= STREAMED_WIDTH
        return max(NARROWEST_SPLIT if narrow else 16, 1 << max(0, width - 1).bit_length())


def triton_fused(
    v: Tensor, q: Tensor, k: Tensor, threshold: float | None, precision: DotPrecision = "bf16x3"
) -> Tensor:
    """Eq. 11 by fused kernels, for similarities that are one inner product."""
    if v.dtype not in DTYPES:
        raise ValueError(f"backend 'triton' takes float32, bfloat16 or float16; got {v.dtype}")
    sizes = q.shape[:-2].numel(), q.shape[-2], k.shape[-2], v.shape[-1], q.shape[-1]
    threshold = None if threshold is None else float(threshold)
    precision = precision if v.dtype == torch.float32 else "tf32"  # 16 bits: as they are
    problem = Problem(*sizes, threshold, v.dtype, precision, chip_of(v.device))
    return cast(Tensor, _Fused.apply(v, q, k, problem))  # type: ignore[no-untyped-call]


@lru_cache
def chip_of(device: torch.device) -> tuple[int, int]:
    if device.type != "cuda":
        return 4, 2**20  # the interpreter
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = triton.runtime.driver.active.utils.get_device_properties(index)
    return properties["multiprocessor_count"], properties["max_shared_mem"]


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, q: Tensor, k: Tensor, problem: Problem) -> Tensor:
        ctx.problem, ctx.shapes = problem, (v.shape, q.shape, k.shape)
        out = torch.empty_like(v, memory_format=torch.contiguous_format)
        v, q, k = (t.reshape(problem.batch, *t.shape[-2:]).contiguous() for t in (v, q, k))
        with launching_on(v):
            c, m = to_pivots(problem, v, q, k, None, None)
            c = c.to(v.dtype)
            row_sum = to_nodes(problem, c, q, k, out, normalise=True)
        ctx.save_for_backward(v, q, k, c, m, out, row_sum)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        v, q, k, c, m, out, row_sum = ctx.saved_tensors
        problem: Problem = ctx.problem
        need_v, need_q, need_k, _ = ctx.needs_input_grad
        g = grad.reshape(v.shape).contiguous()
        scale = row_sum.clamp_min(EPS).reciprocal()
        dr = -(g.float() * out.view_as(g)).sum(-1) * scale * (row_sum >= EPS)
        dv = torch.empty_like(v) if need_v else None
        dq = dk = None
        with launching_on(v):
            ds, _ = to_pivots(problem, g, q, k, m, scale)
            dm = -(ds * c).sum(-1) * (m >= EPS)
            ds = ds.to(v.dtype)
            nodes, pivots = (q, g, v, dr), (k, c, ds, dm)
            if need_q:
                dq, served = gradients(problem, nodes, pivots, scale, True, dv)
            if dv is not None and not (need_q and served):
                to_nodes(problem, ds, q, k, dv, normalise=False)
            if need_k:
                dk, _ = gradients(problem, pivots, nodes, scale, False, None)
        found = zip((dv, dq, dk), ctx.shapes, strict=True)
        return *(d if d is None else d.view(shape) for d, shape in found), None


def to_pivots(
    problem: Problem, x: Tensor, q: Tensor, k: Tensor, m: Tensor | None, scale: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return Gamma^T x / m [B, P, F] and the column sums m [B, P]; given m, of (scale Gamma)^T."""
    name: Pass = "messages" if m is None else "grad_messages"
    blocks, splits, rows, constants = problem.launch(name, nodes_near=False)
    shape = splits, problem.batch, problem.p
    parts = x.new_empty(*shape, problem.f, dtype=torch.float32)
    sum_parts = parts.new_empty(shape) if m is None else None
    chunks = triton.cdiv(problem.f, constants["BLOCK_F"])
    messages_kernel[blocks, splits, problem.batch * chunks](
        k, q, x, scale, parts, sum_parts, problem.threshold or 0.0, problem.p, problem.n, rows,
        NORMALISE=False, **constants,
    )  # fmt: skip
    m = m if sum_parts is None else sum_parts.sum(0)
    assert m is not None
    return parts.sum(0) / m.clamp_min(EPS)[..., None], m


def to_nodes(
    problem: Problem, x: Tensor, q: Tensor, k: Tensor, out: Tensor, *, normalise: bool
) -> Tensor | None:
    """Write Gamma x to out [B, N, F]; ``normalise``: over the row sums [B, N], and return these."""
    blocks, _, rows, constants = problem.launch("messages", nodes_near=True)
    size = problem.batch, problem.n
    row_sum = x.new_empty(size, dtype=torch.float32) if normalise else None
    chunks = triton.cdiv(problem.f, constants["BLOCK_F"])
    messages_kernel[blocks, 1, problem.batch * chunks](
        q, k, x, None, out, row_sum, problem.threshold or 0.0, problem.n, problem.p, rows,
        NORMALISE=normalise, **constants,
    )  # fmt: skip
    return row_sum


Side = tuple[Tensor, Tensor, Tensor, Tensor]
"""Factor, a, b and sum of the nodes (q, g, v, dr) or of the pivots (k, c, ds, dm)."""


def gradients(
    problem: Problem, near: Side, far: Side, scale: Tensor, nodes_near: bool, dv: Tensor | None
) -> tuple[Tensor, bool]:
    """Return the gradient of the near factor, and whether dv was written on the way."""
    blocks, splits, rows, constants = problem.launch("gradients", nodes_near)
    chunks = triton.cdiv(problem.w, constants["BLOCK_G"])
    serves = dv is not None and chunks == 1 and problem.f <= constants["BLOCK_F"]
    factor = near[0]
    parts = torch.empty_like(factor)
    if splits > 1:
        parts = factor.new_empty(splits, *factor.shape, dtype=torch.float32)
    gradients_kernel[blocks, splits * chunks, problem.batch](
        *near, *far, scale, parts, dv if serves else None,
        problem.threshold or 0.0, factor.shape[1], far[0].shape[1], rows, splits,
        NODES_NEAR=nodes_near, **constants,
    )  # fmt: skip
    return (parts if splits == 1 else parts.sum(0).to(factor.dtype)), serves
