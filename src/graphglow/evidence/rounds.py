"""The two rounds: from a problem to scored pairs, and from their graph to better ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.evidence.candidates import candidate_pairs
from graphglow.evidence.channels import (
    Channel,
    leave_one_out_scores,
    ridge_channel,
    spread_channel,
)
from graphglow.evidence.context import first_context, second_context
from graphglow.evidence.pairs import agreement, cosines, first_evidence, moments
from graphglow.evidence.problem import Problem
from graphglow.evidence.views import FIRST, SECOND, first_views, second_views
from graphglow.graphs.adjacency import normalised_adjacency
from graphglow.ops.sparse import SparseMatrix

LARGEST_WEIGHT = 8.0


@dataclass(frozen=True, eq=False)
class FirstRound:
    """Evidence about the candidates from the graph as it is given.

    Shapes:
        pairs [2, M], evidence [M, F], context [G]
    """

    problem: Problem
    views: dict[str, Tensor]
    scales: dict[str, tuple[float, float]]
    channels: dict[str, Channel]
    context: Tensor
    pairs: Tensor
    evidence: Tensor


@dataclass(frozen=True, eq=False)
class SecondRound:
    """What the refined graph of the first round lets the channels say."""

    graph: SparseMatrix
    views: dict[str, Tensor]
    scales: dict[str, tuple[float, float]]
    channels: dict[str, Channel]
    context: Tensor


def first_round(problem: Problem, generator: torch.Generator) -> FirstRound:
    views = first_views(problem, generator)
    scales = {name: moments(views[name], generator) for name in FIRST}
    rows = {name: views[name] for name in ("ax", "aax", "diff", "all")}
    channels = {name: ridge_channel(problem, view, view) for name, view in rows.items()}
    channels["x"] = ridge_channel(problem, problem.features, views["x"])
    linked = problem.neighbours if len(problem.low) else None
    channels["link"] = ridge_channel(problem, linked, views["link"])
    channels["spread"] = spread_channel(problem, problem.adj)
    near = [views[name] for name in ("x", "ax", "aax", "link")]
    pairs = candidate_pairs(problem, near, list(channels.values()))
    evidence = first_evidence(problem, views, scales, channels, pairs)
    context = first_context(problem, channels)
    return FirstRound(problem, views, scales, channels, context, pairs, evidence)


def second_round(first: FirstRound, excess: Tensor, generator: torch.Generator) -> SecondRound:
    """Views and channels over the graph that the first round's log-odds over chance [M] make."""
    problem, weight = first.problem, weights_of(excess)
    graph = normalised_adjacency(first.pairs, weight, problem.num_nodes)
    views = second_views(first.views, graph)
    scales = {name: moments(views[name], generator) for name in SECOND}
    channels = {
        name: ridge_channel(problem, views[name], views[name]) for name in (*SECOND, "again")
    }
    channels["spread_s"] = spread_channel(problem, graph)
    context = second_context(problem, first.context, channels, first.pairs, weight)
    return SecondRound(graph, views, scales, channels, context)


def second_pairs(first: FirstRound, second: SecondRound, vote: Channel) -> tuple[Tensor, Tensor]:
    """The candidates of both rounds and the first round's evidence of all: [2, M], [M, F]."""
    problem = first.problem
    near = [second.views[name] for name in SECOND]
    both = candidate_pairs(problem, near, [*second.channels.values(), vote], first.pairs)
    key = both[0] * problem.num_nodes + both[1]
    fresh = both[:, ~torch.isin(key, first.pairs[0] * problem.num_nodes + first.pairs[1])]
    evidence = first_evidence(problem, first.views, first.scales, first.channels, fresh)
    return torch.cat([first.pairs, fresh], 1), torch.cat([first.evidence, evidence])


def second_evidence(
    first: FirstRound, second: SecondRound, vote: Channel, pairs: Tensor, excess: Tensor
) -> Tensor:
    """What the second round adds: cosines, agreements, and the first round's log-odds: [M, F2]."""
    compared = [cosines(second.views[v], pairs, second.scales[v]) for v in SECOND]
    channels = [*second.channels.values(), vote]
    agreed = [agreement(first.problem, channel, pairs) for channel in channels]
    return torch.cat([torch.stack(compared, 2).flatten(1), *agreed, excess[:, None] / 4], 1)


def vote_channel(problem: Problem, logits: Tensor) -> Channel:
    """The mixed answer as a channel: [N, C] logits over the class shares."""
    probabilities = (logits + problem.prior.log()).softmax(1)
    return Channel(probabilities, leave_one_out_scores(problem, probabilities))


def weights_of(excess: Tensor) -> Tensor:
    """An edge counts by its log-odds over chance, and not at all below: 0 .. 8."""
    return excess.clamp(0, LARGEST_WEIGHT)
