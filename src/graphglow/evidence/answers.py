"""Several answers to one question, mixed by how they do on validation nodes.

The input graph alone, no graph, the refined graph, both, and the instant predictions are all
answers. To choose one by few validation nodes is noisy; to mix those that are as good as the best,
within what so few nodes can tell, is seldom worse than it and often better.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def mixing_weights(accuracies: Sequence[float], nodes: int) -> Tensor:
    """``softmax((a - max a) / (e / 2))`` with e the standard error of the best accuracy.

    Shapes:
        accuracies on validation nodes [A], of which there are ``nodes`` -> [A], of sum 1
    """
    accuracy = torch.tensor(accuracies, dtype=torch.float32)
    best = float(accuracy.max().clamp(0.05, 0.95))
    error = math.sqrt(best * (1 - best) / max(1, nodes))
    return ((accuracy - accuracy.max()) / (0.5 * error)).softmax(0)


def mixed(answers: Sequence[Tensor], weights: Tensor) -> Tensor:
    """``sum_a w_a p_a``: [N, C] each -> [N, C]."""
    return torch.einsum("a,anc->nc", weights.to(answers[0]), torch.stack(list(answers)))
