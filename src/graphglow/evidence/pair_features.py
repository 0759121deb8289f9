"""Pair features f(u, v), which mean the same on every graph."""

import math

import torch
from torch import Tensor

from graphglow.evidence.channels import Channel
from graphglow.evidence.views import FIRST, SECOND
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import gram
from graphglow.linalg.sparse import common, dots, is_edge

FIRST_CHANNELS = (
    "x", "ax", "aax", "diff", "link", "all", "spread", "role", "alink", "spectral", "community",
    "hidden_x", "hidden_all",
)  # fmt: skip
SECOND_CHANNELS = ("sx", "ssx", "again", "spread_s", "hidden_again")

FIRST_EVIDENCE = (
    *(f"cosine_{v}" for v in FIRST),
    *(f"zscore_{v}" for v in FIRST),
    *(f"agree_{c}" for c in FIRST_CHANNELS),
    "common", "overlap", "rare_common", "edge", "degree_low", "degree_high",
)  # fmt: skip
SECOND_EVIDENCE = (
    *FIRST_EVIDENCE,
    *(f"cosine_{v}" for v in SECOND),
    *(f"zscore_{v}" for v in SECOND),
    *(f"agree_{c}" for c in (*SECOND_CHANNELS, "vote")),
    "first_round",
)

GROUPS: dict[str, tuple[str, ...]] = {
    "own features": ("cosine_x", "zscore_x", "cosine_diff", "zscore_diff"),
    "features around": ("cosine_ax", "zscore_ax", "cosine_aax", "zscore_aax",
                        "cosine_sx", "zscore_sx", "cosine_ssx", "zscore_ssx"),
    "neighbours in common": ("cosine_link", "zscore_link", "cosine_spectral", "zscore_spectral",
                             "common", "overlap", "rare_common"),
    "classes by features": ("agree_x", "agree_diff", "agree_hidden_x"),
    "classes by surroundings": ("agree_ax", "agree_aax", "agree_spread", "agree_sx", "agree_ssx",
                                "agree_spread_s"),
    "classes by neighbours": ("agree_link", "agree_alink", "agree_spectral", "agree_community"),
    "classes by all": ("agree_all", "agree_again", "agree_vote", "agree_hidden_all",
                       "agree_hidden_again"),
    "edge in the input": ("edge",),
    "degrees": ("degree_low", "degree_high", "cosine_role", "zscore_role", "agree_role"),
    "first round": ("first_round",),
}  # fmt: skip
"""Kinds of evidence, for explanations; every feature is in one of them."""
MEANINGS = {
    "own features": "how alike the features of the two are, and what sets each apart from others",
    "features around": "how alike the features around the two are, one and two steps away",
    "neighbours in common": "which neighbours they share, and how rare those are",
    "classes by features": "whether their features give them the same class",
    "classes by surroundings": "whether what surrounds them gives them the same class",
    "classes by neighbours": "whether their lists of neighbours give them the same class",
    "classes by all": "whether all of these together give them the same class",
    "edge in the input": "whether your graph joins them",
    "degrees": "how many neighbours each has",
    "this graph": "how far each kind of evidence held among the training labels of this graph",
    "labelled pairs": "a correction, so that pairs of known classes come out right on average",
    "chance": "two random nodes of this graph",
}
"""What each kind of evidence about a pair means."""


def moments(view: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of the cosine over all pairs of a graph, from sums alone."""
    nodes = len(view)
    if nodes < 2 or view.shape[1] == 0:
        return 0.0, 1.0
    pairs, squares = nodes * (nodes - 1), view.square().sum(1).double()
    total = view.sum(0, dtype=torch.float64).square().sum() - squares.sum()
    square = gram(view).square().sum() - squares.square().sum()
    mean, second = (torch.stack([total, square]) / pairs).tolist()
    return mean, max((second - mean**2), 1e-6) ** 0.5


def cosines(view: Tensor, pairs: Tensor, scale: tuple[float, float]) -> Tensor:
    """Cosine, and its z-score among all pairs, clipped to -4 .. 12 and divided by 4: [M, 2]."""
    cosine = dots(view, pairs)
    zscore = ((cosine - scale[0]) / scale[1]).clamp(-4, 12) / 4
    return torch.stack([cosine, zscore], 1)


def agreement(graph: Graph, channel: Channel, pairs: Tensor) -> Tensor:
    """``logit(sum_k P(u, k) P(v, k)) - logit(sum_k pi_k^2)``, clipped to +-8, over 4: [M, 1]."""
    if len(graph.seen) < 2:
        return torch.zeros(pairs.shape[1], 1, device=pairs.device)
    same = dots(channel.probabilities, pairs)
    over = same.clamp(1e-6, 1 - 1e-6).logit() - logit(graph.chance)
    return over.clamp(-8, 8)[:, None] / 4


def common_neighbours(graph: Graph, pairs: Tensor) -> Tensor:
    """Number of common neighbours (log), their share of the degrees, Adamic-Adar: [M, 3]."""
    count, rarity = common(graph.links, graph.common_neighbour_weights, pairs).unbind(1)
    share = count / graph.degree[pairs].prod(0).sqrt().clamp_min(1)
    return torch.stack([count.log1p() / 2, share, rarity.log1p()], 1)


def first_evidence(
    graph: Graph,
    views: dict[str, Tensor],
    scales: dict[str, tuple[float, float]],
    channels: dict[str, Channel],
    pairs: Tensor,
) -> Tensor:
    """:data:`FIRST_EVIDENCE` of each pair: [2, M] -> [M, F]."""
    compared = torch.stack([cosines(views[v], pairs, scales[v]) for v in FIRST], 2)  # [M, 2, V]
    agreed = [agreement(graph, channels[c], pairs) for c in FIRST_CHANNELS]
    edge = is_edge(graph.links, pairs).float()
    degrees = graph.degree[pairs].sort(0).values.log1p() / 4  # [2, M]
    structure = common_neighbours(graph, pairs)
    return torch.cat(
        [compared.flatten(1), *agreed, structure, edge[:, None], degrees.T.contiguous()], 1
    )


def logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)
