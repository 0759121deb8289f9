"""Write the tables of docs/scaling.md: rates by device, and checks.

    python benchmarks/scaling_tables.py            # or --check: 1 if the page is stale

Rates are those of the largest random graph in ``results/bench_refine.jsonl`` (``graphglow bench
refine --nodes ..``), a device each. Checks are of ``results/size_checks.jsonl``; the newest row
counts.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from marked_page import NO_ROWS, markdown, write_page

Rows = list[dict[str, Any]]
SHARED = ("candidates", "evidence", "scoring")
"""Stages that are done in blocks; the others are done once, by the process that asks."""


def read(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def newest(rows: Iterable[dict[str, Any]], *names: str) -> Rows:
    """Of rows that are alike in these fields, the last; in the order of the first."""
    return list({tuple(row.get(name) for name in names): row for row in rows}.values())


def largest(results: Path) -> dict[str, dict[str, Any]]:
    """By device and what is done: the stages of the largest random graph, the newest rows."""
    rows = read(results / "bench_refine.jsonl")
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
    checks: dict[str, Rows] = defaultdict(list)
    for row in read(results / "size_checks.jsonl"):
        checks[row["part"]].append(row)
    return {
        "rates": rates_table(largest(results)),
        "measured": measured_table(read(results / "bench_refine.jsonl")),
        **lists_tables(newest(checks["lists"], "target", "seed", "view", "way", "search")),
        "link": link_table(newest(checks["link"], "target", "seed", "solver")),
        "pairs": pairs_table(newest(checks["pairs"], "target", "seed", "what")),
    }


def rates_table(found: Mapping[str, dict[str, Any]]) -> str:
    lines = []
    for name, one in found.items():
        once, blocks = rates(one)
        peak = one["peak"]["all"] / one["nodes"]
        lines.append([name, f"{one['nodes']:,}", f"{once:.1f}", f"{blocks:.1f}", f"{peak:,.0f}"])
    titles = ["", "nodes", "us a node, once", "us a node, in blocks", "bytes a node, peak"]
    return table(titles, lines)


def measured_table(rows: Rows) -> str:
    """Whole refinements and audits, small graphs first; the slowest stage with its share."""
    found = [row for row in rows if row.get("seconds") and row["part"] != "gcn"]
    lines = []
    names = ("device", "nodes", "target", "part")
    for key, some in by([r | {"key": tuple(r[n] for n in names)} for r in found], "key").items():
        stages = {row["stage"]: row for row in some}
        whole = stages.pop("all")
        slow = max(stages.values(), key=lambda row: row["seconds"])
        target = "random" if str(key[2]).isdigit() else key[2]
        where = f"{key[0]}, {whole['threads']} threads" if key[0] == "cpu" else key[0]
        lines.append((
            *key[:2],
            [key[3], target, f"{key[1]:,}", where, f"{whole['seconds']:.2f}",
             f"{whole['peak_bytes'] / 1e9:.1f}",
             f"{slow['stage']}, {100 * slow['seconds'] / whole['seconds']:.0f} %"],
        ))  # fmt: skip
    titles = ["", "graph", "nodes", "on", "seconds", "GB, peak", "slowest stage"]
    return table(titles, [line for *_, line in sorted(lines, key=lambda one: one[:2])])


def lists_tables(rows: Rows) -> dict[str, str]:
    found, said = [], []
    for target, some in by(rows, "target").items():
        for view, ways in by([row for row in some if "view" in row], "view").items():
            cells = []
            for way in ("lists", "faiss"):
                of = [row for row in ways if row["way"] == way]
                cells += [points([row[name] for row in of]) for name in ("recall", "cosine")]
                cells.append(f"{mean(row['cpu_seconds'] for row in of):.1f}" if of else "")
            found.append([target, f"{ways[0]['nodes']:,}", view, *cells])
        whole = [row for row in some if "search" in row]
        exact, lists = ([r for r in whole if (r["search"] == "exact") is e] for e in (True, False))
        if exact and lists:
            cells = [points([row["accuracy"] for row in way]) for way in (exact, lists)]
            seconds = [f"{mean(row['cpu_seconds'] for row in way):.0f}" for way in (exact, lists)]
            said.append([target, lists[-1]["search"], *cells, *seconds])
    titles = ["rows", "many", "view", "found, %", "cosine, %", "CPU seconds",
              "by faiss", "cosine, %", "CPU seconds"]  # fmt: skip
    return {
        "recall": table(titles, found),
        "instant": table(
            ["graph", "lists", "exact", "in lists", "CPU seconds, exact", "in lists"], said
        ),
    }


def link_table(rows: Rows) -> str:
    lines = []
    for target, some in by(rows, "target").items():
        solved = by(some, "solver")
        if len(solved) == 2:
            exact, other = solved["exact"], solved["conjugate gradients"]
            cells = [points([row["accuracy"] for row in way]) for way in (exact, other)]
            seconds = [f"{mean(row['cpu_seconds'] for row in way):.1f}" for way in (exact, other)]
            lines.append([target, f"{exact[0]['labels']:,}", *cells, *seconds])
    titles = ["graph", "labels", "exact", "iterative", "CPU seconds, exact", "iterative"]
    return table(titles, lines)


def pairs_table(rows: Rows) -> str:
    lines = [
        [row["what"], f"{row['nodes']:,}", f"{row['pairs']:,}",
         *(f"{1e3 * row[way]:.2f}" for way in ("plain_seconds", "fused_seconds")),
         f"{row['apart']:.0e}"]
        for row in rows
    ]  # fmt: skip
    return table(["", "nodes", "pairs", "ms, plain", "ms, one kernel", "apart"], lines)


def by(rows: Rows, name: str) -> dict[Any, Rows]:
    groups: dict[Any, Rows] = defaultdict(list)
    for row in rows:
        groups[row[name]].append(row)
    return groups


def points(shares: Sequence[float | None]) -> str:
    """Their mean, in points."""
    known = [share for share in shares if share is not None]
    return f"{100 * mean(known):.2f}" if known else ""


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return markdown(titles, lines) if lines else NO_ROWS


if __name__ == "__main__":
    sys.exit(write_page("scaling.md", tables))
