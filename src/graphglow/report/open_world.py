"""The open-world suite as people see it: a table, charts on the results page, static pictures."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphglow.lab.open_world.methods import OURS
from graphglow.lab.open_world.standings import (
    BEST,
    LABELS,
    ORDER,
    Curve,
    Found,
    Standing,
    Sweep,
    labels_of,
    standings,
    sweeps,
)
from graphglow.lab.runs.rows import ResultRow
from graphglow.report import frame
from graphglow.report.frame import Chart, SeriesStyle, Trace
from graphglow.report.page import write_page

SHOWN = ("gcn", "mlp", "linkx", "knn", "untrained", "graphglow", "transfer", "predict")
"""Methods of static pictures; on the page the others are a click away."""
TABLE = (
    "as it is",
    "false edges 1x",
    "lost edges 60%",
    "5 labels per class",
    "half the features noise",
    "no features",
)
"""Conditions that the table shows one by one."""
AXIS_TITLES = {
    "false edges": "false edges for each true one",
    "lost edges": "share of edges lost",
    "labels per class": "labels per class",
    "attacked edges": "share of edges changed by metattack, Cora",
}
STYLES = frame.series_styles([*SHOWN, *LABELS], OURS)
PANEL = (236.0, 150.0)
"""Width and height of the plot in a picture."""


class Section(NamedTuple):
    """What the page shows."""

    ours: str
    lines: list[Standing]
    conditions: list[str]
    charts: list[Chart]
    panels: list[dict[str, Any]]
    """Each graph by itself, for each axis."""
    counts: dict[str, int]
    failed: list[str]
    labels: dict[str, str] = LABELS
    labels_of: Callable[[str], str] = labels_of


def section(rows: Iterable[ResultRow]) -> Section | None:
    """The suite's part of the page; None where there are no rows of it."""
    found = Found(rows)
    if not found.rows:
        return None
    lines, swept = standings(found), sweeps(found)
    charts = [_chart(sweep) for sweep in swept]
    panels = [_small_panels(sweep) for sweep in swept if len(sweep.targets) > 1]
    failed = {f"{row.label} on {row.target}: {row.error}" for row in found.failed}
    conditions = [name for name in ORDER if any(name in line.means for line in lines)]
    return Section(found.ours, lines, conditions, charts, panels, counts(found), sorted(failed))


def counts(found: Found) -> dict[str, int]:
    """How much there is."""
    targets = {target for target, _ in found.scores}
    seeds = {row.seed for row in found.rows}
    return {
        "runs": len(found.rows), "cells": len(found.scores), "targets": len(targets),
        "seeds": len(seeds), "failed": len(found.failed),
    }  # fmt: skip


def markdown(found: Found) -> str:
    """The table for README and docs: per cent, and points that ours is ahead."""
    lines, name = standings(found), LABELS[found.ours]
    conditions = [name for name in TABLE if any(name in line.means for line in lines)]
    head = ["", "labels", *conditions, "mean", f"{name} ahead by", "worst", "wins / ties / losses"]
    table = [head, ["---"] * len(head)]
    for line in lines:
        used = "" if line.method == BEST else labels_of(line.method)
        shown = [f"{100 * line.means[c]:.1f}" if c in line.means else "" for c in conditions]
        ours = line.method == found.ours
        ahead = "" if ours else f"{100 * line.lead:+.1f} +- {100 * line.error:.1f}"
        worst = "" if ours else f"{100 * line.worst[0]:+.1f}"
        record = "" if ours else f"{line.wins} / {line.ties} / {line.losses}"
        cells = [LABELS[line.method], used, *shown, f"{100 * line.mean:.1f}", ahead, worst, record]
        table.append([f"**{cell}**" if ours and cell else cell for cell in cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def write_pictures(found: Found, folder: Path) -> list[Path]:
    """Write ``open_world.svg``, means over graphs, and ``open_world_graphs.svg``, each alone."""
    swept = sweeps(found)
    several = [sweep for sweep in swept if len(sweep.targets) > 1]
    whole = [_panel(AXIS_TITLES[s.axis], s.axis, s.curves) for s in several]
    each = [panel for sweep in several for panel in _small_panels(sweep)["panels"]]
    written = []
    for name, panels, across in (("open_world", whole, 3), ("open_world_graphs", each, 5)):
        if panels:
            path = folder / f"{name}.svg"
            write_page(path, "open_world.svg.j2", **_layout(panels, across))
            written.append(path)
    return written


# Charts of the page


def _chart(sweep: Sweep) -> Chart:
    """Means over targets as lines, standard errors as bands."""
    traces: list[Trace] = []
    for curve in sweep.curves:
        traces += _traces(curve, STYLES[curve.method])
    ends = {c.method: (100 * c.y[0], 100 * c.y[-1]) for c in sweep.curves}
    said = "; ".join(f"{LABELS[m]} from {a:.0f} to {b:.0f} %" for m, (a, b) in ends.items())
    many = len(sweep.targets)
    over = f"mean over {many} graphs" if many > 1 else next(iter(sweep.targets))
    ticks = frame.ticks_at(sweep.curves[0].x, [f"{x:g}" for x in sweep.curves[0].x])
    log = {"type": "log"} if sweep.axis == "labels per class" else {}
    return frame.chart(
        f"{sweep.axis.capitalize()}: {over}",
        traces,
        alt=f"Test accuracy by {AXIS_TITLES[sweep.axis]}: {said}.",
        caption="Bands are standard errors over graphs." if many > 1 else "",
        height=400,
        x=frame.axis(AXIS_TITLES[sweep.axis], **log, **ticks),
        y=frame.axis("test accuracy, %", nticks=6),
        legend="below",
        hovermode="closest",
    )


def _traces(curve: Curve, style: SeriesStyle) -> list[Trace]:
    y = [round(100 * value, 2) for value in curve.y]
    shown: dict[str, Any] = {"legendgroup": curve.method}
    shown |= {} if curve.method in SHOWN else {"visible": "legendonly"}
    line = frame.scatter(
        LABELS[curve.method],
        (curve.x, y),
        "lines+markers",
        style,
        hover="%{meta}<br>%{y:.1f} %<extra></extra>",
        meta=LABELS[curve.method],
        **shown,
    )
    return [frame.band(curve.x, y, [100 * e for e in curve.error], style, **shown), line]


# Static pictures


def _small_panels(sweep: Sweep) -> dict[str, Any]:
    panels = [_panel(name, sweep.axis, curves) for name, curves in sweep.targets.items()]
    return {"axis": sweep.axis, **_layout(panels, 5)}


def _layout(panels: Sequence[dict[str, Any]], across: int) -> dict[str, Any]:
    """Where panels stand, and a legend of what they show."""
    shown = dict.fromkeys(line["method"] for panel in panels for line in panel["lines"])
    legend = [(LABELS[method], STYLES[method].colour) for method in shown]
    columns = min(across, len(panels))
    rows = math.ceil(len(panels) / columns)
    return {
        "panels": panels,
        "columns": columns,
        "legend": legend,
        "width": columns * (PANEL[0] + 64) + 20,
        "height": rows * (PANEL[1] + 74) + 44,
        "plot": PANEL,
    }


def _panel(title: str, axis: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """Lines and bands in the plot's own units, with ticks."""
    curves = [curve for curve in curves if curve.method in SHOWN]
    x = curves[0].x
    spaced = [float(at) for at in range(len(x))] if axis == "labels per class" else x
    first, span = spaced[0], spaced[-1] - spaced[0]
    places = [round(PANEL[0] * (value - first) / span, 1) for value in spaced]
    low = min(y - e for c in curves for y, e in zip(c.y, c.error, strict=True))
    high = max(y + e for c in curves for y, e in zip(c.y, c.error, strict=True))
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (high - low) / s <= 5)
    bottom, top = math.floor(low / step) * step, math.ceil(high / step + 1e-9) * step

    def height(value: float) -> float:
        return round(PANEL[1] * (top - value) / (top - bottom), 1)

    lines = []
    for curve in curves:
        points = [*zip(places, curve.y, curve.error, strict=True)]
        upper, lower = ([f"{a},{height(y + s * e)}" for a, y, e in points] for s in (1, -1))
        lines.append(
            {
                "method": curve.method,
                "colour": STYLES[curve.method].colour,
                "points": " ".join(f"{a},{height(y)}" for a, y, _ in points),
                "band": " ".join([*upper, *reversed(lower)]),
                "wide": curve.method in OURS,
            }
        )
    count = round((top - bottom) / step)
    levels = [bottom + step * at for at in range(count + 1)]
    return {
        "title": title,
        "axis": axis,
        "lines": lines,
        "x": [(place, f"{value:g}") for place, value in zip(places, x, strict=True)],
        "y": [(height(level), f"{100 * level:.0f}") for level in levels],
    }
