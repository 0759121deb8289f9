"""Rows of results as pages show them: read by :mod:`graphglow.experiments.runs.rows`."""

from collections import Counter

from graphglow.experiments.runs.rows import (
    Metric,
    ResultRow,
    RowFile,
    read_rows,
    row_of,
    without_repeats,
)
from graphglow.experiments.wording import counted

__all__ = [
    "Metric",
    "ResultRow",
    "RowFile",
    "origins",
    "read_rows",
    "row_of",
    "without_repeats",
]

OURS = ("graphglow", "graphglow*", "graphglow-star")
"""The methods that the page is about; all others are competitors or controls."""


def origins(rows: list[ResultRow]) -> dict[str, str]:
    """Commits, machines, versions and dates of rows, each with how many rows have it."""
    found: dict[str, Counter[str]] = {}

    def count(name: str, value: object) -> None:
        if value not in (None, ""):
            found.setdefault(name, Counter())[f"{value!s:.200}"] += 1

    for row in rows:
        source = row.provenance
        count("commit", source.get("commit"))
        machine = source.get("machine")
        if isinstance(machine, dict):
            cores = machine.get("cores")
            count("machine", f"{machine.get('gpu') or machine.get('cpu')}, {cores} CPU cores")
        versions = source.get("versions")
        if isinstance(versions, dict):
            shown = {k: v for k, v in versions.items() if v is not None}
            count("versions", ", ".join(f"{name} {value}" for name, value in shown.items()))
        count("date", str(source.get("date") or "")[:10])
    return {
        name: "; ".join(
            f"{value} ({counted(number, 'row')})" for value, number in counts.most_common()
        )
        for name, counts in found.items()
    }
