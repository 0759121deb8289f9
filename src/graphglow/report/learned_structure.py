"""What one transfer learned, as numbers: similarities, edges before and after, confusions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.experiments.structure_metrics import edge_homophily, heard_over_latent
from graphglow.training import TransferResult

TOP_K = 16
"""Strongest incoming edges of each node that make up the refined graph."""
LARGEST_REFINED = 20_000
"""Nodes; the refined graph takes O(N^2 P), too long for a page beyond this."""
EDGES_LISTED = 25
UNLABELLED = "unlabelled"


class Similarities(NamedTuple):
    """Rows and columns of Gamma, sorted by class.

    Shapes:
        nodes [R], pivots [C]: node indices; values [R, C]
    """

    nodes: Tensor
    pivots: Tensor
    values: Tensor


class Share(NamedTuple):
    """Edges, and how many of them, by number and by weight, join nodes of one class."""

    edges: int | None
    """None: all pairs, with whatever weight."""
    same_class: float | None
    same_class_weight: float | None


class ListedEdge(NamedTuple):
    """An edge of the refined graph; weight = input + learned part."""

    source: int
    target: int
    weight: float
    input_part: float
    learned_part: float


@dataclass(frozen=True)
class EdgeSet:
    """Directed edges v -> u without loops.

    Shapes:
        source, target, weight, input_part, learned_part, new: [E]; ``new`` marks edges that the
        input graph does not have
    """

    source: Tensor
    target: Tensor
    weight: Tensor
    input_part: Tensor
    learned_part: Tensor
    new: Tensor


class LearnedStructure:
    """A saved transfer, seen by the page; everything is computed when it is asked for."""

    def __init__(self, result: TransferResult) -> None:
        self.result = result
        self.y = result.graph.y
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
        names = range(self.num_nodes) if given is None else given
        return [str(name) for name in names]

    def similarities(self, rows: int, columns: int) -> Similarities:
        """Gamma of at most ``rows`` nodes and ``columns`` pivots, sampled by class."""
        nodes = sample_by_class(self.y, rows)
        at = sample_by_class(self.y[self.result.pivots], columns)
        structure = self.result.refinement.structure
        assert structure is not None  # a transfer has a learner
        values = torch.cat([structure.gamma(slice(n, n + 1))[:, at] for n in nodes.tolist()])
        return Similarities(nodes, self.result.pivots[at], values)

    @cached_property
    def input_edges(self) -> EdgeSet:
        here, there = self.result.graph.entries
        apart = here != there
        weight = self.result.graph.adj.values[apart]
        none = torch.zeros_like(weight)
        new = torch.zeros_like(weight, dtype=torch.bool)
        return EdgeSet(there[apart], here[apart], weight, weight, none, new)

    @cached_property
    def refined_edges(self) -> EdgeSet | None:
        """The refined graph; None where the graph is too large for that."""
        if self.num_nodes > LARGEST_REFINED:
            return None
        graph = self.result.refined_graph(TOP_K, self_loops=False)
        source, target = graph.edge_index
        known = self.input_edges.source * self.num_nodes + self.input_edges.target
        new = ~torch.isin(source * self.num_nodes + target, known)
        parts = (graph.edge_weight, graph.edge_input_weight, graph.edge_latent_weight)
        return EdgeSet(source, target, *parts, new)

    def share(self, edges: EdgeSet, label: int | None = None) -> Share:
        """Homophily of the edges between labelled nodes, or of those into one class."""
        ends = self.y[edges.source], self.y[edges.target]
        counted = (ends[0] >= 0) & (ends[1] >= 0)
        if label is not None:
            counted &= ends[1] == label
        same = (ends[0] == ends[1])[counted].double()
        weight = edges.weight[counted].double()
        total = float(weight.sum())
        return Share(
            len(edges.source) if label is None else int(counted.sum()),
            float(same.mean()) if len(same) else None,
            float((same * weight).sum()) / total if total > 0 else None,
        )

    def learned_share(self) -> Share:
        """Homophily of the whole learned graph, all pairs of nodes, without the input graph."""
        assert self.result.refinement.latent is not None  # a transfer has a learner
        share = edge_homophily(heard_over_latent(self.result.refinement.latent, self.y), self.y)
        return Share(None, None, share if math.isfinite(share) else None)

    def strongest(self, *, new: bool) -> list[ListedEdge]:
        """New edges by weight, or known ones by what was learned on top; one way of each pair."""
        edges = self.refined_edges
        if edges is None:
            return []
        key = edges.weight if new else edges.learned_part
        chosen = (edges.new == new) & (edges.learned_part > 0)
        at = chosen.nonzero()[:, 0]
        order = at[key[at].argsort(descending=True, stable=True)[: 2 * EDGES_LISTED]]
        listed: dict[frozenset[int], ListedEdge] = {}
        for i in order.tolist():
            ends = int(edges.source[i]), int(edges.target[i])
            parts = (edges.weight[i], edges.input_part[i], edges.learned_part[i])
            listed.setdefault(frozenset(ends), ListedEdge(*ends, *map(float, parts)))
        return list(listed.values())[:EDGES_LISTED]

    @cached_property
    def predicted(self) -> Tensor:
        return self.result.refinement.logits.argmax(dim=1)

    def confusion(self) -> Tensor | None:
        """Test nodes by class (rows) and predicted class (columns): [C, C]; None without any."""
        test = self.result.graph.test
        if not len(test):
            return None
        count = self.result.graph.num_classes
        pairs = self.y[test] * count + self.predicted[test]
        return torch.bincount(pairs, minlength=count * count).reshape(count, count)


def sample_by_class(y: Tensor, count: int) -> Tensor:
    """At most about ``count`` nodes, sorted by class, unlabelled last; shares are kept.

    The draw is the same every time. Every class keeps at least one node.
    """
    labels = sorted(set(y.tolist()), key=lambda label: (label < 0, label))
    generator = torch.Generator().manual_seed(0)
    found = []
    for label in labels:
        nodes = (y == label).nonzero()[:, 0]
        if len(y) > count:
            kept = max(1, round(count * len(nodes) / len(y)))
            nodes = nodes[torch.randperm(len(nodes), generator=generator)[:kept]].sort().values
        found.append(nodes)
    return torch.cat(found)


def blocks(y: Tensor) -> list[tuple[int, int, int]]:
    """(label, first, last) of each run of equal labels: where classes lie in a sorted order."""
    found: list[tuple[int, int, int]] = []
    for at, label in enumerate(y.tolist()):
        if found and found[-1][0] == label:
            found[-1] = (label, found[-1][1], at)
        else:
            found.append((label, at, at))
    return found


def unique_names(names: Sequence[str]) -> list[str]:
    """The same names, with a number where one comes again: an axis of categories needs that."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return unique
