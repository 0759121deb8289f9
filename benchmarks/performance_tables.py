"""Write the tables of docs/performance.md from the rows of results/bench_*.jsonl.

    python benchmarks/performance_tables.py            rewrite what stands between the markers
    python benchmarks/performance_tables.py --check    exit with 1 if that would change the page

``graphglow bench ... --out results/bench_NAME.jsonl`` makes the rows. Of several rows of one case
on one machine the newest counts.
"""

import argparse
import json
import sys
from pathlib import Path

from marked_page import NO_ROWS, rewrite
from performance_layout import BARS, TABLES, Form, Row

ROOT = Path(__file__).resolve().parents[1]


def read_rows(folder: Path) -> list[Row]:
    """All rows, oldest first."""
    lines = [
        line
        for path in sorted(folder.glob("bench_*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    rows = [json.loads(line) for line in lines if line.strip()]
    return sorted(rows, key=lambda row: row["provenance"]["date"])


def machine(row: Row) -> str:
    """One line that names the machine and the software."""
    made = row["provenance"]
    versions = made["versions"]
    if row["device"] == "cuda":
        where = f"{made['machine']['gpu']}, CUDA {versions.get('cuda')}"
    else:
        where = f"{row['threads']} threads of a {made['machine']['cpu']} CPU"
    return f"{where}, torch {versions['torch']}"


def newest(rows: list[Row], case: tuple[str, ...]) -> list[Row]:
    """One row per case, in the order in which cases first appear."""
    found: dict[tuple[object, ...], Row] = {}
    for row in rows:
        found[tuple(row.get(name) for name in case)] = row
    return list(found.values())


def cell(row: Row, field: str, form: Form) -> str:
    value = row.get(field)
    if value is None:
        return "out of memory" if row.get("out_of_memory") and field.endswith("_ms") else ""
    return form(value)


def markdown(titles: list[str], cells: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table(name: str, rows: list[Row]) -> str:
    """The table of one benchmark for each machine; columns that stay empty are left out."""
    layout = TABLES[name]
    mine = [row for row in rows if row["benchmark"] == name]
    parts = []
    for where in dict.fromkeys(machine(row) for row in mine):
        chosen = newest([row for row in mine if machine(row) == where], layout.case)
        commits = ", ".join(dict.fromkeys(str(row["provenance"]["commit"]) for row in chosen))
        shown = {
            title: [cell(row, *column) for row in chosen]
            for title, column in layout.columns.items()
        }
        shown = {title: values for title, values in shown.items() if any(values)}
        lines = [list(line) for line in zip(*shown.values(), strict=True)]
        parts.append(f"{where}; commit {commits}:\n\n{markdown(list(shown), lines)}")
    return "\n".join(parts) or NO_ROWS


def bars(rows: list[Row]) -> str:
    """Each bar with the newest figure that it is about."""
    lines = []
    for bar in BARS:
        wanted = {"benchmark": bar.benchmark, **bar.where}
        found = [
            row[bar.field]
            for row in rows
            if row.get(bar.field) is not None
            and all(row.get(name) == value for name, value in wanted.items())
        ]
        sign = ">=" if bar.at_least else "<="
        limit = "runs" if bar.bar == float("inf") else f"{sign} {bar.form(bar.bar)}"
        aim = "" if bar.aim is None else f"{sign} {bar.form(bar.aim)}"
        if not found:
            lines.append([bar.what, limit, aim, "not measured", ""])
            continue
        verdict = "yes" if bar.met(found[-1], bar.bar) else "**no**"
        if bar.aim is not None and bar.met(found[-1], bar.aim):
            verdict = "yes, and the aim"
        lines.append([bar.what, limit, aim, bar.form(found[-1]), verdict])
    return markdown(["what", "bar", "aim", "measured", "met"], lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if stale")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    args = parser.parse_args()
    rows = read_rows(args.results)
    made = {"bars": bars(rows), **{name: table(name, rows) for name in TABLES}}
    return rewrite(args.page, made, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
