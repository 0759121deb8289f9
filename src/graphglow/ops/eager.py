"""The truth: Eq. 11 as it stands in the paper, with Gamma in memory."""

from torch import Tensor

from graphglow.ops.similarity import EPS, Kernel, similarity


def propagate_over(gamma: Tensor, v: Tensor) -> Tensor:
    """RowNorm(Gamma) RowNorm(Gamma^T) v for a Gamma that is there: [.., N, P], [.., N, F]."""
    to_pivots = gamma.mT @ v / gamma.sum(-2).clamp_min(EPS)[..., None]  # [.., P, F]  C^(l+1/2)
    return gamma @ to_pivots / gamma.sum(-1).clamp_min(EPS)[..., None]  # [.., N, F]  C^(l+1)


def eager(
    v: Tensor, q: Tensor, k: Tensor, threshold: float | None, kernel: Kernel, heads: int
) -> Tensor:
    return propagate_over(similarity(q, k, threshold=threshold, kernel=kernel, heads=heads), v)
