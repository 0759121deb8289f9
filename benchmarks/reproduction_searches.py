"""The searches behind docs/reproduction.md: how the settings of each method came about."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from graphglow.experiments import paper
from graphglow.experiments.cell import Cell
from graphglow.experiments.cell_config import (
    as_compared,
    config_kind,
    in_parts,
    merged,
    tuned_settings,
)
from graphglow.experiments.cells import EXPERIMENTS
from graphglow.experiments.lines import LEARNED_ON, NAMES, OURS, PRETRAINED
from graphglow.experiments.search.settings import Settings
from marked_page import NO_ROWS
from reproduction_cells import NOTHING, TITLES, Row, machine, markdown, percent

LABELS = {**NAMES, **{key: label for key, (_, label) in OURS.items()}}


def search(found: Sequence[Row]) -> str:
    """Validation accuracy of the settings taken, and how each came about."""
    studies = {(row["method"], row["target"], sought(row)): row for row in found}  # the last
    if not studies:
        return NO_ROWS
    known = list(LABELS)
    names = sorted(
        {(method, kind) for method, _, kind in studies},
        key=lambda name: (known.index(name[0]) if name[0] in known else len(known), name),
    )
    lines = []
    for method, kind in names:
        label = LABELS.get(method, method) + (f", {kind}" if kind else "")
        mine = [studies.get((method, graph, kind)) for graph in paper.GRAPHS]
        lines.append([label, *(came_about(row) for row in mine)])
    titles = ["method", *(TITLES[graph] for graph in paper.GRAPHS)]
    return f"{summary(list(studies.values()))}\n\n{markdown(titles, lines)}"


def summary(rows: Sequence[Row]) -> str:
    """How many entries came about in which way, and what the trials took."""
    made = [row for row in rows if is_search(row)]
    hours = sum(row["trial_seconds"] for row in made) / 3600
    failed = sum(row["failed"] for row in made)
    borrowed = sum("borrowed_from" in row for row in rows)
    taken = sum("taken_from" in row for row in rows)
    where = ", ".join(dict.fromkeys(machine(row) for row in made))
    trials = sum(row["trials"] for row in made)
    return (
        f"{len(made):,} searches: {trials:,} trials, {failed:,} of them failed, "
        f"{hours:.1f} hours{f' on {where}' if where else ''}. "
        f"Entries borrowed: {borrowed:,}; taken: {taken:,}."
    )


def came_about(row: Row | None) -> str:
    """``82.4 (30 x 2)``: validation accuracy, trials and runs of each; or where it comes from."""
    if row is None:
        return NOTHING
    if "found_by" in row:
        return settled(row)
    if "by_latent_degree" in row:
        c = in_parts(row["settings"])[1]["latent_degree"]
        return f"{percent(row['val_accuracy'])} (c = {c:g})"
    if "borrowed_from" in row:
        return f"of {TITLES.get(row['borrowed_from'], row['borrowed_from'])}"
    if "taken_from" in row:
        return f"taken ({row['drawn']})" if row.get("drawn") else "taken (not searched)"
    short = row["trials"] < row["budget"]
    trials = f"{row['trials']} of {row['budget']}" if short else f"{row['trials']}"
    told = f"({trials} x {row['seeds_per_trial']})"
    if row["val_accuracy"] is None:
        return f"all failed {told}" if row["trials"] else f"none {told}"
    return f"{percent(row['val_accuracy'])} {told}"


def settled(row: Row) -> str:
    """``82.4 (70; 9 x 3)``: of 70 trials 9 ran again, 3 times each; then, whose it was."""
    method, finalists = row["method"], row["finalists"] or []
    runs = max((len(one["val_accuracies"] or ()) for one in finalists), default=0)
    again = f"; {len(finalists)} x {runs}" if finalists else ""
    own = LEARNED_ON[method][0] if method in LEARNED_ON else method
    whose = "" if row["found_by"] == own else f"; {row['found_by']}"
    return f"{percent(row['val_accuracy'])} ({row['trials']}{again}{whose})"


def marked(rows: Iterable[Row], settings: Settings) -> list[Row]:
    """Rows, each with whether it was made with other settings than those that are held today."""
    cells = {(cell.experiment, cell.key): cell for made in EXPERIMENTS.values() for cell in made()}
    return [
        {**row, "outdated": _outdated(row, cells.get((row["experiment"], row["cell"])), settings)}
        for row in rows
    ]


def _outdated(row: Row, cell: Cell | None, settings: Settings) -> bool:
    if cell is None or not isinstance(row.get("config"), dict):
        return False
    tuned = tuned_settings(cell, settings)
    if cell.method in PRETRAINED:
        tuned = in_parts(tuned)[1]
    held = as_compared(config_kind(cell.method), merged(tuned, cell.settings))
    used = as_compared(config_kind(cell.method), row["config"])
    return any(held.get(name) != used.get(name) for name in tuned)


def sought(row: Row) -> str:
    """What tells a search from others of its method on its target: the sources."""
    sources, target = set(row["sources"] or ()), row["target"]
    if not sources:
        return ""
    if target in paper.GRAPHS and sources == set(paper.others_of_its_kind(target)):
        return "in-domain"
    if target in paper.GRAPHS and sources == set(paper.of_the_other_kind(target)):
        return "cross-domain"
    return f"from {'+'.join(sorted(sources))}"


def is_search(row: Row) -> bool:
    return "budget" in row


def searches(path: Path) -> list[Row]:
    """The rows of searches, and of what stands in for one; a line that was cut short is none."""
    rows: list[Row] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("experiment") == "search" and "settings" in row:
            rows.append(row)
    return rows
