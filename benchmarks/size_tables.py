"""Write the tables of docs/performance.md and docs/scaling.md from rows; --check if stale.

python benchmarks/size_tables.py [--check]

Rows are made by epoch.py, refine_speed.py and size_checks.py; of several about one case the newest
counts.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from graphglow.lab.tables import NO_ROWS, markdown
from marked_page import RESULTS, ROOT, rewrite
from measuring import Row, read_rows

EPOCH = {
    "target": "target", "nodes": "nodes", "edges": "edges", "pivots": "pivots",
    "refinements": "refinements", "epoch_ms": "epoch ms", "epochs": "epochs",
    "train_seconds": "all s", "peak_bytes": "peak MB",
}  # fmt: skip
SCALE = {
    "nodes": "nodes", "edges": "edges", "pivots": "pivots", "refinements": "refinements",
    "epoch_ms": "epoch ms", "peak_bytes": "peak MB", "graph_bytes": "of it the graph, MB",
}  # fmt: skip


def newest(rows: list[Row], *names: str) -> list[Row]:
    """Of rows that are alike in these fields, the last; in the order of the first."""
    return list({tuple(row.get(name) for name in names): row for row in rows}.values())


def machine(row: Row) -> str:
    """Where a row was measured."""
    if row["device"] == "cuda":
        return str(row["provenance"]["machine"]["gpu"])
    return f"{row['threads']} threads of a {row['provenance']['machine']['cpu']} CPU"


def shown(row: Row, field: str) -> str:
    value = row.get(field)
    if value is None:
        return "out of memory" if row.get("out_of_memory") else ""
    if field.endswith("_bytes"):
        value = value / 1e6
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"


def speed_table(rows: list[Row], columns: Mapping[str, str], *case: str) -> str:
    """A table for each machine, torch version by torch version."""
    parts = []
    rows = newest(rows, *case, "device", "threads")
    for where in dict.fromkeys(map(machine, rows)):
        lines = [[shown(r, f) for f in columns] for r in rows if machine(r) == where]
        parts.append(f"{where}:\n\n{markdown(list(columns.values()), lines)}")
    return "\n".join(parts) or NO_ROWS


def measured_table(rows: list[Row]) -> str:
    """Whole refinements and audits, small graphs first; the slowest stage with its share."""
    cases: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        if row.get("seconds") and row["part"] != "gcn":
            key = row["device"], row["nodes"], row["target"], row["part"]
            cases.setdefault(key, {})[row["stage"]] = row
    lines = []
    for (_, nodes, target, part), stages in sorted(cases.items(), key=lambda one: one[0][:2]):
        whole = stages.pop("all")
        slow = max(stages.values(), key=lambda row: row["seconds"], default=whole)
        share = 100 * slow["seconds"] / whole["seconds"]
        name = "random" if str(target).isdigit() else str(target)
        peak = f"{whole['peak_bytes'] / 1e9:.1f}"
        cells = [part, name, f"{nodes:,}", machine(whole), f"{whole['seconds']:.2f}", peak]
        lines.append([*map(str, cells), f"{slow['stage']}, {share:.0f} %"])
    titles = ["", "graph", "nodes", "on", "seconds", "GB, peak", "slowest stage"]
    return markdown(titles, lines) if lines else NO_ROWS


def points(shares: Sequence[float]) -> str:
    return f"{100 * mean(shares):.2f}"


def recall_table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        if row.get("way") == "lists":
            recall, cosine = points([row["recall"]]), points([row["cosine"]])
            seconds = f"{row['cpu_seconds']:.1f}"
            lines.append([row["target"], f"{row['nodes']:,}", row["view"], recall, cosine, seconds])
    titles = ["rows", "many", "view", "found, %", "cosine, %", "CPU seconds"]
    return markdown(titles, lines) if lines else NO_ROWS


def pairs_of(rows: list[Row], field: str, exact: str) -> list[list[str]]:
    """Exact against approximate, by target: accuracy and CPU seconds."""
    lines = []
    for target in dict.fromkeys(row["target"] for row in rows if row.get(field)):
        mine = [row for row in rows if row["target"] == target and row.get(field)]
        ways = [[r for r in mine if (r[field] == exact) is e] for e in (True, False)]
        if all(ways):
            cells = [points([row["accuracy"] for row in way]) for way in ways]
            cells += [f"{mean(row['cpu_seconds'] for row in way):.1f}" for way in ways]
            lines.append([target, *cells])
    return lines


def pages(results: Path) -> dict[str, dict[str, str]]:
    """By page, every block by its name."""
    checks = read_rows(results / "size_checks.jsonl")
    lists = newest(
        [r for r in checks if r["part"] == "lists"], "target", "seed", "view", "way", "search"
    )
    link = newest([r for r in checks if r["part"] == "link"], "target", "seed", "solver")
    model = ("refinements", "pivots")
    usual = {"precision": "float32", "delta": "truncate", "backend": "auto", "kind": None}
    epoch, scale = (
        [
            row
            for row in read_rows(results / f"bench_{name}.jsonl")
            if all(row.get(field) == value for field, value in usual.items())
            and row.get("capture", True)
        ]
        for name in ("epoch", "scale")
    )
    titles = ["graph", "exact", "approximate", "CPU seconds, exact", "approximate"]
    return {
        "docs/performance.md": {
            "epoch": speed_table(epoch, EPOCH, "target", "epochs", *model),
            "scale": speed_table(scale, SCALE, "nodes", "degree", *model),
        },
        "docs/scaling.md": {
            "measured": measured_table(read_rows(results / "bench_refine.jsonl")),
            "recall": recall_table(lists),
            "instant": markdown(titles, pairs_of(lists, "search", "exact")),
            "link": markdown(titles, pairs_of(link, "solver", "exact")),
        },
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a page is stale")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--root", type=Path, default=ROOT, help="where docs/ is")
    args = parser.parse_args(words)
    made = pages(args.results).items()
    return max(rewrite(args.root / page, blocks, check=args.check) for page, blocks in made)


if __name__ == "__main__":
    sys.exit(main())
