"""Curves in the rows: accuracy over a swept value, and metrics over epochs.

Learned graphs are measured over epochs too; what rows have on them when training ends is set beside
the same measure of the input graph.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from graphglow.lab.runs.rows import ResultRow
from graphglow.report.comparison import Comparison, compare, line_names, target_column

ACCURACY = "test accuracy"
AXES = {
    "delete": "share of edges deleted",
    "add": "share of edges added",
    "shuffle": "share of features shuffled",
    "lambda": "weight of the input graph (lambda)",
    "pivots": "pivots (P)",
}
"""Words for what is swept, by the series of a row."""
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


def sweeps(rows: Sequence[ResultRow]) -> list[Sweep]:
    """All curves of one experiment: accuracy over what is swept, metrics over epochs."""
    column, names = target_column(rows), _curve_names(rows)
    found: dict[tuple[str, str, str], list[ResultRow]] = {}
    for row in (replace(row, label=names[row.cell]) for row in rows):
        if row.x is not None:
            axis = AXES.get(row.series, row.series or "x")
            found.setdefault((column(row), ACCURACY, axis), []).append(row)
        lists = histories(row)
        for metric, history in lists.items():
            made, of = replace(row, paper=None), metric.removeprefix(PIVOT)
            if f"{PIVOT}{of}" in lists:  # two graphs in one chart
                graph = TWO_STEP if metric == of else ONE_STEP
                label = graph if len(set(names.values())) == 1 else f"{row.label}, {graph}"
                made = replace(made, label=label, method=row.method if metric == of else graph)
            into = found.setdefault((column(row), of, "epoch"), [])
            into += [replace(made, x=x, test_accuracy=value) for x, value in history]
            if isinstance(given := row.metrics.get(f"{INPUT}{metric}"), float):
                level = replace(made, label=GIVEN, method=GIVEN, test_accuracy=given)
                into += [replace(level, x=x) for x, _ in history]
    tables = {
        key: compare(sorted(of, key=lambda r: r.x or 0.0), lambda r: r.x, lambda r: r.label)
        for key, of in found.items()
    }
    return [Sweep(*key, of) for key, of in tables.items() if any(line.scored for line in of.lines)]


def _curve_names(rows: Sequence[ResultRow]) -> dict[str, str]:
    column = target_column(rows)
    return line_names(rows, lambda row: (column(row), row.series, row.x))


def histories(row: ResultRow) -> dict[str, list[tuple[float, float]]]:
    """Metrics that are lists: (epoch, value) where there is a value; without epochs from 1 on."""
    found, epochs = {}, row.metrics.get(EPOCHS)
    for name, values in row.metrics.items():
        if isinstance(values, tuple) and name != EPOCHS:
            every = tuple(range(1, len(values) + 1))
            at = epochs if isinstance(epochs, tuple) and len(epochs) == len(values) else every
            pairs = zip(at, values, strict=True)
            found[name] = [(x, value) for x, value in pairs if x is not None and value is not None]
    return found


def measure(metric: str) -> str:
    """What a metric is called."""
    return MEASURES.get(metric, metric.replace("_", " "))


def measured_graphs(rows: Sequence[ResultRow]) -> Comparison:
    """Of each target and measure: the input graph, and the learned graphs when training ends.

    Columns are ``GIVEN``, ``TWO_STEP`` and, where rows have it, ``ONE_STEP``.
    """
    column, names = target_column(rows), _curve_names(rows)
    values, single = [], len(set(names.values())) == 1
    for row in rows:
        line = column(row) if single else f"{column(row)}, {names[row.cell]}"
        lists = histories(row)
        for metric, history in lists.items():
            given = row.metrics.get(f"{INPUT}{metric}")
            if not history or not isinstance(given, float):
                continue
            made = replace(row, label=f"{line}, {measure(metric)}", paper=None)
            steps = {TWO_STEP: history, ONE_STEP: lists.get(f"{PIVOT}{metric}")}
            ends = {GIVEN: given} | {graph: of[-1][1] for graph, of in steps.items() if of}
            values += [replace(made, series=g, test_accuracy=value) for g, value in ends.items()]
    return compare(values, lambda row: row.series, lambda row: row.label)


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
