"""The tables of rows as Markdown: the paper's, and the standings of the open-world suite."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from graphglow.lab import paper_tables as paper
from graphglow.lab.config import RunsConfig, Tuned
from graphglow.lab.open_methods import METHOD_TITLES, NEED_FEATURES, POOL, RIVALS
from graphglow.lab.open_suite import AS_IT_IS, CONDITIONS, NO_FEATURES
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


# The paper's tables


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
    return [CellScore(c, found[c.key], run_of(c, 0, tuned, RunsConfig()).setup) for c in cells]


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
    lines, columns = (list(dict.fromkeys(key[place] for key in at)) for place in (0, 1))
    order = list(GRAPH_NAMES.values())
    columns.sort(key=lambda name: order.index(name) if name in order else 0)
    best = {name: max(s.mean or 0 for key, s in at.items() if key[1] == name) for name in columns}
    texts = {
        key: score.text(beside(score), best=len(lines) > 1 and score.mean == best[key[1]])
        for key, score in at.items()
    }
    body = [[label, *(texts.get((label, name), "-") for name in columns)] for label in lines]
    return markdown([first, *columns], body)


def _methods(scores: list[CellScore]) -> str:
    """Write accuracy by method and graph, beside the paper's figure."""
    figures = {s: f"paper {100 * s.cell.paper[0]:.1f}" for s in scores if s.cell.paper is not None}
    return _grid("method", scores, beside=lambda score: figures.get(score, ""))


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

# The open-world suite. A cell is a target under a condition; methods are compared on the same cells
# and seeds. Conditions of one target are not independent: standard errors count each target once.

BEST = "best"
HISTORY = {
    "untrained-0.2": "untrained 0.2 (five GNNs)",
    "instant-0.2": "instant 0.2",
    "transfer-0.2": "transfer 0.2 (five GNNs)",
}
"""Methods of version 0.2 that have rows, and that nobody can run any more; all split the labels,
and ``instant`` leaves those of validation unread."""
METHOD_LABELS = (
    {name: METHOD_TITLES[name] for name in RIVALS}
    | {BEST: "best of these, by validation"}
    | HISTORY
    | METHOD_TITLES
)
TIE_WITHIN = 0.01
"""Means of a cell that are less apart are level."""
SHOWN_CONDITIONS = ("as it is", "false edges 1x", "lost edges 60%", "5 labels per class",
                    "half the features noise", "no features")  # fmt: skip
AXES = ("false edges", "lost edges", "labels per class")


def suite_scores(rows: Iterable[Row]) -> pd.DataFrame:
    """Return test accuracy by target, condition and seed (rows) and method, the last row of each.

    ``best`` is what somebody has who tries all rivals: the best by validation, ties averaged.
    """
    cell = ["target", "series", "seed"]
    given = [row for row in rows if "test_accuracy" in row]
    table = pd.DataFrame(given, columns=[*cell, "method", "test_accuracy", "val_accuracy"])
    table = table.drop_duplicates([*cell, "method"], keep="last")
    scores = table.pivot(index=cell, columns="method", values="test_accuracy")
    rivals = table[table["method"].isin(RIVALS)]
    level = rivals[rivals["val_accuracy"] == rivals.groupby(cell)["val_accuracy"].transform("max")]
    scores[BEST] = level.groupby(cell)["test_accuracy"].mean()
    return scores[[n for n in METHOD_LABELS if n in scores and scores[n].notna().any()]]


def whole_cells(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the means of cells that every method has, those aside that lack features there."""
    cells = scores.groupby(level=["target", "series"]).mean()
    known = cells.notna()
    bare = cells.index.get_level_values("series") == NO_FEATURES
    known.loc[bare, [name for name in NEED_FEATURES if name in known]] = True
    return cells[known.all(axis=1)]


def our_line(scores: pd.DataFrame) -> str:
    """Return the method that others are compared with: ours, or the last that has rows."""
    ours = [name for name in ("predict", "transfer-0.2") if name in scores]
    return ours[0] if ours else str(scores.columns[-1])


def standings(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each method, ours among them; shares, not per cent.

    Means by condition are over cells that all methods have; ``mean`` is over the conditions but
    that without features and attacks, each counting once. ``ahead`` is the lead of ours over the
    method, with its standard error, in the mean over targets; ``worst`` the least in a cell; then
    cells where ours is ahead, level and behind.
    """
    means = whole_cells(scores).groupby(level="series").mean().T
    counted = [c for c in means if c != NO_FEATURES and not c.startswith("metattack")]
    leads = scores.rsub(scores[our_line(scores)], axis=0)
    leads = leads.groupby(level=["target", "series"]).mean()
    each = leads.groupby(level="target").mean()
    return means.assign(
        mean=means[counted].mean(axis=1),
        ahead=each.mean(),
        error=each.sem().fillna(0),
        worst=leads.min(),
        wins=(leads >= TIE_WITHIN).sum(),
        ties=(leads.abs() < TIE_WITHIN).sum(),
        losses=(leads <= -TIE_WITHIN).sum(),
    )


def standings_table(rows: Iterable[Row]) -> str:
    """Return the table in Markdown: per cent, and points that ours is ahead."""
    scores = suite_scores(rows)
    if scores.empty:
        return NO_ROWS
    lines, ours = standings(scores), our_line(scores)
    conditions = [name for name in SHOWN_CONDITIONS if name in lines]
    table = []
    for method, line in lines.iterrows():
        split = "train only" if method == "instant-0.2" else "" if method == BEST else "split"
        cells = [METHOD_LABELS[str(method)], "pool" if method in POOL else split]
        means = line[[*conditions, "mean"]]
        cells += ["" if pd.isna(mean) else f"{100 * mean:.1f}" for mean in means]
        if method == ours:
            table.append([f"**{cell}**" if cell else "" for cell in [*cells, "", "", ""]])
            continue
        lead = f"{100 * line.ahead:+.1f} +- {100 * line.error:.1f}"
        counts = f"{line.wins:.0f} / {line.ties:.0f} / {line.losses:.0f}"
        table.append([*cells, lead, f"{100 * line.worst:+.1f}", counts])
    titles = ["", "labels", *conditions, "mean", f"{METHOD_LABELS[ours]} ahead by", "worst"]
    return markdown([*titles, "wins / ties / losses"], table)


def curve(scores: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Return accuracy along an axis: targets and swept values (rows) by methods.

    Of points that most targets have, and of targets that have every such point.
    """
    points = {name: x for name, (series, x) in CONDITIONS.items() if series == axis}
    points |= {} if axis == "labels per class" else {AS_IT_IS: 0.0}
    cells = whole_cells(scores).drop(columns=BEST, errors="ignore")
    cells = cells[cells.index.isin(points, level="series")].rename(index=points, level="series")
    count = cells.groupby(level="series").size()
    kept = count.index[count > 0.6 * count.max()]
    cells = cells[cells.index.isin(kept, level="series")]
    cells = cells[cells.groupby(level="target").transform("size") == len(kept)]
    return cells.rename_axis(index={"series": "x"}).sort_index()
