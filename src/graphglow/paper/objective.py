"""The learning objective of the structure learner: L_s + L_r + L_e (Eq. 13-18).

The paper writes its prior on the P x P matrix E = B^T B, which is never formed here (section
"O(NP)" of docs/paper_notes.md); tests hold these forms and the paper's together.
"""

import math

import torch
from torch import Tensor

from graphglow.linalg.sparse import SparseMatrix
from graphglow.settings import ObjectiveConfig

PROBABILITY_MARGIN = 1e-6
"""Edge probabilities are kept this far from 0 and 1, where logarithms end."""


def edge_probabilities(gamma: Tensor) -> Tensor:
    """alpha_up as Bernoulli parameters: Gamma clamped into the open interval (0, 1)."""
    return gamma.clamp(PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


def smoothness(b: Tensor, x: Tensor) -> Tensor:
    """sum_pq E_pq |x_p - x_q|^2 with E = B^T B (Eq. 14), in O(N P D) instead of O(N P^2).

    That is 2 sum_u [(b_u . 1)(b_u . n) - |X^T b_u|^2] with n_p = |x_p|^2.

    Shapes:
        b [N, P], x [P, D] -> scalar
    """
    norms = x.square().sum(1)  # [P]
    return 2 * (b.sum(1) @ (b @ norms) - (b @ x).square().sum())


def frobenius(b: Tensor, signs: Tensor) -> Tensor:
    """|B^T B|_F^2 (Eq. 14) in expectation over random signs: mean_v |B^T (B v)|^2, O(N P) a probe.

    Shapes:
        b [N, P], signs [P, S] with entries +1 and -1 -> scalar
    """
    return (b.mT @ (b @ signs)).square().sum() / signs.shape[1]


def prior_reward(b: Tensor, x: Tensor, signs: Tensor, config: ObjectiveConfig) -> Tensor:
    """R(E) of Eq. 14 as a mean per entry: E/N has entries in [0, 1], and there are P^2 of them."""
    n, p = b.shape
    smooth = smoothness(b, x) / (n * p * p)
    sparse = frobenius(b, signs) / (n * n * p * p)
    return -config.smoothness * smooth - config.sparsity * sparse


def sketch(x: SparseMatrix | Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Project features to ``size`` random directions, unbiased in every inner product.

    Exact (x itself) where the width is no larger than ``size``.

    Shapes:
        x [N, D] -> [N, min(D, size)]
    """
    if x.shape[1] <= size:
        return x.to_dense()
    values = x.values if isinstance(x, SparseMatrix) else x
    projected: Tensor = x @ random_signs((x.shape[1], size), values, generator)
    return projected / math.sqrt(size)


def random_signs(shape: tuple[int, int], like: Tensor, generator: torch.Generator) -> Tensor:
    """A matrix of independent +1 and -1, with the type and device of ``like``."""
    bits = torch.randint(0, 2, shape, generator=generator, device=like.device)
    return bits.to(like.dtype) * 2 - 1


def prior_loss(
    alpha: Tensor, x: Tensor, config: ObjectiveConfig, generator: torch.Generator
) -> Tensor:
    """L_r by REINFORCE over the node-pivot edges (Eq. 16, 17), K samples and a baseline.

    Sampling needs no gradient, and log pi is linear in B: with rewards R_k that are centred over
    k, ``sum_k (R_k - mean) log pi(B_k) = sum_up W_up logit(alpha_up)`` where
    ``W = sum_k (R_k - mean) B_k``. One [N, P] matrix is kept, not K. Dividing by K - 1 instead of
    the paper's K makes the estimate unbiased (a sample's baseline is then the mean of the others).

    Shapes:
        alpha [N, P] in (0, 1), x [P, D] features of the pivots -> scalar; its gradient matters
    """
    with torch.no_grad():
        signs = random_signs((alpha.shape[1], config.probes), alpha, generator)
        draws, rewards = [], []
        for _ in range(config.samples):
            b = torch.bernoulli(alpha, generator=generator)
            draws.append(b.to(torch.bool))
            rewards.append(prior_reward(b, x, signs, config))
        reward = torch.stack(rewards)
        advantage = (reward - reward.mean()) / (config.samples - 1)
        weight = torch.zeros_like(alpha)
        for scale, b in zip(advantage, draws, strict=True):
            weight += scale * b
    return -(weight * torch.logit(alpha)).sum()


def entropy_loss(alpha: Tensor) -> Tensor:
    """L_e, the mean negative entropy of the edges (Eq. 18)."""
    return (alpha * alpha.log() + (1 - alpha) * torch.log1p(-alpha)).mean()
