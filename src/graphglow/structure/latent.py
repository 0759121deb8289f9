"""Latent structures: what message passing needs of a learned graph, and nothing more."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from graphglow.ops import EPS, Backend, Kernel, pivot_propagate, similarity


class Structure(Protocol):
    """Anything that passes messages over a latent graph: v [N, F] -> [N, F]."""

    def propagate(self, v: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class PivotStructure:
    """The node-pivot graph Gamma in factored form (Eq. 9); Gamma itself is made only on demand.

    Shapes:
        q [N, W], k [P, W]
    """

    q: Tensor
    k: Tensor
    threshold: float | None
    kernel: Kernel
    heads: int
    backend: Backend = "auto"

    def propagate(self, v: Tensor) -> Tensor:
        return pivot_propagate(
            v,
            self.q,
            self.k,
            threshold=self.threshold,
            kernel=self.kernel,
            heads=self.heads,
            backend=self.backend,
        )

    def gamma(self, rows: slice | None = None) -> Tensor:
        """Gamma [N, P], or a block of its rows."""
        q = self.q if rows is None else self.q[rows]
        return similarity(q, self.k, threshold=self.threshold, kernel=self.kernel, heads=self.heads)


@dataclass(frozen=True)
class SampledStructure:
    """A drawn node-pivot graph B [N, P], with Eq. 11 written out."""

    b: Tensor

    def propagate(self, v: Tensor) -> Tensor:
        to_pivots = self.b.mT @ v / self.b.sum(0).clamp_min(EPS)[:, None]  # [P, F]
        return self.b @ to_pivots / self.b.sum(1).clamp_min(EPS)[:, None]  # [N, F]


@dataclass(frozen=True)
class BlendedStructure:
    """Structure momentum: the current structure with weight eta, the first one with 1 - eta."""

    current: Structure
    first: Structure
    eta: float

    def propagate(self, v: Tensor) -> Tensor:
        return self.eta * self.current.propagate(v) + (1 - self.eta) * self.first.propagate(v)
