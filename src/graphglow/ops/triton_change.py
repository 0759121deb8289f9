"""The sums of :mod:`graphglow.ops.change` in one pass over the embeddings."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def change_kernel(z, z_next, parts, entries, BLOCK: tl.constexpr):
    """Grid (blocks, batch). Shapes: z, z_next [B, entries] -> parts [B, blocks, 2]."""
    block, batch = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    at = block * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(z + batch * entries + at, mask=at < entries, other=0.0)
    after = tl.load(z_next + batch * entries + at, mask=at < entries, other=0.0)
    step = after - before
    place = parts + (batch * tl.num_programs(0) + block) * 2
    tl.store(place, tl.sum(step * step, 0))
    tl.store(place + 1, tl.sum(before * before, 0))


def partial_changes(z: Tensor, z_next: Tensor) -> Tensor:
    """Parts of |z_next - z|^2 and of |z|^2: [.., blocks, 2]."""
    z, z_next = z.contiguous(), z_next.contiguous()
    entries = z.shape[-2:].numel()
    blocks = triton.cdiv(entries, BLOCK)
    parts = z.new_empty(*z.shape[:-2], blocks, 2)
    change_kernel[blocks, z.shape[:-2].numel()](z, z_next, parts, entries, BLOCK=BLOCK, num_warps=8)
    return parts
