"""The paper's tables and figures as Markdown, from rows: means over seeds, the paper's beside."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphglow.lab import paper_tables as paper
from graphglow.lab.config import RunsConfig, Tuned
from graphglow.lab.paper_tables import EXPERIMENTS, GRAPH_NAMES, Cell
from graphglow.lab.row_files import Row, newest
from graphglow.lab.runs import run_of

SEEDS = 5
"""Another number of runs of a cell is said beside its mean."""
NO_ROWS = "No rows yet.\n"
ALONE = (
    "&dagger; the tuned lambda is 1: the learned graph is switched off, and the figure is that of "
    "the backbone alone"
)
OUTDATED = "&Dagger; made with other settings, or another learner, than today's"
MEASURES = {
    "homophily": "homophily (Lim et al.)",
    "edge_homophily": "share of weight within classes",
    "neighbourhood_variance": "variance of neighbourhoods",
}
SWEPT = {"lambda": "lambda, the weight of the input graph", "pivots": "P, the number of pivots"}


def markdown(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    whole = [titles, ["---"] * len(titles), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in whole)


def spread(values: Sequence[float], digits: int = 1, unit: float = 100) -> str:
    """Return mean and sample standard deviation; of a single value itself."""
    mean = f"{unit * statistics.mean(values):.{digits}f}"
    many = len(values) > 1
    return f"{mean} +- {unit * statistics.stdev(values):.{digits}f}" if many else mean


class CellScore:
    """The rows of one cell: accuracies, and what is unusual about them."""

    def __init__(self, cell: Cell, rows: list[Row], setup: str) -> None:
        self.cell, self.rows = cell, rows
        self.values = [r["test_accuracy"] for r in rows if r.get("test_accuracy") is not None]
        self.mean = float(f"{statistics.mean(self.values):.6g}") if self.values else None
        ours = cell.method == "random-theta" or cell.method.startswith("graphglow")
        self.alone = ours and {row["config"].get("input_weight") for row in rows} == {1}
        self.outdated = rows[-1]["setup"] != setup

    def text(self, beside: str = "", *, best: bool = False) -> str:
        """Return ``84.1 +- 0.3`` with its marks, and notes in brackets."""
        if self.mean is None:
            return f"failed: {self.rows[-1].get('error', 'no accuracy'):.80}"
        count, failed = len(self.values), len(self.rows) - len(self.values)
        notes = [f"{count} seed{'s' * (count > 1)}"] if count != SEEDS else []
        notes += ([f"{failed} failed"] if failed else []) + ([beside] if beside else [])
        score = f"**{spread(self.values)}**" if best else spread(self.values)
        score += " &dagger;" * self.alone + " &Dagger;" * self.outdated
        return f"{score} ({'; '.join(notes)})" if notes else score


def cell_scores(name: str, rows: Iterable[Row], tuned: Tuned) -> list[CellScore]:
    """Return the scores of the cells of an experiment that have rows."""
    found: dict[str, list[Row]] = {}
    for row in newest(row for row in rows if row["experiment"] == name):
        found.setdefault(row["cell"], []).append(row)
    cells = [cell for cell in EXPERIMENTS[name]() if cell.key in found]
    today = RunsConfig()
    return [CellScore(c, found[c.key], run_of(c, 0, tuned, today).setup) for c in cells]


def tables_of(name: str, rows: Iterable[Row], tuned: Tuned) -> str:
    """Return the tables of an experiment as Markdown."""
    scores = cell_scores(name, rows, tuned)
    if not scores:
        return NO_ROWS
    table = TABLE_WRITERS.get(name, _methods)(scores)
    notes = [ALONE] * any(s.alone for s in scores) + [OUTDATED] * any(s.outdated for s in scores)
    return table + "".join(f"\n- {sentence}" for sentence in notes) + "\n" * bool(notes)


def _grid(
    first: str,
    scores: Sequence[CellScore],
    line: Callable[[Cell], str] = lambda cell: cell.label,
    column: Callable[[Cell], str] = lambda cell: GRAPH_NAMES.get(cell.target, cell.target),
    beside: Callable[[CellScore], str] = lambda score: "",
) -> str:
    """Return a table of lines by columns, the best mean of a column in bold."""
    at = {(line(score.cell), column(score.cell)): score for score in scores}
    order = list(GRAPH_NAMES.values())
    lines, columns = dict.fromkeys(key[0] for key in at), list(dict.fromkeys(key[1] for key in at))
    columns.sort(key=lambda name: order.index(name) if name in order else 0)
    best = {name: max(s.mean or 0 for key, s in at.items() if key[1] == name) for name in columns}

    def text(name: str, score: CellScore | None) -> str:
        if score is None:
            return "-"
        return score.text(beside(score), best=len(lines) > 1 and score.mean == best[name])

    body = [[label, *(text(name, at.get((label, name))) for name in columns)] for label in lines]
    return markdown([first, *columns], body)


def _methods(scores: list[CellScore]) -> str:
    """Write accuracy by method and graph, beside the paper's figure."""

    def printed(score: CellScore) -> str:
        figure = score.cell.paper
        return "" if figure is None else f"paper {100 * figure[0]:.1f}"

    return _grid("method", scores, beside=printed)


def _ablation(scores: list[CellScore]) -> str:
    """Write accuracy, and points more or less than the whole method."""
    whole = {score.cell.target: score.mean for score in scores if score.cell.line == "full"}

    def lost(score: CellScore) -> str:
        line, target = score.cell.line, score.cell.target
        mean = whole.get(target)
        if line == "full" or mean is None or score.mean is None:
            return ""
        text = f"{100 * score.mean - 100 * mean:+.1f}"
        if line == "no-iteration" and target in paper.LOST_WITHOUT_ITERATION:
            text += f"; paper {-100 * paper.LOST_WITHOUT_ITERATION[target]:+.1f}"
        return text

    return _grid("variant", scores, beside=lost)


def _edges(scores: list[CellScore]) -> str:
    parts = []
    for graph in paper.DAMAGED_GRAPHS:
        for kind, what in paper.DAMAGES.items():
            own = [s for s in scores if (s.cell.target, s.cell.series) == (graph, kind)]
            title = f"{GRAPH_NAMES[graph]}, {what}"
            name = lambda cell: paper.METHOD_NAMES[cell.method]  # noqa: E731
            parts.append(_grid(title, own, name, lambda cell: f"{cell.x:.0%}"))
    return "\n".join(parts)


def _sensitivity(scores: list[CellScore]) -> str:
    return "\n".join(
        _grid(title, [s for s in scores if s.cell.series == name], lambda cell: f"{cell.x:g}")
        for name, title in SWEPT.items()
    )


def _time(scores: list[CellScore]) -> str:
    """Accuracy; beside it seconds of training, and how many times as long as GraphGLOW they are."""
    taken: dict[tuple[str, str], list[float]] = {}
    for score in scores:
        timed = [row for row in score.rows if row.get("timed") and row.get("train_seconds")]
        taken[score.cell.method, score.cell.target] = [row["train_seconds"] for row in timed]

    def seconds(score: CellScore) -> str:
        method, graph = score.cell.method, score.cell.target
        spent, ours = taken[method, graph], taken.get(("graphglow", graph))
        if not spent:
            return ""
        text = f"{spread(spent, 2, 1)} s"
        if ours and method != "graphglow":
            text += f", {statistics.mean(spent) / statistics.mean(ours):.2g}x"
        figure = paper.TIMES_FASTER.get(graph, {}).get(method)
        return text + (f", paper {figure:g}x" if figure else "")

    return _grid("method", scores, beside=seconds)


def _homophily(scores: list[CellScore]) -> str:
    """Metrics of the input graph, and of the learned one before training and at the last look."""
    lines = []
    for score in scores:
        looks: list[dict[str, Any]] = [row["metrics"] for row in score.rows if row.get("metrics")]
        for name, measure in MEASURES.items():
            figures = [f"{looks[0][f'input_{name}']:.3f}"]
            if name == "homophily":
                figures[0] += f" (paper {paper.PRINTED_HOMOPHILY[score.cell.target]:g})"
            for learned in (name, f"pivot_{name}"):
                figures += [spread([look[learned][at] for look in looks], 3, 1) for at in (0, -1)]
            lines.append([GRAPH_NAMES[score.cell.target], measure, *figures])
    titles = ["target", "measure", "input graph", "learned, before training", "after"]
    return markdown([*titles, "to pivots, before training", "after"], lines)


TABLE_WRITERS: dict[str, Callable[[list[CellScore]], str]] = {
    "time": _time,
    "ablation": _ablation,
    "edges": _edges,
    "homophily": _homophily,
    "sensitivity": _sensitivity,
}
"""For experiments that are no plain grid of methods by graphs."""
