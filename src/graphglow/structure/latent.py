"""Latent structures: what message passing needs of a learned graph, and nothing more."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

from graphglow.ops import (
    Backend,
    Kernel,
    Precision,
    choose_backend,
    pivot_propagate,
    propagate_over,
    similarity,
)
from graphglow.ops.dense import DenseGamma, dense_gamma, propagate_dense


class Structure(Protocol):
    """Anything that passes messages over a latent graph: v [N, F] -> [N, F]."""

    def propagate(self, v: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class PivotStructure:
    """The node-pivot graph Gamma in factored form (Eq. 9); Gamma itself is made only on demand.

    Messages are means, and so the same for every multiple of Gamma: they are passed over the
    similarity of q and k as it is. ``gamma`` divides by exp(log_largest), so that it is at most 1.

    Shapes:
        q [.., N, W], k [.., P, W], log_largest: None for 0, or broadcasts with Gamma [.., N, P]
    """

    q: Tensor
    k: Tensor
    threshold: float | None
    kernel: Kernel
    heads: int
    backend: Backend = "auto"
    precision: Precision = "float32"
    log_largest: Tensor | None = None

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
        gamma = similarity(
            q, self.k, threshold=self.threshold, kernel=self.kernel, heads=self.heads
        )
        return gamma if self.log_largest is None else gamma * (-self.log_largest).exp()


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
