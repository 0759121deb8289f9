"""How IDGL compares nodes: weighted cosines, cut at a threshold, of features that may be sparse."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.gnn import Dropout, drop_features
from graphglow.linalg.rows import entries
from graphglow.linalg.sparse import SparseMatrix
from graphglow.ops.embeddings import SHORTEST, unit_heads


def cut_similarity(q: Tensor, k: Tensor, threshold: float) -> Tensor:
    """``q k^T``, zero where it is at most a ``threshold`` >= 0: [N, W], [M, W] -> [N, M]."""
    weights: Tensor = _Cut.apply(q, k, threshold)  # type: ignore[no-untyped-call]
    return weights


def _uncut(grad: Tensor, weights: Tensor) -> Tensor:
    """What is zero passes no gradient."""
    out: Tensor = torch.ops.aten.threshold_backward(grad, weights, 0.0)
    return out


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, threshold: float) -> Tensor:
        weights = torch.threshold_(q @ k.T, threshold, 0.0)
        ctx.save_for_backward(q, k, weights)
        return weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, weights = ctx.saved_tensors
        grad = _uncut(grad, weights)
        return grad @ k, grad.T @ q, None


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Features [N, D] with the places [E] of their entries, known before training."""

    matrix: SparseMatrix
    row: Tensor
    column: Tensor

    @classmethod
    def of(cls, matrix: SparseMatrix) -> "SparseFeatures":
        row, column, _ = entries(matrix)
        return cls(matrix, row, column)

    def unit(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Entries [H, E] of the unit vectors w_h * x_u over sqrt(H), and their factors [H, N].

        A zero vector stays zero.
        """
        square = self.matrix.with_values(self.matrix.values.square())
        length = (square @ weight.square().T.contiguous()).T.sqrt()  # [H, N]
        inverse = (len(weight) ** -0.5 / length).masked_fill_(length < SHORTEST, 0.0)
        return self.matrix.values * weight[:, self.column] * inverse[:, self.row], inverse

    def weight_gradient(
        self, unit: Tensor, inverse: Tensor, other: "SparseFeatures", of_other: Tensor, grad: Tensor
    ) -> Tensor:
        """What reaches the weight [H, D] through this side; grad is [other nodes, this side's]."""
        products = [other.transposed(values) @ grad for values in of_other]
        d_unit = torch.stack([product[self.column, self.row] for product in products])  # [H, E]
        along = _row_sums(self.matrix.with_values(d_unit * unit)) * len(unit)  # [H, N]
        inner = inverse[:, self.row] * (d_unit - unit * along[:, self.row])
        return _row_sums(self.transposed(inner * self.matrix.values))

    def transposed(self, values: Tensor) -> SparseMatrix:
        """The transpose [D, N] with other values, [E] or [H, E]; only to multiply with."""
        m = self.matrix
        assert m.order is not None
        values, shape = values.index_select(-1, m.order), (m.shape[1], m.shape[0])
        return SparseMatrix(m.crow_t, m.col_t, values, m.crow, m.col, None, shape)

    def scattered(self, values: Tensor) -> Tensor:
        """The same as a dense matrix: [E] -> [D, N]."""
        wide = values.new_zeros(self.matrix.shape[1], self.matrix.shape[0])
        wide[self.column, self.row] = values
        return wide


def _row_sums(matrix: SparseMatrix) -> Tensor:
    """Of matrices with values [H, E]: [H, rows]. A product: its order of summation is fixed."""
    ones = matrix.values.new_ones(len(matrix.values), matrix.shape[1], 1)
    return (matrix @ ones)[..., 0]


class FeatureSimilarity:
    """``cut(mean_h cos(w_h * x_u, w_h * x_p))`` of all nodes u with nodes p, of features [N, D].

    The nodes p are ``keys`` [M], or all. Sparse features stay sparse: H products of a sparse and a
    dense matrix, forwards and backwards, in place of one dense product of width H D.
    """

    def __init__(self, x: SparseMatrix | Tensor, keys: Tensor | None = None) -> None:
        self.x, self.keys = x, keys
        self.entries = self.key_entries = None
        if isinstance(x, SparseMatrix):
            self.entries = self.key_entries = SparseFeatures.of(x)
            if keys is not None:
                chosen, self.taken = _rows_of(x, keys)
                self.key_entries = SparseFeatures.of(chosen)

    def __call__(self, weight: Tensor, threshold: float, dropout: Dropout | None = None) -> Tensor:
        """Compare under weight [H, D]: [N, M]; what is dropped, is so on both sides."""
        x = drop_features(self.x, dropout)
        if isinstance(x, Tensor):
            q = unit_heads(x, weight)
            k = q if self.keys is None else q.index_select(0, self.keys)
            return cut_similarity(q, k, threshold)
        assert self.entries is not None
        assert self.key_entries is not None
        entries = keys = replace(self.entries, matrix=x)
        if self.keys is not None:
            values = x.values.index_select(0, self.taken)
            keys = replace(self.key_entries, matrix=self.key_entries.matrix.with_values(values))
        weights: Tensor = _SparseCut.apply(weight, entries, keys, threshold)  # type: ignore[no-untyped-call]
        return weights

    def distances(self) -> Tensor:
        """|x_p - x_q|^2 between the nodes p: [M, M]."""
        if isinstance(self.x, Tensor):
            x = self.x if self.keys is None else self.x[self.keys]
            inner = x @ x.T
        else:
            assert self.key_entries is not None
            matrix = self.key_entries.matrix
            inner = matrix @ self.key_entries.scattered(matrix.values)
        norms = inner.diagonal().clone()
        return inner.mul_(-2).add_(norms).add_(norms[:, None]).clamp_min_(0)


class _SparseCut(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, x: SparseFeatures, keys: SparseFeatures, threshold: float
    ) -> Tensor:
        unit, inverse = x.unit(weight)
        of_keys, inverse_keys = (unit, inverse) if keys is x else keys.unit(weight)
        weights = x.matrix.with_values(unit[0]) @ keys.scattered(of_keys[0])
        for values, key_values in zip(unit[1:], of_keys[1:], strict=True):
            weights += x.matrix.with_values(values) @ keys.scattered(key_values)
        torch.threshold_(weights, threshold, 0.0)
        ctx.sides = x, keys
        ctx.save_for_backward(unit, inverse, of_keys, inverse_keys, weights)
        return weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, keys = ctx.sides
        unit, inverse, of_keys, inverse_keys, weights = ctx.saved_tensors
        grad = _uncut(grad, weights)
        if keys is x:  # both sides are one, and so are their gradients
            d_weight = x.weight_gradient(unit, inverse, x, unit, grad + grad.T)
        else:
            d_weight = x.weight_gradient(unit, inverse, keys, of_keys, grad.T.contiguous())
            d_weight += keys.weight_gradient(of_keys, inverse_keys, x, unit, grad)
        return d_weight, None, None, None


def _rows_of(x: SparseMatrix, rows: Tensor) -> tuple[SparseMatrix, Tensor]:
    """These rows as a matrix, and which entries of x became its entries."""
    places = np.arange(1, len(x.col) + 1)  # from 1: a zero would be no entry
    parts = (places, x.col.cpu().numpy(), x.crow.cpu().numpy())
    chosen = sp.csr_array(parts, shape=x.shape)[rows.cpu().numpy()]
    taken = torch.from_numpy(chosen.data - 1).to(x.col.device)
    matrix = SparseMatrix.from_scipy(chosen).to(x.values.device)
    return matrix.with_values(x.values[taken]), taken
