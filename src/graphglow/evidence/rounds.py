"""The two rounds: from a problem to scored pairs, and from their graph to better ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from graphglow.evidence.candidates import candidate_pairs, pair_blocks, with_beliefs
from graphglow.evidence.channels import (
    Channel,
    absent,
    best_channel,
    community_channel,
    ridge_channel,
    spread_channel,
)
from graphglow.evidence.communities import communities
from graphglow.evidence.context import FIRST_CONTEXT, first_context, labelled_pairs, second_context
from graphglow.evidence.pair_features import agreement, cosines, first_evidence, logit, moments
from graphglow.evidence.problem import Problem
from graphglow.evidence.stages import stage
from graphglow.evidence.views import (
    AGAIN,
    ALL,
    FIRST,
    RANKS,
    SECOND,
    hidden_layer,
    mapped_views,
    second_views,
)
from graphglow.evidence.votes import VOTERS, sharpened, vote_evidence
from graphglow.graph.graph import adjacency_of
from graphglow.linalg.rows import LowRank, SideBySide, leading, times, unit_unless_short
from graphglow.linalg.sparse import SparseMatrix
from graphglow.parallel import MapBlocks, map_blocks

LARGEST_WEIGHT = 8.0
RESOLUTIONS = (1.0, 4.0)
"""Of the communities: those of the greatest modularity, and smaller ones."""
AT_ONCE = 2**14  # nodes voted on at once
CARRIED = 4  # the second round reads the first one's log-odds over this


class Learner(Protocol):
    """What the rounds need of a learner."""

    @property
    def vote(self) -> nn.Module: ...

    def pair_scores(self, round_: int, evidence: Tensor, context: Tensor) -> Tensor: ...

    def scale(self, round_: int, scores: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class FirstRound:
    """What is known of the graph as it is given, and which of its pairs are looked at.

    Shapes:
        pairs [2, M] of int32, sorted; context [G]
    """

    problem: Problem
    views: dict[str, Tensor]
    scales: dict[str, tuple[float, float]]
    channels: dict[str, Channel]
    pairs: Tensor
    context: Tensor
    search: str
    """How the nearest nodes were found."""
    maps: dict[str, LowRank] = field(default_factory=dict)
    """From features and adjacency rows to the views ``x`` and ``link``."""

    def evidence(self, pairs: Tensor) -> Tensor:
        """:data:`FIRST_EVIDENCE` of any pairs: [2, K] -> [K, F]."""
        problem = self.problem
        return first_evidence(problem, self.views, self.scales, self.channels, pairs.long())


@dataclass(frozen=True, eq=False)
class SecondRound:
    """What the refined graph of the first round lets the channels say.

    Shapes:
        context [G2]; scale [2]: slope and intercept, of the first round's scores; weight [M] of
        the first round's pairs in S
    """

    first: FirstRound
    scale: Tensor
    views: dict[str, Tensor]
    scales: dict[str, tuple[float, float]]
    channels: dict[str, Channel]
    context: Tensor
    weight: Tensor
    calibration: float
    """Added to the first round's log-odds, by the pairs that have two labels."""


@dataclass(frozen=True, eq=False)
class Voted:
    """The second round with the learner's vote, and all pairs that are looked at.

    Shapes:
        pairs [2, M] of int32, those of the first round first; context [G2 + 2]
    """

    learner: Learner
    second: SecondRound
    vote: Channel
    pairs: Tensor
    context: Tensor

    def evidence(self, pairs: Tensor) -> Tensor:
        """:data:`SECOND_EVIDENCE` of any pairs: [2, K] -> [K, F]."""
        second, pairs = self.second, pairs.long()
        earlier = second.first.evidence(pairs)
        scores = self.learner.pair_scores(0, earlier, second.first.context)
        before = second.scale[0] * scores + second.scale[1]
        compared = [cosines(second.views[v], pairs, second.scales[v]) for v in SECOND]
        channels = [*second.channels.values(), self.vote]
        agreed = [agreement(second.first.problem, channel, pairs) for channel in channels]
        cosine = torch.stack(compared, 2).flatten(1)
        return torch.cat([earlier, cosine, *agreed, before[:, None] / CARRIED], 1)


def first_round(
    problem: Problem, generator: torch.Generator, map_blocks: MapBlocks = map_blocks
) -> FirstRound:
    views, maps = mapped_views(problem, generator)
    scales = {name: moments(views[name]) for name in FIRST}
    channels = first_channels(problem, views)
    near = [views[name] for name in ("x", "ax", "aax", "link")]
    edges = torch.stack([problem.low, problem.high])
    near = with_beliefs(near, list(channels.values()))
    pairs, search = candidate_pairs(near, edges, map_blocks)
    context = first_context(problem, channels, pairs)
    return FirstRound(problem, views, scales, channels, pairs, context, search, maps)


def first_channels(problem: Problem, views: dict[str, Tensor]) -> dict[str, Channel]:
    """:data:`~graphglow.evidence.pair_features.FIRST_CHANNELS`, over the graph as it is given."""
    link = views["link"]
    ranks = [ridge_channel(problem, leading(link, rank)) for rank in RANKS]
    edges = problem.low, problem.high, problem.weight, problem.num_nodes
    members = [communities(*edges, resolution=by) for by in RESOLUTIONS] if len(problem.low) else []
    return {
        **{name: ridge_channel(problem, views[name]) for name in ("ax", "aax", "diff", "role")},
        "all": ridge_channel(problem, SideBySide.of([views[name] for name in ALL])),
        "x": ridge_channel(problem, problem.features),
        "link": ridge_channel(problem, problem.neighbours if len(problem.low) else None),
        "alink": ridge_channel(problem, unit_unless_short(times(problem.adj, link))),
        "spectral": best_channel(ranks),
        "community": community_channel(problem, members),
        "spread": spread_channel(problem, problem.adj),
        "hidden_x": ridge_channel(problem, hidden_layer(views, ("x",))),
        "hidden_all": ridge_channel(problem, hidden_layer(views, ALL)),
    }


def score_first(known: tuple[Learner, FirstRound], pairs: Tensor) -> Tensor:
    """The learner's raw scores of some pairs in the first round: [2, K] -> [K]."""
    learner, first = known
    with stage("evidence"):
        evidence = first.evidence(pairs)
    with stage("scoring"):
        return learner.pair_scores(0, evidence, first.context)


def score_second(known: Voted, pairs: Tensor) -> Tensor:
    """The learner's raw scores of some pairs in the second round: [2, K] -> [K]."""
    with stage("evidence"):
        evidence = known.evidence(pairs)
    with stage("scoring"):
        return known.learner.pair_scores(1, evidence, known.context)


def second_round(
    learner: Learner, first: FirstRound, map_blocks: MapBlocks = map_blocks
) -> SecondRound:
    """Views and channels over the graph that the first round's log-odds over chance make."""
    problem = first.problem
    known = (learner, first)
    scores = joined(map_blocks(score_first, known, pair_blocks(first.pairs)), problem)
    scale = learner.scale(0, scores)
    excess = scale[0] * scores + scale[1]
    shift = calibration(problem, first.pairs, excess)
    weight = weights_of(excess + shift)
    del scores, excess
    graph = graph_of(first.pairs, weight, problem.num_nodes)
    views = second_views(first.views, graph)
    scales = {name: moments(views[name]) for name in SECOND}
    channels = {name: ridge_channel(problem, views[name]) for name in SECOND}
    every = first.views | views
    channels["again"] = ridge_channel(problem, SideBySide.of([every[name] for name in AGAIN]))
    channels["spread_s"] = spread_channel(problem, graph)
    channels["hidden_again"] = ridge_channel(problem, hidden_layer(every, AGAIN))
    context = second_context(problem, first.context, channels, first.pairs, weight)
    return SecondRound(first, scale, views, scales, channels, context, weight, shift)


@stage("views")
def graph_of(pairs: Tensor, weight: Tensor, num_nodes: int) -> SparseMatrix:
    """S of sorted pairs [2, M] as far as they count: [N, N]."""
    counts = weight > 0
    return adjacency_of(pairs[0][counts], pairs[1][counts], weight[counts], num_nodes)


def voted(learner: Learner, second: SecondRound, map_blocks: MapBlocks = map_blocks) -> Voted:
    """The channels' answers mixed by the learner, and the candidates of both rounds."""
    first = second.first
    vote = _vote(learner, second)
    near = [second.views[name] for name in SECOND]
    near = with_beliefs(near, [*second.channels.values(), vote])
    fresh, _ = candidate_pairs(near, first.pairs, map_blocks, fresh=True)
    pairs = torch.cat([first.pairs, fresh], 1)
    earlier = replace(first, pairs=pairs[:, : first.pairs.shape[1]])  # the same memory
    second = replace(second, first=earlier)
    return Voted(learner, second, vote, pairs, torch.cat([second.context, vote.scores]))


@stage("channels")
def _vote(learner: Learner, second: SecondRound) -> Channel:
    problem = second.first.problem
    if len(problem.seen) < 2:
        return absent(problem)
    every = torch.arange(problem.num_nodes, device=problem.device)
    parts = [learner.vote(*vote_inputs(second, some)) for some in torch.split(every, AT_ONCE)]
    return sharpened(problem, torch.cat(parts))


def vote_inputs(second: SecondRound, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """What the voter reads of all channels at some nodes [K]: [K, C, V], [K, V, T]."""
    first = second.first
    place = FIRST_CONTEXT.index("labels_per_class")
    channels = first.channels | second.channels
    voters = [channels[name] for name in VOTERS]
    return vote_evidence(first.problem, voters, first.context[place : place + 2], nodes)


def joined(parts: Iterable[Tensor], problem: Problem) -> Tensor:
    """Scores of all blocks, one after another: [M]."""
    found = list(parts)
    return torch.cat(found) if found else torch.zeros(0, device=problem.device)


def calibration(problem: Problem, pairs: Tensor, excess: Tensor) -> float:
    """What to add to log-odds so that, among pairs with two labels, as many are of one class as
    is said; the evidence about them is of leave-one-out predictions.

    A normal prior of deviation 0.7 stands against the pairs, which count no more than twice the
    labels in all, since they share nodes.
    """
    both, same = labelled_pairs(problem, pairs)
    count = len(same)
    if count == 0 or len(problem.seen) < 2:
        return 0.0
    weight = min(1.0, 2 * len(problem.labelled) / count)
    logits = excess[both].double() + logit(problem.chance)
    shift = torch.zeros((), dtype=torch.float64, device=logits.device)
    for _ in range(12):  # Newton's method
        p = (logits + shift).sigmoid()
        slope = weight * (p - same).sum() + shift / 0.49
        step = slope / (weight * (p * (1 - p)).sum() + 1 / 0.49)
        shift = shift - step.clamp(-0.5, 0.5)
    return float(shift)


def weights_of(excess: Tensor) -> Tensor:
    """An edge counts by its log-odds over chance, and not at all below: 0 .. 8."""
    return excess.clamp(0, LARGEST_WEIGHT)
