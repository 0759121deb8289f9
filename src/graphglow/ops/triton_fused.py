"""Eq. 11 fused for the GPU: the numbers of ``chunked``, with no tile of Gamma outside the chip.

The forward pass makes three launches (``to_pivots``, its finish, ``to_nodes``), the backward pass
five, or six where dv needs a pass of its own; ``chunked.py`` derives the gradient,
``triton_kernels.py`` holds the kernels. Kept for the backward pass: the inputs, the output,
c [P, F] and the sums of the rows and columns.

Products of float32 inputs are made as ``precision`` says; bfloat16 and float16 inputs are
multiplied as they are. All sums are float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from graphglow.ops.similarity import Kernel
from graphglow.ops.triton_kernels import (
    finish_pivots_kernel,
    grad_k_kernel,
    grad_q_kernel,
    sum_splits_kernel,
    to_nodes_kernel,
    to_pivots_kernel,
)

DotPrecision = Literal["ieee", "tf32", "tf32x3", "bf16x3"]
Pass = Literal["to_pivots", "to_nodes", "grad_to_pivots", "grad_q", "grad_k"]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

SUMMED_AT_ONCE = 4096
"""Partial sums that one program of the small summing kernels reads at a time."""
OUTSIDE_LOOP = 2
"""What a program costs before and after its loop, in turns of the loop."""
STREAMED_WIDTH = 64
"""Columns of q and k read at a time where a tile does not hold the whole width."""

NARROWEST_SPLIT = 64
"""Least width of a tile of bf16x3 products where a head is at most 64 wide: Triton 3.6 compiles
narrower ones to code that gives wrong numbers on an H200 (NaN, or reads out of bounds)."""


@dataclass(frozen=True)
class Chip:
    """What the tiles are fitted to."""

    multiprocessors: int
    shared_memory: int
    """Bytes that one program may use."""


INTERPRETER = Chip(multiprocessors=4, shared_memory=2**20)


@dataclass(frozen=True)
class Tiles:
    """How one pass is cut into programs."""

    block_n: int
    """Nodes per tile."""
    block_p: int
    """Pivots per tile."""
    num_warps: int
    num_stages: int
    """Tiles of the streamed side in flight."""
    block_w: int = 256
    """Factors up to this wide are held whole; wider ones are multiplied 64 columns at a time."""
    block_g: int = 256
    """Columns of dq or dk that one program makes."""
    per_sm: int = 1
    """Programs that fit on one multiprocessor: decides how many splits fill the GPU."""


HALF_TILES: dict[Pass, Tiles] = {
    "to_pivots": Tiles(64, 128, 8, 3),
    "to_nodes": Tiles(128, 64, 8, 3),
    "grad_to_pivots": Tiles(64, 64, 4, 2, per_sm=2),
    "grad_q": Tiles(128, 32, 8, 3),
    "grad_k": Tiles(32, 128, 8, 3),
}
TF32_TILES: dict[Pass, Tiles] = {
    "to_pivots": Tiles(64, 64, 4, 2),
    "to_nodes": Tiles(64, 64, 4, 2),
    "grad_to_pivots": Tiles(32, 64, 4, 2),
    "grad_q": Tiles(64, 32, 8, 2, block_w=64),
    "grad_k": Tiles(32, 64, 8, 2),
}
FLOAT32_TILES: dict[Pass, Tiles] = {
    "to_pivots": Tiles(64, 128, 8, 3, block_w=64),
    "to_nodes": Tiles(128, 64, 8, 3, block_w=64),
    "grad_to_pivots": Tiles(64, 128, 8, 3, block_w=64),
    "grad_q": Tiles(128, 64, 8, 2, block_w=64, block_g=128),
    "grad_k": Tiles(64, 128, 8, 2, block_w=64, block_g=128),
}
FEW_NODES_TILES: dict[tuple[Pass, bool], Tiles] = {  # (pass, 16-bit inputs)
    ("to_nodes", True): Tiles(32, 64, 4, 3),
    ("grad_q", True): Tiles(32, 64, 8, 2),
    ("to_nodes", False): Tiles(32, 64, 8, 2, block_w=64),
    ("grad_q", False): Tiles(32, 32, 8, 2, block_w=64),
}
"""For the passes with one program per block of nodes, where wide blocks leave the GPU idle."""
SMALL_TILES = Tiles(32, 32, 4, 2, block_w=64, block_g=128)
"""For chips with less shared memory than Hopper, whatever the pass."""
HOPPER_SHARED_MEMORY = 227 * 1024


def choose_tiles(
    name: Pass, dtype: torch.dtype, precision: DotPrecision, nodes: int, chip: Chip
) -> Tiles:
    """The tiles of a pass over ``nodes`` (all batch entries), chosen for the H200."""
    if chip.shared_memory < HOPPER_SHARED_MEMORY:
        return SMALL_TILES
    half = dtype != torch.float32
    if nodes < 64 * chip.multiprocessors and (name, half) in FEW_NODES_TILES:
        return FEW_NODES_TILES[name, half]
    if half:
        return HALF_TILES[name]
    return TF32_TILES[name] if precision == "tf32" else FLOAT32_TILES[name]


@dataclass(frozen=True)
class Problem:
    """The sizes and settings of one call; tensors are [batch, rows, columns] and contiguous."""

    batch: int
    n: int
    p: int
    f: int
    head_width: int
    heads: int
    kernel: Kernel
    threshold: float | None
    dtype: torch.dtype
    precision: DotPrecision
    chip: Chip
    tiles: Mapping[Pass, Tiles]

    def tiles_of(self, name: Pass) -> Tiles:
        given = self.tiles.get(name)
        nodes = self.batch * self.n
        return given or choose_tiles(name, self.dtype, self.precision, nodes, self.chip)

    @property
    def cut(self) -> float:
        return 0.0 if self.threshold is None else self.threshold

    def block_w(self, name: Pass) -> int:
        """Columns of q and k multiplied at a time: all of them, or a chunk of a head."""
        limit = self.tiles_of(name).block_w
        if name in ("grad_q", "grad_k"):
            limit = min(limit, self.block_g(name))
        held = self.heads == 1 and self.head_width <= limit
        padded = self._padded(self.head_width)
        return padded if held else min(STREAMED_WIDTH, padded)

    def block_g(self, name: Pass) -> int:
        """Columns of dq or dk that one program makes."""
        limit = self.tiles_of(name).block_g
        limit = limit if self.head_width <= limit else min(limit, 128)
        return min(limit, self._padded(self.head_width))

    def block_f(self, name: Pass) -> int:
        """Features multiplied at a time."""
        many = self.dtype != torch.float32 and name not in ("grad_q", "grad_k")
        return min(128 if many else 64, self._padded(self.f))

    def _padded(self, width: int) -> int:
        """The power of two that a tile's ``width`` columns are padded to."""
        narrow = self.precision == "bf16x3" and self.head_width <= STREAMED_WIDTH
        return max(NARROWEST_SPLIT if narrow else 16, _next_power_of_2(width))

    def feature_chunks(self, name: Pass) -> int:
        return _cdiv(self.f, self.block_f(name))

    def width_chunks(self, name: Pass) -> int:
        """Programs that share the columns of dq or dk, each with a Gamma of its own."""
        return self.heads * _cdiv(self.head_width, self.block_g(name))

    def splits(self, name: Pass) -> tuple[int, int]:
        """Into how many parts a pass over pivots splits the nodes, and the nodes in each."""
        tiles = self.tiles_of(name)
        chunks = self.width_chunks(name) if name == "grad_k" else self.feature_chunks(name)
        programs = _cdiv(self.p, tiles.block_p) * self.batch * chunks
        blocks = _cdiv(self.n, tiles.block_n)
        splits = count_splits(blocks, programs, self.chip.multiprocessors * tiles.per_sm)
        return splits, _cdiv(blocks, splits) * tiles.block_n

    def constants(self, name: Pass) -> dict[str, Any]:
        """What the kernels of this pass are compiled for."""
        tiles = self.tiles_of(name)
        gradient = {"BLOCK_G": self.block_g(name)} if name in ("grad_q", "grad_k") else {}
        return {
            "F": self.f,
            "KERNEL": self.kernel,
            "HEADS": self.heads,
            "HEAD_WIDTH": self.head_width,
            "CUT": self.threshold is not None,
            "PRECISION": self.precision,
            "BLOCK_N": tiles.block_n,
            "BLOCK_P": tiles.block_p,
            "BLOCK_W": self.block_w(name),
            "BLOCK_F": self.block_f(name),
            "num_warps": tiles.num_warps,
            "num_stages": tiles.num_stages,
            **gradient,
        }


def _next_power_of_2(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _cdiv(number: int, by: int) -> int:
    return -(-number // by)


@lru_cache(maxsize=4096)
def count_splits(blocks: int, programs: int, slots: int) -> int:
    """The fewest parts to split ``blocks`` into that keep ``slots`` busy, to 5 % of the best.

    ``programs`` each have this many blocks to go through, and ``slots`` of them run at a time. In s
    parts that is ceil(programs s / slots) rounds of ceil(blocks / s) blocks and what a program does
    before and after its loop.
    """
    candidates = range(1, min(max(1, blocks), 1 + 4 * slots // programs) + 1)
    time = [_cdiv(programs * s, slots) * (_cdiv(blocks, s) + OUTSIDE_LOOP) for s in candidates]
    best = min(time)
    return next(s for s, this in zip(candidates, time, strict=True) if this <= 1.05 * best)


def triton_fused(
    v: Tensor,
    q: Tensor,
    k: Tensor,
    threshold: float | None,
    kernel: Kernel,
    heads: int,
    precision: DotPrecision = "tf32x3",
    tiles: Mapping[Pass, Tiles] | None = None,
) -> Tensor:
    """Eq. 11 by fused kernels; ``tiles`` replaces the tiles of the passes it names."""
    if v.dtype not in DTYPES:
        raise ValueError(f"backend 'triton' takes float32, bfloat16 or float16; got {v.dtype}")
    heads = 1 if kernel == "identity" else heads
    problem = Problem(
        batch=q.shape[:-2].numel(),
        n=q.shape[-2],
        p=k.shape[-2],
        f=v.shape[-1],
        head_width=q.shape[-1] // heads,
        heads=heads,
        kernel=kernel,
        threshold=None if threshold is None else float(threshold),
        dtype=v.dtype,
        precision=_product_of(v, precision),
        chip=_chip(v.device),
        tiles=tiles or {},
    )
    out: Tensor = _Fused.apply(v, q, k, problem)  # type: ignore[no-untyped-call]
    return out


@lru_cache
def _chip(device: torch.device) -> Chip:
    if device.type != "cuda":
        return INTERPRETER
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = triton.runtime.driver.active.utils.get_device_properties(index)
    return Chip(properties["multiprocessor_count"], properties["max_shared_mem"])


def _product_of(v: Tensor, precision: DotPrecision) -> DotPrecision:
    """How tiles are multiplied: 16-bit ones as they are; the interpreter has no tf32."""
    if v.dtype != torch.float32:
        return "ieee"
    return precision if v.is_cuda or precision == "bf16x3" else "ieee"


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, q: Tensor, k: Tensor, problem: Problem) -> Tensor:
        flat = [t.reshape(problem.batch, *t.shape[-2:]).contiguous() for t in (v, q, k)]
        with torch.cuda.device_of(v):  # type: ignore[no-untyped-call]
            c, m = to_pivots(problem, *flat)
            out, row_sum = to_nodes(problem, c, *flat[1:], shape=v.shape)
        ctx.save_for_backward(*flat, c, m, out, row_sum)
        ctx.problem, ctx.shapes = problem, (v.shape, q.shape, k.shape)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        v, q, k, c, m, out, row_sum = ctx.saved_tensors
        problem: Problem = ctx.problem
        need_v, need_q, need_k, _ = ctx.needs_input_grad
        g = grad.reshape(v.shape).contiguous()
        dv = dq = dk = None
        with torch.cuda.device_of(v):  # type: ignore[no-untyped-call]
            ds, dm = grad_to_pivots(problem, g, q, k, c, m, row_sum)
            if need_q or need_k:
                dq, dv, dr = grad_q(problem, v, q, k, g, out, row_sum, c, ds, dm, need_v=need_v)
            if need_v and dv is None:
                dv, _ = to_nodes(problem, ds, q, k, normalise=False)
            if need_k:
                dk = grad_k(problem, v, q, k, g, row_sum, dr, c, ds, dm)
        needed = (dv, need_v), (dq, need_q), (dk, need_k)
        return *(
            d.view(shape) if need and d is not None else None
            for (d, need), shape in zip(needed, ctx.shapes, strict=True)
        ), None


def to_pivots(problem: Problem, v: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return c [B, P, F] = Gamma^T v / m and the column sums m [B, P]."""
    partial, partial_sum = _gather("to_pivots", problem, v, q, k, None)
    c = torch.empty(problem.batch, problem.p, problem.f, dtype=v.dtype, device=v.device)
    m = torch.empty(problem.batch, problem.p, dtype=torch.float32, device=v.device)
    _finish_pivots(problem, partial, partial_sum, c, m, None, None)
    return c, m


def grad_to_pivots(
    problem: Problem, g: Tensor, q: Tensor, k: Tensor, c: Tensor, m: Tensor, row_sum: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ds [B, P, F] = (Gamma / r)^T g / m and dm [B, P]."""
    partial, _ = _gather("grad_to_pivots", problem, g, q, k, row_sum)
    ds, dm = torch.empty_like(c), torch.empty_like(m)
    _finish_pivots(problem, partial, None, c, m, ds, dm)
    return ds, dm


def _gather(
    name: Pass, problem: Problem, x: Tensor, q: Tensor, k: Tensor, row_sum: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Gamma^T x in splits: [S, B, P, F], and without ``row_sum`` the column sums [S, B, P]."""
    splits, rows_per_split = problem.splits(name)
    shape = (splits, problem.batch, problem.p)
    partial = torch.empty(*shape, problem.f, dtype=torch.float32, device=x.device)
    backward = row_sum is not None
    partial_sum = None if backward else torch.empty(shape, dtype=torch.float32, device=x.device)
    constants = problem.constants(name)
    pivot_blocks = _cdiv(problem.p, constants["BLOCK_P"])
    to_pivots_kernel[pivot_blocks, splits, problem.batch * problem.feature_chunks(name)](
        q, k, x, row_sum, partial, partial_sum, problem.cut, problem.n, problem.p, rows_per_split,
        BACKWARD=backward, **constants,
    )  # fmt: skip
    return partial, partial_sum


def _finish_pivots(
    problem: Problem,
    partial: Tensor,
    partial_sum: Tensor | None,
    c: Tensor,
    m: Tensor,
    ds: Tensor | None,
    dm: Tensor | None,
) -> None:
    """Sum the splits into c and m, or into ds and dm where these are given."""
    splits, rows = partial.shape[0], problem.batch * problem.p
    block_s = min(16, _next_power_of_2(splits))
    block_r = max(1, SUMMED_AT_ONCE // (block_s * problem.block_f("to_pivots")))
    finish_pivots_kernel[(_cdiv(rows, block_r),)](
        partial, partial_sum, c, m, ds, dm, rows, splits, BACKWARD=ds is not None,
        F=problem.f, BLOCK_S=block_s, BLOCK_R=block_r, BLOCK_F=problem.block_f("to_pivots"),
    )  # fmt: skip


def to_nodes(
    problem: Problem,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    *,
    shape: tuple[int, ...] | None = None,
    normalise: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Gamma x [B, N, F], if ``normalise`` over the row sums [B, N], which are returned too.

    Given ``shape``, the first has it; a view made of it afterwards could not be changed in place.
    """
    constants = problem.constants("to_nodes")
    shape = shape or (problem.batch, problem.n, problem.f)
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    row_sum = None
    if normalise:
        row_sum = torch.empty(problem.batch, problem.n, dtype=torch.float32, device=x.device)
    blocks = _cdiv(problem.n, constants["BLOCK_N"])
    to_nodes_kernel[blocks, problem.batch * problem.feature_chunks("to_nodes")](
        q, k, x, out, row_sum, problem.cut, problem.n, problem.p, NORMALISE=normalise, **constants
    )
    return out, row_sum


def grad_q(
    problem: Problem,
    v: Tensor,
    q: Tensor,
    k: Tensor,
    g: Tensor,
    out: Tensor,
    row_sum: Tensor,
    c: Tensor,
    ds: Tensor,
    dm: Tensor,
    *,
    need_v: bool,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return dq [B, N, W], dv [B, N, F] if needed and if it comes for free, and dr [B, N]."""
    constants = problem.constants("grad_q")
    chunks = problem.width_chunks("grad_q")
    need_v = need_v and chunks == 1 and problem.feature_chunks("grad_q") == 1
    dq, dr = torch.empty_like(q), torch.empty_like(row_sum)
    dv = torch.empty_like(v) if need_v else None
    blocks = _cdiv(problem.n, constants["BLOCK_N"])
    grad_q_kernel[blocks, chunks, problem.batch](
        q, k, v, g, out, row_sum, c, ds, dm, dq, dv, dr, problem.cut, problem.n, problem.p,
        NEED_V=need_v, **constants,
    )  # fmt: skip
    return dq, dv, dr


def grad_k(
    problem: Problem,
    v: Tensor,
    q: Tensor,
    k: Tensor,
    g: Tensor,
    row_sum: Tensor,
    dr: Tensor,
    c: Tensor,
    ds: Tensor,
    dm: Tensor,
) -> Tensor:
    """Return dk [B, P, W]."""
    constants = problem.constants("grad_k")
    splits, rows_per_split = problem.splits("grad_k")
    partial = torch.empty(splits, *k.shape, dtype=torch.float32, device=k.device)
    pivot_blocks = _cdiv(problem.p, constants["BLOCK_P"])
    grad_k_kernel[pivot_blocks, splits * problem.width_chunks("grad_k"), problem.batch](
        q, k, v, g, row_sum, dr, c, ds, dm, partial, problem.cut, problem.n, problem.p,
        rows_per_split, splits, **constants,
    )  # fmt: skip
    dk = torch.empty_like(k)
    block_s = min(16, _next_power_of_2(splits))
    block_e = SUMMED_AT_ONCE // block_s
    sum_splits_kernel[(_cdiv(k.numel(), block_e),)](
        partial, dk, k.numel(), splits, BLOCK_S=block_s, BLOCK_E=block_e
    )
    return dk
