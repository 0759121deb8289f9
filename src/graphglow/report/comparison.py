"""Methods against targets: means over seeds, the paper's figures beside, and who is ahead."""

import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from graphglow.experiments.paper import GRAPHS
from graphglow.report.result_rows import OURS, ResultRow

SIGNIFICANT = 0.05
ALONE = (
    "lambda = 1 won on validation, here or where the settings come from: the learned graph is "
    "switched off, and the figure is that of the backbone alone"
)
"""What a mark at a cell says: see :attr:`ResultRow.alone`."""
LEFT_OUT = "runs of this cell with other settings than its newest are left out"
"""What another mark says: see :attr:`ResultRow.left_out`."""


class Versus(NamedTuple):
    """Ours against a control in the same column, by Welch's t-test.

    ``p`` is None where there is nothing to test: a single run, or runs without any spread.
    """

    control: str
    difference: float
    p: float | None
    both_alone: bool = False
    """Whether both are the same backbone alone: then no learned graph can tell them apart."""

    @property
    def verdict(self) -> str:
        """``higher`` or ``lower`` where the test says so, else nothing."""
        if self.both_alone or self.p is None or self.p >= SIGNIFICANT:
            return ""
        return "higher" if self.difference > 0 else "lower"


@dataclass(frozen=True)
class Cell:
    """The runs of one method on one target."""

    scores: tuple[float, ...]
    runs: int
    seconds: float | None
    paper: float | None
    paper_std: float | None
    alone: str = ""
    """The backbone, if in all runs it is alone, with the learned graph switched off."""
    left_out: int = 0
    """Runs that had other settings than the newest."""
    best: bool = False
    versus: Versus | None = None

    @property
    def mean(self) -> float | None:
        """Rounded, so that equal counts are a tie whatever their float type."""
        return round(statistics.mean(self.scores), 6) if self.scores else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def from_paper(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class Line:
    """One method: a row of the table, a series of a chart."""

    name: str
    method: str
    sources: tuple[str, ...]
    cells: tuple[Cell | None, ...]

    @property
    def ours(self) -> bool:
        return self.method in OURS


@dataclass(frozen=True)
class Comparison:
    """A table of lines by columns."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def has_paper(self) -> bool:
        return any(c is not None and c.paper is not None for line in self.lines for c in line.cells)

    @property
    def has_alone(self) -> bool:
        return any(c is not None and c.alone for line in self.lines for c in line.cells)

    @property
    def has_left_out(self) -> bool:
        return any(c is not None and c.left_out for line in self.lines for c in line.cells)

    @property
    def tested(self) -> bool:
        return any(
            c is not None and c.versus is not None for line in self.lines for c in line.cells
        )


def compare(rows: Sequence[ResultRow], column: Callable[[ResultRow], str]) -> Comparison:
    """Group rows into lines, in the order in which they came, and columns, the paper's first."""
    names = line_names(rows, column)
    place = {row.target: GRAPHS.index(row.target) for row in rows if row.target in GRAPHS}
    found_in = {column(row): place.get(row.target, len(GRAPHS)) for row in reversed(rows)}
    columns = tuple(sorted(dict.fromkeys(map(column, rows)), key=found_in.__getitem__))
    grouped: dict[str, dict[str, list[ResultRow]]] = {}
    for row in rows:
        grouped.setdefault(names[row.cell], {}).setdefault(column(row), []).append(row)
    lines = []
    for name, found in grouped.items():
        every = [row for group in found.values() for row in group]
        sources = {row.sources for row in every}
        lines.append(
            Line(
                name,
                method=every[0].method,
                sources=sources.pop() if len(sources) == 1 else (),
                cells=tuple(_cell(found[c]) if c in found else None for c in columns),
            )
        )
    return Comparison(columns, tuple(_judged(lines)))


def line_names(
    rows: Sequence[ResultRow], column: Callable[[ResultRow], Hashable]
) -> dict[str, str]:
    """The name of each cell's line: its label; with sources, else its key, if labels clash."""
    namings: list[Callable[[ResultRow], str]] = [
        lambda row: row.label,
        lambda row: f"{row.label} from {' + '.join(row.sources)}" if row.sources else row.label,
        lambda row: f"{row.label} [{row.cell}]",
    ]
    names: dict[str, str] = {}
    left = list(rows)
    for naming in namings:
        cells: dict[Hashable, set[str]] = {}
        for row in left:
            cells.setdefault((naming(row), column(row)), set()).add(row.cell)
        clashing = {key[0] for key, found in cells.items() if len(found) > 1}  # type: ignore[index]
        names |= {row.cell: naming(row) for row in left if naming(row) not in clashing}
        left = [row for row in left if naming(row) in clashing]
    return names


def target_column(rows: Sequence[ResultRow]) -> Callable[[ResultRow], str]:
    """Columns by target, with the split where a target comes with several."""
    splits: dict[str, set[str]] = {}
    for row in rows:
        splits.setdefault(row.target, set()).add(row.split)

    def column(row: ResultRow) -> str:
        return row.target if len(splits[row.target]) == 1 else f"{row.target} ({row.split})"

    return column


def _cell(rows: list[ResultRow]) -> Cell:
    seconds = [row.seconds for row in rows if row.seconds is not None]
    alone = {row.alone for row in rows}
    papers = [(row.paper, row.paper_std) for row in rows if row.paper is not None]
    paper, paper_std = papers[-1] if papers else (None, None)
    return Cell(
        scores=tuple(row.test_accuracy for row in rows if row.test_accuracy is not None),
        runs=len(rows),
        seconds=statistics.mean(seconds) if seconds else None,
        paper=paper,
        paper_std=paper_std,
        alone=alone.pop() if len(alone) == 1 else "",
        left_out=max(row.left_out for row in rows),
    )


def _judged(lines: list[Line]) -> list[Line]:
    """Mark the best mean of each column, and test ours against its best control."""
    columns = list(zip(*(line.cells for line in lines), strict=True))
    judged: list[list[Cell | None]] = [[] for _ in lines]
    for cells in columns:
        means = [cell.mean if cell is not None else None for cell in cells]
        known = [mean for mean in means if mean is not None]
        best = max(known) if len(known) > 1 else None  # alone nobody is best
        controls = [
            (mean, line.name, cell)
            for line, cell, mean in zip(lines, cells, means, strict=True)
            if cell is not None and mean is not None and not line.ours
        ]
        control = max(controls, key=lambda found: found[0], default=None)
        for line, cell, mean, into in zip(lines, cells, means, judged, strict=True):
            if cell is not None and mean is not None:
                cell = replace(cell, best=mean == best)
                if line.ours and control is not None:
                    cell = replace(cell, versus=against(cell, *control[1:]))
            into.append(cell)
    return [replace(line, cells=tuple(cells)) for line, cells in zip(lines, judged, strict=True)]


def against(ours: Cell | None, control: str, other: Cell | None) -> Versus | None:
    """One cell against that of a control; None where one of the two has no score."""
    if ours is None or other is None or ours.mean is None or other.mean is None:
        return None
    both_alone = bool(ours.alone) and ours.alone == other.alone
    p = welch(ours.scores, other.scores)
    return Versus(control, ours.mean - other.mean, p, both_alone)


def welch(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Two-sided p of Welch's t-test for a difference in means; None where it is not defined."""
    if min(len(one), len(other)) < 2:
        return None
    spreads = statistics.stdev(one), statistics.stdev(other)
    if max(spreads) < 1e-9:  # the same count of right nodes in every run
        return None
    from scipy.stats import ttest_ind_from_stats

    test = ttest_ind_from_stats(
        *(statistics.mean(one), spreads[0], len(one)),
        *(statistics.mean(other), spreads[1], len(other)),
        equal_var=False,
    )
    return float(test.pvalue)
