"""Curves in the rows: accuracy and metrics over a swept value, and metrics over epochs.

Learned graphs are measured over epochs too; what rows have on them when training ends is set beside
the same measure of the input graph.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from graphglow.experiments.runs.rows import ResultRow
from graphglow.report.comparison import Comparison, compare, grouped, line_names, target_column

ACCURACY = "test accuracy"
AXES = {
    "delete": "share of edges deleted",
    "add": "share of edges added",
    "shuffle": "share of features shuffled",
    "lambda": "weight of the input graph (lambda)",
    "input_weight": "weight of the input graph (lambda)",
    "pivots": "pivots (P)",
    "num_pivots": "pivots (P)",
    "edges": "share of edges changed",
}
"""Words for what is swept: by series, setting or experiment."""
EPOCHS = "epoch"
"""The metric that says at which epochs the other lists were taken."""

INPUT, PIVOT = "input_", "pivot_"
"""What the name of a metric begins with that was taken on the input graph, or on the learned graph
from nodes to pivots; without either it was taken on the learned graph that messages go over."""
GIVEN, LEARNED = "input graph", "learned, "
TWO_STEP, ONE_STEP = f"{LEARNED}two steps", f"{LEARNED}to pivots"
"""What the two learned graphs are called; in a chart about them without the first word."""
MEASURES = {
    "homophily": "class-insensitive homophily",
    "edge_homophily": "edge homophily",
    "neighbourhood_variance": "variance of neighbourhoods",
}
"""Words for metrics; others go by their name."""


class Sweep(NamedTuple):
    """Curves that belong into one chart: the swept values are the columns of ``curves``."""

    target: str
    quantity: str
    """``ACCURACY``, or the name of a metric."""
    axis: str
    curves: Comparison
    levels: Comparison
    """Of one column: what is the same along the axis."""

    @property
    def drawn(self) -> bool:
        return any(len(line.scored) > 1 for line in self.curves.lines)


def sweeps(rows: Sequence[ResultRow]) -> list[Sweep]:
    """All curves of one experiment: accuracy over what is swept, metrics over epochs."""
    column = target_column(rows)
    found = []
    by_axis = grouped([r for r in rows if r.x is not None], lambda row: (column(row), swept(row)))
    for (target, axis), group in by_axis.items():
        group += [row for row in rows if row.x is None and column(row) == target]
        names = line_names(group, lambda row: (column(row), row.x))
        values = [replace(row, label=names[row.cell]) for row in group]
        found.append(_sweep(target, ACCURACY, axis, values))
    found += _histories(rows)
    return [sweep for sweep in found if any(line.scored for line in sweep.curves.lines)]


def _sweep(target: str, quantity: str, axis: str, values: Iterable[ResultRow]) -> Sweep:
    by_x = sorted(values, key=lambda row: row.x or 0.0)
    curves, levels = ([r for r in by_x if (r.x is None) == level] for level in (False, True))
    tables = [compare(part, lambda r: r.x, lambda r: r.label) for part in (curves, levels)]
    return Sweep(target, quantity, axis, *tables)


def swept(row: ResultRow) -> str:
    """What x is: what the row or its cell says, else the setting of that value."""
    settings = [
        name for name, value in row.config.items() if value == row.x and not isinstance(value, bool)
    ]
    for name in (row.series, row.cell.split("/")[0], *settings, row.experiment):
        if name in AXES:
            return AXES[name]
    return row.series or "x"


def measure(metric: str) -> str:
    """What a metric is called."""
    return MEASURES.get(metric, metric.replace("_", " "))


def metric_names(rows: Iterable[ResultRow], *, lists: bool) -> list[str]:
    """Metrics that are lists, or numbers, but for the epochs of lists."""
    every = [item for row in rows for item in row.metrics.items() if item[0] != EPOCHS]
    return list(dict.fromkeys(name for name, value in every if isinstance(value, tuple) == lists))


def _histories(rows: Sequence[ResultRow]) -> list[Sweep]:
    """Metrics that are lists: one value per epoch, or at the epochs that the row names."""
    column = target_column(rows)
    names = line_names(rows, lambda row: (column(row), row.x))
    single = len(set(names.values())) == 1
    found: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        lists = metric_names([row], lists=True)
        for metric in lists:
            name, method = names[row.cell], row.method
            of = metric.removeprefix(PIVOT)
            if f"{PIVOT}{of}" in lists:  # two graphs in one chart
                graph = TWO_STEP if metric == of else ONE_STEP
                name = graph if single else f"{name}, {graph}"
                method = method if metric == of else ONE_STEP
            made = replace(row, label=name, method=method, paper=None)
            into = found.setdefault((column(row), of), [])
            into += [replace(made, x=x, test_accuracy=v) for x, v in _history(row, metric)]
            if isinstance(given := row.metrics.get(f"{INPUT}{metric}"), float):
                into.append(replace(made, label=GIVEN, method=GIVEN, x=None, test_accuracy=given))
    return [_sweep(*key, "epoch", values) for key, values in found.items()]


def _history(row: ResultRow, metric: str) -> list[tuple[float, float]]:
    """(epoch, value) where there is a value."""
    values = row.metrics.get(metric)
    if not isinstance(values, tuple):
        return []
    epochs = row.metrics.get(EPOCHS)
    if not isinstance(epochs, tuple) or len(epochs) != len(values) or None in epochs:
        epochs = tuple(range(1, len(values) + 1))
    pairs = zip(epochs, values, strict=True)
    return [(x, value) for x, value in pairs if x is not None and value is not None]


def measured_graphs(rows: Sequence[ResultRow]) -> Comparison:
    """Of each target and measure: the input graph, and the learned graphs when training ends.

    Columns are ``GIVEN``, ``TWO_STEP`` and, where rows have it, ``ONE_STEP``.
    """
    column = target_column(rows)
    names = line_names(rows, lambda row: (column(row), row.x))
    single = len(set(names.values())) <= 1
    values = []
    for row in rows:
        for metric in of_two_graphs(row):
            line = column(row) if single else f"{column(row)}, {names[row.cell]}"
            made = replace(row, label=f"{line}, {measure(metric)}", paper=None)
            ends = [_history(row, name)[-1:] for name in (metric, f"{PIVOT}{metric}")]
            found = [row.metrics[f"{INPUT}{metric}"], *(v for end in ends for _, v in end)]
            values += [
                replace(made, series=graph, test_accuracy=value)
                for graph, value in zip((GIVEN, TWO_STEP, ONE_STEP), found, strict=False)
                if isinstance(value, float)
            ]
    return compare(values, lambda row: row.series, lambda row: row.label)


def of_two_graphs(row: ResultRow) -> list[str]:
    """Metrics that a row has over epochs and, as one number, of the input graph."""
    return [
        name
        for name in metric_names([row], lists=True)
        if isinstance(row.metrics.get(f"{INPUT}{name}"), float) and _history(row, name)
    ]


def meaning(graphs: Comparison) -> list[str]:
    """What the paper's measure says of the learned graphs, in plain words."""
    mine = [line.cells for line in graphs.lines if line.name.endswith(MEASURES["homophily"])]
    if not mine:
        return []
    said = []
    for at, graph in enumerate(graphs.columns[1:], start=1):
        pairs = [(cells[0], cell) for cells in mine if (cell := cells[at]) is not None]
        above = sum((cell.mean or 0.0) > ((given and given.mean) or 0.0) for given, cell in pairs)
        said.append(f"{graph.removeprefix(LEARNED)} on {above} of {len(pairs)}")
    sentences = [
        "When training ends, the learned graph is more homophilous than the input graph: "
        f"{', '.join(said)} targets. The paper reports a rise to well above it on all."
    ]
    alone = [bool(cell.alone) for cell in graphs.cells]
    if any(alone):
        sentences.append(
            f"In {'these' if all(alone) else 'some of these'} runs lambda = 1 won on validation: "
            "no message goes over the learned graph, and accuracy does not depend on it. Measured "
            "is what the frozen learner would join, given the embeddings of that epoch."
        )
    return sentences
