"""Write the tables of docs/reproduction.md and README.md from the rows of ``graphglow reproduce``.

    python benchmarks/reproduction_tables.py            rewrite what stands between the markers
    python benchmarks/reproduction_tables.py --check    exit with 1 if that would change a page

Rows are those of results/reproduce.jsonl and results/search.jsonl; of several rows of one run or
study the last counts. results/settings.json says what was shared between two searches.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from graphglow.experiments.paper import GRAPHS
from graphglow.experiments.search.settings import read_settings
from graphglow.experiments.wording import counted
from graphglow.report.comparison import SIGNIFICANT, Cell, Versus, against
from graphglow.report.result_rows import origins, row_of
from marked_page import NO_ROWS, rewrite
from reproduction_cells import (
    NOTHING,
    SEEDS,
    TITLES,
    Grid,
    Notes,
    Row,
    columns,
    grid_of,
    markdown,
    of,
    percent,
    points,
    rows_of,
    score,
    scores,
    signed,
)
from reproduction_figures import ablation, degree, edges, homophily, sensitivity, time_table
from reproduction_searches import marked, search, searches

ROOT = Path(__file__).resolve().parents[1]
OURS = {
    "graphglow": "random-theta",
    "graphglow-on": "random-on",
    "graphglow-degree": "random-degree",
    "graphglow-backbone": "random-backbone",
}
"""Lines of Tables 1 and 2 that are judged, each with the same model never pre-trained."""
MAIN = {
    "graphglow": "GraphGLOW",
    "random-theta": "the same, learner never trained",
    "graphglow-on": "GraphGLOW, lambda < 1",
    "random-on": "the same, learner never trained",
    "graphglow-degree": "GraphGLOW, by degree",
    "random-degree": "the same, learner never trained",
    "graphglow-backbone": "GraphGLOW, best backbone",
    "random-backbone": "the same, learner never trained",
    "gcn": "GCN, tuned",
    "link": "LINK",
}
"""What the README shows of Table 2; the paper's own row comes last."""


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
        name = self.grid.labels[self.line]
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


def table(rows: Sequence[Row], experiment: str) -> str:
    """Methods by graphs, the paper's figures beside."""
    return scores(grid_of(experiment, rows)) if of(rows, experiment) else NO_ROWS


def verdicts(rows: Sequence[Row], experiment: str) -> str:
    """Of each of our lines that has rows: how often it is ahead, then each column."""
    grid = grid_of(experiment, rows)
    judged = [Verdict(grid, *pair) for pair in OURS.items() if has_rows(grid, pair[0])]
    return "\n".join(f"{one.sentence()}\n\n{one.table()}" for one in judged) or NO_ROWS


def has_rows(grid: Grid, line: str) -> bool:
    return any(place[0] == line for place in grid.rows)


def main_table(rows: Sequence[Row]) -> str:
    """The README's: a few lines of Table 2."""
    if not of(rows, "table2"):
        return "The paper's tables have no rows yet: `graphglow reproduce table2` makes them.\n"
    grid, notes = grid_of("table2", rows), Notes()
    lines = [
        [name, *(score(grid, (line, graph), notes) for graph in GRAPHS)]
        for line, name in MAIN.items()
    ]
    told = [grid.cells.get(("graphglow", graph)) for graph in GRAPHS]
    figures = [percent(c.paper) if c and c.paper is not None else NOTHING for c in told]
    lines.append(["GraphGLOW, as the paper reports it", *figures])
    titles = [TITLES[graph] for graph in GRAPHS]
    judged = [Verdict(grid, *pair) for pair in OURS.items() if has_rows(grid, pair[0])]
    said = "".join(f"- {one.sentence()}\n" for one in judged)
    return (
        "Table 2 of the paper, transfer across domains: test accuracy in %, mean and standard "
        f"deviation over {SEEDS} seeds, bold where it is the best of all methods that were run.\n\n"
        f"{markdown(['method', *titles], lines)}{notes.markdown()}\n"
        f"{said}- All methods, Table 1 and the figures made so far: "
        "[docs/reproduction.md](docs/reproduction.md).\n"
    )


def origin(rows: Sequence[Row]) -> str:
    """How many rows there are, where they come from, and which have fallen behind."""
    runs = [run for run in map(row_of, rows) if run is not None]
    if not runs:
        return NO_ROWS
    failed = sum(run.test_accuracy is None for run in runs)
    facts = [f"- {name}: {value}\n" for name, value in origins(runs).items()]
    behind = {(row["experiment"], row["cell"]) for row in rows if row["outdated"]}
    if behind:
        cells = counted(len(behind), "cell")
        facts.append(f"- made before their settings were changed: {cells}, marked\n")
    mixed = {(row["experiment"], row["cell"]) for row in rows if row["left_out"]}
    if mixed:
        cells = counted(len(mixed), "cell")
        facts.append(f"- without runs that had other settings: {cells}, marked\n")
    return f"{len(runs):,} rows, {failed:,} of them without a result.\n\n{''.join(facts)}"


def blocks(rows: Sequence[Row], found: Sequence[Row]) -> dict[str, dict[str, str]]:
    """By page: what stands between the markers, by name."""
    page = {
        "rows": origin(rows),
        "table1": table(rows, "table1"),
        "table2": table(rows, "table2"),
        "verdicts1": verdicts(rows, "table1"),
        "verdicts2": verdicts(rows, "table2"),
        "time": time_table(rows),
        "ablation": ablation(rows),
        "edges": edges(rows),
        "homophily": homophily(rows),
        "sensitivity": sensitivity(rows),
        "degree": degree(rows),
        "encoder": table(rows, "encoder"),
        "search": search(found),
    }
    return {"docs/reproduction.md": page, "README.md": {"main": main_table(rows)}}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a page is stale")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the two pages are")
    args = parser.parse_args(words)
    settings = read_settings(args.results / "settings.json")
    rows = marked(rows_of(args.results / "reproduce.jsonl"), settings)
    pages = blocks(rows, searches(args.results / "search.jsonl"))
    return max([rewrite(args.root / name, made, check=args.check) for name, made in pages.items()])


if __name__ == "__main__":
    sys.exit(main())
