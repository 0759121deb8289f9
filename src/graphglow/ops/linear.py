"""Eq. 11 without a cut, by associativity: cost O(N W F), whatever the number of pivots.

With nothing truncated, ``Gamma = Q K^T`` and ``(Q K^T) v = Q (K^T v)``, so neither Gamma nor any
[N, P] block is ever formed, and P = N (all pairs) costs the same.
"""

from torch import Tensor

from graphglow.ops.similarity import EPS


def linear(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    column_sum = k @ q.sum(-2)[..., None]  # [.., P, 1]
    to_pivots = k @ (q.mT @ v) / column_sum.clamp_min(EPS)  # [.., P, F]
    row_sum = q @ k.sum(-2)[..., None]  # [.., N, 1]
    return q @ (k.mT @ to_pivots) / row_sum.clamp_min(EPS)  # [.., N, F]
