"""A sparse matrix times a dense one on a GPU: one launch, for a whole batch.

The library's product takes three launches and no batch. Here a program makes one row of the result
for one run: it goes through the row's entries a block at a time and gathers the rows of the dense
matrix that they name.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def spmm_kernel(
    crow, col, values, dense, out, rows, dense_rows, value_stride,
    F: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Grid (rows, feature chunks, batch). Shapes: dense [B, M, F] -> out [B, N, F]."""
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
    """S dense: values [E] or [B, E], dense [.., M, F] -> [.., N, F]."""
    dense, values = dense.contiguous(), values.contiguous()
    rows, features = shape[0], dense.shape[-1]
    out = torch.empty(*dense.shape[:-2], rows, features, dtype=dense.dtype, device=dense.device)
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
