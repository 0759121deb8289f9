"""A constant sparse matrix that is fast to multiply with, forwards and backwards."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)  # tensors have no single truth value to compare by
class SparseMatrix:
    """A sparse ``[N, M]`` matrix in CSR, kept beside its transpose.

    The gradient of ``S @ v`` is ``S^T @ g``. PyTorch would build the transpose anew in every
    backward pass; here both are laid out once, and ``order`` maps the stored values to those of the
    transpose, so that values can change (dropout) while the pattern stays.

    Shapes:
        crow [N+1], col [E], values [E]; crow_t [M+1], col_t [E], order [E]
    """

    crow: Tensor
    col: Tensor
    values: Tensor
    crow_t: Tensor
    col_t: Tensor
    order: Tensor
    shape: tuple[int, int]

    @classmethod
    def from_scipy(cls, matrix: sp.spmatrix | sp.sparray) -> "SparseMatrix":
        csr = sp.csr_array(matrix)
        csr.sum_duplicates()
        csr.sort_indices()
        position = sp.csr_array(
            (np.arange(1, csr.nnz + 1), csr.indices, csr.indptr), shape=csr.shape, dtype=np.int64
        ).tocsc()

        def index(array: Any) -> Tensor:
            return torch.from_numpy(np.asarray(array, dtype=np.int64))

        return cls(
            crow=index(csr.indptr),
            col=index(csr.indices),
            values=torch.from_numpy(np.asarray(csr.data, dtype=np.float32)),
            crow_t=index(position.indptr),
            col_t=index(position.indices),
            order=index(position.data - 1),
            shape=(int(csr.shape[0]), int(csr.shape[1])),
        )

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "SparseMatrix":
        moved = [t.to(device) for t in (self.crow, self.col, self.crow_t, self.col_t, self.order)]
        crow, col, crow_t, col_t, order = moved
        values = self.values.to(device, dtype or self.values.dtype)
        return SparseMatrix(crow, col, values, crow_t, col_t, order, self.shape)

    def with_values(self, values: Tensor) -> "SparseMatrix":
        return SparseMatrix(
            self.crow, self.col, values, self.crow_t, self.col_t, self.order, self.shape
        )

    def __matmul__(self, dense: Tensor) -> Tensor:
        """``S @ dense``: [N, M] @ [M, F] -> [N, F]; differentiable in ``dense`` only."""
        product: Tensor = _Matmul.apply(self, dense)  # type: ignore[no-untyped-call]
        return product

    @property
    def density(self) -> float:
        return self.values.numel() / max(1, self.shape[0] * self.shape[1])

    def to_dense(self) -> Tensor:
        """For small matrices and tests."""
        return _csr(self.crow, self.col, self.values, self.shape).to_dense()


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _csr(matrix.crow, matrix.col, matrix.values, matrix.shape) @ dense

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        m: SparseMatrix = ctx.matrix
        shape = (m.shape[1], m.shape[0])
        return None, _csr(m.crow_t, m.col_t, m.values[m.order], shape) @ grads[0]


def _csr(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():  # "CSR support is in beta state", once per process
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)
