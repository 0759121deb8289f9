"""New nodes under a stored prediction: their own rows are computed, everything else stays.

*Frozen graph*: views, solutions, refined graphs, communities and scales of the old nodes are those
of the stored prediction, and so are their degrees. An edge of a new node u to an old node v thus
weighs ``w / sqrt(d_u d_v)`` with the d_v that is stored. A node without edges then has the rows of
an old node without edges, and a copy of an unlabelled old node has its rows, to rounding.

Candidates of a new node are its edges, the old nodes that are nearest to it, and the old nodes
that it would be among the nearest of: each has a stored *floor*, the cosine of its 8th nearest.
An unlabelled old node that is the same in every view, a *twin*, says nothing that is not known of
the new node itself, and is no candidate; without this a copy would be joined to what it copies.
New nodes are candidates of each other where an edge joins them, so that those without such edges
are answered alike alone and in company.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.evidence.candidates import NEAREST, pair_blocks
from graphglow.evidence.channels import FLOOR, SPREAD_DAMPING, Channel, spread_shares
from graphglow.evidence.frozen import LAYERS, SEARCHED, SPREADS, FrozenGraph
from graphglow.evidence.predictor import AT_ONCE, RESIDUALS
from graphglow.evidence.problem import Problem
from graphglow.evidence.rounds import (
    RESOLUTIONS,
    FirstRound,
    Voted,
    joined,
    score_first,
    score_second,
    vote_inputs,
    weights_of,
)
from graphglow.evidence.views import (
    AGAIN,
    ALL,
    FIRST,
    SECOND,
    hidden_layer,
    role_waves,
)
from graphglow.evidence.votes import log_odds
from graphglow.graph.check import checked_edges
from graphglow.graph.graph import undirected_edges
from graphglow.linalg.neighbours import LEAST, SIMILARITIES, largest
from graphglow.linalg.rows import Rows, SideBySide, entries, sparse_rows, take, times, unit, unit_
from graphglow.linalg.sparse import SparseMatrix

ALIKE = 1e-4
"""Largest difference between rows, or probabilities, that are the same."""
TIE = 1e-6  # below a floor counts as level with it


@dataclass(frozen=True, eq=False)
class Edges:
    """Weighted pairs, each once, of a new node and another, which may be new as well.

    Shapes:
        new [E] in 0 .. M - 1; other [E] in 0 .. N + M - 1; weight [E]
    """

    new: Tensor
    other: Tensor
    weight: Tensor
    old_nodes: int
    new_nodes: int

    @cached_property
    def inside(self) -> Tensor:
        """Whether both ends are new: [E]."""
        return self.other >= self.old_nodes

    @property
    def pattern(self) -> "Edges":
        """All of weight 1."""
        return replace(self, weight=torch.ones_like(self.weight))

    def sums(self, power: int = 1) -> Tensor:
        """Of each new node's weights to some power: [M]."""
        weight = self.weight**power
        sums = weight.new_zeros(self.new_nodes).index_add_(0, self.new, weight)
        there = self.other[self.inside] - self.old_nodes
        return sums.index_add_(0, there, weight[self.inside])

    def matrices(self, loops: Tensor | None = None) -> tuple[SparseMatrix, SparseMatrix]:
        """Rows of the new nodes, with these on the diagonal: [M, N] and [M, M]."""
        apart, m = ~self.inside, self.new_nodes
        shape = (m, self.old_nodes)
        to_old = sparse_rows(self.new[apart], self.other[apart], self.weight[apart], shape)
        i, j = self.new[self.inside], self.other[self.inside] - self.old_nodes
        row, col, values = [i, j], [j, i], [self.weight[self.inside]] * 2
        if loops is not None:
            every = torch.arange(m, device=i.device)
            row, col, values = [*row, every], [*col, every], [*values, loops]
        return to_old, sparse_rows(torch.cat(row), torch.cat(col), torch.cat(values), (m, m))

    def normalised(self, degree: Tensor) -> "NewRows":
        """Rows of D^-1/2 (W + I) D^-1/2; ``degree`` is that of old nodes, with the loop: [N]."""
        own = 1 + self.sums()
        scale = torch.cat([degree, own]).rsqrt()
        weight = self.weight * scale[self.other] * own.rsqrt()[self.new]
        scaled = replace(self, weight=weight)
        return NewRows(scaled, *scaled.matrices(own.reciprocal()))


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows of new nodes in a normalised graph: to old nodes [M, N], among the new ones [M, M]."""

    edges: Edges
    """Of the normalised weights, without the diagonal."""
    to_old: SparseMatrix
    among: SparseMatrix

    def carry(self, old: Tensor, new: Tensor) -> Tensor:
        """The graph's product with rows of all nodes, at new ones: [N, D], [M, D] -> [M, D]."""
        return times(self.to_old, old) + times(self.among, new)


@torch.no_grad()
def insert(
    frozen: FrozenGraph,
    x: Tensor | None,
    edges: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """Class probabilities of new nodes; those of old nodes do not change.

    Args:
        frozen: The stored prediction, of N nodes.
        x: Features of the new nodes, in the columns of the graph, dense or sparse; None, or no
            columns, on a graph without features.
        edges: Edges in any direction, each with a new end; new nodes are numbered from N on.
        edge_weight: Non-negative; all 1 if None.

    Shapes:
        x [M, F], edges [2, E], edge_weight [E] -> [M, classes]
    """
    problem = frozen.problem
    features, given = checked_nodes(problem, x, edges, edge_weight)
    answer = problem.prior.expand(given.new_nodes, -1)
    if frozen.refined.final is not None and given.new_nodes:
        answer = _Insertion(frozen, features, given).answer()
    whole = answer.new_zeros(given.new_nodes, problem.num_classes)
    whole[:, problem.seen] = answer
    return whole


def checked_nodes(
    problem: Problem, x: Tensor | None, edges: Tensor | None, edge_weight: Tensor | None
) -> tuple[Rows | None, Edges]:
    """Features of new nodes as rows of the problem, and their edges; refused in one sentence."""
    columns, n = problem.columns, problem.num_nodes
    width = 0 if columns is None else columns.width
    if x is None and width == 0 and isinstance(edges, Tensor) and edges.numel():
        x = torch.empty(max(0, int(edges.max()) + 1 - n), 0)
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != width:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(
            f"x must have a row per new node and the {width} columns of the graph; got {got}"
        )
    m = x.shape[0]
    features = columns.rows(x) if columns is not None else None
    if edges is None and edge_weight is not None:
        raise InputError("edge_weight must come with edges; got edge_weight alone")
    edges, weight = checked_edges(edges, edge_weight, n + m)
    among_old = (edges < n).all(0).nonzero()
    if len(among_old):
        u, v = edges[:, int(among_old[0])].tolist()
        raise InputError(f"each edge must have a new end, {n} or above; got {u} - {v}")
    low, high, weight = undirected_edges(edges, weight, n + m)
    weight = torch.ones(len(low)) if weight is None else weight.float()
    other, new, weight = (t.to(problem.device) for t in (low.long(), high.long() - n, weight))
    return features, Edges(new, other, weight, n, m)


class _Insertion:
    """New nodes on their way through both rounds; views [M, D] and channels [M, C] so far."""

    def __init__(self, frozen: FrozenGraph, features: Rows | None, given: Edges) -> None:
        self.frozen, self.features, self.given = frozen, features, given
        self.old = frozen.views
        self.prior = frozen.problem.prior
        self.views: dict[str, Tensor] = {}
        self.channels: dict[str, Channel] = {}
        self.every = torch.arange(given.new_nodes, device=frozen.problem.device)
        self.degree = given.pattern.sums()
        self.problem = self._problem(frozen.problem.links, self.degree)  # of new nodes alone

    def answer(self) -> Tensor:
        """Class probabilities: [M, C]."""
        frozen, second, refined = self.frozen, self.frozen.second, self.frozen.refined
        self._first_views()
        self.twin = self._twins()
        self._first_channels()
        near = self._candidates(0, self.given)
        first, pairs = self._first_round(near)
        blocks = pair_blocks(pairs)
        scores = joined([score_first((frozen.learner, first), b) for b in blocks], self.problem)
        excess = second.scale[0] * scores + second.scale[1] + second.calibration
        self._second_channels(_graph(near, excess, frozen.degrees["s"]))
        near = self._candidates(1, near)
        voted, pairs = self._voted(near)
        scores = joined([score_second(voted, b) for b in pair_blocks(pairs)], self.problem)
        excess = refined.scale[0] * scores + refined.scale[1] + refined.calibration
        return self._predicted(_graph(near, excess, frozen.degrees["f"]))

    def _first_views(self) -> None:
        old, maps = self.old, self.frozen.first.maps
        self.rows = self.given.normalised(self.frozen.degrees["a"])
        x = old["x"].new_zeros(len(self.every), 0)
        if self.features is not None:
            x = maps["x"](self.features)
        ax = self.rows.carry(old["x"], x)
        aax = unit_(self.rows.carry(self.frozen.means["a"], ax))
        link = self._link()
        self.views = {
            "x": x, "ax": unit(ax), "aax": aax, "diff": unit_(x - ax), "link": link,
            "spectral": self.frozen.maps["spectral"](link), "role": self._role(),
        }  # fmt: skip
        self._say("x", self._at("x", self.features))

    def _link(self) -> Tensor:
        """Rows of ``(D + tau)^-1/2 A (D + tau)^-1/2``; edges between new nodes have no column."""
        problem, given = self.frozen.problem, self.given.pattern
        if len(problem.low) == 0:
            return self.prior.new_zeros(len(self.every), 0)
        degree = torch.cat([problem.degree, self.degree]) + problem.degree.mean()
        weight = (degree[given.other] * degree[problem.num_nodes :][given.new]).rsqrt()
        return self.frozen.first.maps["link"](replace(given, weight=weight).matrices()[0])

    def _role(self) -> Tensor:
        if len(self.frozen.problem.low) == 0:
            return self.prior.new_zeros(len(self.every), 0)
        old, to_old, among = self.frozen.roles, *self.given.pattern.matrices()
        share = self.degree.clamp_min(1).reciprocal()[:, None]
        mean = NewRows(self.given, to_old, among)
        own, before = self.degree.log1p()[:, None], old[:, :1]
        once = share * mean.carry(before, own)
        square = share * mean.carry(before.square(), own.square())
        twice = share * mean.carry(old[:, 1:2], once)
        spread = (square - once.square()).clamp_min(0).sqrt()
        part = torch.cat([own, once, twice, spread], 1)
        return role_waves(part, old.mean(0), old.std(0))

    def _twins(self) -> Tensor:
        """An unlabelled old node that is the same in every view, or -1: [M]."""
        problem = self.frozen.problem
        new, old = self.views["aax"], self.old["aax"]
        if old.shape[1] == 0:
            new, old = (torch.cat([v["link"], v["role"]], 1) for v in (self.views, self.old))
        near = torch.cat([largest(s, NEAREST)[1] for _, s in _cosines(new, old)])  # [M, k]
        same = torch.ones_like(near, dtype=torch.bool)
        if len(problem.labelled):
            labelled = torch.zeros(problem.num_nodes, dtype=torch.bool, device=near.device)
            labelled[problem.labelled] = True
            same &= ~labelled[near]
        answers = self.frozen.first.channels["x"].probabilities, self._p("x")
        for old, new in [*((self.old[v], self.views[v]) for v in FIRST), answers]:
            if old.shape[1]:
                same &= (old[near] - new[:, None]).abs().amax(2) < ALIKE
        first = same.int().argmax(1, keepdim=True)
        return torch.where(same.any(1), near.gather(1, first)[:, 0], -1)

    def _first_channels(self) -> None:
        views, given, rows, say = self.views, self.given, self.rows, self._say
        for name in ("ax", "aax", "diff", "role"):
            say(name, self._at(name, views[name]))
        say("all", self._at("all", SideBySide.of([views[name] for name in ALL])))
        length = given.sums(2).sqrt().clamp_min(1e-12)[given.new]
        say("link", self._at("link", replace(given, weight=given.weight / length).matrices()[0]))
        alink = rows.carry(self.old["link"], views["link"])
        say("alink", self._at("alink", self.frozen.maps["alink"](alink)))
        say("spectral", self._at("spectral", self.frozen.maps["ranked"](views["link"])))
        say("community", self._community("community", given, self.frozen.degrees["a"] - 1))
        say("spread", self._spread("a", rows))
        say("hidden_x", self._hidden("hidden_x"))
        say("hidden_all", self._hidden("hidden_all"))

    def _second_channels(self, rows: NewRows) -> None:
        """Views and channels over the graph of the first round, and the vote."""
        frozen, views, say = self.frozen, self.views, self._say
        sx = rows.carry(self.old["x"], views["x"])
        views |= {"sx": unit(sx), "ssx": unit_(rows.carry(frozen.means["s"], sx))}
        for name in SECOND:
            say(name, self._at(name, views[name]))
        say("again", self._at("again", SideBySide.of([views[name] for name in AGAIN])))
        say("spread_s", self._spread("s", rows))
        say("hidden_again", self._hidden("hidden_again"))
        first = replace(frozen.first, problem=self.problem, channels=self.channels)
        second = replace(frozen.second, first=first, channels=self.channels)
        logits = [frozen.learner.vote(*vote_inputs(second, some)) for some in self._blocks()]
        sharpness = frozen.final.voted.vote.chosen["sharpness"]
        say("vote", (sharpness * torch.cat(logits) + self.prior.log()).softmax(1))

    def _predicted(self, rows: NewRows) -> Tensor:
        """What the predictor says: [M, C]."""
        frozen, views, say, final = self.frozen, self.views, self._say, self.frozen.final
        fx = rows.carry(self.old["x"], views["x"])
        views |= {"fx": unit(fx), "ffx": unit_(rows.carry(frozen.means["f"], fx))}
        say("ffx", self._at("ffx", views["ffx"]))
        say("spread_f", self._spread("f", rows))
        say("hidden_f", self._hidden("hidden_f"))
        say("community_f", self._community("community_f", rows.edges, frozen.strength))
        p = [self._p(name) for name in final.channels if name != "stack"]
        odds = log_odds(torch.stack(p, 2), self.prior)
        say("stack", (odds @ frozen.stack + self.prior.log()).softmax(1))
        parts = [self._carried("a", self.given.pattern), self._carried("f", rows.edges)]
        of_node = [*(masses for _, masses in parts), self.degree.log1p()[:, None] / 4]
        first = replace(frozen.first, problem=self.problem)
        final = replace(
            final,
            voted=replace(final.voted, second=replace(frozen.second, first=first)),
            channels=self.channels,
            carried=torch.cat([carried for carried, _ in parts], 1).mT,
            of_node=torch.cat(of_node, 1),
        )
        predictor, blocks = frozen.learner.predictor, self._blocks()
        logits = [predictor.answer(*final.inputs(some)) for some in blocks]
        return (frozen.refined.sharpness * torch.cat(logits) + self.prior.log()).softmax(1)

    def _candidates(self, round_: int, known: Edges) -> Edges:
        """Pairs of new and old nodes that are looked at; ``known`` ones are among them."""
        frozen, n = self.frozen, known.old_nodes
        channels = [self._p(name) for name in frozen.spoken[round_]]
        beliefs = torch.cat([p.sqrt() for p in channels], 1) - frozen.belief_means[round_]
        rows = [*(self.views[name] for name in SEARCHED[round_]), F.normalize(beliefs, dim=1)]
        keys = [(known.new * n + known.other)[~known.inside]]
        searched = zip(frozen.searched[round_], frozen.floors[round_], rows, strict=True)
        for (old, ties), floor, new in searched:
            if old.shape[1] == 0:
                continue
            tie = torch.where(self.twin[:, None] < 0, frozen.new_ties, ties[self.twin])
            tie = tie * new.any(1, keepdim=True)
            for some, cosine in _cosines(new, old):
                cosine.addmm_(tie[some], ties.T)
                twin = self.twin[some]
                has = (twin >= 0).nonzero()[:, 0]
                cosine[has, twin[has]] = -1
                value, place = largest(cosine, NEAREST)
                keys.append((some[:, None] * n + place)[value > LEAST])
                node, place = (cosine >= floor - TIE).nonzero(as_tuple=True)
                keys.append(some[node] * n + place)
        key = torch.unique(torch.cat(keys))
        new = torch.cat([key // n, known.new[known.inside]])
        other = torch.cat([key % n, known.other[known.inside]])
        return replace(known, new=new, other=other, weight=self.prior.new_zeros(len(new)))

    def _first_round(self, near: Edges) -> tuple[FirstRound, Tensor]:
        """What is known of the ends of some pairs alone, and the pairs among these: [2, P].

        Every neighbour of a new node is such an end, so that neighbours in common are counted.
        """
        frozen, n, m = self.frozen, near.old_nodes, near.new_nodes
        self.ends = torch.unique(near.other[~near.inside])
        place = self.every.new_full((n + m,), -1)
        place[self.ends] = m + torch.arange(len(self.ends), device=place.device)
        place[n:] = self.every
        old_links = take(frozen.problem.links, self.ends)
        assert isinstance(old_links, SparseMatrix)
        row, col, _ = entries(old_links)
        kept = place[col] >= 0
        there = place[self.given.other]
        row = torch.cat([row[kept] + m, self.given.new, there])
        col = torch.cat([place[col[kept]], there, self.given.new])
        size = m + len(self.ends)
        links = sparse_rows(row, col, torch.ones_like(row).float(), (size, size))
        problem = self._problem(links, self._both(frozen.problem.degree, self.degree))
        views = {name: self._both(self.old[name], self.views[name]) for name in FIRST}
        channels = self._of_ends(frozen.first.channels)
        first = replace(frozen.first, problem=problem, views=views, channels=channels)
        return first, torch.stack([near.new, place[near.other]])

    def _voted(self, near: Edges) -> tuple[Voted, Tensor]:
        first, pairs = self._first_round(near)
        second, voted = self.frozen.second, self.frozen.final.voted
        views = {name: self._both(self.old[name], self.views[name]) for name in SECOND}
        channels = self._of_ends(second.channels)
        second = replace(second, first=first, views=views, channels=channels)
        vote = self._of_ends({"vote": voted.vote})["vote"]
        return replace(voted, second=second, vote=vote), pairs

    def _both(self, old: Tensor, new: Tensor) -> Tensor:
        """New nodes first, then the old ends of pairs."""
        return torch.cat([new, old[self.ends]])

    def _of_ends(self, channels: dict[str, Channel]) -> dict[str, Channel]:
        both = {n: self._both(c.probabilities, self._p(n)) for n, c in channels.items()}
        return {name: Channel(both[name], channels[name].scores) for name in channels}

    def _problem(self, links: SparseMatrix, degree: Tensor) -> Problem:
        """The stored labels and shares with other nodes."""
        problem = replace(self.frozen.problem)
        vars(problem).update(links=links, degree=degree)
        return problem

    def _blocks(self) -> tuple[Tensor, ...]:
        return torch.split(self.every, max(1, AT_ONCE // len(self.prior)))

    def _say(self, name: str, probabilities: Tensor) -> None:
        self.channels[name] = Channel(probabilities, self.frozen.final.channels[name].scores)

    def _p(self, name: str) -> Tensor:
        return self.channels[name].probabilities

    def _at(self, name: str, rows: Rows | None) -> Tensor:
        """A ridge channel's answer about new rows: [M, D] -> [M, C]."""
        channel = self.frozen.final.channels[name]
        if rows is None or channel.weight is None:
            return self.prior.expand(len(self.every), -1)
        return channel.at(rows, self.prior)

    def _hidden(self, name: str) -> Tensor:
        layer = self.frozen.layers[name]
        return self._at(name, layer and hidden_layer(self.views, LAYERS[name], layer))

    def _spread(self, graph: str, rows: NewRows) -> Tensor:
        """Labels spread over a graph, one step further, to the new nodes: [M, C]."""
        chosen = self.frozen.final.channels[SPREADS[graph]].chosen
        if not chosen:
            return self.prior.expand(len(self.every), -1)
        reached = times(rows.to_old, self.frozen.spreads[graph])  # [M, K C]
        now = total = torch.zeros_like(reached[:, : len(self.prior)])
        for brought in torch.split(reached, len(self.prior), 1):
            now = SPREAD_DAMPING * (brought + times(rows.among, now))
            total = total + now
        rates = total.clamp_min(0) / self.frozen.problem.counts / chosen["mean"]
        floor, power = float(chosen["floor"]), float(chosen["power"])
        return spread_shares(self.problem, rates, floor, power).lerp(self.prior, FLOOR)

    def _community(self, name: str, edges: Edges, strength: Tensor) -> Tensor:
        """Class shares of the community whose modularity gains most by a node: [M, C].

        That of a twin is the twin's. ``strength`` is the old nodes' sum of weights [N].
        """
        chosen, problem = self.frozen.final.channels[name].chosen, self.frozen.problem
        if not chosen:
            return self.prior.expand(len(self.every), -1)
        member, resolution = chosen["member"], RESOLUTIONS[int(chosen["partition"])]
        many = int(member.max()) + 1
        size = strength.new_zeros(many + 1).index_add_(0, member, strength)
        counts = strength.new_zeros(many + 1, len(self.prior))  # the last: no community
        counts.index_put_((member[problem.labelled], problem.classes), strength.new_ones(()), True)
        apart = ~edges.inside
        key = edges.new[apart] * many + member[edges.other[apart]]
        key, place = torch.unique(key, return_inverse=True)
        gain = strength.new_zeros(len(key)).index_add_(0, place, edges.weight[apart])
        node, joined_to = key // many, key % many
        gain -= resolution * edges.sums()[node] * size[joined_to] / strength.sum().clamp_min(1e-9)
        best = gain.new_zeros(len(self.every)).scatter_reduce(0, node, gain, "amax")
        top = (gain > 0) & (gain == best[node])
        found = torch.full_like(self.every, many).index_put_((node[top],), joined_to[top])
        found = torch.where(self.twin >= 0, member[self.twin], found)
        near, pseudo = counts[found], float(chosen["pseudo"])
        shares = (near + pseudo * self.prior) / (near.sum(1, keepdim=True) + pseudo)
        return shares.lerp(self.prior.expand_as(shares), FLOOR)

    def _carried(self, graph: str, edges: Edges) -> tuple[Tensor, Tensor]:
        """What labels one and two steps away say against answers: [M, 2 R, C], masses [M, 2]."""
        values, ahead, mean = self.frozen.residuals[graph]
        edges = replace(edges, weight=edges.weight / mean)
        to_old, among = edges.matrices()
        one = times(to_old, values)
        strength = edges.sums().clamp_min(1e-9)[:, None]
        two = times(to_old, ahead) + times(among, one / strength)
        carried, masses = [], []
        for reached in (one, two):
            mass = reached[:, -1:].clamp_min(0)
            carried.append((reached[:, :-1] / (mass + 1)).view(len(mass), len(RESIDUALS), -1))
            masses.append(mass.log1p() / 2)
        return torch.cat(carried, 1), torch.cat(masses, 1)


def _graph(near: Edges, excess: Tensor, degree: Tensor) -> NewRows:
    """Rows of the refined graph that log-odds over chance [P] make of pairs."""
    weight = weights_of(excess)
    counts = weight > 0
    kept = replace(near, new=near.new[counts], other=near.other[counts], weight=weight[counts])
    return kept.normalised(degree)


def _cosines(rows: Tensor, old: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Some of the rows [m], and their products with all old ones [m, N], block by block."""
    step = max(1, SIMILARITIES[old.device.type] // max(1, len(old)))
    every = torch.arange(len(rows), device=old.device)
    return ((some, rows[some] @ old.T) for some in torch.split(every, step))
