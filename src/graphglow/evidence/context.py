"""Context c(graph): how reliable each kind of evidence has been here, by the graph's own labels."""

import math

import torch
from torch import Tensor

from graphglow.evidence.channels import Channel
from graphglow.evidence.pair_features import FIRST_CHANNELS, SECOND_CHANNELS
from graphglow.graph.graph import Graph
from graphglow.linalg.sparse import dots

PSEUDO_PAIRS = 5

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


def first_context(graph: Graph, channels: dict[str, Channel], candidates: Tensor) -> Tensor:
    """:data:`FIRST_CONTEXT` of a graph and its candidates [2, M]: [G]."""
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


def second_context(
    graph: Graph, first: Tensor, channels: dict[str, Channel], pairs: Tensor, weight: Tensor
) -> Tensor:
    """:data:`SECOND_CONTEXT`, from that of the first round and its weighted pairs [2, M], [M]."""
    refined = labelled_homophily(graph, pairs, weight)
    scores = [channels[c].scores for c in SECOND_CHANNELS]
    return torch.cat([first, *scores, refined[None]])


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
