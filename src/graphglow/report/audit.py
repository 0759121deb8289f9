"""An audit as a page: how many edges are doubtful and why, the worst and the best, in pictures."""

from pathlib import Path
from typing import Any

import torch

from graphglow.audit import Audit
from graphglow.report.page import write_page
from graphglow.report.pair import picture

SHOWN = 8
"""Suspects, and missing pairs, that are drawn."""
LISTED = 40
"""Rows of each table."""
BINS = 20
WIDTH, HEIGHT = 640, 180
"""Of the histogram, in its own units."""


def write_audit(audit: Audit, path: str | Path) -> None:
    """Write a self-contained page (``.html``) without scripts; an existing file is replaced."""
    edges = audit.edges[:, audit.findings.edge_log_odds.argsort()[:SHOWN]]
    order = audit.findings.pair_log_odds.argsort(descending=True)
    pairs = audit.findings.pairs[:, order[:SHOWN]]
    write_page(
        path,
        "audit.html.j2",
        title=f"Audit of {audit.data.get('name') or 'a graph'}",
        verdict=audit.verdict,
        facts=_facts(audit),
        reasons=_reasons(audit),
        histogram=histogram(audit.probability_real.tolist()),
        suspects=[picture(one) for one in audit.explained(edges.T.tolist())],
        missing=[picture(one) for one in audit.explained(pairs.T.tolist())],
        worst=audit.suspects.head(LISTED).to_dict("records"),
        best=audit.missing.head(LISTED).to_dict("records"),
        size=(WIDTH, HEIGHT),
    )


def histogram(values: list[float]) -> list[dict[str, Any]]:
    """Bars of equal width over 0 .. 1, in the units of the drawing, with what they count."""
    counts = torch.histc(torch.tensor(values), BINS, 0, 1).long().tolist()
    most = max(counts) or 1
    step = WIDTH / BINS
    return [
        {
            "x": i * step + 1,
            "width": step - 2,
            "height": (HEIGHT - 30) * (n / most) ** 0.5,
            "says": f"{n:,} edges between {i / BINS:.0%} and {(i + 1) / BINS:.0%}",
        }
        for i, n in enumerate(counts)
    ]


def _facts(audit: Audit) -> dict[str, str]:
    low, about, high = (f"{100 * audit.false_share[i]:.0f} %" for i in (1, 0, 2))
    return {
        "nodes": f"{audit.graph.num_nodes:,}",
        "edges": f"{audit.edges.shape[1]:,}",
        "false edges, estimated": f"{about} ({low} to {high})",
        "edges below 50 %": f"{int((audit.probability_real < 0.5).sum()):,}",
        "missing pairs above 50 %": f"{int((audit.findings.pair_log_odds > 0).sum()):,}",
    }


def _reasons(audit: Audit) -> dict[str, str]:
    """Of the doubtful edges that were looked into, how many each kind of evidence spoke against."""
    doubtful = audit.suspects[audit.suspects["probability_real"] < 0.5]
    spoke = doubtful["against"].str.split(", ").explode()
    counts = spoke[spoke != ""].value_counts()
    return {str(name): f"against {int(n):,} of {len(doubtful):,}" for name, n in counts.items()}
