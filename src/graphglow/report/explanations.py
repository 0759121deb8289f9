"""The pages of an explanation and of an audit: pairs of nodes drawn as SVG, scores as bars."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphglow.audit import MEANINGS, Audit
from graphglow.explain import Contribution, Explanation
from graphglow.report import write_page

WIDTH, HEIGHT = 320.0, 190.0
"""Size of a drawing of a pair, in its own units."""
HISTOGRAM = (640, 180)
BINS = 20
DRAWN, LISTED = 8, 40
"""Suspects, and missing pairs, that are drawn, and rows of each table."""


class Mark(NamedTuple):
    """A node of the drawing: an ``end`` of the pair, in ``common``, or an ``other`` neighbour."""

    name: str
    x: float
    y: float
    kind: str


class Picture(NamedTuple):
    """What the macros of ``pair.html.j2`` draw.

    Bars are contributions with their lengths, in percent of the width. Marks and lines are of a
    pair, whose ends are the first two marks.
    """

    why: Explanation
    bars: list[tuple[Contribution, float]]
    marks: list[Mark]
    lines: list[tuple[Mark, Mark]]


def write_explanation(why: Explanation, path: str | Path) -> None:
    """Write the page of one explanation; ``why.write("why.html")`` is the same."""
    facts = {name: value for name, value in why.facts.items() if not isinstance(value, dict | list)}
    rows = why.to_frame().astype(object).to_dict("records")
    write_page(
        path, "explanation.html.j2", title=why.title, facts=facts, rows=rows, picture=picture(why)
    )


def write_audit(audit: Audit, path: str | Path) -> None:
    """Write the page of an audit: the worst edges and the best pairs, and how many are doubtful."""
    suspects, missing = audit.suspects, audit.missing
    edges = audit.edges[:, audit.findings.edge_log_odds.argsort()[:DRAWN]].T.tolist()
    pairs = audit.findings.pairs[:, audit.findings.pair_log_odds.argsort(descending=True)[:DRAWN]]
    doubtful = suspects[suspects["probability_real"] < 0.5]
    counts = doubtful["against"].str.split(", ").explode().value_counts()
    write_page(
        path,
        "audit.html.j2",
        title=f"Audit of {audit.data.get('name') or 'a graph'}",
        verdict=audit.verdict,
        facts={
            "nodes": f"{audit.graph.num_nodes:,}",
            "edges": f"{len(suspects):,}",
            "edges below 50 %": f"{len(doubtful):,}",
            "missing pairs above 50 %": f"{int((audit.findings.pair_log_odds > 0).sum()):,}",
            "false edges, estimated": str(audit.false_share),
        },
        kinds={
            name: f"{meaning} (against {counts[name]:,} of {len(doubtful):,} doubtful edges)"
            if name in counts
            else meaning
            for name, meaning in MEANINGS.items()
        },
        histogram=histogram(audit.probability_real.tolist()),
        size=HISTOGRAM,
        suspects=[picture(one) for one in audit.explained(edges)],
        missing=[picture(one) for one in audit.explained(pairs.T.tolist())],
        worst=suspects.head(LISTED).to_dict("records"),
        best=missing.head(LISTED).to_dict("records"),
    )


def histogram(values: list[float]) -> list[dict[str, Any]]:
    """Bars of equal width over 0 .. 1, in the units of the drawing, with what they count."""
    counts = torch.histc(torch.tensor(values), BINS, 0, 1).long().tolist()
    most, (width, height) = max(counts) or 1, HISTOGRAM
    return [
        {
            "x": i * width / BINS + 1,
            "width": width / BINS - 2,
            "height": (height - 30) * (n / most) ** 0.5,
            "says": f"{n:,} edges between {i / BINS:.0%} and {(i + 1) / BINS:.0%}",
        }
        for i, n in enumerate(counts)
    ]


def picture(why: Explanation) -> Picture:
    """Lay out an explanation: bars and, for a pair, the two at the sides, neighbours in common
    between them, others around.
    """
    widest = max((abs(one.value) for one in why.contributions), default=0.0) or 1.0
    bars = [(one, 50 * abs(one.value) / widest) for one in why.contributions]
    around = why.surroundings
    if around is None:
        return Picture(why, bars, [], [])
    middle, u, v = HEIGHT / 2, why.facts["u"], why.facts["v"]
    ends = [Mark(str(u), 78, middle, "end"), Mark(str(v), WIDTH - 78, middle, "end")]
    place, lines = {u: ends[0], v: ends[1]}, []
    count = len(around.common)
    even = _spread(count + count % 2, 24, HEIGHT - 24)  # none on the line itself
    for name, y in zip(around.common, even, strict=False):
        place[name] = Mark(str(name), WIDTH / 2, y, "common")
        lines += [(end, place[name]) for end in ends]
    for end, side, names in ((ends[0], -1, around.of_u), (ends[1], 1, around.of_v)):
        for name, angle in zip(names, _spread(len(names), -62, 62), strict=True):
            x, y = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            place[name] = Mark(str(name), end.x + side * 62 * x, middle + 84 * y, "other")
            lines.append((end, place[name]))
    lines += [(place[a], place[b]) for a, b in around.edges]
    return Picture(why, bars, list(place.values()), lines)


def _spread(count: int, low: float, high: float) -> list[float]:
    """Even places from ``low`` to ``high``; one alone is in the middle."""
    if count == 1:
        return [(low + high) / 2]
    return [low + (high - low) * i / (count - 1) for i in range(count)]
