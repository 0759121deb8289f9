"""Methods against targets: means over seeds, the paper's figures beside, and who is ahead."""

import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from graphglow.report.result_rows import OURS, ResultRow

SIGNIFICANT = 0.05
NAMED_CONTROLS = ("gcn", "random-theta")
"""What our method must beat to be worth its while: the same GNN without a learned graph, and the
same model whose structure learner was never trained."""


class Versus(NamedTuple):
    """Ours against the best control in the same column, by Welch's t-test.

    ``p`` is None where there is nothing to test: a single run, or runs without any spread.
    """

    control: str
    difference: float
    p: float | None

    @property
    def verdict(self) -> str:
        """``higher`` or ``lower`` where the test says so, else nothing."""
        if self.p is None or self.p >= SIGNIFICANT:
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
    def tested(self) -> bool:
        return any(
            c is not None and c.versus is not None for line in self.lines for c in line.cells
        )


def compare(rows: Sequence[ResultRow], column: Callable[[ResultRow], str]) -> Comparison:
    """Group rows into lines and columns, in the order in which they came."""
    names = line_names(rows, column)
    columns = tuple(dict.fromkeys(map(column, rows)))
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
    seconds = [row.train_seconds for row in rows if row.train_seconds is not None]
    papers = [(row.paper, row.paper_std) for row in rows if row.paper is not None]
    paper, paper_std = papers[-1] if papers else (None, None)
    return Cell(
        scores=tuple(row.test_accuracy for row in rows if row.test_accuracy is not None),
        runs=len(rows),
        seconds=statistics.mean(seconds) if seconds else None,
        paper=paper,
        paper_std=paper_std,
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
                    difference = mean - control[0]
                    p = welch(cell.scores, control[2].scores)
                    cell = replace(cell, versus=Versus(control[1], difference, p))
            into.append(cell)
    return [replace(line, cells=tuple(cells)) for line, cells in zip(lines, judged, strict=True)]


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


def verdicts(table: Comparison) -> list[str]:
    """Say of each of our lines how it fares against the best control, and against the paper."""
    sentences = []
    for line in table.lines:
        cells = [cell for cell in line.cells if cell is not None and cell.mean is not None]
        tests = [cell.versus for cell in cells if cell.versus is not None]
        if line.ours and tests:
            said = [versus.verdict for versus in tests]
            sentences.append(
                f"{line.name} has the highest mean on {sum(c.best for c in cells)} of "
                f"{_targets(len(cells))}. Against the best control of each it is significantly "
                f"higher on {said.count('higher')} and lower on {said.count('lower')}."
            )
        apart = [cell.from_paper for cell in cells if cell.from_paper is not None]
        if line.ours and apart:
            sentences.append(
                f"{line.name} is {abs(100 * statistics.mean(apart)):.1f} points "
                f"{'above' if statistics.mean(apart) >= 0 else 'below'} the paper's figures on "
                f"average over {_targets(len(apart))}."
            )
    return sentences


class Verdicts(NamedTuple):
    """Our method against named controls, column by column."""

    ours: str
    controls: list[str]
    rows: list[tuple[str, list[Versus | None]]]
    """By column; None where one of the two has no score."""


def verdict_table(table: Comparison) -> Verdicts | None:
    """How our method fares against each of ``NAMED_CONTROLS`` that has one line in the table."""
    ours = next((line for method in OURS if (line := _only(table, method))), None)
    controls = [line for method in NAMED_CONTROLS if (line := _only(table, method))]
    if ours is None or not controls:
        return None
    rows = [
        (column, [_against(ours.cells[number], control, number) for control in controls])
        for number, column in enumerate(table.columns)
    ]
    return Verdicts(ours.name, [line.name for line in controls], rows)


def _only(table: Comparison, method: str) -> Line | None:
    """The line of a method; of several, the one that goes by its name, or none."""
    lines = [line for line in table.lines if line.method == method]
    named = [line for line in lines if line.name.lower() in (method, method.replace("-star", "*"))]
    return next(iter(lines if len(lines) == 1 else named), None)


def _against(cell: Cell | None, control: Line, number: int) -> Versus | None:
    other = control.cells[number]
    if cell is None or other is None or cell.mean is None or other.mean is None:
        return None
    return Versus(control.name, cell.mean - other.mean, welch(cell.scores, other.scores))


def _targets(count: int) -> str:
    return f"{count} target{'' if count == 1 else 's'}"
