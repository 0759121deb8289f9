"""Latent structures: what message passing needs of a learned graph, and nothing more."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from graphglow.linalg.sparse import SparseMatrix
from graphglow.ops import EPS, Kernel, choose_backend, pivot_propagate, propagate_over, similarity
from graphglow.ops.dense import DenseGamma, dense_gamma, propagate_dense
from graphglow.settings import Backend, Precision


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


@dataclass(frozen=True, eq=False)
class FixedStructure:
    """A graph that is given, S, as the evidence learner makes one before anything is trained.

    Shapes:
        matrix [N, N]
    """

    matrix: SparseMatrix

    def propagate(self, v: Tensor) -> Tensor:
        return self.matrix @ v


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


@dataclass(frozen=True, eq=False)
class KNNStructure(PivotStructure):
    """Gamma with the ``neighbours`` largest entries of each row, and zeros elsewhere.

    Which are kept is a choice, through which no gradient goes. Of equal similarities
    :func:`torch.topk` picks, the same ones every time.
    """

    neighbours: int = field(kw_only=True)
    backend: Backend = field(default="dense", init=False)

    @cached_property
    def _dense_gamma(self) -> DenseGamma:
        gamma = self.gamma()
        rows, columns = (gamma.detach().sum(dim).clamp_min(EPS).reciprocal() for dim in (-1, -2))
        return DenseGamma(gamma, rows[..., None], columns[..., None], True, self.precision)

    def gamma(self, rows: slice | None = None) -> Tensor:
        whole = super().gamma(rows)
        count = min(self.neighbours, whole.shape[-1])
        largest = whole.detach().topk(count, dim=-1, sorted=False).indices
        kept = torch.zeros_like(whole, dtype=torch.bool).scatter(-1, largest, True)
        return torch.where(kept, whole, 0.0)
