"""Methods against targets: means over seeds, the paper's figures beside, and who is ahead."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphglow.lab.paper import GRAPHS, NAMES, OURS, OWN_LINES
from graphglow.lab.runs.rows import ResultRow

SIGNIFICANT = 0.05
ALONE = (
    "lambda = 1 won on validation, here or where the settings come from: the learned graph is "
    "switched off, and the figure is that of the backbone alone"
)
"""What a mark at a cell says: see :attr:`ResultRow.alone`."""
LEFT_OUT = "runs of this cell with other settings than its newest are left out"
"""What another mark says: see :attr:`ResultRow.left_out`."""
OUTDATED = "made before its settings or its learner were changed"
"""What the last mark says: see :attr:`ResultRow.outdated`."""
JUDGED = {
    "graphglow": ("gcn", "random-theta"),
    "graphglow-on": ("gcn", "random-on"),
    "graphglow-backbone": ("gcn", "random-backbone"),
    "evidence": ("gcn", "evidence-untrained"),
    "evidence-universal": ("gcn", "evidence-untrained"),
    "graphglow-star": ("gcn", "random-theta"),
}
"""Lines of ours, and what each must beat to be worth its while: the same GNN without a learned
graph, and the same model whose structure learner was never trained. The last is judged only where
none of the others is."""

Rows = list[ResultRow]


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


@dataclass
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
    outdated: bool = False
    best: bool = False
    versus: Versus | None = None
    """Of ours: against the best of all others in its column."""

    @property
    def mean(self) -> float | None:
        """Rounded, so that equal counts are a tie whatever their float type."""
        return float(f"{statistics.mean(self.scores):.6g}") if self.scores else None

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

    @property
    def scored(self) -> list[Cell]:
        """The cells that have a score."""
        return [cell for cell in self.cells if cell is not None and cell.scores]

    @property
    def from_paper(self) -> float | None:
        """The mean difference to the paper's figures."""
        apart = [cell.from_paper for cell in self.scored if cell.from_paper is not None]
        return statistics.mean(apart) if apart else None


@dataclass(frozen=True)
class Comparison:
    """A table of lines by columns: targets, or the values of what is swept."""

    columns: tuple[Any, ...]
    lines: tuple[Line, ...]

    @property
    def cells(self) -> list[Cell]:
        return [cell for line in self.lines for cell in line.cells if cell is not None]

    def scored(self, at: int) -> list[tuple[Line, Cell]]:
        """The lines that have a score in a column."""
        return [(line, c) for line in self.lines if (c := line.cells[at]) is not None and c.scores]


def compare(
    rows: Sequence[ResultRow],
    column: Callable[[ResultRow], Any],
    line: Callable[[ResultRow], str] | None = None,
) -> Comparison:
    """Group rows into lines, in the order in which they came, and columns, the paper's first.

    What is compared is ``test_accuracy``; without ``line``, lines go by :func:`line_names`.
    """
    if line is None:
        names = line_names(rows, column)
        return compare(rows, column, lambda row: names[row.cell])
    place = {target: at for at, target in enumerate(GRAPHS)}
    found_in = {column(row): place.get(row.target, len(GRAPHS)) for row in reversed(rows)}
    columns = tuple(sorted(dict.fromkeys(map(column, rows)), key=found_in.__getitem__))
    lines = []
    for name, every in grouped(rows, line).items():
        found = grouped(every, column)
        sources = {row.sources for row in every}
        shared = sources.pop() if len(sources) == 1 else ()
        cells = tuple(_cell(found[c]) if c in found else None for c in columns)
        lines.append(Line(name, every[0].method, shared, cells))
    table = Comparison(columns, tuple(lines))
    for at in range(len(columns)):
        _judge(table.scored(at))
    return table


def grouped(rows: Iterable[ResultRow], key: Callable[[ResultRow], Any]) -> dict[Any, Rows]:
    """Rows by key, both in the order in which they came."""
    found: dict[Any, Rows] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def line_names(rows: Iterable[ResultRow], column: Callable[[ResultRow], Any]) -> dict[str, str]:
    """The name of each cell's line: its label; with sources, else its key, if labels clash."""
    namings: list[Callable[[ResultRow], str]] = [
        lambda row: row.label,
        lambda row: f"{row.label} from {' + '.join(row.sources)}" if row.sources else row.label,
        lambda row: f"{row.label} [{row.cell}]",
    ]
    names: dict[str, str] = {}
    left = list(rows)
    for naming in namings:
        cells: dict[tuple[str, Any], set[str]] = {}
        for row in left:
            cells.setdefault((naming(row), column(row)), set()).add(row.cell)
        clashing = {name for (name, _), found in cells.items() if len(found) > 1}
        names |= {row.cell: naming(row) for row in left if naming(row) not in clashing}
        left = [row for row in left if naming(row) in clashing]
    return names


def target_column(rows: Iterable[ResultRow]) -> Callable[[ResultRow], str]:
    """Columns by target, with the split where a target comes with several."""
    splits = Counter(target for target, _ in {(row.target, row.split) for row in rows})
    return lambda r: r.target if splits[r.target] == 1 else f"{r.target} ({r.split})"


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
        outdated=any(row.outdated for row in rows),
    )


def _judge(column: Sequence[tuple[Line, Cell]]) -> None:
    """Mark the best mean of a column, and test ours against the best control."""
    best = max((cell.mean or 0.0 for _, cell in column), default=None)
    controls = [(cell.mean or 0.0, line.name, cell) for line, cell in column if not line.ours]
    for line, cell in column:
        cell.best = len(column) > 1 and cell.mean == best
        if line.ours and controls:
            _, name, control = max(controls, key=lambda one: one[0])
            cell.versus = against(cell, name, control)


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
    facts = [(statistics.mean(of), statistics.stdev(of), len(of)) for of in (one, other)]
    if max(spread for _, spread, _ in facts) < 1e-9:  # the same count of right nodes in every run
        return None
    from scipy.stats import ttest_ind_from_stats

    return float(ttest_ind_from_stats(*facts[0], *facts[1], equal_var=False).pvalue)


def judged(table: Comparison) -> list[tuple[Line, list[Line]]]:
    """Each of ``JUDGED`` that is in the table, with those of its controls that are."""
    labels = NAMES | {key: label for key, (_, label) in OWN_LINES.items()}
    by_name = {line.name.lower(): line for line in table.lines}
    lines = {key: by_name.get(label.lower()) or by_name.get(key) for key, label in labels.items()}
    found: list[tuple[Line, list[Line]]] = []
    for key, controls in JUDGED.items():
        ours, others = lines[key], [line for name in controls if (line := lines[name])]
        if ours is not None and others and not (key == "graphglow-star" and found):
            found.append((ours, others))
    return found
