"""Charts of one transfer: the graph, similarities, homophily, confusions and training."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from graphglow.report import frame
from graphglow.report.frame import Chart, SeriesStyle, Trace, chart_text
from graphglow.report.page import percent
from graphglow.report.structure import UNLABELLED, Drawing, LearnedStructure
from graphglow.training.loop import Epoch

TEXT_CLASSES = 15
"""Up to this many classes the confusion matrix has its counts written in."""
ACCURACY = "validation accuracy"
RULE = frame.translucent(frame.GREY, 0.7)


def graph_chart(structure: LearnedStructure, found: Drawing) -> Chart:
    """The graph: classes as colours, input edges grey, new edges in colour."""
    ends = structure.y[found.nodes][found.new_edges]  # [2, E]
    known = (ends >= 0).all(axis=0)
    same = known & (ends[0] == ends[1])
    dash, dot = (frame.LEARNED_STYLE._replace(dash=dash) for dash in ("dash", "dot"))
    kinds = (
        ("input edges", found.input_edges, frame.INPUT_STYLE),
        ("new edges within a class", found.new_edges[:, same], frame.LEARNED_STYLE),
        ("new edges between classes", found.new_edges[:, known & ~same], dash),
        ("new edges, class not known", found.new_edges[:, ~known], dot),
    )
    traces = [_edges(found.places, *kind) for kind in kinds if kind[1].shape[1]]
    names = [structure.class_of(node) for node in found.nodes]
    styles = frame.series_styles([*structure.class_names, UNLABELLED])
    mark = {"size": 8, "line": {"width": 1, "color": "rgba(255,255,255,0.75)"}}
    for name in dict.fromkeys(names):
        at = [i for i, other in enumerate(names) if other == name]
        told = [_told(structure, node) for node in found.nodes[at]]
        hover, place = "%{text}<extra></extra>", found.places[at].round(3).T
        dots = frame.scatter(name, place, "markers", styles[name], hover=hover, marker=mark)
        traces.append(dots | {"text": told})
    counts = found.input_edges.shape[1], found.new_edges.shape[1]
    caption = ["Nodes coloured by class; input edges grey; edges that the learner added in colour."]
    if len(names) < structure.num_nodes:
        caption.append(
            f"{len(names)} of {structure.num_nodes:,} nodes: a sample by class and the nodes "
            "that their strongest edges reach."
        )
    if counts != found.num_edges:
        caption.append(
            "Of {:,} input edges and {:,} new ones between them ".format(*found.num_edges)
            + "the strongest of each node: {:,} and {:,}.".format(*counts)
        )
    caption.append("Nodes of one predicted class lie together; edges pull a little.")
    return frame.chart(
        "The graph",
        traces,
        alt=f"Drawing of {len(names)} nodes coloured by class with {counts[0]} input edges and "
        f"{counts[1]} new edges, {same.sum()} of them within a class.",
        caption=" ".join(caption),
        height=620,
        legend="foot",
    )


def _told(structure: LearnedStructure, node: int) -> str:
    predicted = structure.class_names[structure.predicted[node]]
    return (
        f"<b>{chart_text(structure.node_names[node], 60)}</b><br>class "
        f"{chart_text(structure.class_of(node))}<br>predicted {chart_text(predicted)}"
    )


def _edges(places: np.ndarray, name: str, pairs: np.ndarray, style: SeriesStyle) -> Trace:
    ends = places[pairs].round(3)  # [2, E, 2]
    path = np.stack([*ends, np.full(ends.shape[1:], np.nan)], axis=1).reshape(-1, 2)
    share, width = (0.4, 1.0) if style is frame.INPUT_STYLE else (0.7, 1.6)
    faint = {"color": frame.translucent(style.colour, share), "width": width}
    return frame.scatter(name, path.T, "lines", style, line=faint)


def similarity_chart(structure: LearnedStructure, found: Any) -> Chart:
    """Gamma as a heat map, nodes by pivots, both sorted by class."""
    sizes = structure.num_nodes, len(structure.result.pivots)
    caption = (
        "Similarity of nodes (rows) and pivots (columns), after the last refinement and the cut at "
        "the threshold; both are sorted by class. Blocks along the diagonal mean that "
        "the learner joins nodes of one class."
    )
    if found.shape != sizes:
        caption += (
            f" Sampled by class: {found.shape[0]} of {sizes[0]:,} nodes and {found.shape[1]} of "
            f"{sizes[1]:,} pivots."
        )
    values, y = found.to_numpy(), (structure.y[found.index][:, None], structure.y[found.columns])
    known, same = (y[0] >= 0) & (y[1] >= 0), y[0] == y[1]
    inside, outside = values[known & same], values[known & ~same]
    alt = "Heat map of node-pivot similarities sorted by class"
    if inside.size and outside.size:
        alt += f"; mean {inside.mean():.3f} within a class and {outside.mean():.3f} between classes"
    rows, row_ticks, row_ends = _by_class(structure, found.index)
    columns, column_ticks, column_ends = _by_class(structure, found.columns)
    across = {"xref": "paper", "x0": 0, "x1": 1}
    down = {"yref": "paper", "y0": 0, "y1": 1}
    rules = [across | {"y0": end, "y1": end} for end in row_ends]
    rules += [down | {"x0": end, "x1": end} for end in column_ends]
    hover = "node %{y}<br>pivot %{x}<br>similarity %{z:.3f}"
    return frame.chart(
        "Nodes and pivots",
        [frame.heat_map(values.round(4), "similarity", hover=hover, x=columns, y=rows)],
        alt=f"{alt}.",
        caption=caption,
        height=540,
        x=frame.axis("pivots", **column_ticks),
        y=frame.axis("nodes", autorange="reversed", **row_ticks),
        legend=None,
        shapes=[{"type": "line", "line": {"color": RULE, "width": 1}, **rule} for rule in rules],
    )


def _by_class(
    structure: LearnedStructure, nodes: np.ndarray
) -> tuple[list[str], dict[str, Any], list[float]]:
    """Nodes sorted by class along an axis: their labels, a tick for each class, where one ends."""
    classes = [structure.class_of(node) for node in nodes]
    labels = frame.unique_names(
        chart_text(f"{structure.node_names[node]} ({name})", 60)
        for node, name in zip(nodes, classes, strict=True)
    )
    middles: dict[str, str] = {}  # label in the middle of a class -> name of the class
    ends: list[float] = []
    first = 0
    for name, group in groupby(classes):
        last = first + len(list(group))
        if last - first > len(labels) / 40:
            middles[labels[(first + last - 1) // 2]] = chart_text(name, 14)
        ends.append(last - 0.5)
        first = last
    ticks = frame.ticks_at(middles, middles.values())
    return labels, {"type": "category", "ticks": "", "showgrid": False, **ticks}, ends[:-1]


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


def confusion_chart(names: Sequence[str], counts: np.ndarray) -> Chart:
    """Rows are classes, columns predictions; colour is the share of the row."""
    shares = 100 * counts / counts.sum(axis=1, keepdims=True).clip(1)
    labels = [chart_text(name, 18) for name in names]
    heat = frame.heat_map(
        shares.round(2),
        "% of class",
        hover="%{customdata[0]}, predicted %{customdata[1]}<br>%{customdata[2]} nodes, "
        "%{z:.1f} % of the class",
        zmin=0,
        zmax=100,
        xgap=2,
        ygap=2,
        text=[[str(n or "") for n in row] for row in counts.tolist()],
        texttemplate="%{text}" if len(names) <= TEXT_CLASSES else "",
        customdata=[
            [[one, other, n] for other, n in zip(labels, row, strict=True)]
            for one, row in zip(labels, counts.tolist(), strict=True)
        ],
    )
    ticks = {"showgrid": False, "zeroline": False, **frame.ticks_at(range(len(names)), labels)}
    return frame.chart(
        "Confusions",
        [heat],
        alt=f"Confusion matrix of {counts.sum()} test nodes, {counts.trace()} of them right.",
        caption="Test nodes by class and prediction: counts, coloured by their share of the class.",
        height=max(380, min(720, 200 + 38 * len(names))),
        x=frame.axis("predicted", **ticks),
        y=frame.axis("class", autorange="reversed", **ticks),
        legend=None,
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
    traces[-1] |= {"yaxis": "y2", "hovertemplate": "%{y:.1f} %"}
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
