"""The pages of an explanation and of an audit: pairs of nodes drawn as SVG, scores as bars."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphglow.audit import MEANINGS, Audit
from graphglow.explain import Explanation
from graphglow.report import write_page

WIDTH, HEIGHT = 320.0, 190.0
"""Size of a drawing of a pair, in its own units."""
BINS = 20  # of the histogram
DRAWN, LISTED = 8, 40
"""Suspects, and missing pairs, that are drawn, and rows of each table."""


class Mark(NamedTuple):
    """A node of the drawing: an ``end`` of the pair, in ``common``, or an ``other`` neighbour."""

    name: str
    x: float
    y: float
    kind: str


def write_explanation(why: Explanation, path: str | Path) -> None:
    """Write the page of one explanation; ``why.write("why.html")`` is the same."""
    facts = {name: value for name, value in why.facts.items() if not isinstance(value, dict | list)}
    rows = why.to_frame().astype(object).to_dict("records")
    write_page(
        path, "explanation.html.j2", title=why.title, why=why, facts=facts, rows=rows, layout=layout
    )


def write_audit(audit: Audit, path: str | Path) -> None:
    """Write the page of an audit: the worst edges and the best pairs, and how many are doubtful."""
    suspects, found, real = audit.suspects, audit.findings, audit.probability_real
    edges = audit.edges[:, found.edge_log_odds.argsort()[:DRAWN]].T.tolist()
    pairs = found.pairs[:, found.pair_log_odds.argsort(descending=True)[:DRAWN]].T.tolist()
    doubtful = suspects[suspects["probability_real"] < 0.5]
    write_page(
        path,
        "audit.html.j2",
        title=f"Audit of {audit.data.get('name') or 'a graph'}",
        verdict=audit.verdict,
        facts={
            "nodes": f"{audit.graph.num_nodes:,}",
            "edges": f"{len(suspects):,}",
            "edges below 50 %": f"{len(doubtful):,}",
            "missing pairs above 50 %": f"{int((found.pair_log_odds > 0).sum()):,}",
            "false edges, estimated": str(audit.false_share),
        },
        meanings=MEANINGS,
        against=doubtful["against"].str.split(", ").explode().value_counts(),
        doubtful=len(doubtful),
        counts=real.histc(BINS, 0, 1).long().tolist(),
        suspects=audit.explained(edges),
        missing=audit.explained(pairs),
        worst=suspects.head(LISTED).to_dict("records"),
        best=audit.missing.head(LISTED).to_dict("records"),
        layout=layout,
    )


def layout(why: Explanation) -> tuple[list[Mark], list[tuple[Mark, Mark]]]:
    """Place a pair at the sides, neighbours in common between them, others around.

    Returns marks, the pair first, and the lines between them.
    """
    around, middle, u, v = why.surroundings, HEIGHT / 2, why.facts["u"], why.facts["v"]
    assert around is not None
    ends = [Mark(str(u), 78, middle, "end"), Mark(str(v), WIDTH - 78, middle, "end")]
    place, lines = {u: ends[0], v: ends[1]}, []
    count = len(around.common)
    even = np.linspace(24, HEIGHT - 24, count + count % 2)  # none on the line itself
    for name, y in zip(around.common, even, strict=False):
        place[name] = Mark(str(name), WIDTH / 2, y, "common")
        lines += [(end, place[name]) for end in ends]
    for end, side, names in ((ends[0], -1, around.of_u), (ends[1], 1, around.of_v)):
        angles = np.linspace(-62, 62, len(names)) if len(names) > 1 else [0.0]
        for name, angle in zip(names, angles, strict=False):
            x, y = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            place[name] = Mark(str(name), end.x + side * 62 * x, middle + 84 * y, "other")
            lines.append((end, place[name]))
    lines += [(place[a], place[b]) for a, b in around.edges]
    return list(place.values()), lines
