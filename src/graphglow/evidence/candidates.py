"""Candidates: the pairs of nodes that are looked at, about 40 per node instead of N."""

import torch
from torch import Tensor

from graphglow.evidence.channels import Channel
from graphglow.evidence.problem import Problem

NEAREST = 8
"""k: neighbours of a node in each view."""
BLOCK = 2**26  # similarities in memory at once


def candidate_pairs(
    problem: Problem, views: list[Tensor], channels: list[Channel], known: Tensor | None = None
) -> Tensor:
    """Each pair once, as ``u < v``, sorted: the ``known`` ones or the input's edges, and the
    nearest nodes in each view and in the channels' class probabilities together.

    Shapes:
        views [N, D] unit rows; known [2, K] -> [2, M]
    """
    if known is None:
        known = torch.stack([problem.low.long(), problem.high.long()])
    found = [known]
    beliefs = torch.cat([c.probabilities.sqrt() for c in channels], 1)
    if beliefs.shape[1] > len(channels):  # at least two classes
        views = [*views, torch.nn.functional.normalize(beliefs - beliefs.mean(0), dim=1)]
    found += [nearest(view, NEAREST) for view in views]
    pairs = torch.cat(found, 1)
    low, high = pairs.amin(0), pairs.amax(0)
    key = torch.unique((low * problem.num_nodes + high)[low != high])
    return torch.stack([key // problem.num_nodes, key % problem.num_nodes])


def nearest(rows: Tensor, k: int) -> Tensor:
    """Each node and its ``k`` nearest others by cosine, as far as it is positive.

    Shapes:
        rows [N, D] unit -> [2, <= N k]
    """
    nodes, k = len(rows), min(k, len(rows) - 1)
    if k < 1 or rows.shape[1] == 0:
        return torch.empty(2, 0, dtype=torch.int64, device=rows.device)
    step = max(1, BLOCK // nodes)
    found = []
    for start in range(0, nodes, step):
        here = torch.arange(start, min(start + step, nodes), device=rows.device)
        similar = rows[here] @ rows.T  # [step, N]
        similar[here - start, here] = -1
        value, there = similar.topk(k, 1)
        pairs = torch.stack([here[:, None].expand(-1, k), there], 0)
        found.append(pairs[:, value > 1e-4])
    return torch.cat(found, 1)
