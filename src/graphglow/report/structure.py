"""What one transfer learned: similarities, edges before and after, and charts of them."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pandas as pd
from torch import Tensor
from torch_geometric.data import Data

from graphglow.gnn.train import Epoch
from graphglow.graph.write import class_names
from graphglow.lab.structure_metrics import (
    edge_homophily,
    heard_over_edges,
    heard_over_latent,
)
from graphglow.report import frame
from graphglow.report.frame import Chart, SeriesStyle, Trace, chart_text
from graphglow.report.page import percent
from graphglow.training.evidence import EvidenceResult
from graphglow.training.result import TransferResult

TOP_K = 16
"""Strongest incoming edges of each node that make up the refined graph."""
LARGEST_REFINED = 20_000
"""Nodes; the refined graph takes O(N^2 P), too long for a page beyond this."""
EDGES_LISTED = 25
NODES_DRAWN, INPUT_EDGES_DRAWN, NEW_EDGES_DRAWN = 400, 1200, 400
SPRING_STEPS = 12
UNLABELLED = "unlabelled"
ACCURACY = "validation accuracy"
RULE = frame.translucent(frame.GREY, 0.7)


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


class LearnedStructure:
    """A saved transfer, seen by the page; everything is computed when it is asked for.

    Edges are tables with a line for each directed edge v -> u without loops: ``source, target,
    weight``.
    """

    def __init__(self, result: TransferResult) -> None:
        self.result = result
        self.y = result.graph.y.numpy()
        self.num_nodes = result.graph.num_nodes
        names = class_names(result.data, result.graph.num_classes)
        self.class_names = list(map(frame.class_text, names))
        given = result.data.get("node_id")
        self.node_names = list(map(str, range(self.num_nodes) if given is None else given))
        self.predicted = result.logits.argmax(dim=1).numpy()

    def class_of(self, node: int) -> str:
        label = int(self.y[node])
        return self.class_names[label] if 0 <= label < len(self.class_names) else UNLABELLED

    @cached_property
    def input_edges(self) -> Any:
        here, there = self.result.graph.entries
        edges = _edge_table(there, here, self.result.graph.adj.values)
        return edges[edges.source != edges.target]

    @cached_property
    def refined_edges(self) -> Any:
        """The refined graph; None where the graph is too large for that."""
        if self.num_nodes > LARGEST_REFINED:
            return None
        graph = self.result.refined_graph(TOP_K, self_loops=False)
        source, target = graph.edge_index
        return _edge_table(source, target, graph.edge_weight)

    @cached_property
    def new_edges(self) -> Any:
        """Edges of the refined graph that the input graph does not have, the strongest first."""
        given, refined = self.input_edges, self.refined_edges
        if refined is None:
            return given[:0]
        here, there = (of.source * self.num_nodes + of.target for of in (refined, given))
        return refined[~here.isin(there)].sort_values("weight", ascending=False, kind="stable")

    def strongest(self) -> list[Any]:
        """New edges with the greatest weights, one way of each pair."""
        return list(_once(self.new_edges).head(EDGES_LISTED).itertuples(index=False))

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
            len(_once(edges)) if label is None else len(same),
            float(same.mean()) if len(same) else None,
            float(np.average(same, weights=weight)) if weight.sum() > 0 else None,
        )

    def learned_share(self) -> Share:
        """Homophily of the whole learned graph, all pairs of nodes, without the input graph."""
        result, y = self.result, self.result.graph.y
        if isinstance(result, EvidenceResult):
            heard = heard_over_edges(
                Data(edge_index=result.edge_index, edge_weight=result.edge_weight, y=y)
            )
        else:
            latent, _ = result.message_graph
            assert latent is not None  # a transfer has a learner
            heard = heard_over_latent(latent, y)
        share = edge_homophily(heard, y)
        return Share(None, None, share if math.isfinite(share) else None)

    def confusion(self) -> np.ndarray:
        """Test nodes by class (rows) and predicted class (columns): [C, C]."""
        test, count = self.result.graph.test.numpy(), self.result.graph.num_classes
        test = test[self.y[test] < count]  # a class that no other node has is none
        pairs = self.y[test] * count + self.predicted[test]
        return np.bincount(pairs, minlength=count**2).reshape(count, count)

    def drawing(self, count: int = NODES_DRAWN) -> Drawing:
        """Draw all nodes, or a sample by class with the nodes that its strongest edges reach."""
        nodes = list(sample_by_class(self.y, count // 4))
        hops = (self.new_edges, count // 2), (self.input_edges, count), (self.input_edges, count)
        for edges, limit in hops:
            reached = fair_order(edges[edges.target.isin(nodes)]).source
            nodes = list(dict.fromkeys([*nodes, *reached]))[: max(limit, len(nodes))]
        nodes += sample_by_class(self.y, count).tolist()  # where neighbours are few
        drawn = np.array(list(dict.fromkeys(nodes))[:count])
        given = _between(self.input_edges, drawn)[:, :INPUT_EDGES_DRAWN]
        new = _between(self.new_edges, drawn)[:, :NEW_EDGES_DRAWN]
        places = _places(self.result.logits[drawn], np.concatenate([given, new], axis=1))
        return Drawing(drawn, places, given, new)


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


def _edge_table(source: Tensor, target: Tensor, weight: Tensor) -> Any:
    columns = {"source": source, "target": target, "weight": weight}
    return pd.DataFrame({name: column.numpy() for name, column in columns.items()})


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


# Charts


def graph_chart(structure: LearnedStructure, found: Drawing) -> Chart:
    """The graph: classes as colours, input edges grey, new edges in colour."""
    ends = structure.y[found.nodes][found.new_edges]  # [2, E]
    same = (ends[0] == ends[1]) & (ends[0] >= 0)
    kinds = (
        ("input edges", found.input_edges, frame.INPUT_STYLE),
        ("new edges within a class", found.new_edges[:, same], frame.LEARNED_STYLE),
        ("other new edges", found.new_edges[:, ~same], frame.LEARNED_STYLE._replace(dash="dash")),
    )
    traces = [_edges(found.places, *kind) for kind in kinds if kind[1].shape[1]]
    names = np.array([structure.class_of(node) for node in found.nodes])
    styles = frame.series_styles([*structure.class_names, UNLABELLED])
    mark = {"size": 8, "line": {"width": 1, "color": "rgba(255,255,255,0.75)"}}
    for name in (name for name in styles if name in names):
        hover, place = "%{text}<extra></extra>", found.places[names == name].round(3).T
        dots = frame.scatter(name, place, "markers", styles[name], hover=hover, marker=mark)
        traces.append(dots | {"text": [_told(structure, n) for n in found.nodes[names == name]]})
    counts = found.input_edges.shape[1], found.new_edges.shape[1]
    return frame.chart(
        "The graph",
        traces,
        alt=f"Drawing of {len(names)} nodes coloured by class with {counts[0]} input edges and "
        f"{counts[1]} new edges, {same.sum()} of them within a class.",
        caption="Nodes coloured by class; input edges grey; edges that the learner added in "
        f"colour. {len(names):,} of {structure.num_nodes:,} nodes are drawn, with their strongest "
        "edges. Nodes of one predicted class lie together; edges pull a little.",
        height=620,
        legend="foot",
    )


def _told(structure: LearnedStructure, node: int) -> str:
    predicted = structure.class_names[structure.predicted[node]]
    return (
        f"<b>{chart_text(structure.node_names[node], 60)}</b><br>"
        f"{chart_text(structure.class_of(node))}<br>predicted {chart_text(predicted)}"
    )


def _edges(places: np.ndarray, name: str, pairs: np.ndarray, style: SeriesStyle) -> Trace:
    ends = places[pairs].round(3)  # [2, E, 2]
    path = np.stack([*ends, np.full(ends.shape[1:], np.nan)], axis=1).reshape(-1, 2)
    share, width = (0.4, 1.0) if style is frame.INPUT_STYLE else (0.7, 1.6)
    faint = {"color": frame.translucent(style.colour, share), "width": width}
    return frame.scatter(name, path.T, "lines", style, line=faint)


def homophily_chart(structure: LearnedStructure) -> Chart:
    """For each class, the share of incoming edges that come from the same class."""
    names = structure.class_names
    labels = frame.unique_names(chart_text(name, 20) for name in names)
    shares = [
        [structure.share(edges, label).same_class for label in range(len(names))]
        for edges in structure.edges.values()
    ]
    values = [[None if share is None else 100 * share for share in of] for of in shares]
    hover = "%{x}: %{y:.1f} %<extra>%{fullData.name}</extra>"
    said = [
        f"{name} {percent(one)} before, {percent(other)} after"
        for name, one, other in zip(names, *shares, strict=True)
    ]
    return frame.chart(
        "Homophily by class",
        frame.two_bars(tuple(structure.edges), labels, values, hover=hover),
        alt=f"Share of edges from the same class: {'; '.join(said)}.",
        x=frame.axis(type="category"),
        y=frame.axis("edges from the same class, %", range=[0, 100]),
        bargap=0.3,
    )


def training_chart(history: Sequence[Epoch]) -> Chart:
    """Losses on one axis, validation accuracy on another; the best epoch is marked."""
    epochs = [step.epoch for step in history]
    blue = frame.series_styles([""])[""]
    lines = {
        "training loss": ([step.loss for step in history], frame.INPUT_STYLE),
        "validation loss": ([step.val_loss for step in history], blue),
        f"{ACCURACY}, %": ([100 * step.val_accuracy for step in history], frame.LEARNED_STYLE),
    }
    traces = [
        frame.scatter(name, (epochs, values), "lines", style, hover="%{y:.3f}")
        for name, (values, style) in lines.items()
    ]
    traces[-1]["yaxis"] = "y2"
    best = max(history, key=lambda step: (step.val_accuracy, -step.val_loss))
    words = f"best {ACCURACY} {100 * best.val_accuracy:.1f} % in epoch {best.epoch}"
    rule = {"type": "line", "x0": best.epoch, "x1": best.epoch, "y0": 0, "y1": 1, "yref": "paper"}
    right = {"overlaying": "y", "side": "right", "showgrid": False}
    right["tickmode"] = "auto"  # Plotly would take the places of the other axis's ticks
    return frame.chart(
        "Training",
        traces,
        alt=f"Training over {len(history)} epochs; {words}.",
        caption=f"The dotted line marks the epoch kept: {words}.",
        x=frame.axis("epoch"),
        y=frame.axis("loss", rangemode="tozero"),
        yaxis2=frame.axis(f"{ACCURACY}, %", **right),
        hovermode="x unified",
        shapes=[rule | {"line": {"color": RULE, "dash": "dot"}}],
    )
