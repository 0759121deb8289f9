"""Write the tables of docs/scaling.md: rates by device, what 100 M nodes would take, and checks.

    python benchmarks/scaling_tables.py            # or --check: 1 if the page is stale

Rates are those of the largest random graph in ``results/bench_refine.jsonl`` (``graphglow bench
refine --nodes ..``), a device each; seconds are taken to grow like nodes. Bytes and checks are of
``results/size_checks.jsonl``; the newest row counts.
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
NODES = 100_000_000
WORKERS = (1, 8, 64)
REFINE = ("find first", "score first", "find second", "score second")
"""Stages of a refinement; workers get anew what is known, for each of them."""


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
    travelled = newest(checks["bytes"], "stage")
    return {
        **rate_tables(largest(results), travelled),
        **bytes_tables(travelled),
        "measured": measured_table(read(results / "bench_refine.jsonl")),
        "workers": workers_table(read(results / "bench_workers.jsonl")),
        **lists_tables(newest(checks["lists"], "target", "seed", "view", "way", "search")),
        "link": link_table(newest(checks["link"], "target", "seed", "solver")),
        "pairs": pairs_table(newest(checks["pairs"], "target", "seed", "what")),
    }


def rate_tables(found: Mapping[str, dict[str, Any]], travelled: Rows) -> dict[str, str]:
    moved: dict[str, float] = defaultdict(float)  # what is known, of all stages, by node
    for row in travelled:
        moved[kind(row)] += row["known"] / row["nodes"]
    measured, told = [], []
    for name, one in found.items():
        once, blocks = rates(one)
        peak = one["peak"]["all"] / one["nodes"]
        measured.append([name, f"{one['nodes']:,}", f"{once:.1f}", f"{blocks:.1f}", f"{peak:,.0f}"])
        for workers in WORKERS:
            hours = NODES * (once + blocks / workers) / 3.6e9
            sent = NODES * moved[name.split()[0]] * workers / 1e12
            told.append([name, str(workers), f"{hours:.2f}", f"{sent:.1f}"])
    titles = ["", "nodes", "us a node, once", "us a node, in blocks", "bytes a node, peak"]
    return {
        "rates": table(titles, measured),
        "predictions": table(["", "workers", "hours", "TB to machines"], told),
    }


def kind(row: Mapping[str, Any]) -> str:
    return "refine" if row["stage"].rstrip(" 0123456789") in REFINE else "audit"


def bytes_tables(rows: Rows) -> dict[str, str]:
    """Of each stage, by node; and of all stages, by 100 M nodes."""
    lines, whole = [], []
    for what, some in by([row | {"kind": kind(row)} for row in rows], "kind").items():
        each = [[row[name] / row["nodes"] for name in ("known", "sent", "back")] for row in some]
        for row, sizes in zip(some, each, strict=True):
            lines.append([f"{what}: {row['stage']}", *(f"{size:,.0f}" for size in sizes)])
        known, sent, back = (
            [NODES * size / 1e9 for size in sizes] for sizes in zip(*each, strict=True)
        )
        facts = max(known), sum(known), sum(sent) + sum(back), sum(back)
        whole.append([what, *(f"{size:,.0f}" for size in facts)])
    titles = ["stage", "known, on every machine", "sent with blocks", "brought back"]
    sums = ["GB", "known at once", "to each machine", "blocks and answers", "parts on disk"]
    return {"bytes": table(titles, lines), "totals": table(sums, whole)}


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


def workers_table(rows: Rows) -> str:
    lines = []
    for row in newest(rows, "part", "device", "nodes", "share", "workers", "draw"):
        size = f"{row['nodes']:,} nodes" if row["part"] == "refine" else f"{row['share']} of it"
        waited = f"{100 * row['waited']:.0f} %" if "waited" in row else ""
        who = str(row["workers"] or "this process")
        who += f", drawing on {row['draw']}" if row["workers"] and "draw" in row else ""
        lines.append([row["part"], size, row["device"], who, f"{row['seconds']:.1f}", waited])
    titles = ["", "size", "on", "workers", "seconds", "waiting for episodes"]
    return table(titles, lines)


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
