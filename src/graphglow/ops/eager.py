"""The truth: Gamma from its two factors (Eq. 9), and Eq. 11 as it stands in the paper.

Every similarity of the package has the form ``cut(mean_h phi(q_h . k_h))``:

======== ============= ====================================================================
name     phi           factors (per head)
======== ============= ====================================================================
cosine   identity      unit vectors; the mean over heads folds into one inner product
dot      identity      scaled vectors; likewise
rbf      exp           [a, -|a|^2/2, 1] and [b, 1, -|b|^2/2]: exp(-|a - b|^2 / 2)
attention sigmoid      projected queries and keys
======== ============= ====================================================================
"""

from typing import Literal

import torch
from torch import Tensor

Kernel = Literal["identity", "exp", "sigmoid"]

EPS = 1e-12
"""Row and column sums are kept above this, so that an empty row gives zero and never NaN."""


def similarity(
    q: Tensor,
    k: Tensor,
    *,
    threshold: float | None = 0.0,
    kernel: Kernel = "identity",
    heads: int = 1,
) -> Tensor:
    """Return Gamma = delta(mean_h phi(q_h k_h^T)) (Eq. 9), dense: for a block of nodes at a time.

    Args:
        q: Node factors [.., N, W].
        k: Pivot factors [.., P, W].
        threshold: delta: values at or below it become zero. None cuts nothing.
        kernel: phi.
        heads: H; with ``identity`` the heads are already folded into the factors' width.
    """
    if kernel == "identity":
        gamma = q @ k.mT
    else:
        q, k = (t.reshape(*t.shape[:-1], heads, -1).transpose(-3, -2) for t in (q, k))
        score = q @ k.mT  # [.., H, N, P]
        gamma = (score.exp() if kernel == "exp" else score.sigmoid()).mean(-3)
    return gamma if threshold is None else torch.where(gamma > threshold, gamma, 0.0)


def propagate_over(gamma: Tensor, v: Tensor) -> Tensor:
    """RowNorm(Gamma) RowNorm(Gamma^T) v for a Gamma that is there: [.., N, P], [.., N, F]."""
    to_pivots = gamma.mT @ v / gamma.sum(-2).clamp_min(EPS)[..., None]  # [.., P, F]  C^(l+1/2)
    return gamma @ to_pivots / gamma.sum(-1).clamp_min(EPS)[..., None]  # [.., N, F]  C^(l+1)


def eager(
    v: Tensor, q: Tensor, k: Tensor, threshold: float | None, kernel: Kernel, heads: int
) -> Tensor:
    return propagate_over(similarity(q, k, threshold=threshold, kernel=kernel, heads=heads), v)


def linear(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Eq. 11 without a cut, by associativity: O(N W F), whatever the number of pivots.

    With nothing truncated, ``Gamma = Q K^T`` and ``(Q K^T) v = Q (K^T v)``, so that neither Gamma
    nor any [N, P] block is ever formed, and P = N (all pairs) costs the same.
    """
    column_sum = k @ q.sum(-2)[..., None]  # [.., P, 1]
    to_pivots = k @ (q.mT @ v) / column_sum.clamp_min(EPS)  # [.., P, F]
    row_sum = q @ k.sum(-2)[..., None]  # [.., N, 1]
    return q @ (k.mT @ to_pivots) / row_sum.clamp_min(EPS)  # [.., N, F]
