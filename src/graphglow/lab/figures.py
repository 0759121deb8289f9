"""Pictures of rows for the docs, by Matplotlib (the extra figures)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from graphglow.errors import InputError
from graphglow.lab.markdown import AXES, MEASURES, METHOD_LABELS, SWEPT, curve, suite_scores
from graphglow.lab.paper_tables import DAMAGES, GRAPH_NAMES, METHOD_NAMES
from graphglow.lab.row_files import Row, newest
from graphglow.storage import atomic_path

SUITE_METHODS = ("gcn", "mlp", "gpr", "h2gcn", "untrained-0.2", "untrained", "transfer-0.2",
                 "predict")  # fmt: skip
"""Methods of the suite that have a curve."""
Y_LABEL = "test accuracy, %"


def write_figure(experiment: str, rows: Iterable[Row], folder: Path) -> Path | None:
    """Write the picture of an experiment, if it has one; return its file."""
    rows = newest(row for row in rows if row["experiment"] == experiment)
    draw = {"open-world": _suite, "homophily": _training, "edges": _sweeps, "sensitivity": _sweeps}
    if experiment not in draw or not rows:
        return None
    try:
        from matplotlib import rc_context
    except ModuleNotFoundError as error:
        raise InputError('Pictures need Matplotlib: pip install "graphglow[figures]".') from error
    figure, axes = draw[experiment](rows)
    found = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(found.values(), found, loc="outside upper center", ncols=4, frameon=False)
    path = folder / f"{experiment.replace('-', '_')}.svg"
    with atomic_path(path, make_folder=True) as temporary, rc_context({"svg.fonttype": "none"}):
        figure.savefig(temporary, format="svg", metadata={"Date": None})
    return path


def _axes(panels: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    rows = -(-panels // 3)
    figure = Figure(figsize=(9.6, 2.6 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False).flatten().tolist()
    for unused in axes[panels:]:
        unused.axis("off")
    return figure, axes[:panels]


def _line(axes: Any, x: Sequence[float], y: Any, error: Any, label: str, colour: str) -> None:
    axes.plot(x, y, marker=".", label=label, color=colour)
    axes.fill_between(x, y - error, y + error, color=colour, alpha=0.2, linewidth=0)


def _sweeps(rows: list[Row]) -> tuple[Any, list[Any]]:
    """Draw mean and deviation over runs at each swept value, a panel for each target and sweep."""
    runs = pd.DataFrame(rows).groupby(["target", "series", "method", "x"])["test_accuracy"]
    panels = 100 * pd.DataFrame({"mean": runs.mean(), "std": runs.std().fillna(0)})
    groups = panels.groupby(level=["target", "series"])
    figure, axes = _axes(len(groups))
    for at, ((target, series), panel) in zip(axes, groups, strict=True):
        title = {**SWEPT, **DAMAGES}[series]
        at.set(title=GRAPH_NAMES[target], xlabel=title, ylabel=Y_LABEL)
        for number, (method, own) in enumerate(panel.groupby(level="method")):
            x = own.index.get_level_values("x")
            _line(at, x, own["mean"], own["std"], METHOD_NAMES[method], f"C{number}")
    return figure, axes


def _training(rows: list[Row]) -> tuple[Any, list[Any]]:
    """Draw metrics of the learned graph by epoch, mean over runs; the input graph's as a line."""
    targets = dict.fromkeys(row["target"] for row in rows)
    panels = [(target, measure) for target in targets for measure in MEASURES]
    figure, axes = _axes(len(panels))
    for at, (target, measure) in zip(axes, panels, strict=True):
        looks = [row["metrics"] for row in rows if row["target"] == target]
        at.set(title=GRAPH_NAMES[target], xlabel="epoch", ylabel=MEASURES[measure])
        for learned, label in ((measure, "learned graph"), (f"pivot_{measure}", "to pivots")):
            runs = pd.DataFrame([pd.Series(m[learned], m["epoch"], dtype=float) for m in looks])
            at.plot(runs.columns, runs.mean(), label=label)
        at.axhline(looks[0][f"input_{measure}"], color="grey", label="input graph")
    return figure, axes


def _suite(rows: list[Row]) -> tuple[Any, list[Any]]:
    """Draw the mean over targets along each axis, with its standard error."""
    scores = suite_scores(rows)
    figure, axes = _axes(len(AXES))
    for at, axis in zip(axes, AXES, strict=True):
        groups = curve(scores, axis).groupby(level="x")
        means, errors = 100 * groups.mean(), 100 * groups.sem().fillna(0)
        at.set(title=axis, xlabel=axis, ylabel=Y_LABEL)
        for number, method in enumerate(name for name in SUITE_METHODS if name in means):
            line = means[method], errors[method], METHOD_LABELS[method], f"C{number}"
            _line(at, means.index, *line)
    axes[AXES.index("labels per class")].set_xscale("log", base=2)
    return figure, axes
