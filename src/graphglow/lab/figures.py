"""Pictures of rows for the docs, by Matplotlib (the extra figures)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from graphglow.errors import InputError
from graphglow.lab.open_world.standings import LABELS, Standings, curves
from graphglow.lab.paper_tables import DAMAGES, GRAPH_NAMES, NAMES
from graphglow.lab.rows import Row, newest
from graphglow.lab.tables import MEASURES, SWEPT
from graphglow.storage import atomic_path

SHOWN = ("gcn", "mlp", "gpr", "h2gcn", "untrained-0.2", "untrained", "transfer-0.2", "predict")
"""Methods of the suite that have a curve."""


def _axes(panels: int, across: int) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise InputError('Pictures need Matplotlib: pip install "graphglow[figures]".') from error
    columns = min(across, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(3.2 * columns, 2.6 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in axes[panels:]:
        unused.axis("off")
    return figure, axes[:panels]


def _curve(axes: Any, x: Sequence[float], y: Any, error: Any, label: str, colour: str) -> None:
    axes.plot(x, y, marker=".", label=label, color=colour)
    if error.any():
        axes.fill_between(x, y - error, y + error, color=colour, alpha=0.2, linewidth=0)


def _save(figure: Any, axes: Sequence[Any], path: Path) -> Path:
    from matplotlib import rc_context

    found = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(found.values(), found, loc="outside upper center", ncols=4, frameon=False)
    with atomic_path(path, make_folder=True) as temporary, rc_context({"svg.fonttype": "none"}):
        figure.savefig(temporary, format="svg", metadata={"Date": None})
    return path


def write_figures(experiment: str, rows: Iterable[Row], folder: Path) -> list[Path]:
    """Write the pictures of an experiment, if it has some; return their files."""
    if experiment == "open-world":
        return _suite(Standings(rows), folder)
    mine = [row for row in newest(rows) if row["experiment"] == experiment]
    if experiment == "homophily":
        return [_training(mine, folder / "homophily.svg")] if mine else []
    if experiment not in ("sensitivity", "edges") or not mine:
        return []
    titles = {**SWEPT, **DAMAGES}
    names = ["target", "series", "method", "x"]
    groups = pd.DataFrame(mine).groupby(names)["test_accuracy"]
    table = 100 * pd.DataFrame({"mean": groups.mean(), "std": groups.std().fillna(0)})
    panels = table.groupby(level=["target", "series"])
    figure, axes = _axes(len(panels), 3 if experiment == "edges" else 2)
    for at, ((target, series), panel) in zip(axes, panels, strict=True):
        at.set(title=GRAPH_NAMES[target], xlabel=titles[series], ylabel="test accuracy, %")
        for number, (method, curve) in enumerate(panel.groupby(level="method")):
            x = curve.index.get_level_values("x")
            _curve(at, x, curve["mean"], curve["std"], NAMES[method], f"C{number}")
    return [_save(figure, axes, folder / f"{experiment}.svg")]


def _training(rows: list[Row], path: Path) -> Path:
    """Metrics of the learned graph by epoch, mean over runs; the input graph's as a line."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    figure, axes = _axes(len(targets) * len(MEASURES), len(MEASURES))
    for number, at in enumerate(axes):
        target, (name, title) = targets[number // len(MEASURES)], [*MEASURES.items()][number % 3]
        looks = [row["metrics"] for row in rows if row["target"] == target]
        at.set(title=GRAPH_NAMES[target], xlabel="epoch", ylabel=title)
        for learned, label in ((name, "learned graph"), (f"pivot_{name}", "to pivots")):
            curves = pd.DataFrame([pd.Series(m[learned], m["epoch"], dtype=float) for m in looks])
            at.plot(curves.columns, curves.mean(), label=label)
        at.axhline(looks[0][f"input_{name}"], color="grey", label="input graph")
    return _save(figure, axes, path)


def _suite(found: Standings, folder: Path) -> list[Path]:
    """Write accuracy along each axis, as means over graphs; along the first, of each graph too."""
    axes_of = curves(found)
    panels = {
        "open_world": [(axis, axis, part.groupby(level="x")) for axis, part in axes_of.items()],
        "open_world_graphs": [
            (target, axis, own.groupby(level="x"))
            for axis, part in [*axes_of.items()][:1]
            for target, own in part.groupby(level="target")
        ],
    }
    written = []
    for file, many in panels.items() if axes_of else ():
        figure, axes = _axes(len(many), 3 if file == "open_world" else 5)
        for at, (title, axis, groups) in zip(axes, many, strict=True):
            means, errors = 100 * groups.mean(), 100 * groups.sem().fillna(0)
            at.set(title=title, xlabel=axis, ylabel="test accuracy, %")
            for number, method in enumerate(name for name in SHOWN if name in means):
                line = means.index, means[method], errors[method]
                _curve(at, *line, LABELS[method], f"C{number}")
            if axis == "labels per class":
                at.set_xscale("log", base=2)
        written.append(_save(figure, axes, folder / f"{file}.svg"))
    return written
