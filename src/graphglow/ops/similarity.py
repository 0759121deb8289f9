"""Gamma, the node-pivot similarity matrix, from its two factors.

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
Precision = Literal["float32", "tf32", "bfloat16"]

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
        q: Node factors.
        k: Pivot factors.
        threshold: delta: values at or below it become zero. None cuts nothing.
        kernel: phi.
        heads: H; with ``identity`` the heads are already folded into the factors' width.

    Shapes:
        q [.., N, W], k [.., P, W] -> [.., N, P]
    """
    if kernel == "identity":
        gamma = q @ k.mT
    else:
        q, k = _split_heads(q, heads), _split_heads(k, heads)
        score = q @ k.mT  # [.., H, N, P]
        gamma = (score.exp() if kernel == "exp" else score.sigmoid()).mean(-3)
    if threshold is None:
        return gamma
    return torch.where(gamma > threshold, gamma, 0.0)


def _split_heads(factor: Tensor, heads: int) -> Tensor:
    per_head = factor.reshape(*factor.shape[:-1], heads, -1)  # [.., N, H, W/H]
    return per_head.transpose(-3, -2)
