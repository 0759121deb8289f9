"""Write the tables of docs/reproduction.md and README.md from the rows of ``graphglow reproduce``.

    python benchmarks/reproduction_tables.py            rewrite what stands between the markers
    python benchmarks/reproduction_tables.py --check    exit with 1 if that would change a page

Rows are those of results/reproduce and results/search.jsonl; of several rows of one run or study
the last counts. results/settings.json says what was shared between two searches.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from graphglow.lab.paper import GRAPHS
from graphglow.lab.runs.reproduce import found_rows, with_outdated
from graphglow.lab.runs.rows import (
    ResultRow,
    counted,
    origins,
    without_repeats,
)
from graphglow.lab.settings import Settings, read_settings
from graphglow.report.comparison import JUDGED as REPORTED
from graphglow.report.comparison import SIGNIFICANT, Cell, Versus, against
from marked_page import NO_ROWS, ROOT, markdown, rewrite
from reproduction_cells import (
    NOTHING,
    SEEDS,
    TITLES,
    Grid,
    Notes,
    Shown,
    columns,
    grid_of,
    percent,
    points,
    score,
    scores,
    signed,
)
from reproduction_figures import (
    ablation,
    edges,
    homophily,
    search,
    searches,
    sensitivity,
    time_table,
)

JUDGED = {line: control for line, (_, control) in REPORTED.items() if line != "graphglow-star"}
"""Lines of Tables 1 and 2 that are judged, each with the same model never pre-trained."""
MAIN = {
    "evidence-universal": "**evidence learner** (`universal`)",
    "evidence-untrained": "the same, never trained",
    "evidence": "the same, sources as in the paper",
    "graphglow": "GraphGLOW, ours",
    "random-theta": "the same, never trained",
    "gcn": "GCN, tuned",
}
"""What the README shows of Table 2, as far as there are rows; the paper's own comes last."""


class Verdict:
    """One line against the paper, tuned GCN and a learner that was never trained."""

    def __init__(self, grid: Grid, line: str, control: str) -> None:
        self.grid, self.line, self.control = grid, line, control
        self.from_paper: dict[str, tuple[float, float | None]] = {}
        """By graph: the difference, and that in standard errors."""
        self.versus: dict[str, dict[str, Versus]] = {"gcn": {}, control: {}}
        for graph in grid.columns:
            ours = grid.cells.get((line, graph))
            if ours is None or ours.mean is None:
                continue
            reported = self._reported(graph)
            if reported is not None and reported.paper is not None:
                difference = ours.mean - reported.paper
                error = standard_error(ours, reported.paper_std)
                self.from_paper[graph] = difference, difference / error if error else None
            for other, found in self.versus.items():
                versus = against(ours, other, grid.cells.get((other, graph)))
                if versus is not None:
                    found[graph] = versus

    def _reported(self, graph: str) -> Cell | None:
        """The cell with the paper's figure: the line's own, else that of GraphGLOW."""
        own = self.grid.cells.get((self.line, graph))
        has_one = own is not None and own.paper is not None
        return own if has_one else self.grid.cells.get(("graphglow", graph))

    def sentence(self) -> str:
        """How often it is ahead."""
        label = self.grid.labels[self.line]
        name = label[:1].upper() + label[1:]
        shown = [points(difference) for difference, _ in self.from_paper.values()]
        below = [
            -error
            for difference, error in self.from_paper.values()
            if points(difference) < 0 and error is not None
        ]
        parts = []
        if shown:
            at = sum(difference >= 0 for difference in shown)
            parts.append(
                f"is at or above the paper in {at} of {columns(len(shown))} "
                f"(below it by at most one standard error in {sum(e <= 1 for e in below)}, "
                f"by more than two in {sum(e > 2 for e in below)})"
            )
        for other, found in self.versus.items():
            if found:
                compared = [versus for versus in found.values() if not versus.both_alone]
                ahead = sum(points(versus.difference) > 0 for versus in compared)
                said = [versus.verdict for versus in compared]
                level = len(found) - len(compared)
                parts.append(
                    f"is above {self._named(other)} in {ahead} of {columns(len(found))} "
                    f"(significantly in {said.count('higher')}, significantly below in "
                    f"{said.count('lower')}"
                    + (f", level in {level} where both are the backbone alone)" if level else ")")
                )
        alone = [
            bool(cell.alone) for place, cell in self.grid.cells.items() if place[0] == self.line
        ]
        off = f" In {sum(alone)} of {columns(len(alone))} its learned graph is switched off."
        told = "; ".join(parts) or "has nothing to be compared with yet"
        return f"{name} {told}.{off if any(alone) else ''}"

    def table(self) -> str:
        lines, notes = [], Notes()
        for graph in self.grid.columns:
            others = [_tested(found.get(graph)) for found in self.versus.values()]
            ours = score(self.grid, (self.line, graph), notes, bold=False)
            lines.append([TITLES.get(graph, graph), ours, self._against_paper(graph), *others])
        against = [f"against {self._named(other)}" for other in self.versus]
        titles = ["target", "test %", "against the paper", *against]
        return markdown(titles, lines) + notes.markdown()

    def _against_paper(self, graph: str) -> str:
        if graph not in self.from_paper:
            return NOTHING
        difference, errors = self.from_paper[graph]
        return signed(difference) + (f" ({errors:+.1f} SE)" if errors is not None else "")

    def _named(self, line: str) -> str:
        return "tuned GCN" if line == "gcn" else self.grid.labels.get(line, line)


def standard_error(ours: Cell, paper_std: float | None) -> float | None:
    """Of the difference of two means; the paper's counts as one of as many runs as ours."""
    if ours.std is None:
        return None
    return math.hypot(ours.std, paper_std or 0.0) / math.sqrt(len(ours.scores))


def _tested(versus: Versus | None) -> str:
    if versus is None:
        return NOTHING
    if versus.both_alone:
        return "level: both have switched the learned graph off"
    if versus.p is None:
        return f"{signed(versus.difference)} (no test)"
    p = "p < 0.001" if versus.p < 0.001 else f"p = {versus.p:.2g}"
    text = f"{signed(versus.difference)} ({p})"
    return f"**{text}**" if versus.p < SIGNIFICANT else text


def table(shown: Shown, experiment: str) -> str:
    """Methods by graphs, the paper's figures beside."""
    return scores(grid_of(experiment, shown))


def verdicts(shown: Shown, experiment: str) -> str:
    """Of each of our lines that has rows: how often it is ahead, then each column."""
    grid = grid_of(experiment, shown)
    judged = [Verdict(grid, *pair) for pair in JUDGED.items() if has_rows(grid, pair[0])]
    return "\n".join(f"{one.sentence()}\n\n{one.table()}" for one in judged) or NO_ROWS


def has_rows(grid: Grid, line: str) -> bool:
    return any(place[0] == line for place in grid.rows)


README_NOTE = "\n&dagger; the learned graph is switched off by validation: the GNN alone.\n"


def main_table(shown: Shown) -> str:
    """The README's: a few lines of Table 2."""
    if not shown.of("table2"):
        return "The paper's tables have no rows yet: `graphglow reproduce table2` makes them.\n"
    grid, notes = grid_of("table2", shown), Notes()
    lines = [
        [name, *(score(grid, (line, graph), notes) for graph in GRAPHS)]
        for line, name in MAIN.items()
        if has_rows(grid, line)
    ]
    told = [grid.cells.get(("graphglow", graph)) for graph in GRAPHS]
    figures = [percent(c.paper) if c and c.paper is not None else NOTHING for c in told]
    lines.append(["GraphGLOW, as the paper reports it", *figures])
    titles = [TITLES[graph] for graph in GRAPHS]
    return (
        f"Table 2 of the paper: test accuracy in %, mean and deviation over {SEEDS} seeds; "
        "bold: the best of all.\n\n"
        f"{markdown(['method', *titles], lines)}"
        f"{README_NOTE if notes.markdown() else ''}"
    )


def origin(shown: Shown) -> str:
    """How many rows there are, where they come from, and which have fallen behind."""
    if not shown.rows:
        return NO_ROWS
    failed = sum(row.test_accuracy is None for row in shown.rows)
    facts = [f"- {name}: {value}\n" for name, value in origins(list(shown.rows)).items()]
    if outdated := {row.slot[:2] for row in shown.rows if row.outdated}:
        cells = counted(len(outdated), "cell")
        facts.append(f"- made before their settings or learners were changed: {cells}, marked\n")
    mixed = {row.slot[:2] for row in shown.rows if row.left_out}
    if mixed:
        cells = counted(len(mixed), "cell")
        facts.append(f"- without runs that had other settings: {cells}, marked\n")
    return f"{len(shown.rows):,} rows, {failed:,} of them without a result.\n\n{''.join(facts)}"


def shown_of(rows: Sequence[ResultRow], settings: Settings) -> Shown:
    """Rows of the paper's cells, not of those with fewer sources."""
    mine = [row for row in without_repeats(rows)[0] if " < " not in row.cell]
    return Shown(with_outdated(mine, settings))


def blocks(shown: Shown, results: Path) -> dict[str, dict[str, str]]:
    """By page: what stands between the markers, by name."""
    figures = {
        "table1": lambda: table(shown, "table1"),
        "table2": lambda: table(shown, "table2"),
        "time": lambda: time_table(shown),
        "ablation": lambda: ablation(shown),
        "edges": lambda: edges(shown),
        "homophily": lambda: homophily(shown),
        "sensitivity": lambda: sensitivity(shown),
        "encoder": lambda: table(shown, "encoder"),
    }
    page = {name: make() if shown.of(name) else NO_ROWS for name, make in figures.items()}
    page |= {"rows": origin(shown), "search": search(searches(results / "search.jsonl"))}
    page |= {"verdicts1": verdicts(shown, "table1"), "verdicts2": verdicts(shown, "table2")}
    return {"docs/reproduction.md": page, "README.md": {"main": main_table(shown)}}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a page is stale")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the two pages are")
    args = parser.parse_args(words)
    settings = read_settings(args.results / "settings.json")
    files = found_rows(args.results / "reproduce")
    shown = shown_of([row for file in files for row in file.rows], settings)
    pages = blocks(shown, args.results)
    return max([rewrite(args.root / name, made, check=args.check) for name, made in pages.items()])


if __name__ == "__main__":
    sys.exit(main())
