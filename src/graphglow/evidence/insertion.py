"""New nodes under a stored prediction: answered from their neighbours, nothing else changes.

Views, solutions, refined graphs, communities and degrees of old nodes stay as they are stored. A
new node's row of a view follows from its neighbours' stored rows by the formula that made the old
rows, and its channels from that row by the stored solutions. An edge of a new node u to an old node
v weighs ``w / sqrt(d_u d_v)`` with the d_v that is stored.

Three things are simpler than for old nodes. Candidates are the edges of a new node and the old
nodes nearest to it in the views of the first round; what it would be nearest to is not looked for.
Its community channel is the mean of its neighbours'. A node of the same views as an unlabelled old
one, such as a copy of it, is answered as that one.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.channels import FLOOR, SPREAD_DAMPING, Channel
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pair_features import FIRST_CONTEXT
from graphglow.evidence.predictor import vote_inputs
from graphglow.evidence.refined import (
    LARGEST_WEIGHT,
    SEARCHED,
    GraphEvidence,
    RefinedGraph,
    adjacency_over,
)
from graphglow.evidence.views import (
    AGAIN,
    ALL,
    FIRST,
    HIDDEN,
    HIDDEN_F,
    NEAREST,
    PPR_STEPS,
    PPR_TELEPORT,
    RANKS,
    hop_means,
    pair_blocks,
    role_degrees,
    role_view,
)
from graphglow.graph.check import checked_edges
from graphglow.graph.graph import FeatureEncoder, Graph, undirected_edges
from graphglow.linalg import rows as linalg
from graphglow.linalg.neighbours import LEAST, SIMILARITIES, largest
from graphglow.linalg.rows import HiddenLayer, LowRank, Rows, SideBySide, sparse_rows, times, unit
from graphglow.linalg.sparse import SparseMatrix
from graphglow.storage import load_tensors, prefixed, save_tensors, within

HIDDEN_LAYERS = {"hidden_x": ("x",), "hidden_all": ALL, "hidden_again": AGAIN, "hidden_f": HIDDEN_F}
"""Views that the hidden layers read."""
SPREAD_OVER = {"ppr": "a", "ppr_f": "f", "spread": "a", "spread_s": "s", "spread_f": "f"}
"""The graphs over which features and labels are spread, by channel."""
SAME = 1e-4
"""Largest difference between the views of a node and of its copy."""
KIND, STATE_VERSION = "prediction", 4
CLASSES = (Channel, FeatureEncoder, Graph, GraphEvidence, LowRank, RefinedGraph)
STORED: dict[str, Any] = {kind.__name__: kind for kind in CLASSES}


class FrozenGraph:
    """A stored prediction, and what every new node needs of the old ones, computed once.

    Its graphs are ``a``, as given, ``s`` of the first round and ``f`` of the second.
    """

    @torch.no_grad()
    def __init__(self, refined: RefinedGraph) -> None:
        if refined.probabilities is None:
            raise InputError("new nodes need a graph with labels; got one without any")
        self.refined, self.known, self.graph = refined, refined.known.whole, refined.graph
        if refined.update is None:  # a single class
            return
        known, graph, x = self.known, self.graph, self.known.views["x"]
        first = known.pairs[:, : len(known.first_weight)]
        s = adjacency_over(first, known.first_weight, graph.num_nodes)
        graphs = {"a": graph.adj, "s": s, "f": refined.adjacency()}
        self.means = {key: times(matrix, x) for key, matrix in graphs.items()}
        self.degrees = {}
        for key, matrix in graphs.items():
            row, col, values = linalg.entries(matrix)
            self.degrees[key] = values[row == col].reciprocal()  # with the loop of 1: [N]
        self.old = known.views | hop_means(graphs["f"], x, "f")
        self.roles = role_degrees(graph)
        self.short = linalg.short_length(times(graph.adj, self.old["link"]))
        labels = torch.zeros(graph.num_nodes, len(graph.seen), device=graph.device)
        labels[graph.labelled, graph.classes] = 1
        self.steps = {}
        for name, key in SPREAD_OVER.items():
            chosen, start, more = known.channels[name].chosen, labels, labels
            if name.startswith("ppr"):
                start, more = x, PPR_TELEPORT * x
            self.steps[name] = [start]
            for _ in range(int(chosen["steps"]) - 1 if chosen else PPR_STEPS - 1):
                walked = times(graphs[key], self.steps[name][-1])
                self.steps[name].append(_share(name) * walked + more)
        self.layers = {}
        for name, names in HIDDEN_LAYERS.items():
            if "mean" in (chosen := known.channels[name].chosen):
                beside = SideBySide.of([self.old[view] for view in names])
                self.layers[name] = HiddenLayer.of(beside, HIDDEN, chosen["mean"])


def _share(walk: str) -> float:
    return 1 - PPR_TELEPORT if walk.startswith("ppr") else SPREAD_DAMPING


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows of M new nodes in a matrix over all N + M nodes.

    Shapes:
        row [E] in 0 .. M - 1, col [E] in 0 .. N + M - 1, value [E]
    """

    row: Tensor
    col: Tensor
    value: Tensor
    num_old: int
    num_new: int

    @cached_property
    def to_old(self) -> SparseMatrix:
        """[M, N]."""
        old, shape = self.col < self.num_old, (self.num_new, self.num_old)
        return sparse_rows(self.row[old], self.col[old], self.value[old], shape)

    def times(self, old: Tensor, new: Tensor) -> Tensor:
        """Multiply with rows of all nodes: [N, D], [M, D] -> [M, D]."""
        inside = self.col >= self.num_old
        weighed = self.value[inside, None] * new[self.col[inside] - self.num_old]
        return times(self.to_old, old).index_add_(0, self.row[inside], weighed)

    def sums(self) -> Tensor:
        """[M]."""
        return self.value.new_zeros(self.num_new).index_add_(0, self.row, self.value)

    def mean(self) -> "NewRows":
        """Each row over its sum."""
        return replace(self, value=self.value / self.sums().clamp_min(1e-12)[self.row])

    def normalised(self, degree: Tensor) -> "NewRows":
        """Rows of D^-1/2 (W + I) D^-1/2; ``degree`` is that of old nodes, with the loop: [N]."""
        own, loop = 1 + self.sums(), torch.arange(self.num_new, device=degree.device)
        scale = torch.cat([degree, own]).rsqrt()
        return replace(
            self,
            row=torch.cat([self.row, loop]),
            col=torch.cat([self.col, loop + self.num_old]),
            value=torch.cat([self.value * scale[self.col] * own.rsqrt()[self.row], 1 / own]),
        )


@torch.no_grad()
def insert(
    frozen: FrozenGraph, x: Tensor, edges: Tensor | None = None, edge_weight: Tensor | None = None
) -> Tensor:
    """Class probabilities of new nodes; those of old nodes do not change.

    Args:
        frozen: The stored prediction, of N nodes.
        x: Features of the new nodes, in the columns of the graph, dense or sparse.
        edges: Edges in any direction, each with a new end; new nodes are numbered from N on.
        edge_weight: Non-negative; all 1 if None.

    Shapes:
        x [M, F], edges [2, E], edge_weight [E] -> [M, classes]
    """
    graph = frozen.graph
    features, given = _checked(graph, x, edges, edge_weight)
    found = graph.prior.expand(given.num_new, -1)
    if frozen.refined.update is not None and given.num_new:
        found = _Insertion(frozen, features, given).probabilities()
    whole = found.new_zeros(given.num_new, graph.num_classes)
    whole[:, graph.seen] = found
    return whole


def _checked(
    graph: Graph, x: Tensor, edges: Tensor | None, edge_weight: Tensor | None
) -> tuple[Rows, NewRows]:
    """Features of new nodes as rows of the graph, and their edges; refused in one sentence."""
    encoder, n = graph.encoder, graph.num_nodes
    width = 0 if encoder is None else encoder.width
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != width:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(
            f"x must have a row per new node and the {width} columns of the graph; got {got}"
        )
    m = x.shape[0]
    if edges is None and edge_weight is not None:
        raise InputError("edge_weight must come with edges; got edge_weight alone")
    edges, weight = checked_edges(edges, edge_weight, n + m)
    among_old = edges[:, (edges < n).all(0)]
    if among_old.numel():
        u, v = among_old[:, 0].tolist()
        raise InputError(f"each edge must have a new end, {n} or above; got {u} - {v}")
    low, high, weight = undirected_edges(edges, weight, n + m)
    weight = torch.ones(len(low)) if weight is None else weight.float()
    low, high, weight = (t.to(graph.device) for t in (low.long(), high.long(), weight))
    inside = low >= n  # an edge between new nodes is in the rows of both
    row, col = torch.cat([high, low[inside]]) - n, torch.cat([low, high[inside]])
    features = None if encoder is None else encoder.rows(x)
    if features is None:
        features = torch.zeros(m, 0, device=graph.device)
    return features, NewRows(row, col, torch.cat([weight, weight[inside]]), n, m)


class _Insertion:
    """New nodes on their way through the rounds; views [M, D] and channels [M, C] so far."""

    def __init__(self, frozen: FrozenGraph, features: Rows, given: NewRows) -> None:
        self.frozen, self.known, self.old = frozen, frozen.known, frozen.old
        self.features, self.given = features, given
        self.prior = frozen.graph.prior.expand(given.num_new, -1)
        self.views: dict[str, Tensor] = {}
        self.channels: dict[str, Channel] = {}
        self.every = torch.arange(given.num_new, device=frozen.graph.device)
        self.joined = replace(given, value=torch.ones_like(given.value))  # whatever edges weigh
        self.degree = self.joined.sums()

    def probabilities(self) -> Tensor:
        """[M, C]."""
        known, refined = self.known, self.frozen.refined
        assert known.learner is not None
        assert refined.update is not None
        assert refined.shares is not None
        assert refined.probabilities is not None
        nodes = self._evidence(known.graph.links, self.degree)
        a = self.given.normalised(self.frozen.degrees["a"])
        self._first_round(a)
        near = self._candidates()
        s = self._edges(near, known.first_scale, known.first_calibration)
        self._second_round(s.normalised(self.frozen.degrees["s"]))
        logits = known.learner.vote(*vote_inputs(nodes, "vote", self.every))
        sharpness = known.channels["vote"].chosen["sharpness"]
        self._set("vote", (sharpness * logits + self.prior.log()).softmax(1))
        f = self._edges(near, refined.scale, refined.calibration)
        self._final_round(a, f.normalised(self.frozen.degrees["f"]), f)
        inputs = vote_inputs(nodes, "predictor", self.every)
        logits = known.learner.predictor(*inputs, refined.update[0])
        found: Tensor = (logits + refined.shares.log()).softmax(1)
        copy, copied = self._copies(near)
        found[copy] = refined.probabilities[copied][:, known.graph.seen]
        return found

    def _first_round(self, rows: NewRows) -> None:
        known, old, given = self.known, self.old, self.given
        self.views["x"] = x = known.maps["x"](self.features)
        ax, aax = self._means("a", rows)
        degree = torch.cat([known.graph.degree, self.degree])
        scale = (degree + known.graph.degree.mean()).rsqrt()
        weight = scale[given.col] * scale[given.num_old :][given.row]
        linked = replace(given, value=weight).to_old
        link = known.maps["link"](linked) if old["link"].shape[1] else x[:, :0]
        self.views |= {
            "ax": unit(ax), "aax": aax, "diff": unit(x - ax), "link": link,
            "spectral": linalg.leading_map(old["link"], RANKS[1])(link), "role": self._role(),
        }  # fmt: skip
        for name in ("ax", "aax", "diff", "role"):
            self._ridge(name, self.views[name])
        solved = known.channels["spectral"].weight
        length = replace(given, value=given.value.square()).sums().sqrt().clamp_min(1e-12)
        alink = linalg.unit_unless_short(rows.times(old["link"], link), self.frozen.short)
        self._ridge("x", self.features)
        self._ridge("link", replace(given, value=given.value / length[given.row]).to_old)
        self._ridge("alink", alink)
        rank = link.shape[1] if solved is None else len(solved) - 1
        self._ridge("spectral", linalg.leading_map(old["link"], rank)(link))
        for name, views in (("all", ALL), ("hidden_x", ("x",)), ("hidden_all", ALL)):
            self._ridge(name, self._beside(views))
        self._community("community", given)
        self._spread("spread", rows)

    def _second_round(self, rows: NewRows) -> None:
        sx, ssx = self._means("s", rows)
        self.views |= {"sx": unit(sx), "ssx": ssx}
        for name in ("sx", "ssx"):
            self._ridge(name, self.views[name])
        for name in ("again", "hidden_again"):
            self._ridge(name, self._beside(AGAIN))
        self._spread("spread_s", rows)

    def _final_round(self, given: NewRows, rows: NewRows, edges: NewRows) -> None:
        fx, ffx = self._means("f", rows)
        self.views |= {"fx": unit(fx), "ffx": ffx}
        self._ridge("ffx", ffx)
        self._ridge("hidden_f", self._beside(HIDDEN_F))
        x = self.views["x"]
        for name, over in (("ppr", given), ("ppr_f", rows)):
            self._ridge(name, unit(self._walked(name, over, x, PPR_TELEPORT * x)))
        self._community("community_f", edges)
        self._spread("spread_f", rows)

    def _means(self, key: str, rows: NewRows) -> tuple[Tensor, Tensor]:
        """One-hop means, and two-hop means of unit length, over one of the graphs: [M, D] each."""
        mean = rows.times(self.old["x"], self.views["x"])
        return mean, unit(rows.times(self.frozen.means[key], mean))

    def _role(self) -> Tensor:
        old, mean, own = self.frozen.roles, self.joined.mean(), self.degree.log1p()[:, None]
        if old.shape[1] == 0:  # a graph without edges
            return own[:, :0]
        once = mean.times(old[:, :1], own)
        squares = mean.times(old[:, :1].square(), own.square())
        spread = (squares - once.square()).clamp_min(0).sqrt()
        part = torch.cat([own, once, mean.times(old[:, 1:2], once), spread], 1)
        return role_view(part, old)

    def _walked(self, name: str, rows: NewRows, start: Tensor, more: Tensor) -> Tensor:
        for before in self.frozen.steps[name]:
            start = _share(name) * rows.times(before, start) + more
        return start

    def _spread(self, name: str, rows: NewRows) -> None:
        chosen, shares = self.known.channels[name].chosen, self.prior
        if chosen:
            nothing = torch.zeros_like(shares)
            rates = self._walked(name, rows, nothing, nothing) / self.frozen.graph.counts
            rates = chosen["floor"] + rates / chosen["mean"]
            shares = (shares.log() + chosen["power"] * rates.log()).softmax(1)
        self._set(name, shares.lerp(self.prior, FLOOR))

    def _community(self, name: str, edges: NewRows) -> None:
        """The mean of the neighbours', and the class shares without any."""
        mean = edges.mean().times(self.known.channels[name].probabilities, self.prior)
        self._set(name, mean + (1 - mean.sum(1, keepdim=True)) * self.prior)

    def _ridge(self, name: str, rows: Rows) -> None:
        """``rows`` of a hidden layer are those that it reads."""
        weight, shares = self.known.channels[name].weight, self.prior
        if weight is not None:
            rows = self.frozen.layers[name].of_rows(rows) if name in self.frozen.layers else rows
            shares = (times(rows, weight[1:]) + weight[0]).softmax(1).lerp(shares, FLOOR)
        self._set(name, shares)

    def _beside(self, names: tuple[str, ...]) -> SideBySide:
        return SideBySide.of([self.views[name] for name in names])

    def _set(self, name: str, probabilities: Tensor) -> None:
        self.channels[name] = Channel(probabilities, self.known.channels[name].scores)

    def _candidates(self) -> NewRows:
        """Pairs that are looked at: the edges, and the nearest old nodes in each view."""
        given, n = self.given, self.given.num_old + self.given.num_new
        keys = [given.row * n + given.col]
        for name in SEARCHED[0]:
            old, new = self.old[name], self.views[name]
            step = max(1, SIMILARITIES[old.device.type] // len(old))
            for some in torch.split(self.every, step) if old.shape[1] else ():
                value, place = largest(new[some] @ old.T, NEAREST)
                keys.append((some[:, None] * n + place)[value > LEAST])
        key = torch.unique(torch.cat(keys))
        return replace(given, row=key // n, col=key % n, value=torch.ones_like(key))

    def _copies(self, near: NewRows) -> tuple[Tensor, Tensor]:
        """New nodes that have the views of an unlabelled old node, and that node: [K], [K]."""
        old = near.col < near.num_old
        row, col = near.row[old], near.col[old]
        same = ~torch.isin(col, self.frozen.graph.labelled)
        for name in FIRST:
            same &= ((self.views[name][row] - self.old[name][col]).abs() < SAME).all(1)
        return row[same], col[same]

    def _edges(self, near: NewRows, scale: Tensor, shift: float) -> NewRows:
        """The candidates above chance and their weights, by what is known of them so far.

        Pairs are scored in the graph of the new nodes, numbered first, and the other ends of their
        pairs. Every neighbour of a new node is such an end, so all neighbours in common count.
        """
        known, given, n, m = self.known, self.given, near.num_old, near.num_new
        ends = torch.unique(near.col[near.col < n])
        place = self.every.new_full((n + m,), -1)
        place[ends] = m + torch.arange(len(ends), device=place.device)
        place[n:] = self.every

        def both(old: Tensor, new: Tensor) -> Tensor:
            return torch.cat([new, old[ends]])

        among_old = linalg.take(known.graph.links, ends)
        assert isinstance(among_old, SparseMatrix)
        row, col, _ = linalg.entries(among_old)
        inside, old = place[col] >= 0, given.col < n
        row = torch.cat([row[inside] + m, given.row, place[given.col[old]]])
        col = torch.cat([place[col[inside]], place[given.col], given.row[old]])
        links = sparse_rows(row, col, torch.ones_like(row).float(), (m + len(ends),) * 2)
        channels = {}
        for name, old_one in known.channels.items():
            if name in self.channels:
                p = both(old_one.probabilities, self.channels[name].probabilities)
                channels[name] = Channel(p, old_one.scores)
        local = replace(
            self._evidence(links, both(known.graph.degree, self.degree)),
            views={v: both(self.old[v], new) for v, new in self.views.items()},
            channels=channels,
            context=known.context if "vote" in channels else known.context[: len(FIRST_CONTEXT)],
        )
        pairs = torch.stack([near.row, place[near.col]])
        scores = torch.cat([local.scores(block) for block in pair_blocks(pairs)])
        weight = (scale[0] * scores + scale[1] + shift).clamp(0, LARGEST_WEIGHT)
        kept = weight > 0
        return replace(near, row=near.row[kept], col=near.col[kept], value=weight[kept])

    def _evidence(self, links: SparseMatrix, degree: Tensor) -> GraphEvidence:
        """The stored evidence about other nodes, with the new nodes' channels so far."""
        graph = replace(self.known.graph)
        vars(graph).update(links=links, degree=degree)
        return replace(self.known, graph=graph, channels=self.channels)


def save_state(
    path: str | Path,
    refined: RefinedGraph,
    more: dict[str, Tensor] | None = None,
    facts: dict[str, Any] | None = None,
) -> None:
    """Write a prediction and its learner as one safetensors file; an existing one is replaced.

    It holds edges, labels, the views ``x`` and ``link`` with the maps to them, channels and
    candidates; ``more`` tensors by name, and ``facts`` that JSON can hold.
    """
    known, learner = refined.known, refined.known.learner
    assert learner is not None
    views = {name: known.views[name] for name in ("x", "link")}
    bare = replace(known, graph=replace(known.graph, raw_x=None), views=views, learner=None)
    tensors = prefixed("learner", dict(learner.state_dict())) | prefixed("more", more or {})
    state = {
        "version": STATE_VERSION,
        "learner": learner.facts(),
        "refined": _pack(replace(refined, known=bare), "refined", tensors),
        "encoder": _pack(known.graph.encoder, "encoder", tensors),
    }
    save_tensors(path, KIND, tensors, {"state": state, "facts": facts or {}})


def load_state(
    path: str | Path, device: torch.device | str = "cpu"
) -> tuple[RefinedGraph, dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_state` wrote; its graph has no features."""
    tensors, meta = load_tensors(path, KIND)
    state: dict[str, Any] = meta.get("state") or {}
    if (version := state.get("version")) != STATE_VERSION:
        raise InputError(
            f"{path} must hold a prediction of state version {STATE_VERSION}; got version "
            f"{version!r} (predict again with this graphglow)"
        )
    weights, more = within("learner", tensors), within("more", tensors)
    learner = EvidenceLearner.from_tensors(weights, state["learner"], str(path)).to(device)
    tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    refined: RefinedGraph = _unpack(state["refined"], tensors)
    known = refined.known
    vars(known.graph)["encoded"] = (None, _unpack(state["encoder"], tensors))
    return replace(refined, known=replace(known, learner=learner)), more, meta["facts"]


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Take a value apart: tensors go to ``tensors`` by name, JSON can hold what is returned."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, list | tuple):
        return [_pack(part, f"{name}.{i}", tensors) for i, part in enumerate(value)]
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"class": type(value).__name__, "parts": _pack(parts, name, tensors)}
    if isinstance(value, dict):
        return {key: _pack(part, f"{name}.{key}", tensors) for key, part in value.items()}
    return value


def _unpack(packed: Any, tensors: dict[str, Tensor]) -> Any:
    """Put together what :func:`_pack` took apart; tuples come back as lists."""
    if isinstance(packed, list):
        return [_unpack(part, tensors) for part in packed]
    if not isinstance(packed, dict):
        return packed
    if "tensor" in packed:
        return tensors[packed["tensor"]]
    if "class" in packed:
        return STORED[packed["class"]](**_unpack(packed["parts"], tensors))
    return {key: _unpack(part, tensors) for key, part in packed.items()}
