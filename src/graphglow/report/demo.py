"""The demo's page and its picture: no scripts, so they need no Plotly."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphglow.experiments.demo import METHODS, DemoResult, Gain, Neighbourhood, gains, summarise
from graphglow.report.page import percent, signed, write_page

LABELS = {"gcn": "GCN", "mlp": "MLP", "knn": "kNN graph"}
"""Of methods that are not called as in the code."""
COLOURS = ("#3f8fe0", "#d97706", "#12a594", "#a06bf0", "#e0538a", "#6a9e2d", "#a5734f")
"""Of classes, readable on light and dark."""
SIDE = 320.0
"""Of a drawing, in its own units."""
RING = 122.0


def write_report(result: DemoResult, path: str | Path, *, title: str = "graphglow demo") -> None:
    """Write the page, whole or not at all; an existing file is replaced."""
    write_page(
        path,
        "demo.html.j2",
        charts=False,
        title=title,
        targets=summarise(result.rows),
        methods=[name for name in METHODS if any(row.method == name for row in result.rows)],
        num_seeds=len({row.seed for row in result.rows}),
        gains=gains(result.rows),
        headline=headline(result),
        settings=result.settings,
        versions=result.versions,
        **_drawing(result),
    )


def write_picture(result: DemoResult, path: str | Path) -> None:
    """Write the neighbourhood before and after as one SVG, with its numbers; an old one goes."""
    lines = summarise(result.rows)[result.refined.target]
    before, after = (lines[name].mean for name in ("gcn", "graphglow"))
    accuracy = {"before": f"GCN on it: {percent(before)}", "after": f"graphglow: {percent(after)}"}
    write_page(path, "before_after.svg.j2", charts=False, accuracy=accuracy, **_drawing(result))


def _drawing(result: DemoResult) -> Mapping[str, Any]:
    refined = result.refined
    found = sorted({node.label for node in refined.around.nodes})
    names = {label: refined.class_names[label] for label in found}
    return {
        "refined": refined,
        "places": places(refined.around),
        "colours": COLOURS,
        "classes": names,
        "labels": LABELS,
    }


def places(around: Neighbourhood) -> list[tuple[float, float]]:
    """The node in the middle, all others around it in their order."""
    others = len(around.nodes) - 1
    turns = [2 * math.pi * at / max(1, others) - math.pi / 2 for at in range(others)]
    ring = [(SIDE / 2 + RING * math.cos(a), SIDE / 2 + RING * math.sin(a)) for a in turns]
    return [(SIDE / 2, SIDE / 2), *ring]


def headline(result: DemoResult) -> str:
    """On how many targets graphglow is ahead of all controls beyond chance, and where it is not."""
    best: dict[str, Gain] = {}
    for gain in gains(result.rows):
        best.setdefault(gain.target, gain)  # the best control's comes first
    ahead = [g for g in best.values() if g.difference > 0 and g.beyond_chance]
    said = f"graphglow is above every control beyond chance on {len(ahead)} of {len(best)} targets"
    other = [f"{g.target} ({signed(g.difference)})" for g in best.values() if g not in ahead]
    return f"{said}; not on {', '.join(other)}." if other else f"{said}."
