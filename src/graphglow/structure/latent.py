"""Latent structures: what message passing needs of a learned graph, and nothing more.

Where each node keeps only its few most similar pivots, those few are all that is stored. With S the
sparse Gamma, m and r its column and row sums, c = S^T v / m, o = S c / r and g the gradient of o,
the backward pass is that of :mod:`graphglow.ops.dense`, entry by entry::

    g' = g / r,  ds = S^T g' / m,  dv = S ds
    dS_up = g'_u . c_p + v_u . ds_p - g'_u . o_u - ds_p . c_p       for the entries kept

and, since S_up = q_u . k_p, dq = dS k and dk = dS^T q. Which pivots are kept is a choice, through
which no gradient goes. No sum is ever made by atomic additions, so a GPU gives the same bits every
time.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from graphglow.ops import (
    EPS,
    Backend,
    Kernel,
    Precision,
    choose_backend,
    pivot_propagate,
    propagate_over,
    similarity,
)
from graphglow.ops.dense import CLAMPED, DenseGamma, dense_gamma, propagate_dense
from graphglow.ops.knn import entry_products, largest_entries
from graphglow.ops.sparse import INT32_LIMIT, SparseMatrix


class Structure(Protocol):
    """Anything that passes messages over a latent graph: v [N, F] -> [N, F]."""

    def propagate(self, v: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class PivotStructure:
    """The node-pivot graph Gamma in factored form (Eq. 9); Gamma itself is made only on demand.

    Shapes:
        q [.., N, W], k [.., P, W]
    """

    q: Tensor
    k: Tensor
    threshold: float | None
    kernel: Kernel
    heads: int
    backend: Backend = "auto"
    precision: Precision = "float32"

    def propagate(self, v: Tensor) -> Tensor:
        if self.chosen_backend == "dense":
            return propagate_dense(v, self._dense_gamma)
        return pivot_propagate(
            v,
            self.q,
            self.k,
            threshold=self.threshold,
            kernel=self.kernel,
            heads=self.heads,
            backend=self.chosen_backend,
            precision=self.precision,
        )

    @cached_property
    def chosen_backend(self) -> Backend:
        """The backend in use: the named one, or what ``auto`` picks here."""
        if self.backend != "auto":
            return self.backend
        return choose_backend(
            self.q, self.k, threshold=self.threshold, kernel=self.kernel, heads=self.heads
        )

    @cached_property
    def _dense_gamma(self) -> DenseGamma:
        """Gamma, made once: all layers of a GNN pass messages over the same one."""
        return dense_gamma(self.q, self.k, self.threshold, self.kernel, self.heads, self.precision)

    def gamma(self, rows: slice | None = None) -> Tensor:
        """Gamma [.., N, P], or a block of its rows."""
        q = self.q if rows is None else self.q[..., rows, :]
        return similarity(q, self.k, threshold=self.threshold, kernel=self.kernel, heads=self.heads)


@dataclass(frozen=True)
class SampledStructure:
    """A drawn node-pivot graph B [N, P]."""

    b: Tensor

    def propagate(self, v: Tensor) -> Tensor:
        return propagate_over(self.b, v)


@dataclass(frozen=True)
class BlendedStructure:
    """Structure momentum: the current structure with weight eta, the first one with 1 - eta.

    Shapes:
        eta: one number, or [B, 1, 1] where the runs of a batch differ
    """

    current: Structure
    first: Structure
    eta: float | Tensor

    def propagate(self, v: Tensor) -> Tensor:
        return self.eta * self.current.propagate(v) + (1 - self.eta) * self.first.propagate(v)


class Kept(NamedTuple):
    """The entries of Gamma that are kept; those at or below the threshold among them are zero.

    The runs of a batch are laid out one after another, so that B graphs are one sparse matrix.

    Shapes:
        pivots [.., N, K] columns, rising; values [.., N, K]; to_nodes [B*N, B*P] is S and
        to_pivots [B*P, B*N] its transpose; inverse_rows [B*N, 1], inverse_columns [B*P, 1]
    """

    pivots: Tensor
    values: Tensor
    to_nodes: SparseMatrix
    to_pivots: SparseMatrix
    inverse_rows: Tensor
    inverse_columns: Tensor


@dataclass(frozen=True, eq=False)
class KNNStructure(PivotStructure):
    """Gamma with the ``neighbours`` largest entries of each row, and zeros elsewhere.

    Finding them takes O(N P W), in blocks of rows, and keeps O(N K); messages then take O(N K F).
    Of equal similarities :func:`torch.topk` picks, the same ones every time. Backend and precision
    are always ``auto`` and ``float32``: there is one way to do it.

    Shapes:
        q [.., N, W], k [.., P, W]; K = min(neighbours, P)
    """

    neighbours: int = field(kw_only=True)

    def propagate(self, v: Tensor) -> Tensor:
        kept, values = self._entries
        out: Tensor = _Propagate.apply(v, values, kept)  # type: ignore[no-untyped-call]
        return out

    @cached_property
    def chosen_backend(self) -> str:  # type: ignore[override]
        """None of the backends of :mod:`graphglow.ops`: sparse products, whatever the device."""
        return "sparse"

    def gamma(self, rows: slice | None = None) -> Tensor:
        kept, values = self._entries
        pivots = kept.pivots
        if rows is not None:
            pivots, values = pivots[..., rows, :], values[..., rows, :]
        empty = values.new_zeros(*values.shape[:-1], self.k.shape[-2])
        return empty.scatter(-1, pivots, values)

    @cached_property
    def _entries(self) -> tuple[Kept, Tensor]:
        """What is kept, found once for all layers, and its values as a function of q and k."""
        kept = most_similar(self.q, self.k, self.threshold, self.neighbours)
        values: Tensor = _Values.apply(self.q, self.k, kept)  # type: ignore[no-untyped-call]
        return kept, values


@torch.no_grad()
def most_similar(
    q: Tensor, k: Tensor, threshold: float | None, neighbours: int, rows: int | None = None
) -> Kept:
    """Find each node's most similar pivots, ``rows`` nodes at a time.

    Shapes:
        q [.., N, W], k [.., P, W]
    """
    num_pivots = k.shape[-2]
    count = min(neighbours, num_pivots)
    pivots, values = largest_entries(q, k, threshold, count, rows)
    to_nodes, to_pivots = _both_ways(pivots, values, num_pivots)
    row_sum = values.reshape(-1, count).sum(-1, keepdim=True)
    column_sum = to_pivots @ torch.ones_like(row_sum)
    inverses = (total.clamp_min(EPS).reciprocal() for total in (row_sum, column_sum))
    return Kept(pivots, values, to_nodes, to_pivots, *inverses)


def _both_ways(
    pivots: Tensor, values: Tensor, num_pivots: int
) -> tuple[SparseMatrix, SparseMatrix]:
    """S and its transpose, of all runs as one matrix; nothing here waits for a GPU."""
    batch, (num_nodes, count) = pivots.shape[:-2].numel(), pivots.shape[-2:]
    shape = (batch * num_nodes, batch * num_pivots)
    first = torch.arange(batch, device=pivots.device) * num_pivots
    col = (pivots.reshape(batch, -1) + first[:, None]).flatten()  # [E]
    crow = torch.arange(0, len(col) + 1, count, device=col.device)
    sorted_col, order = col.sort(stable=True)
    place = torch.arange(shape[1] + 1, device=col.device)
    crow_t = torch.searchsorted(sorted_col, place)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(col), device=col.device))
    width = torch.int32 if max(len(col), *shape) <= INT32_LIMIT else torch.int64
    crow, col, crow_t, col_t, order, back = (
        index.to(width) for index in (crow, col, crow_t, order // count, order, back)
    )
    flat = values.flatten()
    return (
        SparseMatrix(crow, col, flat, crow_t, col_t, order, shape),
        SparseMatrix(
            crow_t, col_t, flat.index_select(0, order), crow, col, back, (shape[1], shape[0])
        ),
    )


class _Values(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, kept: Kept) -> Tensor:
        """The values of ``kept``, which were made of q and k."""
        ctx.save_for_backward(q, k)
        ctx.kept = kept
        return kept.values.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        q, k = ctx.saved_tensors
        need_q, need_k, _ = ctx.needs_input_grad
        kept: Kept = ctx.kept
        d_entry = torch.where(kept.values > 0, grad, 0.0).flatten()  # what is cut passes nothing
        dq = dk = None
        if need_q:
            dq = (kept.to_nodes.with_values(d_entry) @ k.flatten(0, -2)).view_as(q)
        if need_k:
            order = kept.to_nodes.order
            assert order is not None
            transposed = kept.to_pivots.with_values(d_entry.index_select(0, order))
            dk = (transposed @ q.flatten(0, -2)).view_as(k)
        return dq, dk, None


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, values: Tensor, kept: Kept) -> Tensor:
        """``values`` are those of ``kept``: they receive the gradient."""
        flat = v.flatten(0, -2)  # [B*N, F]
        c = (kept.to_pivots @ flat) * kept.inverse_columns  # [B*P, F]
        out = (kept.to_nodes @ c) * kept.inverse_rows  # [B*N, F]
        ctx.save_for_backward(flat, c, out)
        ctx.kept = kept
        return out.view_as(v)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        v, c, out = ctx.saved_tensors
        kept: Kept = ctx.kept
        need_v, need_values, _ = ctx.needs_input_grad
        g = grad.flatten(0, -2) * kept.inverse_rows  # [B*N, F]
        ds = (kept.to_pivots @ g) * kept.inverse_columns  # [B*P, F]
        dv = (kept.to_nodes @ ds).view_as(grad) if need_v else None
        if not need_values:
            return dv, None, None
        dr = -(g * out).sum(-1, keepdim=True) * (kept.inverse_rows < CLAMPED)
        dm = -(ds * c).sum(-1, keepdim=True) * (kept.inverse_columns < CLAMPED)
        left = torch.cat([g, v, dr, torch.ones_like(dr)], dim=-1)  # [B*N, 2F + 2]
        right = torch.cat([c, ds, torch.ones_like(dm), dm], dim=-1)  # [B*P, 2F + 2]
        columns = kept.to_nodes.col.view(len(left), -1)
        d_values = entry_products(left, right, columns).view_as(kept.values)
        return dv, d_values, None
