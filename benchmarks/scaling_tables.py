"""Write the tables of docs/scaling.md: rates by device, and what 100 M nodes would take by them.

    python benchmarks/scaling_tables.py            # or --check: 1 if the page is stale

Rates are those of the largest random graph in ``results/bench_refine.jsonl`` (``graphglow bench
refine --nodes ..``), a device each; seconds are taken to grow like nodes.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marked_page import NO_ROWS, markdown, write_page

SHARED = ("candidates", "evidence", "scoring")
"""Stages that are done in blocks; the others are done once, by the process that asks."""
NODES = 100_000_000
WORKERS = (1, 8, 64)
MOVED = 14_500
"""Bytes per node that go to every machine, over the four stages."""


def largest(results: Path) -> dict[str, dict[str, Any]]:
    """By device and what is done: the stages of the largest random graph, the newest rows."""
    path = results / "bench_refine.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = [row for row in rows if str(row.get("target", "")).isdigit() and row.get("seconds")]
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["nodes"]):
        key = f"{row['part']} on {row['device']}"
        if key not in found or found[key]["nodes"] != row["nodes"]:
            found[key] = {"nodes": row["nodes"], "seconds": {}, "peak": {}}
        found[key]["seconds"][row["stage"]] = row["seconds"]
        found[key]["peak"][row["stage"]] = row["peak_bytes"]
    return {key: one for key, one in found.items() if "all" in one["seconds"]}


def rates(one: Mapping[str, Any]) -> tuple[float, float]:
    """Microseconds per node, of what is done once and of what is done in blocks."""
    blocks = sum(one["seconds"].get(stage, 0.0) for stage in SHARED)
    unit = 1e6 / one["nodes"]
    return unit * (one["seconds"]["all"] - blocks), unit * blocks


def tables(results: Path) -> dict[str, str]:
    found = largest(results)
    measured, told = [], []
    for name, one in found.items():
        once, blocks = rates(one)
        peak = one["peak"]["all"] / one["nodes"]
        measured.append([name, f"{one['nodes']:,}", f"{once:.1f}", f"{blocks:.1f}", f"{peak:,.0f}"])
        for workers in WORKERS:
            hours = NODES * (once + blocks / workers) / 3.6e9
            told.append(
                [name, str(workers), f"{hours:.2f}", f"{NODES * MOVED * workers / 1e12:.1f}"]
            )
    titles = ["", "nodes", "us a node, once", "us a node, in blocks", "bytes a node, peak"]
    return {
        "rates": markdown(titles, measured) if measured else NO_ROWS,
        "predictions": markdown(["", "workers", "hours", "TB to machines"], told)
        if told
        else NO_ROWS,
    }


if __name__ == "__main__":
    sys.exit(write_page("scaling.md", tables))
