"""A constant sparse matrix that is fast to multiply with, forwards and backwards."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import scipy.sparse as sp
import torch
from torch import Tensor

WIDE = 64
"""Columns from which on PyTorch's own product is ahead of the library's on a CPU."""


@dataclass(frozen=True, eq=False)  # tensors have no single truth value to compare by
class SparseMatrix:
    """A sparse ``[N, M]`` matrix in CSR, kept beside its transpose.

    The gradient of ``S @ v`` is ``S^T @ g``. PyTorch would build the transpose anew in every
    backward pass; here both are laid out once, and ``order`` maps the stored values to those of the
    transpose, so that values can change (dropout) while the pattern stays. A symmetric matrix is
    its own transpose: nothing is stored twice and ``order`` is None. A batch of B runs shares the
    pattern; the values may differ between them.

    Shapes:
        crow [N+1], col [E], values [E] or [B, E]; crow_t [M+1], col_t [E], order [E] or None
    """

    crow: Tensor
    col: Tensor
    values: Tensor
    crow_t: Tensor
    col_t: Tensor
    order: Tensor | None
    shape: tuple[int, int]
    dense: Tensor | None = None
    """The same as a dense matrix, where that multiplies faster (:meth:`with_dense`)."""

    @classmethod
    def symmetric(cls, crow: Tensor, col: Tensor, values: Tensor, num_nodes: int) -> "SparseMatrix":
        """A symmetric ``[num_nodes, num_nodes]`` matrix from its CSR parts, columns sorted."""
        crow, col = crow.int(), col.int()
        return cls(crow, col, values, crow, col, None, (num_nodes, num_nodes))

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "SparseMatrix":
        crow, col = self.crow.to(device), self.col.to(device)
        values = self.values.to(device, dtype or self.values.dtype)
        if self.order is None:
            return SparseMatrix(crow, col, values, crow, col, None, self.shape)
        crow_t, col_t, order = (t.to(device) for t in (self.crow_t, self.col_t, self.order))
        return SparseMatrix(crow, col, values, crow_t, col_t, order, self.shape)

    def with_values(self, values: Tensor) -> "SparseMatrix":
        """The same pattern with other values: [E], or [B, E] for a batch of matrices."""
        return replace(self, values=values, dense=None)

    def with_dense(self) -> "SparseMatrix":
        """The same, kept as a dense matrix besides, which products then use."""
        return replace(self, dense=self.to_dense())

    def __matmul__(self, dense: Tensor) -> Tensor:
        """``S @ dense``: [.., M, F] -> [.., N, F]; differentiable in ``dense`` only."""
        if self.dense is not None:
            return self.dense @ dense
        return cast(Tensor, _Matmul.apply(self, dense))  # type: ignore[no-untyped-call]

    @cached_property
    def keys(self) -> Tensor:
        """``row * M + col`` of each entry, sorted where columns are: [E]."""
        row = torch.arange(self.shape[0], device=self.crow.device)
        row = row.repeat_interleave(self.crow.diff().long(), output_size=self.col.numel())
        return row * self.shape[1] + self.col

    @property
    def density(self) -> float:
        return self.col.numel() / max(1, self.shape[0] * self.shape[1])

    def to_dense(self) -> Tensor:
        """For small matrices and tests."""
        return csr_tensor(self.crow, self.col, self.values, self.shape).to_dense()

    def to_scipy(self) -> sp.csr_array:
        """A copy for SciPy."""
        parts = (part.cpu().numpy() for part in (self.values, self.col, self.crow))
        return sp.csr_array(tuple(parts), shape=self.shape, copy=True)


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _product(matrix.crow, matrix.col, matrix.values, matrix.shape, dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        m: SparseMatrix = ctx.matrix
        values = m.values if m.order is None else m.values.index_select(-1, m.order)
        return None, _product(m.crow_t, m.col_t, values, (m.shape[1], m.shape[0]), grads[0])


def _product(
    crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], dense: Tensor
) -> Tensor:
    """[.., M, F] -> [.., N, F]; a batch may share the values [E] or have its own [B, E]."""
    assert values.ndim == 1 or dense.ndim == 3  # a batch of matrices meets a batch of vectors
    if values.ndim > 1:
        runs = zip(values, dense, strict=True)
        return torch.stack([csr_tensor(crow, col, own, shape) @ part for own, part in runs])
    if dense.ndim == 2:
        matrix = csr_tensor(crow, col, values, shape)
        if dense.is_cuda or dense.shape[1] < WIDE:
            return matrix @ dense
        wide: Tensor = torch.sparse.mm(matrix, dense, "sum")
        return wide
    beside = dense.movedim(-2, 0)  # [M, .., F]: one product for the batch, its runs side by side
    product = csr_tensor(crow, col, values, shape) @ beside.flatten(1)
    return product.view(-1, *beside.shape[1:]).movedim(0, -2)


def csr_tensor(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """PyTorch's own form of a sparse matrix: [N, M]."""
    with warnings.catch_warnings():  # "CSR support is in beta state", once per process
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)
