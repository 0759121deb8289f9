"""The rounds of refinement: scored pairs make a graph, over which pairs are scored again.

``first_round``, ``second_round``, ``with_vote`` and ``final_round`` each add to a
:class:`GraphEvidence`, ``above_chance`` makes a :class:`RefinedGraph` of it, and
:meth:`graphglow.evidence.learner.EvidenceLearner.refine` runs them.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.device import MapBlocks, map_blocks
from graphglow.evidence.channels import (
    Channel,
    absent,
    community_channel,
    ridge_channel,
    spread_channel,
)
from graphglow.evidence.communities import communities
from graphglow.evidence.pair_features import (
    FIRST_CHANNELS,
    FIRST_CONTEXT,
    SECOND_CHANNELS,
    comparisons,
    first_context,
    labelled_homophily,
    labelled_pairs,
    logit,
    moments,
    structure,
)
from graphglow.evidence.predictor import (
    CHANNELS,
    VOTERS,
    sharpened,
    unlabelled_records,
    vote_inputs,
)
from graphglow.evidence.views import (
    AGAIN,
    ALL,
    FIRST,
    HIDDEN_F,
    RANKS,
    SECOND,
    belief_view,
    candidate_pairs,
    first_views,
    hidden_layer,
    hop_means,
    page_rank,
    pair_blocks,
    views_of,
)
from graphglow.graph.graph import Graph, adjacency_of
from graphglow.linalg.rows import (
    LowRank,
    SideBySide,
    leading_map,
    sparse_rows,
    times,
    unit_,
    unit_unless_short,
)
from graphglow.linalg.sparse import SparseMatrix, is_edge

if TYPE_CHECKING:  # which imports this
    from graphglow.evidence.learner import EvidenceLearner

LARGEST_WEIGHT = 8.0
RESOLUTIONS = (1.0, 4.0)
"""Resolutions of the communities: the greatest modularity, and smaller communities."""
AT_ONCE = 2**14  # nodes in one block of the vote
CARRIED = 4  # divides the first round's log-odds, as the second round reads them
PAIRS = 2**20  # looked up at once
SEARCHED = (("x", "ax", "aax", "link"), SECOND)
"""Views in which candidates are searched, by round, besides the channels' predictions."""


@dataclass(frozen=True, eq=False)
class GraphEvidence:
    """Views, channels and candidate pairs of a graph, and how reliable each channel is.

    The second round adds views and channels over the first round's graph S, ``with_vote`` the
    channel ``vote`` and more candidates, the final round views and channels over its own graph.

    Shapes:
        pairs [2, M] of int32, the first round's first; context [G]; first_weight [<= M]: weights
        of the first round's pairs in S; first_scale [2]: slope and intercept of its scores
    """

    graph: Graph
    views: dict[str, Tensor]
    moments: dict[str, tuple[float, float]]
    """Mean and deviation of the cosine over all pairs, by view."""
    channels: dict[str, Channel]
    pairs: Tensor
    context: Tensor
    search: str
    """How the nearest neighbours were searched."""
    maps: dict[str, LowRank] = field(default_factory=dict)
    """Maps from features and adjacency rows to the views ``x`` and ``link``."""
    learner: "EvidenceLearner | None" = None
    first_scale: Tensor = field(default_factory=lambda: torch.tensor([1.0, 0.0]))
    first_weight: Tensor = field(default_factory=lambda: torch.zeros(0))
    first_calibration: float = 0.0
    """Added to the first round's log-odds; see :func:`calibration`."""
    records: dict[str, Tensor] = field(default_factory=dict)
    """Label-free measures of the channels in ``MIXED``: [V, 4]."""

    @cached_property
    def whole(self) -> "GraphEvidence":
        """With the views that are left out once all candidates are scored."""
        graph, views, weight = self.graph, self.views, self.first_weight
        if "sx" in views:
            return self
        first = adjacency_over(self.pairs[:, : len(weight)], weight, graph.num_nodes)
        views = views_of(graph, views["x"], views["link"])
        return replace(self, views=views | hop_means(first, views["x"], "s"))

    def evidence(self, pairs: Tensor) -> Tensor:
        """Features of any pairs, in the order of ``FIRST_EVIDENCE`` or, after the vote, of
        ``SECOND_EVIDENCE``: [2, K] -> [K, F].
        """
        pairs, scale = pairs.long(), self.first_scale
        views = [(self.views[name], self.moments[name]) for name in FIRST]
        channels = [self.channels[name] for name in FIRST_CHANNELS]
        compared = comparisons(self.graph, views, channels, pairs)
        first = torch.cat([compared, structure(self.graph, pairs)], 1)
        if "vote" not in self.channels:
            return first
        assert self.learner is not None
        views = [(self.views[name], self.moments[name]) for name in SECOND]
        channels = [self.channels[name] for name in (*SECOND_CHANNELS, "vote")]
        compared = comparisons(self.graph, views, channels, pairs)
        scores = self.learner.pair_scores(0, first, self.context[: len(FIRST_CONTEXT)])
        carried = (scale[0] * scores + scale[1]) / CARRIED
        return torch.cat([first, compared, carried[:, None]], 1)

    def scores(self, pairs: Tensor) -> Tensor:
        """Return the learner's raw scores of pairs: [2, K] -> [K]."""
        assert self.learner is not None
        round_ = int("vote" in self.channels)
        return self.learner.pair_scores(round_, self.evidence(pairs), self.context)


def first_round(
    graph: Graph, generator: torch.Generator, map_blocks: MapBlocks = map_blocks
) -> GraphEvidence:
    """Compute views and channels of the given graph, and search candidate pairs."""
    views, maps = first_views(graph, generator)
    link = views["link"]
    ranks = [ridge_channel(graph, leading_map(link, rank)(link)) for rank in RANKS]
    edges = graph.links
    if graph.weight is not None:
        ends = torch.stack([graph.low, graph.high])
        row, col = torch.cat([ends, ends.flip(0)], 1)
        edges = sparse_rows(row, col, graph.weight.repeat(2), edges.shape)
    members = [communities(edges, resolution=by) for by in RESOLUTIONS]
    grouped = [community_channel(graph, member) for member in members]
    channels = {
        **{name: ridge_channel(graph, views[name]) for name in ("ax", "aax", "diff", "role")},
        "all": ridge_channel(graph, SideBySide.of([views[name] for name in ALL])),
        "x": ridge_channel(graph, graph.features),
        "link": ridge_channel(graph, graph.neighbour_rows if len(graph.low) else None),
        "alink": ridge_channel(graph, unit_unless_short(times(graph.adj, link))),
        "spectral": max(ranks, key=lambda one: float(one.scores[1])),  # by log-loss
        "community": max(grouped, key=lambda one: float(one.scores[1])),
        "spread": spread_channel(graph, graph.adj),
        "hidden_x": ridge_channel(graph, hidden_layer(views, ("x",))),
        "hidden_all": ridge_channel(graph, hidden_layer(views, ALL)),
    }
    near = [*(views[name] for name in SEARCHED[0]), belief_view(list(channels.values()))]
    pairs, search = candidate_pairs(near, torch.stack([graph.low, graph.high]), map_blocks)
    scales = {name: moments(views[name]) for name in FIRST}
    context = first_context(graph, channels, pairs)
    return GraphEvidence(graph, views, scales, channels, pairs, context, search, maps)


def second_round(
    learner: "EvidenceLearner", known: GraphEvidence, map_blocks: MapBlocks = map_blocks
) -> GraphEvidence:
    """Score the first round's pairs, and compute views and channels over the resulting graph S."""
    graph, pairs, known = known.graph, known.pairs, replace(known, learner=learner)
    log_odds, scale, shift = candidate_log_odds(known, map_blocks)
    weight = log_odds.clamp(0, LARGEST_WEIGHT)
    adjacency = adjacency_over(pairs, weight, graph.num_nodes)
    fresh = hop_means(adjacency, known.views["x"], "s")
    views = known.views | fresh
    channels = {name: ridge_channel(graph, views[name]) for name in SECOND}
    channels["again"] = ridge_channel(graph, SideBySide.of([views[name] for name in AGAIN]))
    channels["spread_s"] = spread_channel(graph, adjacency)
    channels["hidden_again"] = ridge_channel(graph, hidden_layer(views, AGAIN))
    homophily = labelled_homophily(graph, pairs, weight)
    scores = [channels[name].scores for name in SECOND_CHANNELS]
    channels = known.channels | channels
    return replace(
        known,
        views=views,
        moments=known.moments | {name: moments(view) for name, view in fresh.items()},
        channels=channels,
        context=torch.cat([known.context, *scores, homophily[None]]),
        first_scale=scale,
        first_weight=weight,
        first_calibration=shift,
        records={"vote": unlabelled_records(graph, [channels[name] for name in VOTERS])},
    )


def with_vote(known: GraphEvidence, map_blocks: MapBlocks = map_blocks) -> GraphEvidence:
    """Add the vote of all channels, and the second round's candidates behind the first's."""
    graph = known.graph
    if len(graph.seen) < 2:
        vote = absent(graph)
    else:
        assert known.learner is not None
        blocks = torch.split(torch.arange(graph.num_nodes, device=graph.device), AT_ONCE)
        logits = [known.learner.vote(*vote_inputs(known, "vote", block)) for block in blocks]
        vote = sharpened(graph, torch.cat(logits))
    believed = [*(known.channels[name] for name in SECOND_CHANNELS), vote]
    near = [*(known.views[name] for name in SEARCHED[1]), belief_view(believed)]
    found, _ = candidate_pairs(near, known.pairs[:, :0], map_blocks)
    return replace(
        known,
        channels=known.channels | {"vote": vote},
        pairs=torch.cat([known.pairs, new_pairs(known, found)], 1),
        context=torch.cat([known.context, vote.scores]),
    )


def final_round(refined: "RefinedGraph") -> GraphEvidence:
    """Compute views and channels over the refined graph S [N, N]."""
    known, adjacency = refined.known, refined.adjacency()
    graph, channels = known.graph, dict(known.channels)
    views = known.views | hop_means(adjacency, known.views["x"], "f")
    channels["ffx"] = ridge_channel(graph, views["ffx"])
    channels["hidden_f"] = ridge_channel(graph, hidden_layer(views, HIDDEN_F))
    x = views["x"]
    del views
    for name, over in (("ppr", graph.adj), ("ppr_f", adjacency)):
        channels[name] = ridge_channel(graph, unit_(page_rank(over, x)))
    channels["spread_f"] = spread_channel(graph, adjacency)
    channels["community_f"] = community_channel(graph, communities(adjacency))
    records = unlabelled_records(graph, [channels[name] for name in CHANNELS])
    return replace(known, channels=channels, records=known.records | {"predictor": records})


def candidate_log_odds(known: GraphEvidence, map_blocks: MapBlocks) -> tuple[Tensor, Tensor, float]:
    """Score all candidates: log-odds over chance [M], slope and intercept [2], calibration."""
    assert known.learner is not None
    blocks = pair_blocks(known.pairs)
    scores = torch.cat(list(map_blocks(GraphEvidence.scores, known, blocks)))
    scale = known.learner.scale(int("vote" in known.channels), scores)
    log_odds = scale[0] * scores + scale[1]
    shift = calibration(known.graph, known.pairs, log_odds)
    return log_odds + shift, scale, shift


def new_pairs(known: GraphEvidence, pairs: Tensor) -> Tensor:
    """Keep the sorted pairs that are no candidates yet: [2, K] -> [2, <= K] of their type."""
    key = F.pad(pairs[0].long() * known.graph.num_nodes + pairs[1], (0, 1), value=-1)
    fresh = torch.ones_like(key, dtype=torch.bool)
    for block in torch.split(known.pairs, PAIRS, 1):
        old = block[0].long() * known.graph.num_nodes + block[1]
        place = torch.searchsorted(key[:-1], old)
        fresh[place[key[place] == old]] = False
    return pairs[:, fresh[:-1]].to(known.pairs.dtype)


def adjacency_over(pairs: Tensor, weight: Tensor, num_nodes: int) -> SparseMatrix:
    """Build the normalised adjacency S of sorted pairs [2, M] with positive weights: [N, N]."""
    kept = weight > 0
    return adjacency_of(pairs[0][kept], pairs[1][kept], weight[kept], num_nodes)


def calibration(graph: Graph, pairs: Tensor, log_odds: Tensor) -> float:
    """Fit an intercept for the log-odds to the pairs with two labels.

    Their evidence consists of leave-one-out predictions. The intercept has a normal prior of
    deviation 0.7, and the pairs weigh at most twice the number of labels, since they share nodes.
    """
    both, same = labelled_pairs(graph, pairs)
    count = len(same)
    if count == 0 or len(graph.seen) < 2:
        return 0.0
    weight = min(1.0, 2 * len(graph.labelled) / count)
    logits = log_odds[both].double() + logit(graph.chance)
    shift = torch.zeros((), dtype=torch.float64, device=logits.device)
    for _ in range(12):  # Newton's method
        p = (logits + shift).sigmoid()
        slope = weight * (p - same).sum() + shift / 0.49
        step = slope / (weight * (p * (1 - p)).sum() + 1 / 0.49)
        shift = shift - step.clamp(-0.5, 0.5)
    return float(shift)


@dataclass(frozen=True, eq=False)
class RefinedGraph:
    """The graph that comes out: edges above chance, each with weight and probability.

    Edges are some of the candidates, ``pairs``, each listed once. Behind the first
    ``num_candidates`` stand other pairs that were asked about, which never become edges. ``edge_*``
    list both directions of an edge.

    Shapes:
        edges [K] positions among pairs; pair_in_input [M], pair_log_odds [M] over chance;
        scale [2]: slope and intercept of scores; probabilities [N, classes] or None without labels
    """

    known: GraphEvidence
    """Views, channels and candidates of both rounds; evidence about any pair comes from it."""
    edges: Tensor
    num_candidates: int
    pair_in_input: Tensor
    pair_log_odds: Tensor
    scale: Tensor
    calibration: float
    """Added to all log-odds, by the pairs that have two labels."""
    probabilities: Tensor | None = None
    update: Tensor | None = None
    """What this graph's labels change in the predictor's weights, [1 + folds, V + 1]; None without
    two classes."""
    shares: Tensor | None = None
    """Estimated share of each class that has a label, among all nodes: [C]."""
    least_weight: float = 0.0
    """Of an edge of the input, whatever the evidence says of it."""

    @property
    def graph(self) -> Graph:
        return self.known.graph

    @property
    def channel_scores(self) -> dict[str, dict[str, float]]:
        """Leave-one-out accuracy over the majority class, and log-loss gain, by channel."""
        names = ("accuracy", "likelihood")
        return {
            channel: dict(zip(names, found.scores.tolist(), strict=True))
            for channel, found in self.known.channels.items()
        }

    @property
    def pairs(self) -> Tensor:
        return self.known.pairs.long()

    @property
    def pair_probability(self) -> Tensor:
        return (self.pair_log_odds + logit(self.graph.chance)).sigmoid()

    @property
    def edge_index(self) -> Tensor:
        ends = self.known.pairs[:, self.edges]
        return torch.cat([ends, ends.flip(0)], 1).long()

    @property
    def edge_weight(self) -> Tensor:
        return self.weights().repeat(2)

    @property
    def edge_probability(self) -> Tensor:
        return self.pair_probability[self.edges].repeat(2)

    @property
    def edge_in_input(self) -> Tensor:
        return self.pair_in_input[self.edges].repeat(2)

    def adjacency(self) -> SparseMatrix:
        """Build ``S = D^-1/2 (W + I) D^-1/2``: [N, N]."""
        low, high = self.known.pairs[:, self.edges]
        return adjacency_of(low, high, self.weights(), self.graph.num_nodes)

    def weights(self) -> Tensor:
        """Weight of each edge, by its log-odds over chance: [K]."""
        weight = self.pair_log_odds[self.edges].clamp(0, LARGEST_WEIGHT)
        return torch.maximum(weight, self.least_weight * self.pair_in_input[self.edges])

    def only(self, kept: Tensor) -> "RefinedGraph":
        """Keep some of the edges: [K] of bool."""
        return replace(self, edges=self.edges[kept])

    def ranks(self) -> Tensor:
        """Rank of each edge among those of either end, the heaviest is 0: [2, K]."""
        ends = self.known.pairs[:, self.edges].flatten()
        order = self.weights().repeat(2).argsort(descending=True, stable=True)
        order = order[ends[order].argsort(stable=True)]
        counts = torch.bincount(ends)
        place = torch.arange(len(ends), device=ends.device, dtype=ends.dtype)
        place -= (counts.cumsum(0) - counts).to(place).repeat_interleave(counts)
        return torch.empty_like(ends).index_copy_(0, order, place).view(2, -1)


def above_chance(known: GraphEvidence, map_blocks: MapBlocks = map_blocks) -> RefinedGraph:
    """Score the candidates of both rounds; those above chance are edges.

    Only the views that the final round reads are kept.
    """
    log_odds, scale, shift = candidate_log_odds(known, map_blocks)
    known = replace(known, views={name: known.views[name] for name in ("x", "aax", "link")})
    blocks = torch.split(known.pairs, PAIRS, 1)
    return RefinedGraph(
        known=known,
        edges=(log_odds > 0).nonzero()[:, 0],
        num_candidates=len(log_odds),
        pair_in_input=torch.cat([is_edge(known.graph.links, block) for block in blocks]),
        pair_log_odds=log_odds,
        scale=scale,
        calibration=shift,
    )


def with_pairs(refined: RefinedGraph, also: Tensor) -> RefinedGraph:
    """Put those of ``also`` [2, K] that are no candidates behind them, sorted."""
    known = refined.known.whole
    pairs = new_pairs(known, torch.unique(also.to(known.graph.device).sort(0).values, dim=1))
    log_odds = refined.scale[0] * known.scores(pairs) + refined.scale[1] + refined.calibration
    return replace(
        refined,
        known=replace(known, pairs=torch.cat([known.pairs, pairs], 1)),
        pair_in_input=torch.cat([refined.pair_in_input, is_edge(known.graph.links, pairs)]),
        pair_log_odds=torch.cat([refined.pair_log_odds, log_odds]),
    )
