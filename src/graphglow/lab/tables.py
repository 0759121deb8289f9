"""The paper's tables and figures as Markdown, from rows: means over seeds, the paper's beside."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphglow.lab import paper_tables as paper
from graphglow.lab.config import RunsConfig
from graphglow.lab.paper_tables import EXPERIMENTS, GRAPH_NAMES, GRAPHS, Cell
from graphglow.lab.rows import Row, newest
from graphglow.lab.runs import run_of
from graphglow.lab.settings import Tuned

SIGNIFICANT = 0.05
SEEDS = 5
"""Fewer runs of a cell are said beside its mean."""
NO_ROWS = "No rows yet.\n"
ALONE = (
    "&dagger; the tuned lambda is 1: the learned graph is switched off, and the figure is that of "
    "the backbone alone"
)
OUTDATED = "&Dagger; made with other settings, or another learner, than today's"
CONTROLS = {
    "graphglow": "random-theta",
    "graphglow-on": "random-on",
    "graphglow-backbone": "random-backbone",
    "evidence": "evidence-untrained",
    "evidence-universal": "evidence-untrained",
}
"""Lines of ours, each with the same model never pre-trained."""
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


class Score:
    """The rows of one cell: accuracies, and what is unusual about them."""

    def __init__(self, cell: Cell, rows: list[Row], setup: str) -> None:
        self.cell, self.rows = cell, rows
        self.values = [r["test_accuracy"] for r in rows if r.get("test_accuracy") is not None]
        self.mean = float(f"{statistics.mean(self.values):.6g}") if self.values else None
        ours = cell.method == "random-theta" or cell.method.startswith("graphglow")
        weights = {row["config"].get("input_weight") for row in rows}
        self.alone = ours and weights == {1}
        self.outdated = rows[-1]["setup"] != setup
        self.backbone = {row["config"].get("backbone", "gcn") for row in rows}

    def text(self, *beside: str, best: bool = False) -> str:
        """Return ``84.1 +- 0.3``, with marks, and in brackets what is said beside it."""
        if self.mean is None:
            return f"failed: {self.rows[-1].get('error', 'no accuracy'):.80}"
        told = [word for word in beside if word]
        failed = len(self.rows) - len(self.values)
        told = ([f"{failed} failed"] if failed else []) + told
        if len(self.values) != SEEDS:
            told.insert(0, f"{len(self.values)} seed{'s' * (len(self.values) > 1)}")
        found = f"**{spread(self.values)}**" if best else spread(self.values)
        found += " &dagger;" * self.alone + " &Dagger;" * self.outdated
        return f"{found} ({'; '.join(told)})" if told else found


def spread(values: Sequence[float], digits: int = 1, unit: float = 100) -> str:
    """Return mean and sample standard deviation; of a single value itself."""
    mean = f"{unit * statistics.mean(values):.{digits}f}"
    many = len(values) > 1
    return f"{mean} +- {unit * statistics.stdev(values):.{digits}f}" if many else mean


class Experiment:
    """The cells of one experiment that have rows."""

    def __init__(self, name: str, rows: Iterable[Row], tuned: Tuned) -> None:
        self.name = name
        found: dict[str, list[Row]] = {}
        for row in newest(row for row in rows if row["experiment"] == name):
            found.setdefault(row["cell"], []).append(row)
        cells = {cell.key: cell for cell in EXPERIMENTS[name]()}
        today = {key: run_of(cells[key], 0, tuned, RunsConfig()).setup for key in found}
        self.scores = {
            key: Score(cell, found[key], today[key]) for key, cell in cells.items() if key in found
        }
        self.labels = {cell.line: cell.label for cell in cells.values()}

    def at(self, line: str, graph: str) -> Score | None:
        return self.scores.get(f"{line}/{graph}")

    def notes(self) -> str:
        scores = self.scores.values()
        told = [ALONE] * any(s.alone for s in scores) + [OUTDATED] * any(s.outdated for s in scores)
        return "".join(f"\n- {sentence}" for sentence in told) + "\n" * bool(told)

    def grid(
        self,
        first: str,
        line: Callable[[Cell], str],
        column: Callable[[Cell], str],
        beside: Callable[[Score], str],
        only: Callable[[Cell], bool] = lambda cell: True,
    ) -> str:
        """Return a table of lines by columns, the best mean of a column in bold."""
        scores = [score for score in self.scores.values() if only(score.cell)]
        order = [GRAPH_NAMES[graph] for graph in GRAPHS]
        columns = list(dict.fromkeys(column(score.cell) for score in scores))
        columns.sort(key=lambda name: order.index(name) if name in order else 0)
        lines: dict[str, dict[str, Score]] = {}
        for score in scores:
            lines.setdefault(line(score.cell), {})[column(score.cell)] = score
        best = {
            name: max((s[name].mean or 0 for s in lines.values() if name in s), default=0)
            for name in columns
        }
        single = len(lines) == 1

        def text(scores: dict[str, Score], name: str) -> str:
            if name not in scores:
                return "-"
            score = scores[name]
            return score.text(beside(score), best=score.mean == best[name] and not single)

        body = [[label, *(text(s, name) for name in columns)] for label, s in lines.items()]
        return markdown([first, *columns], body)


def tables_of(name: str, rows: Iterable[Row], tuned: Tuned) -> str:
    """Return the tables of an experiment as Markdown."""
    found = Experiment(name, rows, tuned)
    if not found.scores:
        return NO_ROWS
    special = {"time": _time, "ablation": _ablation, "edges": _edges, "homophily": _homophily}
    special["sensitivity"] = _sensitivity
    return special.get(name, _methods)(found) + found.notes()


def _graph(cell: Cell) -> str:
    return GRAPH_NAMES.get(cell.target, cell.target)


def _label(cell: Cell) -> str:
    return cell.label


def _printed(score: Score) -> str:
    """What the paper reports."""
    figure = score.cell.paper
    return "" if figure is None else f"paper {100 * figure.mean:.1f}"


def _methods(found: Experiment) -> str:
    return found.grid("method", _label, _graph, _printed)


def _ablation(found: Experiment) -> str:
    def lost(score: Score) -> str:
        whole = found.at("full", score.cell.target)
        if score.cell.line == "full" or whole is None or None in (whole.mean, score.mean):
            return ""
        said = f"{100 * (score.mean or 0) - 100 * (whole.mean or 0):+.1f}"
        known = score.cell.line == "no-iteration"
        printed = paper.LOST_WITHOUT_ITERATION.get(score.cell.target) if known else None
        return said + (f"; paper {-100 * printed:+.1f}" if printed else "")

    return found.grid("variant", _label, _graph, lost)


def _edges(found: Experiment) -> str:
    parts = []
    for graph in paper.DAMAGED_GRAPHS:
        for kind, what in paper.DAMAGES.items():
            table = found.grid(
                f"{GRAPH_NAMES[graph]}, {what}",
                lambda cell: paper.NAMES[cell.method],
                lambda cell: f"{cell.x:.0%}",
                lambda score: "",
                lambda cell, at=(graph, kind): (cell.target, cell.series) == at,  # type: ignore[misc]
            )
            parts.append(table)
    return "\n".join(parts)


def _sensitivity(found: Experiment) -> str:
    return "\n".join(
        found.grid(
            title,
            lambda cell: f"{cell.x:g}",
            _graph,
            lambda score: "",
            lambda cell, name=name: cell.series == name,  # type: ignore[misc]
        )
        for name, title in SWEPT.items()
    )


def _time(found: Experiment) -> str:
    lines = []
    for graph in GRAPHS:
        here = [score for score in found.scores.values() if score.cell.target == graph]
        best = max((score.mean or 0 for score in here), default=0)
        for score in here:
            taken = _seconds(score)
            peaks = [row["peak_memory_bytes"] for row in score.rows if "peak_memory_bytes" in row]
            ratio = _ratio(score, found.at("graphglow", graph))
            printed = paper.TIMES_FASTER.get(graph, {}).get(score.cell.method)
            figures = [
                spread(taken, 2, 1) if taken else "-",
                ratio + (f" (paper {printed:g})" if printed else ""),
                f"{max(peaks) / 1e6:,.0f}" if peaks else "-",
                "; ".join(dict.fromkeys(map(machine, score.rows))),
            ]
            said = score.text(best=score.mean == best)
            lines.append([GRAPH_NAMES[graph], score.cell.label, said, *figures])
    titles = ["target", "method", "test %", "seconds", "times GraphGLOW's", "peak MB", "on"]
    before = [
        row["pretrain_seconds"]
        for score in found.scores.values()
        for row in score.rows
        if row.get("pretrain_seconds")
    ]
    told = f"\nPre-training took {spread(before, 0, 1)} s.\n" if before else ""
    return markdown(titles, lines) + told


def _seconds(score: Score, where: set[str] | None = None) -> list[float]:
    """Seconds that were taken with care, on these machines."""
    return [
        row["train_seconds"]
        for row in score.rows
        if row.get("timed") and "train_seconds" in row and (not where or machine(row) in where)
    ]


def _ratio(score: Score, ours: Score | None) -> str:
    """Seconds over those of GraphGLOW on the same machines."""
    if ours is None:
        return "-"
    shared = {machine(row) for row in score.rows} & {machine(row) for row in ours.rows}
    taken = [_seconds(one, shared) for one in (score, ours)] if shared else [[], []]
    return f"{statistics.mean(taken[0]) / statistics.mean(taken[1]):.2g}" if all(taken) else "-"


def machine(row: Row) -> str:
    """Return where a run was made."""
    made = row.get("provenance", {}).get("machine", {})
    if row.get("device") == "cuda":
        return str(made.get("gpu") or "GPU")
    return f"{row.get('threads', '?')} threads of a {made.get('cpu', '')} CPU"


def _homophily(found: Experiment) -> str:
    """Metrics of the input graph, and of the learned one before training and at the last look."""
    lines = []
    for score in found.scores.values():
        looks: list[dict[str, Any]] = [row["metrics"] for row in score.rows if row.get("metrics")]
        for name, measure in MEASURES.items():
            figures = [f"{looks[0][f'input_{name}']:.3f}"]
            if name == "homophily":
                figures[0] += f" (paper {paper.HOMOPHILY[score.cell.target]:g})"
            for learned in (name, f"pivot_{name}"):
                for at in (0, -1):
                    values = [metrics[learned][at] for metrics in looks if metrics.get(learned)]
                    figures.append(spread(values, 3, 1) if values else "-")
            lines.append([GRAPH_NAMES[score.cell.target], measure, *figures])
    titles = ["target", "measure", "input graph", "learned, before training", "after"]
    return markdown([*titles, "to pivots, before training", "after"], lines)


# Ours against the paper, a tuned GCN and the same model never pre-trained


def verdicts_of(name: str, rows: Iterable[Row], tuned: Tuned) -> str:
    """Return a table for each of our lines: differences in points, p by Welch's t-test."""
    found = Experiment(name, rows, tuned)
    parts = []
    for line, control in CONTROLS.items():
        lines = []
        for graph in GRAPHS:
            score = found.at(line, graph)
            if score is None or score.mean is None:
                continue
            printed = score.cell.paper or paper.EXPERIMENT_TABLES[name]["graphglow"][graph]
            apart = f"{100 * (score.mean - printed.mean):+.1f}"
            others = [against(score, found.at(other, graph)) for other in ("gcn", control)]
            lines.append([GRAPH_NAMES[graph], score.text(), apart, *others])
        if lines:
            against_control = f"against {found.labels[control]}"
            titles = ["target", found.labels[line], "against the paper", "against GCN"]
            parts.append(markdown([*titles, against_control], lines))
    return "\n".join(parts) + found.notes() if parts else NO_ROWS


def against(ours: Score, other: Score | None) -> str:
    """Return the difference in points with its p; bold where chance does not explain it."""
    if other is None or ours.mean is None or other.mean is None:
        return "-"
    if ours.alone and other.alone and ours.backbone == other.backbone:
        return "level: both are the backbone alone"
    said = f"{100 * (ours.mean - other.mean):+.1f}"
    p = welch(ours.values, other.values)
    if p is None:
        return f"{said} (no test)"
    said += " (p < 0.001)" if p < 0.001 else f" (p = {p:.2g})"
    return f"**{said}**" if p < SIGNIFICANT else said


def welch(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the two-sided p of Welch's t-test; None for single runs, or runs without spread."""
    if min(len(one), len(other)) < 2 or max(map(statistics.stdev, (one, other))) < 1e-9:
        return None
    from scipy.stats import ttest_ind

    return float(ttest_ind(one, other, equal_var=False).pvalue)
