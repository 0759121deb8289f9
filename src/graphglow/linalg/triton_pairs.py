"""Kernels for :mod:`linalg.pairs`: rows are read once, sums stay in registers; no atomics.

No gradients are taken of evidence: there are none here.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphglow.linalg.pairs import SHORTEST

TILE = 1024
"""Numbers of a tile: pairs x columns, or pairs x neighbours."""
LONG = 1024
"""Of the shorter of two rows of neighbours; above, one program looks at one pair only."""


@triton.jit
def ends_of(u_ptr, v_ptr, count, BLOCK_M: tl.constexpr):
    """This program's places, whether they are there, and both nodes: [BM] each."""
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = m < count
    u = tl.load(u_ptr + m, mask=inside, other=0).to(tl.int64)
    return m, inside, u, tl.load(v_ptr + m, mask=inside, other=0).to(tl.int64)


@triton.jit
def rows_of(crow, u, v, there):
    """Of two nodes the shorter row and the longer: where each begins and ends in ``col``."""
    a, a_end = tl.load(crow + u, mask=there, other=0), tl.load(crow + u + 1, mask=there, other=0)
    b, b_end = tl.load(crow + v, mask=there, other=0), tl.load(crow + v + 1, mask=there, other=0)
    first = a_end - a <= b_end - b
    return (
        tl.where(first, a, b), tl.where(first, a_end, b_end),
        tl.where(first, b, a), tl.where(first, b_end, a_end), first,
    )  # fmt: skip


@triton.jit
def found(col, low, end, wanted, longest):
    """Whether each of ``wanted`` is in ``col[low:end]``, by bisection; none is longer than that."""
    low = low + tl.zeros_like(wanted)
    high = end + tl.zeros_like(wanted)
    while longest > 0:
        middle = low + ((high - low) >> 1)
        value = tl.load(col + middle, mask=low < high, other=0)
        below = (value < wanted) & (low < high)
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
        longest = longest >> 1
    inside = low < end
    return inside & (tl.load(col + low, mask=inside, other=-1) == wanted)


@triton.jit
def dots_kernel(
    rows, u_ptr, v_ptr, out, count, columns, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    m, inside, u, v = ends_of(u_ptr, v_ptr, count, BLOCK_M)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in tl.range(0, columns, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        mask = inside[:, None] & (d < columns)[None, :]
        a = tl.load(rows + u[:, None] * columns + d[None, :], mask=mask, other=0.0)
        b = tl.load(rows + v[:, None] * columns + d[None, :], mask=mask, other=0.0)
        total += tl.sum(a * b, 1)
    tl.store(out + m, total, mask=inside)


@triton.jit
def is_edge_kernel(crow, col, u_ptr, v_ptr, out, count, BLOCK_M: tl.constexpr):
    m, inside, u, v = ends_of(u_ptr, v_ptr, count, BLOCK_M)
    low, end, _, _, first = rows_of(crow, u, v, inside)
    hit = found(col, low, end, tl.where(first, v, u), tl.max(end - low, 0))
    tl.store(out + m, hit, mask=inside)


@triton.jit
def common_kernel(
    crow, col, worth, u_ptr, v_ptr, out, count, most,
    K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Each of the shorter row looked up in the longer; nothing where it has more than ``most``."""
    m, inside, u, v = ends_of(u_ptr, v_ptr, count, BLOCK_M)
    here, here_end, there, there_end, _ = rows_of(crow, u, v, inside)
    here_end = tl.where(here_end - here <= most, here_end, here)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    longest = tl.max(there_end - there, 0)
    for start in tl.range(0, tl.max(here_end - here, 0), BLOCK_E):
        entry = (here + start)[:, None] + tl.arange(0, BLOCK_E)[None, :]
        mask = entry < here_end[:, None]
        neighbour = tl.load(col + entry, mask=mask, other=-1)
        hit = mask & found(col, there[:, None], there_end[:, None], neighbour, longest)
        place = neighbour.to(tl.int64)[:, :, None] * K + k[None, None, :]
        wanted = hit[:, :, None] & (k < K)[None, None, :]
        total += tl.sum(tl.load(worth + place, mask=wanted, other=0.0), 1)
    at = m[:, None] * K + k[None, :]
    tl.store(out + at, total, mask=inside[:, None] & (k < K)[None, :])


@triton.jit
def between_kernel(
    crow, col, chosen, u_ptr, v_ptr, total_ptr, out, count,
    C: tl.constexpr, SIDE: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """All of one end's C + 1 with all of the other's, SIDE x SIDE of them, as one row each.

    The last counts only where one before it is the other end.
    """
    m, inside, u, v = ends_of(u_ptr, v_ptr, count, BLOCK_M)
    u, v, inside = u[:, None], v[:, None], inside[:, None]
    i = (tl.arange(0, SIDE * SIDE) // SIDE)[None, :]
    j = (tl.arange(0, SIDE * SIDE) % SIDE)[None, :]
    a = tl.load(chosen + u * (C + 1) + i, mask=inside & (i <= C), other=-1)
    b = tl.load(chosen + v * (C + 1) + j, mask=inside & (j <= C), other=-1)
    a_last = C + tl.max(((a == v) & (i < C)).to(tl.int32), 1)[:, None]
    b_last = C + tl.max(((b == u) & (j < C)).to(tl.int32), 1)[:, None]
    usable = (a >= 0) & (b >= 0) & (a != v) & (b != u) & (a != b) & (i < a_last) & (j < b_last)
    low, end, other, other_end, first = rows_of(crow, a, b, usable)
    longest = tl.max(tl.max(end - low, 1), 0)
    hit = usable & found(col, low, end, tl.where(first, b, a), longest)
    total = tl.load(total_ptr + m, mask=m < count, other=1.0)[:, None]
    likely = (end - low).to(tl.float32) * (other_end - other).to(tl.float32) / total
    likely = tl.where(usable, tl.minimum(likely, 1.0), 0.0)
    tl.store(out + 2 * m, tl.sum(hit.to(tl.float32), 1), mask=m < count)
    tl.store(out + 2 * m + 1, tl.sum(likely, 1), mask=m < count)


@triton.jit
def added(product, a_length, b_length, a, b):
    """More columns of a product and of two squared lengths."""
    return product + tl.sum(a * b, 1), a_length + tl.sum(a * a, 1), b_length + tl.sum(b * b, 1)


@triton.jit
def cosine(product, a, b, shortest):
    """From a product and two squared lengths."""
    return product / (tl.maximum(tl.sqrt(a), shortest) * tl.maximum(tl.sqrt(b), shortest))


@triton.jit
def hop_cosines_kernel(
    x, ax, around, degree, u_ptr, v_ptr, edge, out, count, columns, shortest,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    m, inside, u, v = ends_of(u_ptr, v_ptr, count, BLOCK_M)
    e = tl.load(edge + m, mask=inside, other=0.0)[:, None]
    u_count = tl.load(degree + u, mask=inside, other=0.0)[:, None] + 1
    v_count = tl.load(degree + v, mask=inside, other=0.0)[:, None] + 1
    zero = tl.zeros([BLOCK_M], tl.float32)
    xx, xx_u, xx_v = zero, zero, zero
    uv, vu, ss_u, ss_v = zero, zero, zero, zero
    mm, mm_u, mm_v = zero, zero, zero
    tt, tt_u, tt_v = zero, zero, zero
    for start in tl.range(0, columns, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        mask = inside[:, None] & (d < columns)[None, :]
        at_u, at_v = u[:, None] * columns + d[None, :], v[:, None] * columns + d[None, :]
        x_u, x_v = tl.load(x + at_u, mask=mask, other=0.0), tl.load(x + at_v, mask=mask, other=0.0)
        s_u = tl.load(ax + at_u, mask=mask, other=0.0)
        s_v = tl.load(ax + at_v, mask=mask, other=0.0)
        before_u, before_v = tl.div_rn(x_u + s_u, u_count), tl.div_rn(x_v + s_v, v_count)
        s_u, s_v = s_u - e * x_v, s_v - e * x_u
        m_u, m_v = tl.div_rn(x_u + s_u, u_count - e), tl.div_rn(x_v + s_v, v_count - e)
        t_u = tl.load(around + at_u, mask=mask, other=0.0) - e * before_v - before_u + m_u
        t_v = tl.load(around + at_v, mask=mask, other=0.0) - e * before_u - before_v + m_v
        xx, xx_u, xx_v = added(xx, xx_u, xx_v, x_u, x_v)
        uv, _, ss_v = added(uv, zero, ss_v, x_u, s_v)
        vu, _, ss_u = added(vu, zero, ss_u, x_v, s_u)
        mm, mm_u, mm_v = added(mm, mm_u, mm_v, m_u, m_v)
        tt, tt_u, tt_v = added(tt, tt_u, tt_v, t_u, t_v)
    one, other = cosine(uv, xx_u, ss_v, shortest), cosine(vu, xx_v, ss_u, shortest)
    out += 5 * m
    tl.store(out, xx, mask=inside)
    tl.store(out + 1, tl.minimum(one, other), mask=inside)
    tl.store(out + 2, tl.maximum(one, other), mask=inside)
    tl.store(out + 3, cosine(mm, mm_u, mm_v, shortest), mask=inside)
    tl.store(out + 4, cosine(tt, tt_u, tt_v, shortest), mask=inside)


def dots(rows: Tensor, pairs: Tensor) -> Tensor:
    u, v = _ends(pairs)
    out = rows.new_empty(len(u))
    block_m, block_d = _blocks(rows.shape[1])
    dots_kernel[(triton.cdiv(len(u), block_m),)](
        rows.contiguous(), u, v, out, len(u), rows.shape[1], BLOCK_M=block_m, BLOCK_D=block_d
    )
    return out


def is_edge(crow: Tensor, col: Tensor, pairs: Tensor) -> Tensor:
    u, v = _ends(pairs)
    out = torch.empty(len(u), dtype=torch.bool, device=u.device)
    grid = (triton.cdiv(len(u), TILE // 4),)
    is_edge_kernel[grid](crow, col, u, v, out, len(u), BLOCK_M=TILE // 4)
    return out


def common(crow: Tensor, col: Tensor, worth: Tensor, pairs: Tensor) -> Tensor:
    made = _common(crow, col, worth, pairs, LONG, 16)
    heavy = ((crow[pairs + 1] - crow[pairs]).amin(0) > LONG).nonzero()[:, 0]
    if len(heavy):
        made[heavy] = _common(crow, col, worth, pairs[:, heavy], len(col), 1)
    return made


def _common(
    crow: Tensor, col: Tensor, worth: Tensor, pairs: Tensor, most: int, block_m: int
) -> Tensor:
    u, v = _ends(pairs)
    width = worth.shape[1]
    out = worth.new_empty(len(u), width)
    common_kernel[(triton.cdiv(len(u), block_m),)](
        crow, col, worth.contiguous(), u, v, out, len(u), most,
        K=width, BLOCK_K=triton.next_power_of_2(width), BLOCK_M=block_m,
        BLOCK_E=16 if block_m > 1 else TILE,
    )  # fmt: skip
    return out


def between(crow: Tensor, col: Tensor, chosen: Tensor, pairs: Tensor, total: Tensor) -> Tensor:
    u, v = _ends(pairs)
    out = total.new_empty(len(u), 2)
    side = triton.next_power_of_2(chosen.shape[1])
    block_m = max(1, TILE // side**2)
    between_kernel[(triton.cdiv(len(u), block_m),)](
        crow, col, chosen, u, v, total.contiguous(), out, len(u),
        C=chosen.shape[1] - 1, SIDE=side, BLOCK_M=block_m,
    )  # fmt: skip
    return out


def hop_cosines(
    x: Tensor, ax: Tensor, around: Tensor, degree: Tensor, pairs: Tensor, edge: Tensor
) -> Tensor:
    u, v = _ends(pairs)
    out = x.new_empty(len(u), 5)
    block_m, block_d = _blocks(x.shape[1])
    hop_cosines_kernel[(triton.cdiv(len(u), block_m),)](
        x.contiguous(), ax.contiguous(), around.contiguous(), degree, u, v, edge, out,
        len(u), x.shape[1], SHORTEST, BLOCK_M=block_m, BLOCK_D=block_d,
    )  # fmt: skip
    return out


def _ends(pairs: Tensor) -> tuple[Tensor, Tensor]:
    return pairs[0].contiguous(), pairs[1].contiguous()


def _blocks(columns: int) -> tuple[int, int]:
    """Pairs and columns of a tile; two widths, since a kernel is compiled for each."""
    block_d = 16 if columns <= 16 else 64
    return TILE // block_d, block_d
