"""A graph small enough to draw: which nodes, where, and which edges between them."""

from typing import NamedTuple

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from graphglow.report.learned_structure import EdgeSet, LearnedStructure, sample_by_class

NODES_DRAWN = 400
INPUT_EDGES_DRAWN = 1200
NEW_EDGES_DRAWN = 400
SPRING_STEPS = 12


class Drawing(NamedTuple):
    """Nodes with places, and edges as pairs of positions in ``nodes``.

    Shapes:
        nodes [R]; places [R, 2]; input_edges, new_edges: [2, E]
    """

    nodes: Tensor
    places: np.ndarray
    input_edges: Tensor
    new_edges: Tensor
    all_input: int
    all_new: int
    """Edges between these nodes, drawn or not."""


def drawing(structure: LearnedStructure, count: int = NODES_DRAWN) -> Drawing:
    """Draw all nodes, or a sample by class with the nodes that its strongest edges reach."""
    refined = structure.refined_edges
    nodes = _chosen(structure, refined, count)
    place = torch.full((structure.num_nodes,), -1)
    place[nodes] = torch.arange(len(nodes))
    given = _within(structure.input_edges, place, new=False)
    new = given[:, :0] if refined is None else _within(refined, place, new=True)
    shown = given[:, :INPUT_EDGES_DRAWN], new[:, :NEW_EDGES_DRAWN]
    start = _between_corners(structure.result.refinement.logits[nodes])
    return Drawing(nodes, _settled(start, *shown), *shown, given.shape[1], new.shape[1])


def _chosen(structure: LearnedStructure, refined: EdgeSet | None, count: int) -> Tensor:
    """A quarter by class, a quarter along new edges, the rest along edges of the input graph."""
    if structure.num_nodes <= count:
        return sample_by_class(structure.y, count)
    chosen = dict.fromkeys(sample_by_class(structure.y, count // 4).tolist())
    hops = [(structure.input_edges, count), (structure.input_edges, count)]
    if refined is not None:
        hops.insert(0, (refined, count // 2))
    for edges, limit in hops:
        into = torch.isin(edges.target, torch.tensor(list(chosen)))
        at = (into & (edges.new == (edges is refined))).nonzero()[:, 0]
        for node in edges.source[at[_fair_order(edges.target[at], edges.weight[at])]].tolist():
            if len(chosen) >= limit:
                break
            chosen.setdefault(node)
    for node in sample_by_class(structure.y, count).tolist():  # where neighbours are few
        if len(chosen) < count:
            chosen.setdefault(node)
    nodes = torch.tensor(list(chosen))
    return nodes[structure.y[nodes].argsort(stable=True)]


def _within(edges: EdgeSet, place: Tensor, *, new: bool) -> Tensor:
    """Edges between drawn nodes, each pair once, in fair order: [2, E]."""
    kept = (place[edges.source] >= 0) & (place[edges.target] >= 0) & (edges.new == new)
    source, target, weight = edges.source[kept], edges.target[kept], edges.weight[kept]
    order = _fair_order(target, weight)
    ends = torch.stack([place[source], place[target]])[:, order].sort(dim=0).values
    pairs = dict.fromkeys(zip(*ends.tolist(), strict=True))
    return torch.tensor(list(pairs), dtype=torch.int64).reshape(-1, 2).T


def _fair_order(target: Tensor, weight: Tensor) -> Tensor:
    """Every node's strongest edge first, then every node's second: hubs do not take it all."""
    ends, weights = target.numpy(), weight.numpy()
    by_node = np.lexsort((-weights, ends))
    first = np.searchsorted(ends[by_node], ends[by_node])  # where each node's edges begin
    rank = np.empty(len(ends), dtype=np.int64)
    rank[by_node] = np.arange(len(ends)) - first
    return torch.from_numpy(np.lexsort((-weights, rank)))


def _between_corners(logits: Tensor) -> np.ndarray:
    """Where the layout starts: each class has a corner, and a node lies between by its chances."""
    chances = logits.softmax(dim=1).double()  # [R, C]
    angle = 2 * torch.pi * torch.arange(chances.shape[1]).double() / chances.shape[1]
    corners = torch.stack([angle.cos(), angle.sin()], dim=1)  # [C, 2]
    noise = torch.randn(len(chances), 2, generator=torch.Generator().manual_seed(0)).double()
    out: np.ndarray = (chances @ corners + 0.12 * noise).numpy()
    return out


def _settled(start: np.ndarray, *edge_sets: Tensor) -> np.ndarray:
    """A few steps of a spring layout: edges pull, and nodes do not lie on each other."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(start)))
    for pairs in edge_sets:
        graph.add_edges_from(zip(*pairs.tolist(), strict=True))
    places = nx.spring_layout(
        graph,
        pos=dict(enumerate(start)),
        iterations=SPRING_STEPS,
        k=2.5 / len(start) ** 0.5,
        seed=0,
    )
    found = np.array([places[node] for node in range(len(start))])
    found -= np.median(found, axis=0)
    radius = np.linalg.norm(found, axis=1, keepdims=True)
    whole = max(float(np.quantile(radius, 0.95)), 1e-9)  # what drifted away is drawn back
    drawn: np.ndarray = found / whole * np.minimum(1, 1.15 * whole / np.maximum(radius, 1e-9))
    return drawn.astype(np.float32)
