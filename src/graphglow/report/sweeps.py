"""Curves in the rows: accuracy and metrics over a swept value, and metrics over epochs."""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from graphglow.report.comparison import line_names, target_column
from graphglow.report.result_rows import ResultRow

AXES = {
    "delete": "share of edges deleted",
    "add": "share of edges added",
    "shuffle": "share of features shuffled",
    "lambda": "weight of the input graph (lambda)",
    "input_weight": "weight of the input graph (lambda)",
    "latent_degree": "neighbours the learned graph counts as (c)",
    "pivots": "pivots (P)",
    "num_pivots": "pivots (P)",
    "edges": "share of edges changed",
}
"""Words for what is swept: by series, setting or experiment."""
EPOCH_LISTS = ("epoch", "epochs")
"""Metrics that say at which epochs the other lists were taken."""

INPUT, PIVOT = "input_", "pivot_"
"""What the name of a metric begins with that was taken on the input graph, or on the learned graph
from nodes to pivots; without either it was taken on the learned graph that messages go over."""
LEARNED = "learned, "
TWO_STEP, ONE_STEP = f"{LEARNED}two steps", f"{LEARNED}to pivots"
"""What the two learned graphs are called; in a chart about them without the first word."""
MEASURES = {
    "homophily": "class-insensitive homophily",
    "edge_homophily": "edge homophily",
    "neighbourhood_variance": "variance of neighbourhoods",
}
"""Words for metrics; others go by their name."""


class Point(NamedTuple):
    """Mean and sample standard deviation of the runs at ``x``, and the paper's figure there."""

    x: float
    mean: float
    std: float | None
    runs: int
    paper: float | None = None


class Curve(NamedTuple):
    """One line; without ``points``, ``level`` is what it is at every x."""

    name: str
    method: str
    points: list[Point]
    level: Point | None = None


class Sweep(NamedTuple):
    """Curves that belong into one chart."""

    target: str
    quantity: str
    """``test accuracy``, or the name of a metric."""
    axis: str
    curves: list[Curve]


def sweeps(rows: Sequence[ResultRow]) -> list[Sweep]:
    """All charts with curves that the rows of one experiment make."""
    column = target_column(rows)
    groups: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        if row.x is not None:
            groups.setdefault((column(row), swept(row)), []).append(row)
    found = []
    for (target, axis), group in groups.items():
        constant = [row for row in rows if row.x is None and column(row) == target]
        names = line_names([*group, *constant], lambda row: (column(row), row.x))
        for quantity in ("test accuracy", *_metric_names(group, lists=False)):
            curves = _curves(group, names, quantity) + _levels(constant, names, quantity)
            if any(len(curve.points) > 1 for curve in curves):
                found.append(Sweep(target, quantity, axis, curves))
    return found + _histories(rows)


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


def _histories(rows: Sequence[ResultRow]) -> list[Sweep]:
    """Metrics that are lists: one value per epoch, or at the epochs that the row names."""
    column = target_column(rows)
    names = line_names(rows, lambda row: (column(row), row.x))
    single = len(set(names.values())) == 1
    found: dict[tuple[str, str], dict[str, list[tuple[ResultRow, Sequence[float | None]]]]] = {}
    for row in rows:
        lists = _metric_names([row], lists=True)
        for metric in lists:
            values, name = row.metrics[metric], names[row.cell]
            assert isinstance(values, tuple)
            of = metric.removeprefix(PIVOT)
            if f"{PIVOT}{of}" in lists:  # two graphs in one chart
                graph = TWO_STEP if metric == of else ONE_STEP
                name = graph if single else f"{name}, {graph}"
            lines = found.setdefault((column(row), of), {})
            lines.setdefault(name, []).append((row, values))
    sweeps = []
    for (target, metric), lines in found.items():
        curves = []
        for name, histories in lines.items():
            at: dict[float, list[float]] = {}
            for row, history in histories:
                for x, value in zip(_epochs(row, len(history)), history, strict=True):
                    if value is not None:
                        at.setdefault(x, []).append(value)
            points = [_point(x, found) for x, found in sorted(at.items())]
            method = histories[0][0].method
            curves.append(Curve(name, ONE_STEP if ONE_STEP in name else method, points))
        together = [row for histories in lines.values() for row, _ in histories]
        curves += _levels_of_input(together, metric)
        sweeps.append(Sweep(target, metric, "epoch", curves))
    return sweeps


def _levels_of_input(rows: Sequence[ResultRow], metric: str) -> list[Curve]:
    """What a metric of the learned graph is on the input graph, where rows say that."""
    values = [_value(row, f"{INPUT}{metric}") for row in rows]
    known = [value for value in values if value is not None]
    return [Curve("input graph", "input graph", [], _point(0.0, known))] if known else []


def _epochs(row: ResultRow, count: int) -> Sequence[float]:
    for name in EPOCH_LISTS:
        given = row.metrics.get(name)
        if isinstance(given, tuple) and len(given) == count and None not in given:
            return [x for x in given if x is not None]
    return range(1, count + 1)


def _metric_names(rows: Iterable[ResultRow], *, lists: bool) -> list[str]:
    return list(
        dict.fromkeys(
            name
            for row in rows
            for name, value in row.metrics.items()
            if isinstance(value, tuple) == lists and name not in EPOCH_LISTS
        )
    )


def _value(row: ResultRow, quantity: str) -> float | None:
    if quantity == "test accuracy":
        return row.test_accuracy
    value = row.metrics.get(quantity)
    return value if isinstance(value, float) else None


def _curves(rows: Sequence[ResultRow], names: dict[str, str], quantity: str) -> list[Curve]:
    values: dict[tuple[str, str], dict[float, list[float]]] = {}
    papers: dict[tuple[str, float], float] = {}
    for row in rows:
        value, name = _value(row, quantity), names[row.cell]
        assert row.x is not None
        if value is not None:
            at = values.setdefault((name, row.method), {})
            at.setdefault(row.x, []).append(value)
        if quantity == "test accuracy" and row.paper is not None:
            papers[name, row.x] = row.paper
    return [
        Curve(name, method, [_point(x, v, papers.get((name, x))) for x, v in sorted(at.items())])
        for (name, method), at in values.items()
    ]


def _levels(rows: Sequence[ResultRow], names: dict[str, str], quantity: str) -> list[Curve]:
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        value = _value(row, quantity)
        if value is not None:
            values.setdefault((names[row.cell], row.method), []).append(value)
    return [Curve(name, method, [], _point(0.0, found)) for (name, method), found in values.items()]


def _point(x: float, values: list[float], paper: float | None = None) -> Point:
    std = statistics.stdev(values) if len(values) > 1 else None
    return Point(x, statistics.mean(values), std, len(values), paper)
