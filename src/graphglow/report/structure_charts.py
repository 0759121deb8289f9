"""Charts of one transfer: the graph, similarities, homophily, confusions and training."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from graphglow.report.frame import (
    GREY,
    INPUT_STYLE,
    LEARNED_STYLE,
    Chart,
    SeriesStyle,
    Trace,
    axis,
    chart_text,
    framed,
    heat_map,
    scatter,
    series_styles,
    ticks_at,
    translucent,
    two_bars,
    unique_names,
)
from graphglow.report.structure import UNLABELLED, Drawing, LearnedStructure, Similarities
from graphglow.training.loop import Epoch

TEXT_CLASSES = 15
"""Up to this many classes the confusion matrix has its counts written in."""
ACCURACY = "validation accuracy"
RULE = translucent(GREY, 0.7)


def graph_chart(structure: LearnedStructure, found: Drawing) -> Chart:
    """The graph: classes as colours, input edges grey, new edges in colour."""
    ends = structure.y[found.nodes][found.new_edges]  # [2, E]
    known = (ends >= 0).all(axis=0)
    same = known & (ends[0] == ends[1])
    dash, dot = (LEARNED_STYLE._replace(dash=dash) for dash in ("dash", "dot"))
    kinds = (
        ("input edges", found.input_edges, INPUT_STYLE),
        ("new edges within a class", found.new_edges[:, same], LEARNED_STYLE),
        ("new edges between classes", found.new_edges[:, known & ~same], dash),
        ("new edges, class not known", found.new_edges[:, ~known], dot),
    )
    traces = [_edges(found.places, *kind) for kind in kinds if kind[1].shape[1]]
    names = [structure.class_of(node) for node in found.nodes]
    styles = series_styles([*structure.class_names, UNLABELLED])
    mark = {"size": 8, "line": {"width": 1, "color": "rgba(255,255,255,0.75)"}}
    for name in dict.fromkeys(names):
        at = [i for i, other in enumerate(names) if other == name]
        told = {"text": [_told(structure, node) for node in found.nodes[at]], "marker": mark}
        place = found.places[at].round(3).T
        hover = "%{text}<extra></extra>"
        traces.append(scatter(name, *place, "markers", styles[name], hover=hover, **told))
    counts = found.input_edges.shape[1], found.new_edges.shape[1]
    caption = ["Nodes coloured by class; input edges grey; edges that the learner added in colour."]
    if len(names) < structure.num_nodes:
        caption.append(
            f"{len(names)} of {structure.num_nodes:,} nodes: a sample by class and the nodes "
            "that their strongest edges reach."
        )
    whole = found.all_input, found.all_new
    caption += [
        f"Of {every:,} {kind} edges between them {shown:,}, the strongest of each node."
        for kind, shown, every in zip(("input", "new"), counts, whole, strict=True)
        if shown < every
    ]
    caption.append("Nodes of one predicted class lie together; edges pull a little.")
    return framed(
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
    share, width = (0.4, 1.0) if style is INPUT_STYLE else (0.7, 1.6)
    faint = {"color": translucent(style.colour, share), "width": width}
    return scatter(name, *path.T, "lines", style, line=faint)


def similarity_chart(structure: LearnedStructure, found: Similarities) -> Chart:
    """Gamma as a heat map, nodes by pivots, both sorted by class."""
    total, pivots = structure.num_nodes, len(structure.result.pivots)
    caption = (
        "Similarity of nodes (rows) and pivots (columns), after the last refinement and the cut at "
        "the threshold; both are sorted by class. Blocks along the diagonal mean that "
        "the learner joins nodes of one class."
    )
    if len(found.nodes) < total or len(found.pivots) < pivots:
        caption += (
            f" Sampled by class: {len(found.nodes)} of {total:,} nodes and {len(found.pivots)} of "
            f"{pivots:,} pivots."
        )
    y = structure.y[found.nodes][:, None], structure.y[found.pivots]
    known, same = (y[0] >= 0) & (y[1] >= 0), y[0] == y[1]
    inside, outside = found.values[known & same], found.values[known & ~same]
    alt = "Heat map of node-pivot similarities sorted by class"
    if inside.size and outside.size:
        alt += f"; mean {inside.mean():.3f} within a class and {outside.mean():.3f} between classes"
    rows, row_ticks, row_ends = _by_class(structure, found.nodes)
    columns, column_ticks, column_ends = _by_class(structure, found.pivots)
    across = {"xref": "paper", "x0": 0, "x1": 1}
    down = {"yref": "paper", "y0": 0, "y1": 1}
    rules = [across | {"y0": end, "y1": end} for end in row_ends]
    rules += [down | {"x0": end, "x1": end} for end in column_ends]
    hover = "node %{y}<br>pivot %{x}<br>similarity %{z:.3f}"
    return framed(
        "Nodes and pivots",
        [heat_map(found.values.round(4), "similarity", hover=hover, x=columns, y=rows)],
        alt=f"{alt}.",
        caption=caption,
        height=540,
        x=axis("pivots", **column_ticks),
        y=axis("nodes", autorange="reversed", **row_ticks),
        legend=None,
        shapes=[{"type": "line", "line": {"color": RULE, "width": 1}, **rule} for rule in rules],
    )


def _by_class(
    structure: LearnedStructure, nodes: np.ndarray
) -> tuple[list[str], dict[str, Any], list[float]]:
    """Nodes sorted by class along an axis: their labels, a tick for each class, where one ends."""
    classes = [structure.class_of(node) for node in nodes]
    labels = unique_names(
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
    ticks = ticks_at(middles, middles.values())
    return labels, {"type": "category", "ticks": "", "showgrid": False, **ticks}, ends[:-1]


def homophily_chart(
    names: Sequence[str], before: Sequence[float | None], after: Sequence[float | None]
) -> Chart:
    """For each class, the share of incoming edges that come from the same class."""
    labels = unique_names(chart_text(name, 20) for name in names)
    values = [[None if v is None else 100 * v for v in shares] for shares in (before, after)]
    hover = "%{x}: %{y:.1f} %<extra>%{fullData.name}</extra>"
    said = [
        f"{name} {_percent(one)} before, {_percent(other)} after"
        for name, one, other in zip(names, before, after, strict=True)
    ]
    return framed(
        "Homophily by class",
        two_bars(("input graph", "refined graph"), labels, values, hover=hover),
        alt=f"Share of edges from the same class: {'; '.join(said)}.",
        x=axis(type="category"),
        y=axis("edges from the same class, %", range=[0, 100]),
        bargap=0.3,
    )


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"


def confusion_chart(names: Sequence[str], counts: np.ndarray) -> Chart:
    """Rows are classes, columns predictions; colour is the share of the row."""
    shares = 100 * counts / counts.sum(axis=1, keepdims=True).clip(1)
    labels = [chart_text(name, 18) for name in names]
    heat = heat_map(
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
    ticks = {"showgrid": False, "zeroline": False, **ticks_at(range(len(names)), labels)}
    return framed(
        "Confusions",
        [heat],
        alt=f"Confusion matrix of {counts.sum()} test nodes, {counts.trace()} of them right.",
        caption="Test nodes by class and prediction: counts, coloured by their share of the class.",
        height=max(380, min(720, 200 + 38 * len(names))),
        x=axis("predicted", **ticks),
        y=axis("class", autorange="reversed", **ticks),
        legend=None,
    )


def training_chart(history: Sequence[Epoch]) -> Chart:
    """Losses on one axis, validation accuracy on another; the best epoch is marked."""
    epochs = [step.epoch for step in history]
    loss, val_loss = [step.loss for step in history], [step.val_loss for step in history]
    accuracy = np.round([100 * step.val_accuracy for step in history], 2)
    blue = series_styles([""])[""]
    on_the_right = {"hover": "%{y:.1f} %", "yaxis": "y2"}
    traces = [
        scatter("training loss", epochs, loss, "lines", INPUT_STYLE, hover="%{y:.3f}"),
        scatter("validation loss", epochs, val_loss, "lines", blue, hover="%{y:.3f}"),
        scatter(f"{ACCURACY}, %", epochs, accuracy, "lines", LEARNED_STYLE, **on_the_right),
    ]
    best = max(history, key=lambda step: (step.val_accuracy, -step.val_loss))
    words = f"best {ACCURACY} {100 * best.val_accuracy:.1f} % in epoch {best.epoch}"
    rule = {"type": "line", "x0": best.epoch, "x1": best.epoch, "y0": 0, "y1": 1, "yref": "paper"}
    right = {"overlaying": "y", "side": "right", "showgrid": False}
    right["tickmode"] = "auto"  # Plotly would take the places of the other axis's ticks
    return framed(
        "Training",
        traces,
        alt=f"Training over {len(history)} epochs; {words}.",
        caption=f"The dotted line marks the epoch kept: {words}.",
        x=axis("epoch"),
        y=axis("loss", rangemode="tozero"),
        yaxis2=axis(f"{ACCURACY}, %", **right),
        hovermode="x unified",
        shapes=[rule | {"line": {"color": RULE, "dash": "dot"}}],
    )
