"""What one transfer learned, as numbers: similarities, edges before and after, a drawing."""

import math
from functools import cached_property
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphglow.experiments.structure_metrics import edge_homophily, heard_over_latent
from graphglow.training import TransferResult

TOP_K = 16
"""Strongest incoming edges of each node that make up the refined graph."""
LARGEST_REFINED = 20_000
"""Nodes; the refined graph takes O(N^2 P), too long for a page beyond this."""
EDGES_LISTED = 25
NODES_DRAWN, INPUT_EDGES_DRAWN, NEW_EDGES_DRAWN = 400, 1200, 400
SPRING_STEPS = 12
UNLABELLED = "unlabelled"


class Share(NamedTuple):
    """Edges, and how many of them, by number and by weight, join nodes of one class."""

    edges: int | None
    """None: all pairs, with whatever weight."""
    same_class: float | None
    same_class_weight: float | None


class Drawing(NamedTuple):
    """Nodes with places, and edges as pairs of positions in ``nodes``.

    Shapes:
        nodes [R]; places [R, 2]; input_edges, new_edges: [2, E]
    """

    nodes: np.ndarray
    places: np.ndarray
    input_edges: np.ndarray
    new_edges: np.ndarray
    num_edges: tuple[int, int]
    """Input edges and new ones between these nodes, drawn or not."""


class LearnedStructure:
    """A saved transfer, seen by the page; everything is computed when it is asked for.

    Edges are tables with a line for each directed edge v -> u without loops: ``source, target,
    weight, input_part, learned_part, new``; new are those that the input graph does not have.
    """

    def __init__(self, result: TransferResult) -> None:
        self.result = result
        self.y = result.graph.y.numpy()
        self.num_nodes = result.graph.num_nodes

    @cached_property
    def class_names(self) -> list[str]:
        given = self.result.data.get("class_names")
        count = self.result.graph.num_classes
        if given is not None and len(given) >= count:
            return [str(name) for name in given[:count]]
        return [f"class {number}" for number in range(count)]

    def class_of(self, node: int) -> str:
        label = int(self.y[node])
        return self.class_names[label] if label >= 0 else UNLABELLED

    @cached_property
    def node_names(self) -> list[str]:
        given = self.result.data.get("node_id")
        return [str(name) for name in (range(self.num_nodes) if given is None else given)]

    @cached_property
    def predicted(self) -> np.ndarray:
        found: np.ndarray = self.result.refinement.logits.argmax(dim=1).numpy()
        return found

    def similarities(self, rows: int, columns: int) -> Any:
        """Gamma of at most ``rows`` nodes and ``columns`` pivots, sampled by class.

        Both are sorted by class; the index and the columns of the table are node indices.
        """
        pivots = self.result.pivots.numpy()
        nodes, at = sample_by_class(self.y, rows), sample_by_class(self.y[pivots], columns)
        structure = self.result.refinement.structure
        assert structure is not None  # a transfer has a learner
        values = torch.cat([structure.gamma(slice(n, n + 1))[:, at] for n in nodes.tolist()])
        return pd.DataFrame(values.double().numpy(), index=nodes, columns=pivots[at])

    @cached_property
    def input_edges(self) -> Any:
        here, there = self.result.graph.entries
        weight = self.result.graph.adj.values
        edges = _edge_table(there, here, weight, weight, torch.zeros_like(weight))
        return edges[edges.source != edges.target].assign(new=False)

    @cached_property
    def refined_edges(self) -> Any:
        """The refined graph; None where the graph is too large for that."""
        if self.num_nodes > LARGEST_REFINED:
            return None
        graph = self.result.refined_graph(TOP_K, self_loops=False)
        parts = (graph.edge_weight, graph.edge_input_weight, graph.edge_latent_weight)
        edges, given = _edge_table(*graph.edge_index, *parts), self.input_edges
        known = given.source * self.num_nodes + given.target
        return edges.assign(new=~(edges.source * self.num_nodes + edges.target).isin(known))

    @property
    def edges(self) -> dict[str, Any]:
        """Of the graphs that have edges to be counted."""
        found = {"input graph": self.input_edges, "refined graph": self.refined_edges}
        return {name: edges for name, edges in found.items() if edges is not None}

    def share(self, edges: Any, label: int | None = None) -> Share:
        """Homophily of the edges between labelled nodes, or of those into one class."""
        ends = self.y[edges[["source", "target"]].to_numpy()]  # [E, 2]
        counted = (ends >= 0).all(axis=1) & (label is None or ends[:, 1] == label)
        same = (ends[:, 0] == ends[:, 1])[counted]
        weight = edges.weight.to_numpy(float)[counted]
        return Share(
            len(edges) if label is None else len(same),
            float(same.mean()) if len(same) else None,
            float(np.average(same, weights=weight)) if weight.sum() > 0 else None,
        )

    def learned_share(self) -> Share:
        """Homophily of the whole learned graph, all pairs of nodes, without the input graph."""
        assert self.result.refinement.latent is not None  # a transfer has a learner
        y = self.result.graph.y
        share = edge_homophily(heard_over_latent(self.result.refinement.latent, y), y)
        return Share(None, None, share if math.isfinite(share) else None)

    def strongest(self, *, new: bool) -> list[Any]:
        """New edges by weight, or known ones by what was learned on top; one way of each pair."""
        edges = self.refined_edges
        if edges is None:
            return []
        chosen = edges[(edges.new == new) & (edges.learned_part > 0)]
        key = "weight" if new else "learned_part"
        ranked = chosen.sort_values(key, ascending=False, kind="stable")
        return list(_once(ranked).head(EDGES_LISTED).itertuples(index=False))

    def confusion(self) -> np.ndarray | None:
        """Test nodes by class (rows) and predicted class (columns): [C, C]; None without any."""
        test, count = self.result.graph.test.numpy(), self.result.graph.num_classes
        pairs = self.y[test] * count + self.predicted[test]
        return np.bincount(pairs, minlength=count**2).reshape(count, count) if len(test) else None

    def drawing(self, count: int = NODES_DRAWN) -> Drawing:
        """Draw all nodes, or a sample by class with the nodes that its strongest edges reach."""
        nodes, refined = self._drawn_nodes(count), self.refined_edges
        given = _between(self.input_edges, nodes)
        new = given[:, :0] if refined is None else _between(refined[refined.new], nodes)
        shown = given[:, :INPUT_EDGES_DRAWN], new[:, :NEW_EDGES_DRAWN]
        places = _places(self.result.refinement.logits[nodes], np.concatenate(shown, axis=1))
        return Drawing(nodes, places, *shown, (given.shape[1], new.shape[1]))

    def _drawn_nodes(self, count: int) -> np.ndarray:
        """A quarter by class, a quarter along new edges, the rest along edges of the input."""
        if self.num_nodes <= count:
            return sample_by_class(self.y, count)
        nodes = list(sample_by_class(self.y, count // 4))
        hops = [(self.input_edges, count)] * 2
        if self.refined_edges is not None:
            hops.insert(0, (self.refined_edges[self.refined_edges.new], count // 2))
        for edges, limit in hops:
            reached = fair_order(edges[edges.target.isin(nodes)]).source
            nodes = list(dict.fromkeys([*nodes, *reached]))[: max(limit, len(nodes))]
        nodes += sample_by_class(self.y, count).tolist()  # where neighbours are few
        found = np.array(list(dict.fromkeys(nodes))[:count])
        return found[np.argsort(self.y[found], kind="stable")]


def sample_by_class(y: np.ndarray, count: int) -> np.ndarray:
    """At most about ``count`` nodes, sorted by class, unlabelled last; shares are kept.

    The draw is the same every time. Every class keeps at least one node.
    """
    random = np.random.default_rng(0)
    found = []
    for label in sorted(np.unique(y), key=lambda label: (label < 0, label)):
        nodes = np.flatnonzero(y == label)
        if len(y) > count:
            kept = max(1, round(count * len(nodes) / len(y)))
            nodes = np.sort(random.permutation(nodes)[:kept])
        found.append(nodes)
    return np.concatenate(found)


def fair_order(edges: Any) -> Any:
    """Every node's strongest edge first, then every node's second: hubs do not take it all."""
    by_weight = edges.sort_values("weight", ascending=False, kind="stable")
    return by_weight.iloc[np.argsort(by_weight.groupby("target").cumcount(), kind="stable")]


def _edge_table(*columns: Tensor) -> Any:
    names = ("source", "target", "weight", "input_part", "learned_part")
    return pd.DataFrame({n: column.numpy() for n, column in zip(names, columns, strict=True)})


def _once(edges: Any) -> Any:
    """The first of the two directions of each pair."""
    pairs = np.sort(edges[["source", "target"]].to_numpy(), axis=1)
    return edges[~pd.DataFrame(pairs).duplicated().to_numpy()]


def _between(edges: Any, nodes: np.ndarray) -> np.ndarray:
    """Edges between drawn nodes, each pair once, in fair order, as places in ``nodes``: [2, E]."""
    place = pd.Series(np.arange(len(nodes)), index=nodes)
    kept = _once(fair_order(edges[edges.source.isin(nodes) & edges.target.isin(nodes)]))
    return np.stack([place[kept.source], place[kept.target]])


def _places(logits: Tensor, edges: np.ndarray) -> np.ndarray:
    """Each class has a corner and a node lies between by its chances; then edges pull a little.

    Shapes:
        logits [R, C], edges [2, E] -> [R, 2]
    """
    chances = logits.double().softmax(dim=1).numpy()
    angle = 2 * np.pi * np.arange(chances.shape[1]) / chances.shape[1]
    corners = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # [C, 2]
    noise = np.random.default_rng(0).normal(size=(len(chances), 2))
    graph = nx.Graph()
    graph.add_nodes_from(range(len(chances)))
    graph.add_edges_from(edges.T.tolist())
    start = dict(enumerate(chances @ corners + 0.12 * noise))
    distance = 2.5 / len(chances) ** 0.5
    places = nx.spring_layout(graph, pos=start, iterations=SPRING_STEPS, k=distance, seed=0)
    found = np.array([places[node] for node in range(len(chances))])
    found -= np.median(found, axis=0)
    radius = np.linalg.norm(found, axis=1, keepdims=True)
    whole = max(float(np.quantile(radius, 0.95)), 1e-9)  # what drifted away is drawn back
    drawn: np.ndarray = found / whole * np.minimum(1, 1.15 * whole / np.maximum(radius, 1e-9))
    return drawn
