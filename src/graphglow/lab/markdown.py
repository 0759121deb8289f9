"""The tables of rows as Markdown: the paper's, and the standings of the open-world suite."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import pandas as pd

from graphglow.lab import paper_tables as paper
from graphglow.lab.config import RunsConfig, Tuned
from graphglow.lab.open_methods import METHOD_TITLES, NEED_FEATURES, POOL, RIVALS
from graphglow.lab.open_suite import AS_IT_IS, CONDITIONS, NO_FEATURES
from graphglow.lab.paper_tables import EXPERIMENTS, GRAPH_NAMES
from graphglow.lab.row_files import Row, newest
from graphglow.lab.runs import run_of

SEEDS = 5
"""Another number of runs of a cell is said beside its mean."""
NO_ROWS = "No rows yet.\n"
OFF, OLD = " &dagger;", " &Dagger;"
MARKS = {
    OFF: "&dagger; the tuned lambda is 1: the learned graph is switched off, and the figure is "
    "that of the backbone alone",
    OLD: "&Dagger; made with other settings, or another learner, than today's",
}
FACTS = ("key", "label", "line", "method", "target", "series", "x")
"""Of a cell, in its line of scores."""
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


def cell_scores(name: str, rows: Iterable[Row], tuned: Tuned) -> pd.DataFrame:
    """Return a line for each cell of an experiment that has rows: its facts, mean and texts."""
    found: dict[str, list[Row]] = {}
    for row in newest(row for row in rows if row["experiment"] == name):
        found.setdefault(row["cell"], []).append(row)
    lines = []
    for cell in (cell for cell in EXPERIMENTS[name]() if cell.key in found):
        own = found[cell.key]
        values = [r["test_accuracy"] for r in own if r.get("test_accuracy") is not None]
        count, failed = len(values), len(own) - len(values)
        ours = cell.method == "random-theta" or cell.method.startswith("graphglow")
        alone = ours and {row["config"].get("input_weight") for row in own} == {1}
        outdated = own[-1]["setup"] != run_of(cell, 0, tuned, RunsConfig()).setup
        line = {column: getattr(cell, column) for column in FACTS} | {
            "graph": GRAPH_NAMES.get(cell.target, cell.target),
            "mean": float(f"{statistics.mean(values):.6g}") if values else math.nan,
            "text": f"failed: {own[-1].get('error', 'no accuracy'):.80}",
            "marks": "", "notes": "", "beside": "", "rows": own,
        }  # fmt: skip
        if values:
            notes = [f"{count} seed{'s' * (count > 1)}"] * (count != SEEDS)
            line["text"], line["marks"] = spread(values), alone * OFF + outdated * OLD
            line["notes"] = "; ".join(notes + [f"{failed} failed"] * bool(failed))
            line["beside"] = f"paper {100 * cell.paper[0]:.1f}" if cell.paper else ""
        lines.append(line)
    return pd.DataFrame(lines)


def tables_of(name: str, rows: Iterable[Row], tuned: Tuned) -> str:
    """Return the tables of an experiment as Markdown."""
    cells = cell_scores(name, rows, tuned)
    if cells.empty:
        return NO_ROWS
    table = TABLE_WRITERS.get(name, _grid)(cells)
    notes = [note for mark, note in MARKS.items() if cells["marks"].str.contains(mark).any()]
    return table + "".join(f"\n- {note}" for note in notes) + "\n" * bool(notes)


def _grid(
    cells: pd.DataFrame, title: str = "method", line: str = "label", column: str = "graph"
) -> str:
    """Return accuracy by line and column, the best mean of a column in bold."""
    best = cells["mean"] == cells.groupby(column)["mean"].transform("max")
    bold = (best & (cells[line].nunique() > 1)).map({True: "**", False: ""})
    notes = cells["notes"].where(cells["beside"] == "", cells["notes"] + "; " + cells["beside"])
    notes = (" (" + notes.str.removeprefix("; ") + ")").where(notes != "", "")
    whole = cells.assign(whole=bold + cells["text"] + bold + cells["marks"] + notes)
    table = whole.pivot(index=line, columns=column, values="whole").fillna("-")
    graphs = [name for name in GRAPH_NAMES.values() if name in table]
    table = table.loc[cells[line].unique(), graphs or cells[column].unique()]
    return markdown([title, *table], table.reset_index().to_numpy().tolist())


def _ablation(cells: pd.DataFrame) -> str:
    """Write accuracy, and points more or less than the whole method."""
    full = cells["line"] == "full"
    whole = cells["target"].map(cells[full].set_index("target")["mean"])
    lost = (100 * cells["mean"] - 100 * whole).where(~full)
    paper_lost = -100 * cells["target"].map(paper.LOST_WITHOUT_ITERATION)
    printed = paper_lost.map("; paper {:+.1f}".format)
    printed = printed.where(paper_lost.notna() & (cells["line"] == "no-iteration"), "")
    beside = (lost.map("{:+.1f}".format) + printed).where(lost.notna(), "")
    return _grid(cells.assign(beside=beside), "variant")


def _edges(cells: pd.DataFrame) -> str:
    names, shares = cells["method"].map(paper.METHOD_NAMES), cells["x"].map("{:.0%}".format)
    names = cells["graph"] + ", " + cells["series"].map(paper.DAMAGES) + ": " + names
    groups = cells.assign(name=names, share=shares).groupby(["graph", "series"], sort=False)
    title, below, *lines = "".join(
        _grid(own, "graph, damage: method", "name", "share") for _, own in groups
    ).splitlines(keepends=True)
    return title + below + "".join(line for line in lines if line not in (title, below))


def _sensitivity(cells: pd.DataFrame) -> str:
    groups = cells.assign(label=cells["x"].map("{:g}".format)).groupby("series", sort=False)
    grids = [_grid(own, SWEPT[name], "graph", "label") for name, own in groups]
    return "\n".join(grids).replace("**", "")


def _time(cells: pd.DataFrame) -> str:
    """Accuracy; beside it seconds of training, and how many times as long as GraphGLOW they are."""
    spent = {
        (cell.method, cell.target): [
            row["train_seconds"] for row in cell.rows if row.get("timed") and "train_seconds" in row
        ]
        for cell in cells.itertuples()
    }
    texts = []
    for (method, graph), seconds in spent.items():
        text = f"{spread(seconds, 2, 1)} s" if seconds else ""
        ours = spent.get(("graphglow", graph))
        if seconds and ours and method != "graphglow":
            text += f", {statistics.mean(seconds) / statistics.mean(ours):.2g}x"
        figure = paper.TIMES_FASTER.get(graph, {}).get(method)
        texts.append(text + (f", paper {figure:g}x" if figure and seconds else ""))
    return _grid(cells.assign(beside=texts))


def _homophily(cells: pd.DataFrame) -> str:
    """Metrics of the input graph, and of the learned one before training and at the last look."""
    lines = []
    for cell, (name, measure) in product(cells.itertuples(), MEASURES.items()):
        looks: list[dict[str, Any]] = [row["metrics"] for row in cell.rows if row.get("metrics")]
        figures = [f"{looks[0][f'input_{name}']:.3f}"]
        if name == "homophily":
            figures[0] += f" (paper {paper.PRINTED_HOMOPHILY[cell.target]:g})"
        for learned in (name, f"pivot_{name}"):
            figures += [spread([look[learned][at] for look in looks], 3, 1) for at in (0, -1)]
        lines.append([cell.graph, measure, *figures])
    titles = ["target", "measure", "input graph", "learned, before training", "after"]
    return markdown([*titles, "to pivots, before training", "after"], lines)


TABLE_WRITERS: dict[str, Callable[[pd.DataFrame], str]] = {
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
