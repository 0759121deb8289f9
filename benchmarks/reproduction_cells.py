"""Rows of ``graphglow reproduce``, cell by cell, and how cells are written in Markdown.

A row belongs where its cell's key says, ``line/column``: two lines may share a method. Means,
deviations, the best of a column and tests are those of ``graphglow report``.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphglow.lab.paper.cells import EXPERIMENTS
from graphglow.lab.runs.config import ReproduceConfig
from graphglow.lab.runs.rows import ResultRow
from graphglow.report.comparison import ALONE, LEFT_OUT, OUTDATED, Cell, compare
from marked_page import markdown

NOTHING = "-"
SEEDS = ReproduceConfig.seeds
"""Runs of a whole cell."""
LONGEST_REASON = 200
MARKS = {
    "&dagger;": ALONE,
    "&Dagger;": OUTDATED,
    "&sect;": LEFT_OUT,
}
TITLES = {
    "cornell5": "Cornell5",
    "johnshopkins55": "JohnsHopkins55",
    "amherst41": "Amherst41",
    "reed98": "Reed98",
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
}

Place = tuple[str, str]
"""Line and column."""
Where = Callable[[str], Place | None]
"""The place of a cell, by its key; None if it has none in this table."""


@dataclass(frozen=True)
class Shown:
    """The rows that pages show."""

    rows: Sequence[ResultRow]

    def of(self, experiment: str) -> list[ResultRow]:
        return [row for row in self.rows if row.experiment == experiment]


def by_target(key: str) -> Place:
    """``gcn/cora``: the line is what stands before the graph."""
    line, _, target = key.rpartition("/")
    return line, target


@dataclass(frozen=True)
class Grid:
    """Lines by columns, and what there is of each cell."""

    labels: dict[str, str]
    """What people call each line."""
    columns: tuple[str, ...]
    rows: dict[Place, list[ResultRow]]
    cells: dict[Place, Cell]


def grid_of(experiment: str, shown: Shown, where: Where = by_target) -> Grid:
    """The cells of an experiment: those that are defined, in their order, then others with rows."""
    labels: dict[str, str] = {}
    columns: dict[str, None] = {}
    found: dict[Place, list[ResultRow]] = {}
    runs = []
    keys = [(cell.key, cell.label, None) for cell in EXPERIMENTS[experiment]()]
    for key, label, row in [*keys, *((row.cell, row.label, row) for row in shown.of(experiment))]:
        place = where(key)
        if place is None:
            continue
        labels.setdefault(place[0], label)
        columns.setdefault(place[1])
        if row is not None:
            found.setdefault(place, []).append(row)
            runs.append(replace(row, label=place[0], cell="/".join(place)))
    table = compare(runs, lambda run: by_target(run.cell)[1])
    cells = {
        (line.name, column): cell
        for line in table.lines
        for column, cell in zip(table.columns, line.cells, strict=True)
        if cell is not None
    }
    return Grid(labels, tuple(columns), found, cells)


class Notes:
    """Footnotes of one table, each reason once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.marks: set[str] = set()

    def reason(self, said: str) -> str:
        text = " ".join(said.split())
        if len(text) > LONGEST_REASON:
            text = f"{text[:LONGEST_REASON]}..."
        return f"[{self.numbers.setdefault(text, len(self.numbers) + 1)}]"

    def mark(self, sign: str, when: object) -> str:
        """The sign of a cell, one of ``MARKS``, where it has it."""
        if not when:
            return ""
        self.marks.add(sign)
        return f" {sign}"

    def markdown(self) -> str:
        lines = [f"- {sign} {text}\n" for sign, text in MARKS.items() if sign in self.marks]
        lines += [f"- [{number}] {text}\n" for text, number in self.numbers.items()]
        return "\n" + "".join(lines) if lines else ""


def score(grid: Grid, place: Place, notes: Notes, beside: str = "", *, bold: bool = True) -> str:
    """``84.1 +- 0.3``, and in brackets what is unusual about its runs, and what is ``beside``."""
    cell, rows = grid.cells.get(place), grid.rows.get(place, [])
    if cell is None:
        return NOTHING
    told = [beside] if beside else []
    failures = [row.error or "no test accuracy" for row in rows if row.test_accuracy is None]
    if cell.mean is None:
        text = f"failed {notes.reason(failures[0])}"
    else:
        text = spread(cell.scores, percent)
        text = f"**{text}**" if cell.best and bold else text
        text += notes.mark("&dagger;", cell.alone)
        if failures:
            told.insert(0, f"{len(failures)} failed {notes.reason(failures[0])}")
        if len(cell.scores) != SEEDS:
            told.insert(0, f"{len(cell.scores)} seed{'' if len(cell.scores) == 1 else 's'}")
        text += notes.mark("&Dagger;", cell.outdated)
    text += notes.mark("&sect;", cell.left_out)
    return f"{text} ({'; '.join(told)})" if told else text


def scores(grid: Grid, *, first: str = "method") -> str:
    """Lines by columns, with the paper's figure beside a score where there is one."""
    notes = Notes()

    def figure(place: Place) -> str:
        cell = grid.cells.get(place)
        paper = None if cell is None else cell.paper
        return score(grid, place, notes, "" if paper is None else f"paper {percent(paper)}")

    lines = [
        [label, *(figure((line, column)) for column in grid.columns)]
        for line, label in grid.labels.items()
    ]
    titles = [TITLES.get(column, column) for column in grid.columns]
    return markdown([first, *titles], lines) + notes.markdown()


# How things are written


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def points(difference: float) -> float:
    """In percent, as far as it is shown; the paper's figures have no more digits."""
    return round(100 * difference, 1) + 0.0  # no minus zero


def signed(difference: float) -> str:
    return f"{points(difference):+.1f}"


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Mean and sample standard deviation; of a single value itself."""
    mean = form(statistics.mean(values))
    return f"{mean} +- {form(statistics.stdev(values))}" if len(values) > 1 else mean


def columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def machine(row: ResultRow | dict[str, Any]) -> str:
    """Where a run was made; also of the row of a search."""
    facts = row if isinstance(row, dict) else vars(row)
    made = (facts.get("provenance") or {}).get("machine") or {}
    if facts.get("device") == "cuda":
        return str(made.get("gpu") or "GPU")
    threads = facts.get("threads")
    used = f"{threads} thread{'' if threads == 1 else 's'} of a " if threads else ""
    return f"{used}{made.get('cpu') or ''} CPU".replace("  ", " ")
