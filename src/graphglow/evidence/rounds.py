"""The two rounds: from a problem to scored pairs, and from their graph to better ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.evidence.candidates import candidate_pairs
from graphglow.evidence.channels import Channel, ridge_channel, spread_channel
from graphglow.evidence.context import first_context, labelled_pairs, second_context
from graphglow.evidence.pairs import agreement, cosines, first_evidence, logit, moments
from graphglow.evidence.problem import Problem
from graphglow.evidence.views import FIRST, SECOND, first_views, second_views
from graphglow.graphs.graph import normalised_adjacency
from graphglow.ops.sparse import SparseMatrix

LARGEST_WEIGHT = 8.0
CARRIED = 4  # the second round reads the first one's log-odds over this


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
    context = first_context(problem, channels, pairs)
    return FirstRound(problem, views, scales, channels, context, pairs, evidence)


def second_round(first: FirstRound, excess: Tensor, generator: torch.Generator) -> SecondRound:
    """Views and channels over the graph that the first round's log-odds over chance [M] make."""
    problem = first.problem
    weight = weights_of(excess + calibration(problem, first.pairs, excess))
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
    return torch.cat([torch.stack(compared, 2).flatten(1), *agreed, excess[:, None] / CARRIED], 1)


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
