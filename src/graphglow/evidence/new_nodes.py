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
from graphglow.evidence.context import FIRST_CONTEXT
from graphglow.evidence.frozen import LAYERS, PREDICTED, SPREADS, FrozenGraph
from graphglow.evidence.predictor import AT_ONCE, PPR_TELEPORT, answer
from graphglow.evidence.rounds import (
    RESOLUTIONS,
    SEARCHED,
    joined,
    over_chance,
    score,
    vote_inputs,
    weights_of,
)
from graphglow.evidence.views import AGAIN, ALL, FIRST, SECOND, hidden_layer, role_waves
from graphglow.graph.check import checked_edges
from graphglow.graph.graph import Graph, undirected_edges
from graphglow.linalg.neighbours import LEAST, SIMILARITIES, largest
from graphglow.linalg.rows import Rows, SideBySide, entries, sparse_rows, take, times, unit, unit_
from graphglow.linalg.sparse import SparseMatrix

ALIKE = 1e-4
"""Largest difference between rows, or probabilities, that are the same."""
TIE = 1e-6  # below a floor counts as level with it


@dataclass(frozen=True, eq=False)
class NewEdges:
    """Weighted edges of M new nodes, listed from both ends between two of them.

    Shapes:
        new [E] in 0 .. M - 1; other [E] in 0 .. N + M - 1; weight [E]; loop [M]: the diagonal
    """

    new: Tensor
    other: Tensor
    weight: Tensor
    num_old: int
    num_new: int
    loop: Tensor | None = None

    @cached_property
    def to_old(self) -> Tensor:
        """Whether the other end is an old node: [E]."""
        return self.other < self.num_old

    @property
    def pattern(self) -> "NewEdges":
        """All of weight 1."""
        return replace(self, weight=torch.ones_like(self.weight))

    def sums(self, power: int = 1) -> Tensor:
        """Of each new node's weights to some power: [M]."""
        weight = self.weight**power
        return weight.new_zeros(self.num_new).index_add_(0, self.new, weight)

    def only(self, kept: Tensor, weight: Tensor) -> "NewEdges":
        """Some of the edges, with these weights: [E], [E]."""
        return replace(self, new=self.new[kept], other=self.other[kept], weight=weight[kept])

    def normalised(self, degree: Tensor) -> "NewEdges":
        """Rows of D^-1/2 (W + I) D^-1/2; ``degree`` is that of old nodes, with the loop: [N]."""
        own = 1 + self.sums()
        scale = torch.cat([degree, own]).rsqrt()
        weight = self.weight * scale[self.other] * own.rsqrt()[self.new]
        return replace(self, weight=weight, loop=own.reciprocal())

    def carry(self, old: Tensor, new: Tensor) -> Tensor:
        """The graph's product with rows of all nodes, at new ones: [N, D], [M, D] -> [M, D]."""
        matrix, ends = self._matrix
        inside = ends >= self.num_old
        product = times(matrix, torch.cat([old[ends[~inside]], new[ends[inside] - self.num_old]]))
        return product if self.loop is None else product + self.loop[:, None] * new

    @cached_property
    def _matrix(self) -> tuple[SparseMatrix, Tensor]:
        """Weights of the other ends that there are [M, K], and these, the old ones first: [K]."""
        ends, place = torch.unique(self.other, return_inverse=True)
        return sparse_rows(self.new, place, self.weight, (self.num_new, len(ends))), ends


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
    graph = frozen.graph
    features, given = _checked(graph, x, edges, edge_weight)
    answer = graph.prior.expand(given.num_new, -1)
    if frozen.refined.final is not None and given.num_new:
        answer = _Insertion(frozen, features, given).answer()
    whole = answer.new_zeros(given.num_new, graph.num_classes)
    whole[:, graph.seen] = answer
    return whole


def _checked(
    graph: Graph, x: Tensor | None, edges: Tensor | None, edge_weight: Tensor | None
) -> tuple[Rows | None, NewEdges]:
    """Features of new nodes as rows of the graph, and their edges; refused in one sentence."""
    encoder, n = graph.encoder, graph.num_nodes
    width = 0 if encoder is None else encoder.width
    if x is None and width == 0 and isinstance(edges, Tensor) and edges.numel():
        x = torch.empty(max(0, int(edges.max()) + 1 - n), 0)
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != width:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(
            f"x must have a row per new node and the {width} columns of the graph; got {got}"
        )
    m = x.shape[0]
    if edges is None and edge_weight is not None:
        raise InputError("edge_weight must come with edges; got edge_weight alone")
    edges, weight = checked_edges(edges, edge_weight, n + m)
    among_old = (edges < n).all(0).nonzero()
    if len(among_old):
        u, v = edges[:, int(among_old[0])].tolist()
        raise InputError(f"each edge must have a new end, {n} or above; got {u} - {v}")
    low, high, weight = undirected_edges(edges, weight, n + m)
    low, high = low.long().to(graph.device), high.long().to(graph.device)
    weight = torch.ones(len(low)) if weight is None else weight.float()
    inside, weight = low >= n, weight.to(graph.device)
    new, other = torch.cat([high, low[inside]]) - n, torch.cat([low, high[inside]])
    features = None if encoder is None else encoder.rows(x)
    return features, NewEdges(new, other, torch.cat([weight, weight[inside]]), n, m)


class _Insertion:
    """New nodes on their way through both rounds; views [M, D] and channels [M, C] so far."""

    def __init__(self, frozen: FrozenGraph, features: Rows | None, given: NewEdges) -> None:
        assert frozen.known.learner is not None
        self.frozen, self.features, self.given = frozen, features, given
        self.old, self.prior, self.learner = frozen.views, frozen.graph.prior, frozen.known.learner
        self.views: dict[str, Tensor] = {}
        self.channels: dict[str, Channel] = {}
        self.every = torch.arange(given.num_new, device=frozen.graph.device)
        self.degree = given.pattern.sums()
        self.graph = self._graph(frozen.graph.links, self.degree)  # of new nodes alone

    def answer(self) -> Tensor:
        """Class probabilities: [M, C]."""
        frozen, known, refined = self.frozen, self.frozen.known, self.frozen.refined
        self._first_views()
        self.twin = self._twins()
        self._first_channels()
        near = self._candidates(0, self.given)
        scale, shift = known.first_scale, known.first_calibration
        self._second_channels(self._refined(0, near, scale, shift, frozen.degrees["s"]))
        near = self._candidates(1, near)
        scale, shift = refined.scale, refined.calibration
        return self._predicted(self._refined(1, near, scale, shift, frozen.degrees["f"]))

    def _first_views(self) -> None:
        old, frozen, x = self.old, self.frozen, self.old["x"].new_zeros(len(self.every), 0)
        self.rows = self.given.normalised(frozen.degrees["a"])
        if self.features is not None:
            x = frozen.maps["x"](self.features)
        ax = self.rows.carry(old["x"], x)
        aax = unit_(self.rows.carry(frozen.means["a"], ax))
        link = role = x.new_zeros(len(x), 0)
        if len(frozen.graph.low):
            link, role = self._link(), self._role()
        self.views = {
            "x": x, "ax": unit(ax), "aax": aax, "diff": unit_(x - ax), "link": link,
            "spectral": frozen.maps["spectral"](link), "role": role,
        }  # fmt: skip
        self._ridge("x", self.features)

    def _link(self) -> Tensor:
        """Rows of ``(D + tau)^-1/2 A (D + tau)^-1/2``; edges between new nodes have no column."""
        degree = self.frozen.graph.degree
        scale = (torch.cat([degree, self.degree]) + degree.mean()).rsqrt()
        weight = scale[self.given.other] * scale[len(degree) :][self.given.new]
        return self.frozen.maps["link"](self._columns(weight))

    def _columns(self, weight: Tensor) -> SparseMatrix:
        """Weights [E] of the edges to old nodes as rows: [M, N]."""
        edges, old = self.given, self.given.to_old
        shape = (edges.num_new, edges.num_old)
        return sparse_rows(edges.new[old], edges.other[old], weight[old], shape)

    def _role(self) -> Tensor:
        old, edges = self.frozen.roles, self.given.pattern
        share = self.degree.clamp_min(1).reciprocal()[:, None]
        own, before = self.degree.log1p()[:, None], old[:, :1]
        once = share * edges.carry(before, own)
        square = share * edges.carry(before.square(), own.square())
        twice = share * edges.carry(old[:, 1:2], once)
        spread = (square - once.square()).clamp_min(0).sqrt()
        return role_waves(torch.cat([own, once, twice, spread], 1), old.mean(0), old.std(0))

    def _twins(self) -> Tensor:
        """An unlabelled old node that is the same in every view, or -1: [M]."""
        new, old = self.views["aax"], self.old["aax"]
        if old.shape[1] == 0:
            new, old = (torch.cat([v["link"], v["role"]], 1) for v in (self.views, self.old))
        near = torch.cat([largest(s, NEAREST)[1] for _, s in _cosines(new, old)])  # [M, k]
        same = ~torch.isin(near, self.frozen.graph.labelled)
        predicted = self.frozen.channels["x"].probabilities, self._p("x")
        for old, new in [*((self.old[v], self.views[v]) for v in FIRST), predicted]:
            if old.shape[1]:
                same &= (old[near] - new[:, None]).abs().amax(2) < ALIKE
        first = same.int().argmax(1, keepdim=True)
        return torch.where(same.any(1), near.gather(1, first)[:, 0], -1)

    def _first_channels(self) -> None:
        views, given, frozen = self.views, self.given, self.frozen
        for name in ("ax", "aax", "diff", "role"):
            self._ridge(name, views[name])
        self._ridge("all", SideBySide.of([views[name] for name in ALL]))
        length = given.sums(2).sqrt().clamp_min(1e-12)[given.new]
        self._ridge("link", self._columns(given.weight / length))
        alink = self.rows.carry(self.old["link"], views["link"])
        self._ridge("alink", frozen.maps["alink"](alink))
        self._ridge("spectral", frozen.maps["ranked"](views["link"]))
        self._community("community", given, frozen.degrees["a"] - 1)
        self._spread("a", self.rows)
        self._hidden("hidden_x")
        self._hidden("hidden_all")

    def _second_channels(self, rows: NewEdges) -> None:
        """Views and channels over the graph of the first round, and the vote."""
        frozen, views = self.frozen, self.views
        sx = rows.carry(self.old["x"], views["x"])
        views |= {"sx": unit(sx), "ssx": unit_(rows.carry(frozen.means["s"], sx))}
        for name in SECOND:
            self._ridge(name, views[name])
        self._ridge("again", SideBySide.of([views[name] for name in AGAIN]))
        self._spread("s", rows)
        self._hidden("hidden_again")
        known = replace(frozen.known, graph=self.graph, channels=self.channels)
        logits = [self.learner.vote(*vote_inputs(known, some)) for some in self._blocks()]
        self._add("vote", torch.cat(logits) * frozen.channels["vote"].chosen["sharpness"])

    def _predicted(self, rows: NewEdges) -> Tensor:
        """What the predictor answers: [M, C]."""
        frozen, views, final = self.frozen, self.views, self.frozen.final
        fx = rows.carry(self.old["x"], views["x"])
        views |= {"fx": unit(fx), "ffx": unit_(rows.carry(frozen.means["f"], fx))}
        views |= {"ppr": self._page_rank("a", self.rows), "ppr_f": self._page_rank("f", rows)}
        for name in ("ffx", "ppr", "ppr_f"):
            self._ridge(name, views[name])
        self._spread("f", rows)
        self._hidden("hidden_f")
        self._community("community_f", rows, frozen.strength)
        known, update = replace(frozen.known, graph=self.graph), frozen.refined.update
        final = replace(final, known=known, channels=self.channels)
        shares = frozen.refined.shares
        assert update is not None
        assert shares is not None
        logits = [
            answer(self.learner.predictor, *final.inputs(some), update[0])
            for some in self._blocks()
        ]
        return (torch.cat(logits) + shares.log()).softmax(1)

    def _candidates(self, round_: int, known: NewEdges) -> NewEdges:
        """Pairs of new and old nodes that are looked at; ``known`` ones are among them."""
        frozen, n = self.frozen, known.num_old
        beliefs = torch.cat([self._p(name).sqrt() for name in PREDICTED[round_]], 1)
        beliefs = F.normalize(beliefs - frozen.belief_means[round_], dim=1)
        rows = [*(self.views[name] for name in SEARCHED[round_]), beliefs]
        keys = [(known.new * n + known.other)[known.to_old]]
        searched = zip(frozen.searched[round_], frozen.floors[round_], rows, strict=True)
        for (old, ties), floor, new in searched:
            if old.shape[1] == 0:
                continue
            tie = torch.where(self.twin[:, None] < 0, frozen.new_ties, ties[self.twin])
            tie = tie * new.any(1, keepdim=True)
            for some, cosine in _cosines(new, old):
                cosine.addmm_(tie[some], ties.T)
                has = (self.twin[some] >= 0).nonzero()[:, 0]
                cosine[has, self.twin[some][has]] = -1
                value, place = largest(cosine, NEAREST)
                keys.append((some[:, None] * n + place)[value > LEAST])
                node, place = (cosine >= floor - TIE).nonzero(as_tuple=True)
                keys.append(some[node] * n + place)
        key = torch.unique(torch.cat(keys))
        new = torch.cat([key // n, known.new[~known.to_old]])
        other = torch.cat([key % n, known.other[~known.to_old]])
        return replace(known, new=new, other=other, weight=self.prior.new_zeros(len(new)))

    def _refined(
        self, round_: int, near: NewEdges, scale: Tensor, shift: float, degree: Tensor
    ) -> NewEdges:
        """Rows of the graph that a round makes of candidates; ``degree`` of old nodes in it [N].

        Pairs are scored in the graph of the new nodes and the other ends of their pairs. Every
        neighbour of a new node is such an end, so that neighbours in common are counted.
        """
        known, given, n, m = self.frozen.known, self.given, near.num_old, near.num_new
        ends = torch.unique(near.other[near.to_old])
        place = self.every.new_full((n + m,), -1)
        place[ends] = m + torch.arange(len(ends), device=place.device)
        place[n:] = self.every

        def both(old: Tensor, new: Tensor) -> Tensor:
            return torch.cat([new, old[ends]])

        old_links = take(known.graph.links, ends)
        assert isinstance(old_links, SparseMatrix)
        row, col, _ = entries(old_links)
        kept, old = place[col] >= 0, given.to_old
        row = torch.cat([row[kept] + m, given.new, place[given.other[old]]])
        col = torch.cat([place[col[kept]], place[given.other], given.new[old]])
        links = sparse_rows(row, col, torch.ones_like(row).float(), (m + len(ends),) * 2)
        names = [name for predicted in PREDICTED[: round_ + 1] for name in predicted]
        local = replace(
            known,
            graph=self._graph(links, both(known.graph.degree, self.degree)),
            views={v: both(self.old[v], self.views[v]) for v in FIRST + SECOND * round_},
            channels={
                c: Channel(both(known.channels[c].probabilities, self._p(c)), torch.zeros(0))
                for c in names
            },
            context=known.context if round_ else known.context[: len(FIRST_CONTEXT)],
        )
        pairs = torch.stack([near.new, place[near.other]])
        scores = joined((score(local, block) for block in pair_blocks(pairs)), local.graph)
        weight = weights_of(over_chance(scale, scores) + shift)
        return near.only(weight > 0, weight).normalised(degree)

    def _graph(self, links: SparseMatrix, degree: Tensor) -> Graph:
        """The stored labels and shares with other nodes."""
        graph = replace(self.frozen.graph)
        vars(graph).update(links=links, degree=degree)
        return graph

    def _blocks(self) -> tuple[Tensor, ...]:
        return torch.split(self.every, max(1, AT_ONCE // len(self.prior)))

    def _p(self, name: str) -> Tensor:
        return self.channels[name].probabilities

    def _set(self, name: str, probabilities: Tensor) -> None:
        self.channels[name] = Channel(probabilities, self.frozen.channels[name].scores)

    def _add(self, name: str, logits: Tensor) -> None:
        self._set(name, (logits + self.prior.log()).softmax(1))

    def _absent(self, name: str) -> None:
        self._set(name, self.prior.expand(len(self.every), -1))

    def _ridge(self, name: str, rows: Rows | None) -> None:
        """Apply a ridge channel to new rows [M, D]."""
        channel = self.frozen.channels[name]
        if rows is None or channel.weight is None:
            return self._absent(name)
        self._set(name, channel.at(rows, self.prior))

    def _hidden(self, name: str) -> None:
        layer = self.frozen.layers[name]
        self._ridge(name, layer and hidden_layer(self.views, LAYERS[name], layer))

    def _spread(self, key: str, rows: NewEdges) -> None:
        """Spread labels over a graph, one step further, to the new nodes."""
        name, graph = SPREADS[key], self.frozen.graph
        chosen = self.frozen.channels[name].chosen
        if not chosen:
            return self._absent(name)
        reached = total = self.prior.new_zeros(len(self.every), len(self.prior))
        for before in self.frozen.spreads[key]:
            reached = SPREAD_DAMPING * rows.carry(before, reached)
            total = total + reached
        rates = total.clamp_min(0) / graph.counts / chosen["mean"]
        shares = spread_shares(graph, rates, float(chosen["floor"]), float(chosen["power"]))
        self._set(name, shares.lerp(self.prior, FLOOR))

    def _community(self, name: str, edges: NewEdges, strength: Tensor) -> None:
        """Class shares of the community whose modularity gains most by a node.

        That of a twin is the twin's. ``strength`` is the old nodes' sum of weights [N].
        """
        chosen, graph = self.frozen.channels[name].chosen, self.frozen.graph
        if not chosen:
            return self._absent(name)
        member, resolution = chosen["member"], RESOLUTIONS[int(chosen["partition"])]
        many = int(member.max()) + 1
        size = strength.new_zeros(many + 1).index_add_(0, member, strength)
        counts = strength.new_zeros(many + 1, len(self.prior))  # the last: no community
        counts.index_add_(0, member[graph.labelled], self.frozen.one_hot)
        key = edges.new[edges.to_old] * many + member[edges.other[edges.to_old]]
        key, place = torch.unique(key, return_inverse=True)
        gain = strength.new_zeros(len(key)).index_add_(0, place, edges.weight[edges.to_old])
        node, joined_to = key // many, key % many
        gain -= resolution * edges.sums()[node] * size[joined_to] / strength.sum().clamp_min(1e-9)
        best = gain.new_zeros(len(self.every)).scatter_reduce(0, node, gain, "amax")
        top = (gain > 0) & (gain == best[node])
        nearest = torch.full_like(self.every, many).index_put_((node[top],), joined_to[top])
        near = counts[torch.where(self.twin >= 0, member[self.twin], nearest)]
        pseudo = float(chosen["pseudo"])
        shares = (near + pseudo * self.prior) / (near.sum(1, keepdim=True) + pseudo)
        self._set(name, shares.lerp(self.prior.expand_as(shares), FLOOR))

    def _page_rank(self, key: str, rows: NewEdges) -> Tensor:
        """Unit rows of personalised PageRank, one step on from the old nodes: [M, D]."""
        reached = x = self.views["x"]
        for before in self.frozen.page_ranks[key]:
            reached = (1 - PPR_TELEPORT) * rows.carry(before, reached) + PPR_TELEPORT * x
        return unit_(reached)


def _cosines(rows: Tensor, old: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Some of the rows [m], and their products with all old ones [m, N], block by block."""
    step = max(1, SIMILARITIES[old.device.type] // max(1, len(old)))
    every = torch.arange(len(rows), device=old.device)
    return ((some, rows[some] @ old.T) for some in torch.split(every, step))
