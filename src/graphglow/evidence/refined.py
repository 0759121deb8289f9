"""A refined graph: what the two rounds make of a problem, in closed form."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from graphglow.evidence.candidates import Each, in_turn, pair_blocks
from graphglow.evidence.channels import Channel
from graphglow.evidence.context import FIRST_CONTEXT, VOTED_CONTEXT
from graphglow.evidence.pair_features import FIRST_EVIDENCE, GROUPS, SECOND_EVIDENCE, logit
from graphglow.evidence.predictor import FinalRound, Predictor, final_round, predict_classes
from graphglow.evidence.problem import Problem
from graphglow.evidence.rounds import (
    CARRIED,
    Learner,
    Voted,
    calibration,
    first_round,
    joined,
    score_second,
    second_round,
    voted,
    weights_of,
)
from graphglow.evidence.scorer import contributions
from graphglow.evidence.stages import stage
from graphglow.graph.graph import normalised_adjacency
from graphglow.linalg.pairs import is_edge
from graphglow.linalg.sparse import SparseMatrix

PAIRS = 2**20  # looked up at once
ENDS = 2**24  # of edges that are ranked at once
LEAST_WEIGHT = 0.01
"""Of an edge at or below chance that is kept all the same: a weight of 0 would be no edge."""


class PredictingLearner(Learner, Protocol):
    """A learner that also predicts classes."""

    @property
    def predictor(self) -> Predictor: ...


@dataclass(frozen=True, eq=False)
class RefinedGraph:
    """The graph that comes out: edges above chance, each with weight and probability.

    Edges are some of the candidates, ``pairs``, which hold each pair once; behind the first
    ``num_candidates`` of them stand other pairs that were asked about, which never become edges.
    ``edge_*`` list both directions of an edge. What can be made of the rest is made when it is
    asked for, so that a large graph has room.

    Shapes:
        edges [K] positions among pairs;
        edge_index [2, 2K], edge_weight [2K], edge_probability [2K], edge_in_input [2K];
        probabilities [N, classes] or None without labels;
        link, role [N, *]: whom a node is joined to, and what part it has in the graph;
        pairs [2, M], pair_in_input [M], pair_probability [M], pair_log_odds [M] over chance;
        scale [2] of scores, see :meth:`Learner.scale`
    """

    edges: Tensor
    probabilities: Tensor | None
    channel_scores: dict[str, dict[str, float]]
    """By channel: leave-one-out ``accuracy`` over the majority class, and ``likelihood`` gain."""
    context: dict[str, float]
    num_nodes: int
    chance: float
    """How likely two random nodes are of one class: log-odds count from here."""
    calibration: float
    """Added to all log-odds, by the pairs that have two labels."""
    search: str
    """How the nearest nodes were found: ``exact``, or in so many lists."""
    num_candidates: int
    pair_in_input: Tensor
    pair_log_odds: Tensor
    scale: Tensor
    known: Voted
    """What both rounds know of the graph: evidence about any pair comes from it."""
    final: FinalRound | None = None
    """What the predictor read; None without two classes."""
    sharpness: float = 1.0
    """Of the predictor's answer, by leave-one-out."""

    @property
    def pairs(self) -> Tensor:
        return self.known.pairs.long()

    @property
    def pair_probability(self) -> Tensor:
        return (self.pair_log_odds + logit(self.chance)).sigmoid()

    @property
    def edge_index(self) -> Tensor:
        ends = self.known.pairs[:, self.edges]
        return torch.cat([ends, ends.flip(0)], 1).long()

    @property
    def edge_weight(self) -> Tensor:
        return self.weights().repeat(2)

    @property
    def edge_probability(self) -> Tensor:
        return (self.pair_log_odds[self.edges] + logit(self.chance)).sigmoid().repeat(2)

    @property
    def edge_in_input(self) -> Tensor:
        return self.pair_in_input[self.edges].repeat(2)

    @property
    def input_edges(self) -> int:
        """Different undirected edges of the input, self-loops left out."""
        return len(self.known.second.first.problem.low)

    @property
    def link(self) -> Tensor:
        return self.known.second.first.views["link"]

    @property
    def role(self) -> Tensor:
        return self.known.second.first.views["role"]

    def pair_evidence(self, which: Tensor) -> Tensor:
        """What the second round reads of pairs, by their positions: [K] -> [K, F]."""
        return self.known.evidence(self.known.pairs[:, which])

    def predict_proba(self) -> Tensor | None:
        """Class probabilities of all nodes in closed form [N, C]; None without labels."""
        return self.probabilities

    def adjacency(self) -> SparseMatrix:
        """``S = D^-1/2 (W + I) D^-1/2``: [N, N]."""
        return normalised_adjacency(self.edge_index, self.edge_weight, self.num_nodes)

    def weights(self) -> Tensor:
        """Of each edge, by its log-odds over chance; one that has none counts least: [K]."""
        odds = self.pair_log_odds[self.edges]
        return torch.where(odds > 0, weights_of(odds), LEAST_WEIGHT)

    def only(self, kept: Tensor) -> "RefinedGraph":
        """The same with some of its edges: [K] of bool."""
        return replace(self, edges=self.edges[kept])

    def ranks(self) -> Tensor:
        """The place of each edge among those of either end, the heaviest first, from 0: [2, K]."""
        ends, weight = self.known.pairs[:, self.edges], self.weights()
        bits, rank = weight.view(torch.int32), torch.empty_like(ends)  # bits rise with weights
        step = max(1, ENDS * self.num_nodes // max(1, 2 * len(weight)))
        for start in range(0, self.num_nodes, step):
            side, edge = ((ends >= start) & (ends < start + step)).nonzero(as_tuple=True)
            node = ends[side, edge].long()
            order = torch.argsort(node * 2**32 - bits[edge], stable=True)
            counts = torch.bincount(node - start)
            place = torch.arange(len(order), device=ends.device)
            place -= (counts.cumsum(0) - counts).repeat_interleave(counts)
            rank[side[order], edge[order]] = place.to(rank.dtype)
        return rank

    def dropped(self) -> Tensor:
        """Positions of the input edges that are at or below chance: [D]."""
        return (self.pair_in_input & (self.pair_log_odds <= 0)).nonzero()[:, 0]


def refine_problem(
    learner: PredictingLearner,
    problem: Problem,
    generator: torch.Generator,
    also: Tensor | None = None,
    each: Each = in_turn,
) -> RefinedGraph:
    """Both rounds of a learner on a problem.

    Args:
        learner: Frozen.
        problem: The graph.
        generator: Of projections.
        also: Pairs [2, K] to look at besides the candidates; nothing else changes by them.
        each: Who does the blocks of nodes and of pairs; the result does not depend on it.
    """
    first = first_round(problem, generator, each)
    known = voted(learner, second_round(learner, first, each), each)
    del first  # known has all of it
    refined = refine_known(learner, known, each)
    return refined if also is None else with_pairs(refined, also)


def refine_known(learner: PredictingLearner, known: Voted, each: Each = in_turn) -> RefinedGraph:
    """Score the candidates of both rounds, and predict classes over the graph that they make."""
    problem = known.second.first.problem
    blocks = pair_blocks(known.pairs)
    scores = joined(each("score second", score_second, known.for_pairs(), blocks), problem)
    scale = learner.scale(1, scores)
    refined = _refined(problem, known, scale[0] * scores + scale[1], scale)
    return _predicted(learner, refined) if len(problem.seen) > 1 else refined


def _predicted(learner: PredictingLearner, refined: RefinedGraph) -> RefinedGraph:
    """With the predictor's answer over the refined graph."""
    final = final_round(refined.known, refined.adjacency())
    answer = predict_classes(learner.predictor, final)
    channels = {**final.channels, "prediction": answer}
    return replace(
        refined,
        probabilities=_all_classes(final.problem, answer.probabilities),
        channel_scores=_scores(channels),
        final=final,
        sharpness=float(answer.chosen["sharpness"]),
    )


def _scores(channels: dict[str, Channel]) -> dict[str, dict[str, float]]:
    scores = torch.stack([channel.scores for channel in channels.values()]).tolist()
    names = ("accuracy", "likelihood")
    return {
        c: dict(zip(names, both, strict=True)) for c, both in zip(channels, scores, strict=True)
    }


@stage("scoring")
def _refined(problem: Problem, known: Voted, excess: Tensor, scale: Tensor) -> RefinedGraph:
    """The edges that log-odds over chance [M] make of pairs, once these are calibrated."""
    pairs, first = known.pairs, known.second.first
    shift = calibration(problem, pairs, excess)
    excess = excess + shift
    in_input = torch.cat([is_edge(problem.links, some) for some in torch.split(pairs, PAIRS, 1)])
    channels = {**first.channels, **known.second.channels, "vote": known.vote}
    return RefinedGraph(
        edges=(excess > 0).nonzero()[:, 0],
        probabilities=_all_classes(problem, known.vote.probabilities),
        channel_scores=_scores(channels),
        context=dict(zip(VOTED_CONTEXT, known.context.tolist(), strict=True)),
        num_nodes=problem.num_nodes,
        chance=problem.chance,
        calibration=shift,
        search=first.search,
        num_candidates=pairs.shape[1],
        pair_in_input=in_input,
        pair_log_odds=excess,
        scale=scale,
        known=known,
    )


def with_pairs(refined: RefinedGraph, also: Tensor) -> RefinedGraph:
    """The same with those of ``also`` [2, K] that are no candidates behind them, sorted."""
    known, nodes = refined.known, refined.num_nodes
    problem = known.second.first.problem
    also = also.to(problem.device)
    key = torch.unique(also.amin(0) * nodes + also.amax(0))
    key = key[~torch.isin(key, known.pairs[0].long() * nodes + known.pairs[1])]
    pairs = torch.stack([key // nodes, key % nodes])
    scores = joined([score_second(known, block) for block in pair_blocks(pairs)], problem)
    excess = refined.scale[0] * scores + refined.scale[1] + refined.calibration
    return replace(
        refined,
        known=replace(known, pairs=torch.cat([known.pairs, pairs.to(known.pairs.dtype)], 1)),
        pair_in_input=torch.cat([refined.pair_in_input, is_edge(problem.links, pairs)]),
        pair_log_odds=torch.cat([refined.pair_log_odds, excess]),
    )


def _all_classes(problem: Problem, probabilities: Tensor) -> Tensor | None:
    """With the classes that have no label, at 0: [N, C] -> [N, classes]."""
    if len(problem.seen) == 0:
        return None
    whole = torch.zeros(problem.num_nodes, problem.num_classes, device=problem.device)
    whole[:, problem.seen] = probabilities
    return whole


@torch.no_grad()
def explain_pairs(learner: Learner, refined: RefinedGraph, which: Tensor) -> dict[str, Tensor]:
    """What each kind of evidence adds to the log-odds of pairs; all of it adds up to them.

    Evidence speaks in both rounds: what the first one makes of it is read by the second, so the
    two are taken as one score. ``chance`` is the log-odds of two random nodes, ``this graph`` what
    the context alone says, and ``labelled pairs`` the calibration by them.

    Args:
        learner: The one that refined the graph.
        refined: What it made.
        which: Positions among ``refined.pairs``.

    Shapes:
        which [K] -> by name [K]; their sum is ``logit(pair_probability[which])``
    """
    names = [name for name, kinds in GROUPS.items() if kinds != ("first_round",)]
    groups = [[SECOND_EVIDENCE.index(kind) for kind in GROUPS[name]] for name in names]
    context = torch.tensor(list(refined.context.values()), device=refined.scale.device)
    earlier = context[[VOTED_CONTEXT.index(name) for name in FIRST_CONTEXT]]
    first, carried = len(FIRST_EVIDENCE), SECOND_EVIDENCE.index("first_round")
    before, scale = refined.known.second.scale, refined.scale

    def score(f: Tensor) -> Tensor:
        whole = f.clone()
        carry = before[0] * learner.pair_scores(0, f[:, :first], earlier) + before[1]
        whole[:, carried] = carry / CARRIED
        return scale[0] * learner.pair_scores(1, whole, context) + scale[1]

    shares = contributions(score, refined.pair_evidence(which), groups)
    named = dict(zip([*names, "this graph"], shares.unbind(1), strict=True))
    everywhere = {"labelled pairs": refined.calibration, "chance": logit(refined.chance)}
    return named | {k: torch.full_like(shares[:, 0], v) for k, v in everywhere.items()}
