"""The demo's page and its picture: no scripts, so they need no Plotly."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphglow.demo import LABELS, METHODS, DemoResult, Neighbourhood, gains, summarise
from graphglow.report.page import in_percent, signed, write_page

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
        title=title,
        targets=summarise(result.rows),
        about=result.targets,
        methods=[name for name in METHODS if any(row.method == name for row in result.rows)],
        gains=gains(result.rows),
        headline=headline(result),
        settings=result.settings,
        versions=result.versions,
        **_drawing(result),
    )


def write_picture(result: DemoResult, path: str | Path) -> None:
    """Write the neighbourhood before and after as one SVG, with its numbers; an old one goes."""
    lines = summarise(result.rows)[result.refined.target]
    gcn, predict = (lines[name].mean for name in ("gcn", "predict"))
    before, after = f"GCN {in_percent(gcn)} right", f"predict {in_percent(predict)} right"
    accuracy = {"before": before, "after": after}
    write_page(path, "before_after.svg.j2", accuracy=accuracy, **_drawing(result))


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


def headline(result: DemoResult) -> list[str]:
    """What predict gains over others, and over itself untrained: at most two sentences."""
    sentences, found = [], gains(result.rows)
    for who, untrained in (
        ("the best of GCN, a bag of five and logistic regression", False),
        ("the same network never trained", True),
    ):
        over = [gain for gain in found if (gain.control == "untrained") == untrained]
        parts = [f"{signed(gain.difference)} points on {gain.target}" for gain in over]
        ahead = sum(gain.difference > 0 and gain.beyond_chance for gain in over)
        if over:
            sentences.append(
                f"predict over {who}: {', '.join(parts)}; beyond chance on {ahead} of {len(over)} "
                "targets."
            )
    return sentences
