"""Several answers to one question: mixed by validation nodes, or chosen without any.

The input graph alone, no graph, the refined graph, both, and the instant predictions are all
answers. To choose one by few validation nodes is noisy; to mix those that are as good as the best,
within what so few nodes can tell, is seldom worse than it and often better.
"""

import math
from collections.abc import Mapping, Sequence

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


def graph_by_leave_one_out(
    scores: Mapping[str, Mapping[str, float]], *, margin: float = 0.05
) -> float | None:
    """Lambda of ``lambda A + (1 - lambda) S`` without validation nodes; None means no graph.

    The channels of x, A^2 x and S^2 x are linear GNNs on no graph, on the input's and on the
    refined one; their leave-one-out log-loss gains are compared. Within ``margin`` of each other
    the two graphs are mixed evenly.

    Args:
        scores: ``channel_scores`` of a refined graph.
        margin: A smaller lead is none.
    """
    none, given, refined = (scores[name]["likelihood"] for name in ("x", "aax", "ssx"))
    if none > max(given, refined) + margin:
        return None
    if abs(given - refined) <= margin:
        return 0.5
    return float(given > refined)
