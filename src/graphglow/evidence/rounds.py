"""The rounds of refinement: scored pairs make a graph, over which pairs are scored again.

``first_round``, ``second_round`` and ``with_vote`` each add to a :class:`GraphEvidence`;
:func:`graphglow.evidence.refined.refine_graph` runs them and scores the pairs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphglow.device import MapBlocks, map_blocks
from graphglow.evidence.candidates import candidate_pairs, pair_blocks, with_beliefs
from graphglow.evidence.channels import (
    Channel,
    absent,
    community_channel,
    ridge_channel,
    spread_channel,
)
from graphglow.evidence.communities import communities
from graphglow.evidence.context import FIRST_CONTEXT, first_context, labelled_pairs, second_context
from graphglow.evidence.pair_features import (
    SECOND_CHANNELS,
    agreement,
    cosines,
    first_evidence,
    logit,
    moments,
)
from graphglow.evidence.views import (
    AGAIN,
    ALL,
    FIRST,
    RANKS,
    SECOND,
    first_views,
    hidden_layer,
    second_views,
)
from graphglow.evidence.votes import VOTERS, sharpened, unlabelled_records, vote_evidence
from graphglow.graph.graph import Graph, adjacency_of
from graphglow.linalg.rows import LowRank, SideBySide, leading, times, unit_unless_short
from graphglow.linalg.sparse import SparseMatrix

if TYPE_CHECKING:  # which imports this
    from graphglow.evidence.learner import EvidenceLearner

LARGEST_WEIGHT = 8.0
RESOLUTIONS = (1.0, 4.0)
"""Resolutions of the communities: the greatest modularity, and smaller communities."""
AT_ONCE = 2**14  # nodes in one block of the vote
CARRIED = 4  # divides the first round's log-odds, as the second round reads them
SEARCHED = (("x", "ax", "aax", "link"), SECOND)
"""Views in which candidates are searched, by round, besides the channels' predictions."""


@dataclass(frozen=True, eq=False)
class GraphEvidence:
    """Views, channels and candidate pairs of a graph, and how reliable each channel is.

    The second round adds views and channels over the first round's graph S, and ``with_vote`` adds
    the channel ``vote`` and more candidates.

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
    records: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Label-free measures of the voting channels: [V, 4]."""

    @property
    def voted(self) -> bool:
        """Whether the second round is complete."""
        return "vote" in self.channels

    def evidence(self, pairs: Tensor) -> Tensor:
        """Features of any pairs, in the order of ``FIRST_EVIDENCE`` or, once voted, of
        ``SECOND_EVIDENCE``: [2, K] -> [K, F].
        """
        pairs = pairs.long()
        first = first_evidence(self.graph, self.views, self.moments, self.channels, pairs)
        if not self.voted:
            return first
        assert self.learner is not None
        context = self.context[: len(FIRST_CONTEXT)]
        log_odds = over_chance(self.first_scale, self.learner.pair_scores(0, first, context))
        compared = [cosines(self.views[v], pairs, self.moments[v]) for v in SECOND]
        later = [self.channels[name] for name in (*SECOND_CHANNELS, "vote")]
        agreed = [agreement(self.graph, channel, pairs) for channel in later]
        cosine = torch.stack(compared, 2).flatten(1)
        return torch.cat([first, cosine, *agreed, log_odds[:, None] / CARRIED], 1)


def first_round(
    graph: Graph, generator: torch.Generator, map_blocks: MapBlocks = map_blocks
) -> GraphEvidence:
    """Compute views and channels of the given graph, and search candidate pairs."""
    views, maps = first_views(graph, generator)
    channels = first_channels(graph, views)
    near = with_beliefs([views[name] for name in SEARCHED[0]], list(channels.values()))
    edges = torch.stack([graph.low, graph.high])
    pairs, search = candidate_pairs(near, edges, map_blocks)
    scales = {name: moments(views[name]) for name in FIRST}
    context = first_context(graph, channels, pairs)
    return GraphEvidence(graph, views, scales, channels, pairs, context, search, maps)


def first_channels(graph: Graph, views: dict[str, Tensor]) -> dict[str, Channel]:
    """Compute the channels of ``FIRST_CHANNELS`` over the given graph."""
    link = views["link"]
    ranks = [ridge_channel(graph, leading(link, rank)) for rank in RANKS]
    edges = graph.low, graph.high, graph.weight, graph.num_nodes
    members = [communities(*edges, resolution=by) for by in RESOLUTIONS]
    return {
        **{name: ridge_channel(graph, views[name]) for name in ("ax", "aax", "diff", "role")},
        "all": ridge_channel(graph, SideBySide.of([views[name] for name in ALL])),
        "x": ridge_channel(graph, graph.features),
        "link": ridge_channel(graph, graph.neighbour_rows if len(graph.low) else None),
        "alink": ridge_channel(graph, unit_unless_short(times(graph.adj, link))),
        "spectral": max(ranks, key=lambda channel: float(channel.scores[1])),
        "community": max(
            (community_channel(graph, member) for member in members),
            key=lambda channel: float(channel.scores[1]),
        ),
        "spread": spread_channel(graph, graph.adj),
        "hidden_x": ridge_channel(graph, hidden_layer(views, ("x",))),
        "hidden_all": ridge_channel(graph, hidden_layer(views, ALL)),
    }


def second_round(
    learner: "EvidenceLearner", known: GraphEvidence, map_blocks: MapBlocks = map_blocks
) -> GraphEvidence:
    """Score the first round's pairs, and compute views and channels over the resulting graph S."""
    graph, pairs, known = known.graph, known.pairs, replace(known, learner=learner)
    scores = score_pairs(known, map_blocks)
    scale = learner.scale(0, scores)
    log_odds = over_chance(scale, scores)
    shift = calibration(graph, pairs, log_odds)
    weight = weights_of(log_odds + shift)
    del scores, log_odds
    adjacency = adjacency_over(pairs, weight, graph.num_nodes)
    fresh = second_views(known.views, adjacency)
    views = known.views | fresh
    channels = {name: ridge_channel(graph, views[name]) for name in SECOND}
    channels["again"] = ridge_channel(graph, SideBySide.of([views[name] for name in AGAIN]))
    channels["spread_s"] = spread_channel(graph, adjacency)
    channels["hidden_again"] = ridge_channel(graph, hidden_layer(views, AGAIN))
    voters = known.channels | channels
    return replace(
        known,
        views=views,
        records=unlabelled_records(graph, [voters[name] for name in VOTERS]),
        moments=known.moments | {name: moments(view) for name, view in fresh.items()},
        channels=voters,
        context=second_context(graph, known.context, channels, pairs, weight),
        first_scale=scale,
        first_weight=weight,
        first_calibration=shift,
    )


def with_vote(known: GraphEvidence, map_blocks: MapBlocks = map_blocks) -> GraphEvidence:
    """Add the vote of all channels, and the second round's candidates."""
    vote = _vote(known)
    later = [known.channels[name] for name in SECOND_CHANNELS]
    near = with_beliefs([known.views[name] for name in SEARCHED[1]], [*later, vote])
    fresh, _ = candidate_pairs(near, known.pairs, map_blocks, fresh=True)
    return replace(
        known,
        channels=known.channels | {"vote": vote},
        pairs=torch.cat([known.pairs, fresh], 1),
        context=torch.cat([known.context, vote.scores]),
    )


def _vote(known: GraphEvidence) -> Channel:
    graph = known.graph
    if len(graph.seen) < 2:
        return absent(graph)
    assert known.learner is not None
    every = torch.arange(graph.num_nodes, device=graph.device)
    parts = [
        known.learner.vote(*vote_inputs(known, block)) for block in torch.split(every, AT_ONCE)
    ]
    return sharpened(graph, torch.cat(parts))


def vote_inputs(known: GraphEvidence, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the voter's inputs at nodes [K]: log-odds [K, C, V], trust [K, V, T]."""
    voters = [known.channels[name] for name in VOTERS]
    return vote_evidence(known.graph, voters, known.records, known.context, nodes)


def score_pairs(known: GraphEvidence, map_blocks: MapBlocks) -> Tensor:
    """Return the learner's raw scores of all candidates: [M]."""
    return joined(map_blocks(score, known, pair_blocks(known.pairs)), known.graph)


def score(known: GraphEvidence, pairs: Tensor) -> Tensor:
    """Return the learner's raw scores of pairs: [2, K] -> [K]."""
    assert known.learner is not None
    evidence = known.evidence(pairs)
    return known.learner.pair_scores(int(known.voted), evidence, known.context)


def joined(parts: Iterable[Tensor], graph: Graph) -> Tensor:
    """Concatenate the scores of all blocks: [M]."""
    return torch.cat([torch.zeros(0, device=graph.device), *parts])


def over_chance(scale: Tensor, scores: Tensor) -> Tensor:
    """Scale raw scores to log-odds over chance by slope and intercept [2]: [M] -> [M]."""
    return scale[0] * scores + scale[1]


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


def weights_of(log_odds: Tensor) -> Tensor:
    """Edge weights are the log-odds over chance, clipped to 0 .. 8."""
    return log_odds.clamp(0, LARGEST_WEIGHT)
