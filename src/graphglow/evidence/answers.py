"""Several answers to one question, mixed by how they do on validation nodes.

The input graph alone, no graph, the refined graph, both, and the instant predictions are all
answers. Choosing the best of them by few validation nodes is noisy; mixing is not worse than the
best by much, and often better.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

STEPS = 50


def mixing_weights(answers: Sequence[Tensor], y: Tensor, *, prior: float = 2.0) -> Tensor:
    """Weights of a mixture of predictions that are likeliest on validation nodes.

    ``max_w sum_v log sum_a w_a p_a(y_v | v)`` with ``prior`` pseudo-nodes for each answer, by
    expectation and maximisation.

    Shapes:
        answers [V, C] each, y [V] -> [A], of sum 1
    """
    count = len(answers)
    own = torch.stack([p.gather(1, y[:, None])[:, 0] for p in answers]).clamp_min(1e-6)  # [A, V]
    weights = own.new_full((count,), 1 / count)
    for _ in range(STEPS):
        share = weights[:, None] * own
        share = share / share.sum(0)
        weights = (share.sum(1) + prior) / (own.shape[1] + prior * count)
    return weights


def mixed(answers: Sequence[Tensor], weights: Tensor) -> Tensor:
    """``sum_a w_a p_a``: [N, C] each -> [N, C]."""
    return torch.einsum("a,anc->nc", weights, torch.stack(list(answers)))
