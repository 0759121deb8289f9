"""A prediction kept for nodes that come later: what they need of the old nodes, computed once."""

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.candidates import NEAREST, TIE_LENGTH, TIES, tie_columns, with_beliefs
from graphglow.evidence.channels import SPREAD_DAMPING
from graphglow.evidence.pair_features import FIRST_CHANNELS, SECOND_CHANNELS
from graphglow.evidence.predictor import HIDDEN_F, PPR_STEPS, PPR_TELEPORT
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.rounds import SEARCHED, adjacency_over
from graphglow.evidence.views import AGAIN, ALL, HIDDEN, RANKS, role_degrees
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

PREDICTED = (FIRST_CHANNELS, (*SECOND_CHANNELS, "vote"))
"""Channels whose predictions are searched for candidates, by round."""
SPREADS = {"a": "spread", "s": "spread_s", "f": "spread_f"}
"""The channel of labels spread over each graph: as given, of the first round, of the second."""
LAYERS = {
    "hidden_x": ("x",),
    "hidden_all": ALL,
    "hidden_again": AGAIN,
    "hidden_f": HIDDEN_F,
}
"""What the channels over hidden layers read."""


class FrozenGraph:
    """A stored prediction that new nodes are brought to: what all of them need, computed once.

    With one class alone there is nothing to compute: everybody is of it.
    """

    @torch.no_grad()
    def __init__(self, refined: RefinedGraph, floors: list[Tensor] | None = None) -> None:
        """Freeze what a learner has made of a graph with labels.

        ``floors``, where they are known: by round, of each view that is searched, the cosine from
        which on a node would be among a node's nearest [V, N].
        """
        if refined.probabilities is None:
            raise InputError("new nodes need a graph with labels; got one without any")
        self.refined, self.known, self.graph = refined, refined.known, refined.graph
        self.floors: list[Tensor] = floors or []
        if refined.final is None:
            return
        self.final, graph, known = refined.final, self.graph, self.known
        self.channels = channels = self.final.channels
        self.views = known.views | self.final.views
        first = known.pairs[:, : len(known.first_weight)]
        self.searched = [self._searched(round_) for round_ in (0, 1)]
        if not floors:
            pairs = first, known.pairs[:, : refined.num_candidates]
            self.floors = [
                torch.stack([_floor(rows, ties, looked_at) for rows, ties in searched])
                for searched, looked_at in zip(self.searched, pairs, strict=True)
            ]
        self.belief_means = [
            torch.cat([channels[name].probabilities.sqrt().mean(0) for name in names])
            for names in PREDICTED
        ]
        drawn = torch.randn(1, TIES, generator=torch.Generator().manual_seed(0))
        self.new_ties = (TIE_LENGTH * drawn).to(graph.device)  # of every node that has no twin
        s = adjacency_over(first, known.first_weight, graph.num_nodes)
        self.adjacencies = {"a": graph.adj, "s": s, "f": self.final.adjacency}
        self.degrees = {key: _degrees(matrix) for key, matrix in self.adjacencies.items()}
        row, col, values = entries(self.final.adjacency)
        self.strength = torch.zeros_like(graph.degree).index_add_(0, row, values * (row != col))
        self.means = {
            key: times(matrix, self.views["x"]) for key, matrix in self.adjacencies.items()
        }
        self.roles = role_degrees(graph)
        link, weight = self.views["link"], channels["spectral"].weight
        rank = link.shape[1] if weight is None else len(weight) - 1
        self.maps = known.maps | {
            "spectral": leading_map(link, RANKS[1]),
            "ranked": leading_map(link, rank),
            "alink": LowRank(None, short_length(times(graph.adj, link))),
        }
        self.layers: dict[str, HiddenLayer | None] = {}
        for name, names in LAYERS.items():
            mean = channels[name].chosen.get("mean")
            rows = SideBySide.of([self.views[view] for view in names])
            self.layers[name] = None if mean is None else HiddenLayer.of(rows, HIDDEN, mean)
        self.one_hot = torch.eye(len(graph.seen), device=graph.device)[graph.classes]
        self.spreads = {key: self._spread(key) for key in SPREADS}
        self.page_ranks = {key: self._page_rank(key) for key in ("a", "f")}

    def _searched(self, round_: int) -> list[tuple[Tensor, Tensor]]:
        """Rows in which candidates are looked for, and columns that break ties."""
        channels = [self.channels[name] for name in PREDICTED[round_]]
        rows = with_beliefs([self.views[name] for name in SEARCHED[round_]], channels)
        return [(view, tie_columns(view)) for view in rows]

    def _spread(self, key: str) -> list[Tensor]:
        """Labels after each step but the last over one of the graphs: [N, C] each."""
        chosen = self.channels[SPREADS[key]].chosen
        start = self.one_hot.new_zeros(self.graph.num_nodes, self.one_hot.shape[1])
        start[self.graph.labelled] = self.one_hot
        steps = [start]
        for _ in range(1, int(chosen["steps"]) if chosen else 0):
            steps.append(times(self.adjacencies[key], steps[-1]) * SPREAD_DAMPING)
        return steps

    def _page_rank(self, key: str) -> list[Tensor]:
        """The view ``x`` after each step but the last of PageRank over a graph: [N, D] each."""
        steps = [x := self.views["x"]]
        for _ in range(1, PPR_STEPS):
            reached = times(self.adjacencies[key], steps[-1])
            steps.append(reached.mul_(1 - PPR_TELEPORT).add_(x, alpha=PPR_TELEPORT))
        return steps


def _degrees(adjacency: SparseMatrix) -> Tensor:
    """Sums of weights, with the loop of 1, of a normalised adjacency: [N]."""
    row, col, values = entries(adjacency)
    return values[row == col].reciprocal()


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
