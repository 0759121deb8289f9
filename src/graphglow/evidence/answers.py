"""Several answers to one question: mixed by validation nodes, or chosen without any.

The input graph alone, no graph, the refined graph, both, and the instant predictions are all
answers. To choose one by few validation nodes is noisy; to mix those that are as good as the best,
within what so few nodes can tell, is seldom worse than it and often better.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

STRENGTHS = (0.0, 0.5, 1.0)
"""How far an answer is moved from the training labels' class shares to those of validation."""
PSEUDO_LABELS = 5  # of the training labels' shares, against few validation nodes


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


def with_shares(answer: Tensor, prior: Tensor, shares: Tensor, strength: float) -> Tensor:
    """``p_k (shares_k / prior_k)^strength``, of sum 1: labels drawn evenly from uneven classes.

    Shapes:
        answer [N, C], prior [C] of the training labels, shares [C] of the classes -> [N, C]
    """
    ratio = (shares.clamp_min(1e-4) / prior.clamp_min(1e-4)) ** strength
    moved = answer * torch.where(prior > 0, ratio, torch.ones_like(ratio))
    return moved / moved.sum(1, keepdim=True).clamp_min(1e-12)


def mixed_by_validation(
    answers: Sequence[Tensor], prior: Tensor, nodes: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Every answer as it is and moved to the classes' shares among validation nodes, half way and
    all the way; mixed by accuracy there.

    Shapes:
        answers [N, C] each, A of them; prior [C] of the training labels; nodes [K] and labels [K]
        of validation -> probabilities [N, C], weights [A, 3] of sum 1
    """
    counts = torch.bincount(labels, minlength=len(prior)).to(prior)
    shares = (counts + PSEUDO_LABELS * prior) / (counts.sum() + PSEUDO_LABELS)
    every = [with_shares(a, prior, shares, s) for a in answers for s in STRENGTHS]
    scores = [validation_score(a[nodes], labels) for a in every]
    weights = mixing_weights(scores, len(nodes))
    return mixed(every, weights), weights.view(len(answers), len(STRENGTHS))


def validation_score(answer: Tensor, labels: Tensor) -> float:
    """Accuracy, ties by the log-loss: [K, C], [K]."""
    right = (answer.argmax(1) == labels).float().mean()
    sure = answer.gather(1, labels[:, None]).clamp_min(1e-9).log().mean()
    return float(right + 1e-3 * sure)


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
