"""A prediction kept for nodes that come later: what they need of the old nodes, computed once."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.candidates import NEAREST, TIE_LENGTH, TIES, tie_columns, with_beliefs
from graphglow.evidence.channels import SPREAD_DAMPING, Channel
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.predictor import RESIDUALS, FinalRound, stack_channel
from graphglow.evidence.problem import Problem
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.rounds import FirstRound, SecondRound, graph_of
from graphglow.evidence.views import AGAIN, ALL, HIDDEN, RANKS, SECOND, role_degrees
from graphglow.linalg.neighbours import LEAST
from graphglow.linalg.pairs import dots
from graphglow.linalg.rows import (
    HiddenLayer,
    LowRank,
    SideBySide,
    entries,
    leading_map,
    short_length,
    times,
)
from graphglow.linalg.sparse import SparseMatrix

SEARCHED = (("x", "ax", "aax", "link"), SECOND)
"""Views in which candidates are looked for, by round; besides, what the channels say."""
SPREADS = {"a": "spread", "s": "spread_s", "f": "spread_f"}
"""The channel of labels spread over each graph: as given, of the first round, of the second."""
LAYERS = {
    "hidden_x": ("x",),
    "hidden_all": ALL,
    "hidden_again": AGAIN,
    "hidden_f": ("x", "fx", "ffx", "aax", "link"),
}
"""What the channels over hidden layers read."""


@dataclass(frozen=True, eq=False)
class FrozenGraph:
    """A stored prediction that new nodes are brought to; what they need is computed once.

    Shapes:
        floors: by round, of each view that is searched, the cosine from which on a node would be
        among a node's nearest [V, N]; stack [K]: weights of the stacked channels
    """

    learner: EvidenceLearner
    refined: RefinedGraph
    floors: tuple[Tensor, Tensor]
    stack: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, learner: EvidenceLearner, refined: RefinedGraph) -> "FrozenGraph":
        """Freeze what a learner has made of a graph; it must have had labels."""
        if refined.probabilities is None:
            raise InputError("new nodes need a graph with labels; got one without any")
        nothing, final = torch.zeros(0), refined.final
        frozen = cls(learner, refined, (nothing, nothing), nothing)
        if final is None:  # one class
            return frozen
        first = final.voted.second.first.pairs
        every = refined.known.pairs[:, : refined.num_candidates]
        rounds = zip(frozen.searched, (first, every), strict=True)
        one, two = (
            torch.stack([_floor(rows, ties, pairs) for rows, ties in searched])
            for searched, pairs in rounds
        )
        weights = _stack_weights(final.problem, final.channels)
        return replace(frozen, floors=(one, two), stack=weights)

    @property
    def problem(self) -> Problem:
        return self.refined.known.second.first.problem

    @property
    def final(self) -> FinalRound:
        assert self.refined.final is not None
        return self.refined.final

    @property
    def second(self) -> SecondRound:
        return self.final.voted.second

    @property
    def first(self) -> FirstRound:
        return self.second.first

    @cached_property
    def spoken(self) -> tuple[dict[str, Channel], dict[str, Channel]]:
        """The channels whose answers are searched, by round."""
        return self.first.channels, {**self.second.channels, "vote": self.final.voted.vote}

    @cached_property
    def searched(self) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
        """Rows in which candidates are looked for, and columns that break ties, by round."""
        one, two = (
            with_beliefs([self.views[name] for name in names], list(channels.values()))
            for names, channels in zip(SEARCHED, self.spoken, strict=True)
        )
        return [(rows, tie_columns(rows)) for rows in one], [(r, tie_columns(r)) for r in two]

    @cached_property
    def new_ties(self) -> Tensor:
        """Columns that break ties, of every node that has no twin: [1, TIES]."""
        generator = torch.Generator().manual_seed(0)
        return (TIE_LENGTH * torch.randn(1, TIES, generator=generator)).to(self.problem.device)

    @cached_property
    def views(self) -> dict[str, Tensor]:
        """All views of the old nodes."""
        return self.first.views | self.second.views | self.final.views

    @cached_property
    def maps(self) -> dict[str, LowRank]:
        """From one view to another: ``spectral``, what its channel reads, and ``alink``."""
        link, weight = self.views["link"], self.first.channels["spectral"].weight
        rank = link.shape[1] if weight is None else len(weight) - 1
        return {
            "spectral": leading_map(link, RANKS[1]),
            "ranked": leading_map(link, rank),
            "alink": LowRank(None, short_length(times(self.problem.adj, link))),
        }

    @cached_property
    def layers(self) -> dict[str, HiddenLayer | None]:
        """The hidden layers, by channel."""
        layers: dict[str, HiddenLayer | None] = {}
        for name, names in LAYERS.items():
            mean = self.final.channels[name].chosen.get("mean")
            rows = SideBySide.of([self.views[view] for view in names])
            layers[name] = None if mean is None else HiddenLayer.of(rows, HIDDEN, mean)
        return layers

    @cached_property
    def belief_means(self) -> tuple[Tensor, Tensor]:
        one, two = (
            torch.cat([c.probabilities.sqrt().mean(0) for c in channels.values()])
            for channels in self.spoken
        )
        return one, two

    @cached_property
    def graphs(self) -> dict[str, SparseMatrix]:
        """The graph as it was given, and those of both rounds: a, s, f."""
        s = graph_of(self.first.pairs, self.second.weight, self.problem.num_nodes)
        return {"a": self.problem.adj, "s": s, "f": self.final.graph}

    @cached_property
    def degrees(self) -> dict[str, Tensor]:
        """Sums of weights, with the loop of 1: [N]."""
        degrees = {}
        for name, graph in self.graphs.items():
            row, col, values = entries(graph)
            degrees[name] = values[row == col].reciprocal()
        return degrees

    @cached_property
    def strength(self) -> Tensor:
        """Sums of the final graph's normalised weights, without the diagonal: [N]."""
        row, col, values = entries(self.final.graph)
        return torch.zeros_like(self.degrees["f"]).index_add_(0, row, values * (row != col))

    @cached_property
    def means(self) -> dict[str, Tensor]:
        """One-hop means of the view ``x`` over each graph, not of unit length: [N, D]."""
        return {name: times(graph, self.first.views["x"]) for name, graph in self.graphs.items()}

    @cached_property
    def roles(self) -> Tensor:
        return role_degrees(self.problem)

    @cached_property
    def spreads(self) -> dict[str, Tensor]:
        """Labels after each step but the last over the graphs a, s, f: [N, K C]."""
        problem, spreads = self.problem, {}
        for key, name in SPREADS.items():
            chosen = self.final.channels[name].chosen
            now = torch.zeros(problem.num_nodes, len(problem.seen), device=problem.device)
            now[problem.labelled, problem.classes] = 1
            steps = [now]
            for _ in range(1, int(chosen["steps"]) if chosen else 0):
                steps.append(times(self.graphs[key], steps[-1]) * SPREAD_DAMPING)
            spreads[key] = torch.cat(steps, 1)
        return spreads

    @cached_property
    def residuals(self) -> dict[str, tuple[Tensor, Tensor, float]]:
        """Residuals at old nodes, their one-hop means, both [N, R C + 1], and the mean weight.

        As :func:`graphglow.evidence.predictor.final_round` carries them over a and f.
        """
        problem, values = self.problem, []
        one_hot = torch.eye(len(problem.seen), device=problem.device)[problem.classes]
        for name in RESIDUALS:
            labelled = problem.prior
            if name != "label":
                labelled = self.final.channels[name].probabilities[problem.labelled]
            values.append(one_hot - labelled)
        whole = one_hot.new_zeros(problem.num_nodes, len(RESIDUALS) * one_hot.shape[1] + 1)
        whole[problem.labelled] = torch.cat([*values, torch.ones_like(one_hot[:, :1])], 1)
        carried = {}
        for key, graph in (("a", problem.links), ("f", self.final.graph)):
            row, col, weight = entries(graph)
            weight = weight * (row != col)
            mean = float(weight.sum() / (row != col).sum().clamp_min(1)) if key == "f" else 1.0
            weight = weight / max(mean, 1e-9)
            strength = torch.zeros_like(whole[:, 0]).index_add_(0, row, weight)
            one = times(graph.with_values(weight), whole)
            carried[key] = whole, one / strength.clamp_min(1e-9)[:, None], max(mean, 1e-9)
        return carried


def _floor(rows: Tensor, ties: Tensor, pairs: Tensor) -> Tensor:
    """The cosine of each node's 8th nearest among its candidates: [N, D], [2, M] -> [N].

    The candidates hold the nearest of each view.
    """
    cosine, node = dots(rows, pairs) + dots(ties, pairs), pairs.long().flatten()
    key = node + (1 - cosine.double().repeat(2)) / 4  # sorts by node, the nearest first
    key = key.sort().values
    count = torch.bincount(node, minlength=len(rows))
    many = (count >= NEAREST).nonzero()[:, 0]
    place = (count.cumsum(0) - count)[many] + NEAREST - 1
    floor = torch.full_like(ties[:, 0], LEAST)
    floor[many] = (1 - 4 * (key[place] - many)).to(floor).clamp_min(LEAST)
    return floor


def _stack_weights(problem: Problem, channels: dict[str, Channel]) -> Tensor:
    """The weights of :func:`stack_channel`, read off what it says of made-up nodes: [K].

    At the i-th of these only channel i speaks, for the first class with log-odds of 1.
    """
    names, labels = [name for name in channels if name != "stack"], len(problem.labelled)
    size = labels + len(names)
    tilt = torch.zeros_like(problem.prior)
    tilt[0] = 1
    tilted = (problem.prior.log() + tilt).softmax(0)
    made_up = {}
    for i, name in enumerate(names):
        p = problem.prior.expand(size, -1).clone()
        p[:labels] = channels[name].probabilities[problem.labelled]
        p[labels + i] = tilted
        made_up[name] = replace(channels[name], probabilities=p)
    labelled = torch.arange(labels, device=problem.device)
    small = replace(problem, adj=replace(problem.adj, shape=(size, size)), labelled=labelled)
    odds = stack_channel(small, made_up).probabilities[labels:].log() - problem.prior.log()
    return odds[:, 0] - odds[:, 1]
