"""A refined graph: what the two rounds make of a problem, in closed form."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from graphglow.evidence.channels import Channel, absent
from graphglow.evidence.context import FIRST_CONTEXT, VOTED_CONTEXT
from graphglow.evidence.pairs import FIRST_EVIDENCE, GROUPS, SECOND_EVIDENCE, first_evidence, logit
from graphglow.evidence.problem import Problem
from graphglow.evidence.rounds import (
    CARRIED,
    FirstRound,
    SecondRound,
    calibration,
    first_round,
    second_evidence,
    second_pairs,
    second_round,
    weights_of,
)
from graphglow.evidence.scorer import contributions
from graphglow.evidence.views import role_view
from graphglow.evidence.votes import vote_channel, vote_evidence
from graphglow.graphs.graph import normalised_adjacency
from graphglow.ops.sparse import SparseMatrix


class Learner(Protocol):
    """What the rounds need of a learner."""

    @property
    def vote(self) -> nn.Module: ...

    def pair_scores(
        self, round_: int, evidence: Tensor, context: Tensor, among: Tensor | None = None
    ) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class RefinedGraph:
    """The graph that comes out: edges above chance, each with weight and probability.

    Both directions of an edge are listed. Input edges that are at or below chance are not among
    ``edge_index`` but among the candidates, ``pairs``, which hold each pair once; behind the first
    ``num_candidates`` of them stand other pairs that were asked about, which never become edges.

    Shapes:
        edge_index [2, E], edge_weight [E], edge_probability [E], edge_in_input [E];
        probabilities [N, classes] or None without labels;
        link, role [N, *]: whom a node is joined to, and what part it has in the graph;
        pairs [2, M], pair_probability [M], pair_log_odds [M] over chance, pair_evidence [M, F],
        context [G]
    """

    edge_index: Tensor
    edge_weight: Tensor
    edge_probability: Tensor
    edge_in_input: Tensor
    probabilities: Tensor | None
    link: Tensor
    role: Tensor
    channel_scores: dict[str, dict[str, float]]
    """By channel: leave-one-out ``accuracy`` over the majority class, and ``likelihood`` gain."""
    context: dict[str, float]
    num_nodes: int
    chance: float
    """How likely two random nodes are of one class: log-odds count from here."""
    calibration: float
    """Added to all log-odds, by the pairs that have two labels."""
    num_candidates: int
    pairs: Tensor
    pair_probability: Tensor
    pair_log_odds: Tensor
    pair_evidence: Tensor

    def predict_proba(self) -> Tensor | None:
        """Class probabilities of all nodes in closed form [N, C]; None without labels."""
        return self.probabilities

    def adjacency(self) -> SparseMatrix:
        """``S = D^-1/2 (W + I) D^-1/2``: [N, N]."""
        return normalised_adjacency(self.edge_index, self.edge_weight, self.num_nodes)

    def strongest(self, top_k: int) -> Tensor:
        """Whether an edge is among the ``top_k`` strongest of one of its ends: [E]."""
        (here, there), weight, nodes = self.edge_index, self.edge_weight, self.num_nodes
        order = torch.argsort(weight, descending=True, stable=True)
        order = order[torch.argsort(here[order], stable=True)]  # by node, then by weight
        counts = torch.bincount(here, minlength=nodes)
        first = (counts.cumsum(0) - counts)[here[order]]
        strong = torch.zeros_like(here, dtype=torch.bool)
        strong[order] = torch.arange(len(order), device=here.device) - first < top_k
        return strong | torch.isin(there * nodes + here, (here * nodes + there)[strong])

    def dropped(self) -> tuple[Tensor, Tensor]:
        """Input edges that are gone, once each, and their probabilities: [2, D], [D]."""
        edge = self.pair_evidence[:, SECOND_EVIDENCE.index("edge")] > 0
        gone = edge & (self.pair_log_odds <= 0)
        return self.pairs[:, gone], self.pair_probability[gone]


def refine_problem(
    learner: Learner, problem: Problem, generator: torch.Generator, also: Tensor | None = None
) -> RefinedGraph:
    """Both rounds of a learner on a problem.

    Args:
        learner: Frozen.
        problem: The graph.
        generator: Of projections and random pairs.
        also: Pairs [2, K] to look at besides the candidates; nothing else changes by them.
    """
    first = first_round(problem, generator)
    excess = learner.pair_scores(0, first.evidence, first.context)
    second = second_round(first, excess, generator)
    vote, pairs, evidence, context = second_inputs(learner, first, second)
    excess = learner.pair_scores(1, evidence, context)
    shift = calibration(problem, pairs, excess)
    excess = excess + shift
    probability = (excess + logit(problem.chance)).sigmoid()
    kept = excess > 0
    in_input = evidence[kept, SECOND_EVIDENCE.index("edge")] > 0
    channels = {**first.channels, **second.channels, "vote": vote}
    refined = RefinedGraph(
        edge_index=torch.cat([pairs[:, kept], pairs[:, kept].flip(0)], 1),
        edge_weight=weights_of(excess[kept]).repeat(2),
        edge_probability=probability[kept].repeat(2),
        edge_in_input=in_input.repeat(2),
        probabilities=_all_classes(problem, vote.probabilities),
        link=first.views["link"],
        role=role_view(problem),
        channel_scores={
            name: {"accuracy": float(c.scores[0]), "likelihood": float(c.scores[1])}
            for name, c in channels.items()
        },
        context=dict(zip(VOTED_CONTEXT, context.tolist(), strict=True)),
        num_nodes=problem.num_nodes,
        chance=problem.chance,
        calibration=shift,
        num_candidates=pairs.shape[1],
        pairs=pairs,
        pair_probability=probability,
        pair_log_odds=excess,
        pair_evidence=evidence,
    )
    if also is None:
        return refined
    other = other_pairs(problem, pairs, also)
    more = second_inputs_of(learner, first, second, vote, other, evidence)
    return _with_pairs(
        refined, other, more, learner.pair_scores(1, more, context, evidence) + shift
    )


def second_inputs(
    learner: Learner, first: FirstRound, second: SecondRound
) -> tuple[Channel, Tensor, Tensor, Tensor]:
    """What the second scorer reads, in training and in use alike.

    Returns:
        The vote; candidates of both rounds [2, M]; their evidence [M, F]; the context [G].
    """
    vote = voted(learner, first, second)
    pairs, evidence = second_pairs(first, second, vote)
    before = learner.pair_scores(0, evidence, first.context)
    added = second_evidence(first, second, vote, pairs, before)
    context = torch.cat([second.context, vote.scores])
    return vote, pairs, torch.cat([evidence, added], 1), context


def other_pairs(problem: Problem, candidates: Tensor, also: Tensor) -> Tensor:
    """Those of ``also`` [2, K] that are no candidates [2, M], once, as ``u < v``, sorted."""
    also = also.to(candidates.device)
    key = torch.unique(also.amin(0) * problem.num_nodes + also.amax(0))
    key = key[~torch.isin(key, candidates[0] * problem.num_nodes + candidates[1])]
    return torch.stack([key // problem.num_nodes, key % problem.num_nodes])


def second_inputs_of(
    learner: Learner,
    first: FirstRound,
    second: SecondRound,
    vote: Channel,
    pairs: Tensor,
    among: Tensor,
) -> Tensor:
    """:func:`second_inputs` of any pairs, ``among`` the candidates' [M, F]: [2, K] -> [K, F]."""
    evidence = first_evidence(first.problem, first.views, first.scales, first.channels, pairs)
    candidates = among[:, : evidence.shape[1]]
    before = learner.pair_scores(0, evidence, first.context, candidates)
    return torch.cat([evidence, second_evidence(first, second, vote, pairs, before)], 1)


def voted(learner: Learner, first: FirstRound, second: SecondRound) -> Channel:
    """The channels' answers mixed by the learner; absent with fewer than two classes."""
    problem = first.problem
    if len(problem.seen) < 2:
        return absent(problem)
    return vote_channel(problem, learner.vote(*vote_inputs(first, second)))


def vote_inputs(first: FirstRound, second: SecondRound) -> tuple[Tensor, Tensor]:
    """What the voter reads of all channels: [N, C, V], [N, V, T]."""
    place = FIRST_CONTEXT.index("labels_per_class")
    channels = first.channels | second.channels
    return vote_evidence(first.problem, channels, first.context[place : place + 2])


def _with_pairs(
    refined: RefinedGraph, pairs: Tensor, evidence: Tensor, excess: Tensor
) -> RefinedGraph:
    """The same with pairs [2, K] behind the candidates, their evidence [K, F] and log-odds [K]."""
    probability = (excess + logit(refined.chance)).sigmoid()
    return replace(
        refined,
        pairs=torch.cat([refined.pairs, pairs], 1),
        pair_probability=torch.cat([refined.pair_probability, probability]),
        pair_log_odds=torch.cat([refined.pair_log_odds, excess]),
        pair_evidence=torch.cat([refined.pair_evidence, evidence]),
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
    context = torch.tensor(list(refined.context.values()), device=refined.pairs.device)
    earlier = context[[VOTED_CONTEXT.index(name) for name in FIRST_CONTEXT]]
    among = refined.pair_evidence[: refined.num_candidates]
    first, carried = len(FIRST_EVIDENCE), SECOND_EVIDENCE.index("first_round")

    def score(f: Tensor) -> Tensor:
        whole = f.clone()
        before = learner.pair_scores(0, f[:, :first], earlier, among[:, :first])
        whole[:, carried] = before / CARRIED
        return learner.pair_scores(1, whole, context, among)

    shares = contributions(score, refined.pair_evidence[which], groups)
    named = dict(zip([*names, "this graph"], shares.unbind(1), strict=True))
    everywhere = {"labelled pairs": refined.calibration, "chance": logit(refined.chance)}
    return named | {k: torch.full_like(shares[:, 0], v) for k, v in everywhere.items()}
