"""A refined graph: what the two rounds make of a graph, in closed form."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphglow.device import MapBlocks, map_blocks
from graphglow.evidence.candidates import pair_blocks
from graphglow.evidence.channels import Channel
from graphglow.evidence.context import FIRST_CONTEXT
from graphglow.evidence.pair_features import FIRST_EVIDENCE, GROUPS, SECOND_EVIDENCE, logit
from graphglow.evidence.predictor import FinalRound, final_round, predict_classes
from graphglow.evidence.rounds import (
    CARRIED,
    GraphEvidence,
    calibration,
    first_round,
    joined,
    over_chance,
    score,
    score_pairs,
    second_round,
    weights_of,
    with_vote,
)
from graphglow.evidence.scorer import contributions
from graphglow.graph.graph import Graph, normalised_adjacency
from graphglow.linalg.sparse import SparseMatrix, is_edge

if TYPE_CHECKING:  # which imports this
    from graphglow.evidence.learner import EvidenceLearner

PAIRS = 2**20  # looked up at once


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
    probabilities: Tensor | None
    final: FinalRound | None = None
    """What the predictor read; None without two classes."""
    update: Tensor | None = None
    """What this graph's labels change in the predictor's weights: [1 + folds, V + 1]."""
    shares: Tensor | None = None
    """Estimated share of each class that has a label, among all nodes: [C]."""
    least_weight: float = 0.0
    """Of an edge of the input, whatever the evidence says of it."""

    @property
    def graph(self) -> Graph:
        return self.known.graph

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def chance(self) -> float:
        """Probability that two random nodes are of one class; log-odds count from here."""
        return self.graph.chance

    @property
    def search(self) -> str:
        """How the nearest nodes were found: ``exact``, or the number of lists."""
        return self.known.search

    @property
    def channels(self) -> dict[str, Channel]:
        return self.known.channels if self.final is None else self.final.channels

    @property
    def channel_scores(self) -> dict[str, dict[str, float]]:
        """Leave-one-out accuracy over the majority class, and log-loss gain, by channel."""
        names = ("accuracy", "likelihood")
        return {
            channel: dict(zip(names, found.scores.tolist(), strict=True))
            for channel, found in self.channels.items()
        }

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
        """Number of undirected edges of the input, without self-loops."""
        return len(self.graph.low)

    def adjacency(self) -> SparseMatrix:
        """``S = D^-1/2 (W + I) D^-1/2``: [N, N]."""
        return normalised_adjacency(self.edge_index, self.edge_weight, self.num_nodes)

    def weights(self) -> Tensor:
        """Weight of each edge, by its log-odds over chance: [K]."""
        weight = weights_of(self.pair_log_odds[self.edges])
        floor = self.least_weight * self.pair_in_input[self.edges]
        return torch.maximum(weight, floor)

    def only(self, kept: Tensor) -> "RefinedGraph":
        """Keep some of the edges: [K] of bool."""
        return replace(self, edges=self.edges[kept])

    def ranks(self) -> Tensor:
        """Rank of each edge among those of either end, the heaviest is 0: [2, K]."""
        ends = self.known.pairs[:, self.edges].flatten().long()
        order = self.weights().repeat(2).argsort(descending=True, stable=True)
        order = order[ends[order].argsort(stable=True)]
        counts = torch.bincount(ends)
        place = torch.arange(len(ends), device=ends.device)
        place -= (counts.cumsum(0) - counts).repeat_interleave(counts)
        return torch.empty_like(ends).index_copy_(0, order, place).view(2, -1)

    def dropped(self) -> Tensor:
        """Positions of the input edges that are at or below chance: [D]."""
        return (self.pair_in_input & (self.pair_log_odds <= 0)).nonzero()[:, 0]


def refine_graph(
    learner: "EvidenceLearner",
    graph: Graph,
    generator: torch.Generator,
    also: Tensor | None = None,
    map_blocks: MapBlocks = map_blocks,
) -> RefinedGraph:
    """Run both rounds of a frozen learner, score the pairs, and predict the classes.

    ``also`` are pairs [2, K] to score besides the candidates; nothing else changes by them, nor by
    ``map_blocks``, which computes the blocks of nodes and pairs.
    """
    first = first_round(graph, generator, map_blocks)
    known = with_vote(second_round(learner, first, map_blocks), map_blocks)
    refined = with_prediction(above_chance(known, map_blocks))
    return refined if also is None else with_pairs(refined, also)


def above_chance(known: GraphEvidence, map_blocks: MapBlocks = map_blocks) -> RefinedGraph:
    """Score the candidates of both rounds; those above chance are edges."""
    graph, pairs = known.graph, known.pairs
    assert known.learner is not None
    scores = score_pairs(known, map_blocks)
    scale = known.learner.scale(1, scores)
    log_odds = over_chance(scale, scores)
    shift = calibration(graph, pairs, log_odds)
    log_odds = log_odds + shift
    return RefinedGraph(
        known=known,
        edges=(log_odds > 0).nonzero()[:, 0],
        num_candidates=pairs.shape[1],
        pair_in_input=torch.cat([is_edge(graph.links, p) for p in torch.split(pairs, PAIRS, 1)]),
        pair_log_odds=log_odds,
        scale=scale,
        calibration=shift,
        probabilities=_all_classes(graph, known.channels["vote"].probabilities),
    )


def with_prediction(refined: RefinedGraph) -> RefinedGraph:
    """Predict the classes over the refined graph, if there are two."""
    known = refined.known
    if len(known.graph.seen) < 2:
        return refined
    assert known.learner is not None
    final = final_round(known, refined.adjacency())
    answer = predict_classes(known.learner.predictor, final)
    return replace(
        refined,
        probabilities=_all_classes(known.graph, answer.probabilities),
        final=final,
        update=answer.chosen["update"],
        shares=answer.chosen["shares"],
    )


def with_pairs(refined: RefinedGraph, also: Tensor) -> RefinedGraph:
    """Put those of ``also`` [2, K] that are no candidates behind them, sorted."""
    known, graph, nodes = refined.known, refined.graph, refined.num_nodes
    also = also.to(graph.device)
    key = torch.unique(also.amin(0) * nodes + also.amax(0))
    key = key[~torch.isin(key, known.pairs[0].long() * nodes + known.pairs[1])]
    pairs = torch.stack([key // nodes, key % nodes])
    scores = joined((score(known, block) for block in pair_blocks(pairs)), graph)
    log_odds = over_chance(refined.scale, scores) + refined.calibration
    return replace(
        refined,
        known=replace(known, pairs=torch.cat([known.pairs, pairs.to(known.pairs.dtype)], 1)),
        pair_in_input=torch.cat([refined.pair_in_input, is_edge(graph.links, pairs)]),
        pair_log_odds=torch.cat([refined.pair_log_odds, log_odds]),
    )


def _all_classes(graph: Graph, probabilities: Tensor) -> Tensor | None:
    """Add the classes that have no label, at 0: [N, C] -> [N, classes]."""
    if len(graph.seen) == 0:
        return None
    whole = torch.zeros(len(probabilities), graph.num_classes, device=graph.device)
    whole[:, graph.seen] = probabilities
    return whole


@torch.no_grad()
def explain_pairs(
    learner: "EvidenceLearner", refined: RefinedGraph, which: Tensor
) -> dict[str, Tensor]:
    """Share of each kind of evidence in the log-odds of some of ``refined.pairs``.

    The second round reads what the first makes of the evidence, so the two are taken as one score.
    ``chance`` is the log-odds of two random nodes, ``this graph`` what the context alone adds, and
    ``labelled pairs`` the calibration by them.

    Shapes:
        which [K] -> by name [K]; their sum is ``logit(pair_probability[which])``
    """
    names = [name for name, kinds in GROUPS.items() if kinds != ("first_round",)]
    groups = [[SECOND_EVIDENCE.index(kind) for kind in GROUPS[name]] for name in names]
    known, context = refined.known, refined.known.context
    first, carried = len(FIRST_EVIDENCE), SECOND_EVIDENCE.index("first_round")

    def score(f: Tensor) -> Tensor:
        whole = f.clone()
        before = learner.pair_scores(0, f[:, :first], context[: len(FIRST_CONTEXT)])
        whole[:, carried] = over_chance(known.first_scale, before) / CARRIED
        return over_chance(refined.scale, learner.pair_scores(1, whole, context))

    shares = contributions(score, known.evidence(known.pairs[:, which]), groups)
    named = dict(zip([*names, "this graph"], shares.unbind(1), strict=True))
    everywhere = {"labelled pairs": refined.calibration, "chance": logit(refined.chance)}
    return named | {k: torch.full_like(shares[:, 0], v) for k, v in everywhere.items()}
