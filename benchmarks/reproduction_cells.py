"""Rows of ``graphglow reproduce``, cell by cell, and how cells are written in Markdown.

A row belongs where its cell's key says, ``line/column``: two lines may share a method. Means,
deviations, the best of a column and tests are those of ``graphglow report``.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphglow.experiments.cell_rows import of_newest_settings, read_rows
from graphglow.experiments.cells import EXPERIMENTS
from graphglow.experiments.paper import GRAPHS
from graphglow.experiments.plan import ReproduceConfig
from graphglow.report.comparison import ALONE, LEFT_OUT, Cell, compare
from graphglow.report.result_rows import row_of

NOTHING = "-"
SEEDS = ReproduceConfig.seeds
"""Runs of a whole cell."""
LONGEST_REASON = 200
DAGGER = "&dagger;"
"""Marks a figure of the backbone alone."""
DOUBLE_DAGGER = "&Dagger;"
SECTION = "&sect;"
"""Marks a cell of which runs are left out."""
TITLES = {
    "cornell5": "Cornell5",
    "johnshopkins55": "JohnsHopkins55",
    "amherst41": "Amherst41",
    "reed98": "Reed98",
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
}

Row = dict[str, Any]
Place = tuple[str, str]
"""Line and column."""
Where = Callable[[str], Place | None]
"""The place of a cell, by its key; None if it has none in this table."""


def rows_of(path: Path) -> list[Row]:
    """The last row of each cell and seed, but of cells with fewer sources than the paper's.

    Of each cell only those with the settings of its newest; each says how many runs had others.
    """
    rows = read_rows(path)
    places, left_out = of_newest_settings(rows)
    last = [rows[at] for at in places if " < " not in rows[at]["cell"]]
    return [{**row, "left_out": left_out[row["experiment"], row["cell"]]} for row in last]


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
    rows: dict[Place, list[Row]]
    cells: dict[Place, Cell]

    def failures(self, place: Place) -> list[str]:
        """Why runs of a cell have no accuracy."""
        found = [row for row in self.rows.get(place, ()) if row["test_accuracy"] is None]
        return [str(row.get("error") or "no test accuracy") for row in found]


def grid_of(experiment: str, rows: Iterable[Row], where: Where = by_target) -> Grid:
    """The cells of an experiment: those that are defined, in their order, then others with rows."""
    labels: dict[str, str] = {}
    columns: dict[str, None] = {}
    for cell in EXPERIMENTS[experiment]():
        place = where(cell.key)
        if place is not None:
            labels.setdefault(place[0], cell.label)
            columns.setdefault(place[1])
    found: dict[Place, list[Row]] = {}
    runs = []
    for row in rows:
        place = where(row["cell"]) if row["experiment"] == experiment else None
        run = row_of(row)
        if place is not None and run is not None:
            labels.setdefault(place[0], run.label)
            columns.setdefault(place[1])
            found.setdefault(place, []).append(row)
            named = replace(run, label=place[0], cell="/".join(place))
            runs.append(replace(named, left_out=row.get("left_out", 0)))
    table = compare(runs, lambda run: by_target(run.cell)[1])
    cells = {
        (line.name, column): cell
        for line in table.lines
        for column, cell in zip(table.columns, line.cells, strict=True)
        if cell is not None
    }
    return Grid(labels, tuple(columns), found, cells)


def of(rows: Sequence[Row], experiment: str) -> list[Row]:
    return [row for row in rows if row["experiment"] == experiment]


class Notes:
    """Footnotes of one table, each reason once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.alone = False
        """Whether a cell is marked as one of a backbone alone."""
        self.behind = False
        """Whether a cell is marked as made with earlier settings."""
        self.mixed = False
        """Whether a cell is marked as one of which runs are left out."""

    def mark(self, reason: str) -> str:
        text = " ".join(reason.split())
        if len(text) > LONGEST_REASON:
            text = f"{text[:LONGEST_REASON]}..."
        return f"[{self.numbers.setdefault(text, len(self.numbers) + 1)}]"

    def dagger(self, cell: Cell) -> str:
        """The mark of a cell whose learned graph is switched off; else nothing."""
        self.alone = self.alone or bool(cell.alone)
        return f" {DAGGER}" if cell.alone else ""

    def earlier(self) -> str:
        """The mark of a cell whose settings have changed since it was run."""
        self.behind = True
        return f" {DOUBLE_DAGGER}"

    def section(self, cell: Cell) -> str:
        """The mark of a cell of which runs with other settings are left out; else nothing."""
        self.mixed = self.mixed or bool(cell.left_out)
        return f" {SECTION}" if cell.left_out else ""

    def markdown(self) -> str:
        lines = [f"- {DAGGER} {ALONE}\n"] if self.alone else []
        lines += [f"- {DOUBLE_DAGGER} made before its settings were changed\n"] * self.behind
        lines += [f"- {SECTION} {LEFT_OUT}\n"] * self.mixed
        lines += [f"- [{number}] {text}\n" for text, number in self.numbers.items()]
        return "\n" + "".join(lines) if lines else ""


def score(grid: Grid, place: Place, notes: Notes, beside: str = "", *, bold: bool = True) -> str:
    """``84.1 +- 0.3``, and in brackets what is unusual about its runs, and what is ``beside``."""
    cell, failures = grid.cells.get(place), grid.failures(place)
    if cell is None:
        return NOTHING
    told = [beside] if beside else []
    if cell.mean is None:
        text = f"failed {notes.mark(failures[0])}"
    else:
        text = spread(cell.scores, percent)
        text = (f"**{text}**" if cell.best and bold else text) + notes.dagger(cell)
        if failures:
            told.insert(0, f"{len(failures)} failed {notes.mark(failures[0])}")
        if len(cell.scores) != SEEDS:
            told.insert(0, seeds(len(cell.scores)))
        if any(row.get("outdated") for row in grid.rows.get(place, ())):
            text += notes.earlier()
    text += notes.section(cell)
    return f"{text} ({'; '.join(told)})" if told else text


def with_paper(grid: Grid, place: Place, notes: Notes) -> str:
    """A score with the paper's figure beside it, where there is one."""
    cell = grid.cells.get(place)
    figure = None if cell is None else cell.paper
    return score(grid, place, notes, "" if figure is None else f"paper {percent(figure)}")


def scores(grid: Grid, *, first: str = "method") -> str:
    """Lines by columns."""
    notes = Notes()
    table = [
        [label, *(with_paper(grid, (line, column), notes) for column in grid.columns)]
        for line, label in grid.labels.items()
    ]
    titles = [TITLES.get(column, column) for column in grid.columns]
    return markdown([first, *titles], table) + notes.markdown()


# How things are written


def markdown(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; lines within it must be of the same length."""
    whole = [list(titles), ["---"] * len(titles), *map(list, lines)]
    return "".join(f"| {' | '.join(line)} |\n" for line in whole)


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


def seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def machine(row: Row) -> str:
    """Where a run was made."""
    made = (row.get("provenance") or {}).get("machine") or {}
    if row.get("device") == "cuda":
        return str(made.get("gpu") or "GPU")
    threads = row.get("threads")
    used = f"{threads} thread{'' if threads == 1 else 's'} of a " if threads else ""
    return f"{used}{made.get('cpu') or ''} CPU".replace("  ", " ")


def in_order(graphs: Iterable[str]) -> list[str]:
    """Graphs as the paper's tables have them, then others."""
    known = list(graphs)
    return [g for g in GRAPHS if g in known] + [g for g in dict.fromkeys(known) if g not in GRAPHS]
