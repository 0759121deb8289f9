"""Pair features f(u, v), which mean the same on every graph, and the context c(graph).

The context says how reliable each kind of evidence has been here, by the graph's own labels.
"""

import math
from collections.abc import Callable

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

FIRST_CONTEXT = (
    *(f"{c}_{s}" for c in FIRST_CHANNELS for s in ("accuracy", "likelihood")),
    "homophily_believed", "homophily_labelled", "homophily_candidates", "labels_per_class",
    "classes", "chance", "degree", "has_features", "has_edges", "has_labels",
)  # fmt: skip
SECOND_CONTEXT = (
    *FIRST_CONTEXT,
    *(f"{c}_{s}" for c in SECOND_CHANNELS for s in ("accuracy", "likelihood")),
    "homophily_refined",
)
VOTED_CONTEXT = (*SECOND_CONTEXT, "vote_accuracy", "vote_likelihood")

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
PSEUDO_PAIRS = 5
"""Pairs at chance that shrink the homophily."""


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


def comparisons(
    graph: Graph,
    views: list[tuple[Tensor, tuple[float, float]]],
    channels: list[Channel],
    pairs: Tensor,
) -> Tensor:
    """Compare the two nodes of each pair in every view and by every channel.

    In a view, with its :func:`moments`: the cosine, and its z-score among all pairs, clipped to
    -4 .. 12, over 4. By a channel: ``logit(sum_k P(u, k) P(v, k)) - logit(sum_k pi_k^2)``, clipped
    to +-8, over 4.

    Shapes:
        [2, M] -> [M, cosines, z-scores, agreements]
    """
    cosine = torch.stack([dots(view, pairs) for view, _ in views], 1)
    mean, deviation = torch.tensor([scale for _, scale in views], device=pairs.device).T
    zscore = ((cosine - mean) / deviation).clamp(-4, 12) / 4
    same = torch.stack([dots(channel.probabilities, pairs) for channel in channels], 1)
    over = same.clamp(1e-6, 1 - 1e-6).logit() - logit(graph.chance)
    agreement = over.clamp(-8, 8) / 4 * (len(graph.seen) > 1)
    return torch.cat([cosine, zscore, agreement], 1)


def structure(graph: Graph, pairs: Tensor) -> Tensor:
    """Common neighbours (log), their share of the degrees, Adamic-Adar, edge, degrees: [M, 6]."""
    count, rarity = common(graph.links, graph.common_neighbour_weights, pairs).unbind(1)
    overlap = count / graph.degree[pairs].prod(0).sqrt().clamp_min(1)
    edge = is_edge(graph.links, pairs).float()
    degrees = graph.degree[pairs].sort(0).values.log1p() / 4  # [2, M]
    return torch.stack([count.log1p() / 2, overlap, rarity.log1p(), edge, *degrees], 1)


def first_context(graph: Graph, channels: dict[str, Channel], candidates: Tensor) -> Tensor:
    """Compute :data:`FIRST_CONTEXT` of a graph and its candidates [2, M]: [G]."""
    num_classes, edges = len(graph.seen), len(graph.low)
    pairs = torch.stack([graph.low.long(), graph.high.long()])
    p = channels["x"].probabilities
    believed = torch.zeros((), device=graph.device)
    if edges and num_classes > 1:
        believed = dots(p, pairs).mean() - graph.chance
    homophily = [labelled_homophily(graph, some) for some in (pairs, candidates)]
    facts = [
        math.log1p(len(graph.labelled) / max(1, num_classes)) / 4,
        math.log(max(1, num_classes)) / 3,
        graph.chance,
        math.log1p(2 * edges / graph.num_nodes) / 4,
        float(graph.features is not None),
        float(edges > 0),
        float(num_classes > 1),
    ]
    scores = [channels[c].scores for c in FIRST_CHANNELS]
    found = torch.stack([believed, *homophily])
    return torch.cat([*scores, found, torch.tensor(facts, device=graph.device)])


def labelled_pairs(graph: Graph, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the pairs with two labels, and whether these are the same: [K], [K]."""
    own = torch.full((graph.num_nodes,), -1, device=graph.device)
    own[graph.labelled] = graph.classes
    known = own >= 0
    both = (known[pairs[0]] & known[pairs[1]]).nonzero()[:, 0]
    return both, (own[pairs[0, both]] == own[pairs[1, both]]).float()


def labelled_homophily(graph: Graph, pairs: Tensor, weight: Tensor | None = None) -> Tensor:
    """Share of one class among pairs with two labels, over chance, shrunk by 5 pseudo-pairs."""
    both, same = labelled_pairs(graph, pairs)
    share = torch.ones_like(same)
    if weight is not None and len(both):
        share = weight[both] / weight[both].mean().clamp_min(1e-9)
    total = share.sum() + PSEUDO_PAIRS
    return ((share * same).sum() + PSEUDO_PAIRS * graph.chance) / total - graph.chance


def contributions(score: Callable[[Tensor], Tensor], f: Tensor, groups: list[list[int]]) -> Tensor:
    """Split the scores of pairs into the contributions of groups of features; the sum is exact.

    Starting from zeros, the groups are added one by one, in the given order and in reverse; the
    contribution of a group is the mean of its two changes. The last column is the score of zeros.

    Shapes:
        f [M, F], score [M, F] -> [M]; [M, len(groups) + 1]
    """
    parts = f.new_zeros(len(f), len(groups) + 1)
    parts[:, -1] = of_zeros = score(torch.zeros_like(f))
    for order in (range(len(groups)), reversed(range(len(groups)))):
        partial, before = torch.zeros_like(f), of_zeros
        for group in order:
            partial[:, groups[group]] = f[:, groups[group]]
            after = score(partial)
            parts[:, group] += (after - before) / 2
            before = after
    return parts


def logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)
