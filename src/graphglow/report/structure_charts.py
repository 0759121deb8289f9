"""Charts of one transfer: similarities, homophily, confusions and training."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from graphglow.report.figure import Chart, chart_text
from graphglow.report.learned_structure import (
    UNLABELLED,
    LearnedStructure,
    Similarities,
    blocks,
    unique_names,
)
from graphglow.report.theme import OURS, SERIES
from graphglow.training.loop import Epoch

RULE = "rgba(128,138,152,0.7)"
TEXT_CLASSES = 15
"""Up to this many classes the confusion matrix has its counts written in."""


def similarity_chart(structure: LearnedStructure, found: Similarities) -> Chart:
    """Gamma as a heat map, nodes by pivots, both sorted by class."""
    rows = _Axis.of(structure, found.nodes)
    columns = _Axis.of(structure, found.pivots)
    values = np.full((len(rows.labels), len(columns.labels)), np.nan, dtype=np.float32)
    values[np.ix_(rows.at, columns.at)] = found.values.numpy()
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=columns.labels,
            y=rows.labels,
            zmin=0,
            hoverongaps=False,
            hovertemplate="node %{y}<br>pivot %{x}<br>similarity %{z:.3f}<extra></extra>",
            colorbar={"title": {"text": "similarity", "side": "right"}, "thickness": 10},
        )
    )
    figure.update_layout(
        height=540,
        margin={"l": 60, "r": 10, "t": 12, "b": 60},
        xaxis={"title": {"text": "pivots"}, **columns.ticks},
        yaxis={"title": {"text": "nodes"}, "autorange": "reversed", **rows.ticks},
    )
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
    inside, outside = _block_means(structure, found)
    alt = "Heat map of node-pivot similarities sorted by class"
    if inside is not None and outside is not None:
        alt += f"; mean {inside:.3f} within a class and {outside:.3f} between classes"
    return Chart("Nodes and pivots", alt + ".", caption, figure)


def _block_means(
    structure: LearnedStructure, found: Similarities
) -> tuple[float | None, float | None]:
    same = structure.y[found.nodes][:, None] == structure.y[found.pivots]
    known = (structure.y[found.nodes] >= 0)[:, None] & (structure.y[found.pivots] >= 0)
    parts = (found.values[known & same], found.values[known & ~same])
    inside, outside = (float(part.mean()) if part.numel() else None for part in parts)
    return inside, outside


class _Axis(NamedTuple):
    """Nodes sorted by class along an axis, with a gap between classes.

    ``labels`` has an entry for each place, gaps included; ``at`` says where the nodes are.
    """

    labels: list[str]
    at: list[int]
    ticks: dict[str, object]

    @classmethod
    def of(cls, structure: LearnedStructure, nodes: Tensor) -> "_Axis":
        names = [
            chart_text(f"{structure.node_names[n]} ({structure.class_of(n)})", 60)
            for n in nodes.tolist()
        ]
        names = unique_names(names)
        gap = max(1, len(names) // 100)
        labels: list[str] = []
        at: list[int] = []
        middles: dict[str, str] = {}  # label in the middle of a class -> name of the class
        for label, first, last in blocks(structure.y[nodes]):
            if labels:
                labels += [f"\u200b{len(labels) + i}" for i in range(gap)]
            at += range(len(labels), len(labels) + last + 1 - first)
            labels += names[first : last + 1]
            if last - first >= len(names) / 40:
                name = structure.class_names[label] if label >= 0 else UNLABELLED
                middles[names[(first + last) // 2]] = chart_text(name, 14)
        ticks: dict[str, object] = {
            "type": "category",
            "tickmode": "array",
            "tickvals": list(middles),
            "ticktext": list(middles.values()),
            "ticks": "",
            "showgrid": False,
        }
        return cls(labels, at, ticks)


def homophily_chart(
    names: Sequence[str], before: Sequence[float | None], after: Sequence[float | None]
) -> Chart:
    """For each class, the share of incoming edges that come from the same class."""
    figure = go.Figure()
    labels = unique_names([chart_text(name, 20) for name in names])
    for name, values, colour in (
        ("input graph", before, "#7a8699"),
        ("refined graph", after, OURS),
    ):
        figure.add_bar(
            x=labels,
            y=[None if value is None else 100 * value for value in values],
            name=name,
            marker={"color": colour},
            hovertemplate="%{x}: %{y:.1f} %<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        height=380,
        barmode="group",
        bargap=0.3,
        margin={"l": 50, "r": 10, "t": 12, "b": 50},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        xaxis={"type": "category"},
        yaxis={"title": {"text": "edges from the same class, %"}, "range": [0, 100]},
    )
    said = "; ".join(
        f"{name} {_percent(one)} before, {_percent(two)} after"
        for name, one, two in zip(names, before, after, strict=True)
    )
    return Chart("Homophily by class", f"Share of edges from the same class: {said}.", "", figure)


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"


def confusion_chart(names: Sequence[str], counts: Tensor) -> Chart:
    """Rows are classes, columns predictions; colour is the share of the row."""
    shares = counts / counts.sum(dim=1, keepdim=True).clamp_min(1)
    labels = [chart_text(name, 18) for name in names]
    places = list(range(len(names)))
    told = [[[labels[i], labels[j], int(counts[i, j])] for j in places] for i in places]
    figure = go.Figure(
        go.Heatmap(
            z=(100 * shares).numpy().astype(np.float32),
            zmin=0,
            zmax=100,
            xgap=2,
            ygap=2,
            text=[[str(int(n)) if n else "" for n in row] for row in counts],
            texttemplate="%{text}" if len(names) <= TEXT_CLASSES else None,
            customdata=told,
            hovertemplate="%{customdata[0]}, predicted %{customdata[1]}<br>%{customdata[2]} nodes, "
            "%{z:.1f} % of the class<extra></extra>",
            colorbar={"title": {"text": "% of class", "side": "right"}, "thickness": 10},
        )
    )
    ticks = {"tickmode": "array", "tickvals": places, "ticktext": labels, "showgrid": False}
    figure.update_layout(
        height=max(380, min(720, 200 + 38 * len(names))),
        margin={"l": 70, "r": 10, "t": 12, "b": 60},
        xaxis={"title": {"text": "predicted"}, "zeroline": False, **ticks},
        yaxis={"title": {"text": "class"}, "autorange": "reversed", "zeroline": False, **ticks},
    )
    right, total = int(counts.diagonal().sum()), int(counts.sum())
    alt = f"Confusion matrix of {total} test nodes, {right} of them right."
    caption = "Test nodes by class and prediction: counts, coloured by their share of the class."
    return Chart("Confusions", alt, caption, figure)


def training_chart(history: Sequence[Epoch]) -> Chart:
    """Losses on one axis, validation accuracy on another; the best epoch is marked."""
    epochs = [step.epoch for step in history]
    figure = go.Figure()
    for name, values, colour in (
        ("training loss", [step.loss for step in history], SERIES[9]),
        ("validation loss", [step.val_loss for step in history], SERIES[0]),
    ):
        figure.add_scatter(
            x=epochs,
            y=np.array(values, dtype=np.float32),
            name=name,
            line={"color": colour, "width": 2},
            hovertemplate="%{y:.3f}",
        )
    figure.add_scatter(
        x=epochs,
        y=np.array([100 * step.val_accuracy for step in history], dtype=np.float32),
        name="validation accuracy, %",
        yaxis="y2",
        line={"color": OURS, "width": 2},
        hovertemplate="%{y:.1f} %",
    )
    best = max(history, key=lambda step: (step.val_accuracy, -step.val_loss))
    figure.add_vline(x=best.epoch, line={"color": RULE, "dash": "dot"})
    figure.update_layout(
        height=380,
        margin={"l": 50, "r": 50, "t": 12, "b": 46},
        hovermode="x unified",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        xaxis={"title": {"text": "epoch"}},
        yaxis={"title": {"text": "loss"}, "rangemode": "tozero"},
        yaxis2={
            "title": {"text": "validation accuracy, %"},
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
            "tickmode": "auto",  # Plotly would take the places of the other axis's ticks
        },
    )
    words = f"best validation accuracy {100 * best.val_accuracy:.1f} % in epoch {best.epoch}"
    alt = f"Training over {len(history)} epochs; {words}."
    return Chart("Training", alt, f"The dotted line marks the epoch kept: {words}.", figure)
