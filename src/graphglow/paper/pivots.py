"""Messages from nodes to pivots and back over the latent graph (Eq. 11)::

    Gamma = delta(mean_h phi(q_h k_h^T))
    out   = RowNorm(Gamma) RowNorm(Gamma^T) v

Every similarity has that form:

========= ======== ====================================================================
name      phi      factors (per head)
========= ======== ====================================================================
cosine    identity unit vectors; the mean over heads folds into one inner product
dot       identity scaled vectors; likewise
rbf       exp      [a, -|a|^2/2, 1] and [b, 1, -|b|^2/2]: exp(-|a - b|^2 / 2)
attention sigmoid  projected queries and keys
========= ======== ====================================================================

Gamma [N, P] is in memory while it is small. Beyond :data:`LARGEST_GAMMA` it is formed in blocks of
nodes, anew in the backward pass. Where nothing is cut (delta ``affine``) it is never formed.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Kernel = Literal["identity", "exp", "sigmoid"]

EPS = 1e-12
"""Row and column sums are kept above this, so that an empty row gives zero and never NaN."""
LARGEST_GAMMA = 64_000_000
"""Entries of the largest Gamma that is kept in memory, over all heads (256 MB in float32)."""
BLOCK_ELEMENTS = 4_000_000
"""Entries of one block of Gamma, over all heads (16 MB in float32)."""


def propagate_over(gamma: Tensor, v: Tensor) -> Tensor:
    """RowNorm(Gamma) RowNorm(Gamma^T) v: [N, P], [N, F] -> [N, F]."""
    to_pivots = gamma.T @ v / gamma.sum(0).clamp_min(EPS)[:, None]  # [P, F]  C^(l+1/2)
    return gamma @ to_pivots / gamma.sum(1).clamp_min(EPS)[:, None]  # [N, F]  C^(l+1)


def propagate_uncut(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Propagate over Gamma = Q K^T by associativity: O(N W F), whatever the number of pivots."""
    column_sum = k @ q.sum(0)[:, None]  # [P, 1]
    to_pivots = k @ (q.T @ v) / column_sum.clamp_min(EPS)  # [P, F]
    row_sum = q @ k.sum(0)[:, None]  # [N, 1]
    return q @ (k.T @ to_pivots) / row_sum.clamp_min(EPS)  # [N, F]


@dataclass(frozen=True, eq=False)
class PivotStructure:
    """The node-pivot graph Gamma in factored form (Eq. 9).

    Shapes:
        q [N, W], k [P, W]
    """

    q: Tensor
    k: Tensor
    threshold: float | None = 0.0
    """delta: values at or below it become zero. None cuts nothing."""
    kernel: Kernel = "identity"
    """phi."""
    heads: int = 1
    """H; with ``identity`` the heads are already folded into the factors' width."""

    def similarity(self, q: Tensor) -> Tensor:
        """Return delta(mean_h phi(q_h k_h^T)) of some nodes: [n, W] -> [n, P]."""
        k = self.k
        if self.kernel == "identity":
            gamma = q @ k.T
        else:
            q, k = (t.view(len(t), self.heads, -1).transpose(0, 1) for t in (q, k))
            score = q @ k.mT  # [H, n, P]
            gamma = (score.exp() if self.kernel == "exp" else score.sigmoid()).mean(0)
        return gamma if self.threshold is None else torch.where(gamma > self.threshold, gamma, 0.0)

    @cached_property
    def _gamma(self) -> Tensor:
        """Gamma, made once: all layers of a GNN pass messages over the same one."""
        return self.similarity(self.q)

    def gamma(self) -> Tensor:
        """Gamma [N, P], made anew."""
        return self.similarity(self.q)

    def propagate(self, v: Tensor) -> Tensor:
        """Pass messages v [N, F]; a node with no pivot above the threshold receives zero."""
        if self.threshold is None and self.kernel == "identity":
            return propagate_uncut(v, self.q, self.k)
        row = len(self.k) * (1 if self.kernel == "identity" else self.heads)
        if len(self.q) * row <= LARGEST_GAMMA:
            return propagate_over(self._gamma, v)
        return self.propagate_in_blocks(v, max(1, BLOCK_ELEMENTS // row))

    def propagate_in_blocks(self, v: Tensor, rows: int) -> Tensor:
        """Eq. 11 with a block [rows, P] of Gamma in memory, which the backward pass makes anew."""

        def to_pivots(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            gamma = self.similarity(q)
            return gamma.T @ v, gamma.sum(0)

        def to_nodes(q: Tensor, at_pivots: Tensor) -> Tensor:
            gamma = self.similarity(q)
            return gamma @ at_pivots / gamma.sum(1).clamp_min(EPS)[:, None]

        recomputed = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        total, column_sum = v.new_zeros(len(self.k), v.shape[1]), v.new_zeros(len(self.k))
        blocks = torch.split(self.q, rows)
        for q, values in zip(blocks, torch.split(v, rows), strict=True):
            part, sums = recomputed(to_pivots, q, values)
            total, column_sum = total + part, column_sum + sums
        at_pivots = total / column_sum.clamp_min(EPS)[:, None]  # [P, F]
        return torch.cat([recomputed(to_nodes, q, at_pivots) for q in blocks])

    def factors(self) -> list[tuple[Tensor, Tensor]]:
        """Matrices [N, P] whose products left @ right.T add up to the whole operator [N, N]."""
        gamma = self.gamma()
        left, right = (gamma / gamma.sum(d, keepdim=True).clamp_min(EPS) for d in (1, 0))
        return [(left, right)]


@dataclass(frozen=True, eq=False, kw_only=True)
class KNNStructure(PivotStructure):
    """Gamma with each row's ``neighbours`` largest entries; no gradient goes through the choice."""

    neighbours: int

    def similarity(self, q: Tensor) -> Tensor:
        whole = super().similarity(q)
        count = min(self.neighbours, whole.shape[1])
        largest = whole.detach().topk(count, dim=1, sorted=False).indices
        kept = torch.zeros_like(whole, dtype=torch.bool).scatter(1, largest, True)
        return torch.where(kept, whole, 0.0)


@dataclass(frozen=True)
class BlendedStructure:
    """Structure momentum: the current structure with weight eta, the first one with 1 - eta."""

    current: "PivotStructure | BlendedStructure"
    first: "PivotStructure | BlendedStructure"
    eta: float

    def propagate(self, v: Tensor) -> Tensor:
        return self.eta * self.current.propagate(v) + (1 - self.eta) * self.first.propagate(v)

    def factors(self) -> list[tuple[Tensor, Tensor]]:
        """Factors of both structures, with their shares."""
        sides = ((self.current, self.eta), (self.first, 1 - self.eta))
        return [(share * a, b) for side, share in sides for a, b in side.factors()]
