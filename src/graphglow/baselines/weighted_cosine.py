"""IDGL's metric: the mean over heads of weighted cosines, cut at a threshold, as a dense matrix."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.gnn import Dropout
from graphglow.gnn.dropout import drop_features
from graphglow.ops.embeddings import SHORTEST, unit_heads
from graphglow.ops.sparse import SparseMatrix


@dataclass(frozen=True, eq=False)
class CollectedGradient:
    """The gradient of a learned graph: a sum of products left right^T and of scaled matrices.

    A learned graph is used several times in a pass. Autograd would make an [N, M] matrix for each
    use and add them up; instead each use leaves its part here in the backward pass, and the
    function that made the graph, whose turn comes last, makes the sum at once.

    Shapes:
        left [N, F], right [M, F] each; scaled: [] and [N, M] each
    """

    left: list[Tensor] = field(default_factory=list)
    right: list[Tensor] = field(default_factory=list)
    scaled: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add_product(self, left: Tensor, right: Tensor) -> None:
        self.left.append(left)
        self.right.append(right)

    def add_scaled(self, scale: Tensor, matrix: Tensor) -> None:
        self.scaled.append((scale, matrix))

    def total(self, weights: Tensor) -> Tensor:
        """The sum where the graph ``weights`` was not cut, else 0: [N, M]. Forgets all parts."""
        if self.left:
            grad = torch.cat(self.left, dim=1) @ torch.cat(self.right, dim=1).T
        else:
            grad = torch.zeros_like(weights)
        for scale, matrix in self.scaled:
            grad.addcmul_(matrix, scale)
        for parts in (self.left, self.right, self.scaled):
            parts.clear()
        torch.ops.aten.threshold_backward.grad_input(grad, weights, 0.0, grad_input=grad)
        return grad


@dataclass(frozen=True, eq=False)
class CutSimilarity:
    """A similarity matrix, zero where it was at most a threshold; what is zero passes no gradient.

    Autograd does not follow ``weights``. A function of them leaves its part of the gradient in
    ``gradient``, and takes ``turn`` as an input, so as to be asked before what made the matrix.

    Shapes:
        weights [N, M], turn []
    """

    weights: Tensor
    turn: Tensor
    gradient: CollectedGradient


def cut_similarity(q: Tensor, k: Tensor, threshold: float) -> CutSimilarity:
    """Cut ``q k^T`` at a ``threshold`` >= 0: [N, W], [M, W] -> [N, M]."""
    gradient = CollectedGradient()
    weights, turn = _Cut.apply(q, k, threshold, gradient)  # type: ignore[no-untyped-call]
    return CutSimilarity(weights, turn, gradient)


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, threshold: float, gradient: CollectedGradient
    ) -> tuple[Tensor, Tensor]:
        weights = torch.threshold_(q @ k.T, threshold, 0.0)
        ctx.gradient = gradient
        ctx.mark_non_differentiable(weights)
        ctx.save_for_backward(q, k, weights)
        return weights, q.new_zeros(())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        q, k, weights = ctx.saved_tensors
        grad = ctx.gradient.total(weights)
        return grad @ k, grad.T @ q, None, None


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Sparse features with the place of each entry, known before training: nothing to wait for.

    Shapes:
        matrix [N, D]; row [E], column [E]
    """

    matrix: SparseMatrix
    row: Tensor
    column: Tensor

    @classmethod
    def of(cls, matrix: SparseMatrix) -> "SparseFeatures":
        rows = torch.arange(matrix.shape[0], device=matrix.crow.device)
        return cls(matrix, rows.repeat_interleave(matrix.crow.diff().long()), matrix.col.long())

    def unit(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Entries of the H unit vectors w_h * x_u over sqrt(H), and the factors that made them so.

        A zero vector stays zero.

        Shapes:
            weight [H, D] -> [H, E], [H, N]
        """
        square = self.matrix.with_values(self.matrix.values.square())
        length = (square @ weight.square().T.contiguous()).T.sqrt()  # [H, N]
        inverse = (len(weight) ** -0.5 / length).masked_fill_(length < SHORTEST, 0.0)
        return self.matrix.values * weight[:, self.column] * inverse[:, self.row], inverse

    def unit_backward(self, grad: Tensor, unit: Tensor, inverse: Tensor) -> Tensor:
        """Gradient of the weight [H, D], from that of the unit vectors' entries [H, E]."""
        along = _row_sums(self.matrix.with_values(grad * unit)) * len(unit)  # [H, N]
        inner = inverse[:, self.row] * (grad - unit * along[:, self.row])
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
    """``cut(mean_h cos(w_h * x_u, w_h * x_p))`` of all nodes u with nodes p, from the features.

    Sparse features stay sparse: H products of a sparse and a dense matrix, forwards and
    backwards, in place of one dense product of width H D.

    Args:
        x: The features.
        keys: The nodes p; None compares all with all.

    Shapes:
        x [N, D], keys [M] -> [N, M]
    """

    def __init__(self, x: SparseMatrix | Tensor, keys: Tensor | None = None) -> None:
        self.x, self.keys = x, keys
        self.entries = self.key_entries = None
        if isinstance(x, SparseMatrix):
            self.entries = self.key_entries = SparseFeatures.of(x)
            if keys is not None:
                chosen, self.taken = _rows_of(x, keys)
                self.key_entries = SparseFeatures.of(chosen)

    def __call__(
        self, weight: Tensor, threshold: float, dropout: Dropout | None = None
    ) -> CutSimilarity:
        """Compare under weight [H, D]; what is dropped of a feature, is so on both sides."""
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
        gradient = CollectedGradient()
        parts = (weight, entries, keys, threshold, gradient)
        weights, turn = _SparseCut.apply(*parts)  # type: ignore[no-untyped-call]
        return CutSimilarity(weights, turn, gradient)

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
        ctx: Any,
        weight: Tensor,
        x: SparseFeatures,
        keys: SparseFeatures,
        threshold: float,
        gradient: CollectedGradient,
    ) -> tuple[Tensor, Tensor]:
        unit, inverse = x.unit(weight)
        of_keys, inverse_keys = (unit, inverse) if keys is x else keys.unit(weight)
        weights = x.matrix.with_values(unit[0]) @ keys.scattered(of_keys[0])
        for values, key_values in zip(unit[1:], of_keys[1:], strict=True):
            weights += x.matrix.with_values(values) @ keys.scattered(key_values)
        torch.threshold_(weights, threshold, 0.0)
        ctx.sides, ctx.gradient = (x, keys), gradient
        ctx.mark_non_differentiable(weights)
        ctx.save_for_backward(unit, inverse, of_keys, inverse_keys, weights)
        return weights, weight.new_zeros(())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, keys = ctx.sides
        unit, inverse, of_keys, inverse_keys, weights = ctx.saved_tensors
        grad = ctx.gradient.total(weights)
        if keys is x:  # both sides are one, and so are their gradients
            d_weight = _through(x, unit, inverse, x, unit, grad + grad.T)
        else:
            d_weight = _through(x, unit, inverse, keys, of_keys, grad.T.contiguous())
            d_weight += _through(keys, of_keys, inverse_keys, x, unit, grad)
        return d_weight, None, None, None, None


def _through(
    side: SparseFeatures,
    unit: Tensor,
    inverse: Tensor,
    other: SparseFeatures,
    of_other: Tensor,
    grad: Tensor,
) -> Tensor:
    """What reaches the weight through one side: grad is [other nodes, this side's]."""
    at = (side.column, side.row)
    d_unit = [(other.transposed(values) @ grad)[at] for values in of_other]
    return side.unit_backward(torch.stack(d_unit), unit, inverse)


def _rows_of(x: SparseMatrix, rows: Tensor) -> tuple[SparseMatrix, Tensor]:
    """These rows as a matrix, and which entries of x became its entries."""
    places = np.arange(1, len(x.col) + 1)  # from 1: a zero would be no entry
    parts = (places, x.col.cpu().numpy(), x.crow.cpu().numpy())
    chosen = sp.csr_array(parts, shape=x.shape)[rows.cpu().numpy()]
    taken = torch.from_numpy(chosen.data - 1).to(x.col.device)
    matrix = SparseMatrix.from_scipy(chosen).to(x.values.device)
    return matrix.with_values(x.values[taken]), taken
