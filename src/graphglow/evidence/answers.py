"""Several answers to one question: mixed by validation nodes, or chosen without any.

The input graph alone, no graph, the refined graph, both, and the instant predictions are all
answers. To choose one by few validation nodes is noisy; to mix those that are as good as the best,
within what so few nodes can tell, is seldom worse than it and often better.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

STRENGTHS = (0.0, 0.5, 1.0)
"""How far an answer is moved from the training labels' class shares to those of validation."""
SHARPNESS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
PSEUDO_LABELS = 5  # of the training labels' shares, against few validation nodes


def mixing_weights(accuracies: Sequence[float], nodes: float) -> Tensor:
    """``softmax((a - max a) / (e / 2))`` with e the standard error of the best accuracy.

    Shapes:
        accuracies on validation nodes [A], of which there are ``nodes`` -> [A], of sum 1
    """
    accuracy = torch.tensor(accuracies, dtype=torch.float32)
    best = float(accuracy.max().clamp(0.05, 0.95))
    error = math.sqrt(best * (1 - best) / max(1, nodes))
    return ((accuracy - accuracy.max()) / (0.5 * error)).softmax(0)


def balancing(labels: Tensor) -> Tensor:
    """A weight per node, by which each class that occurs counts alike: [M] -> [M], of mean 1."""
    counts = torch.bincount(labels)
    each = len(labels) / (counts.clamp_min(1) * (counts > 0).sum())
    return each[labels]


def validation_score(answer: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Accuracy, ties by the log-loss: [K, C], [K], [K] of mean 1 -> []."""
    right = (answer.argmax(1) == labels).float()
    sure = answer.gather(1, labels[:, None])[:, 0].clamp_min(1e-9).log()
    return (weight * (right + 1e-3 * sure)).mean()


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


class Mixture(NamedTuple):
    """How several answers are mixed: ``logits = sum_a shares_a sharpness_a logits_a + shift``.

    Shapes:
        shares [A] of sum 1, sharpness [A], shift [C]
    """

    shares: Tensor
    sharpness: Tensor
    shift: Tensor


def shares_by_validation(
    logits: Sequence[Tensor], prior: Tensor, labels: Tensor, weight: Tensor | None = None
) -> Mixture:
    """Mix answers by their accuracy on validation nodes; evenly where there are none.

    Each is taken as it is and moved to the classes' shares among validation nodes, half way and
    all the way: labels that were drawn evenly say nothing of uneven classes. How sharp an answer
    is, is by its log-loss there.

    Shapes:
        logits [K, C] of validation nodes, A of them; prior [C] of the training labels;
        labels [K]; weight [K] of mean 1
    """
    count = len(logits)
    if len(labels) == 0:
        even = torch.full((count,), 1 / count, device=prior.device)
        return Mixture(even, torch.ones_like(even), torch.zeros_like(prior))
    seen = prior > 0
    weight = torch.ones_like(labels, dtype=prior.dtype) if weight is None else weight
    counts = torch.bincount(labels, weight, minlength=len(prior)).to(prior)
    shares = (counts + PSEUDO_LABELS * prior) / (counts.sum() + PSEUDO_LABELS)
    ratio = torch.where(seen, (shares.clamp_min(1e-4) / prior.clamp_min(1e-4)).log(), 0.0)
    sharpness, scores = [], []
    tried = torch.tensor(SHARPNESS).to(prior)
    for one in logits:
        cost = [F.cross_entropy(by * one, labels, reduction="none") @ weight for by in tried]
        sharp = tried[(torch.stack(cost) + 2 * tried.log().square()).argmin()[None]]
        sharpness.append(sharp)
        for strength in STRENGTHS:
            answer = (sharp * one + strength * ratio).softmax(1)
            scores.append(validation_score(answer, labels, weight))
    worth = float(weight.sum().square() / weight.square().sum())  # nodes, if all counted alike
    weights = mixing_weights(torch.stack(scores).tolist(), worth).view(count, -1).to(prior)
    moved = (weights * torch.tensor(STRENGTHS).to(prior)).sum()
    return Mixture(weights.sum(1), torch.cat(sharpness), moved * ratio)
