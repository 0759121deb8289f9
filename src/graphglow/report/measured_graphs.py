"""Learned graphs beside the input graph: what rows measured on them when training ended."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from graphglow.report.comparison import line_names, target_column
from graphglow.report.result_rows import ResultRow
from graphglow.report.sweeps import INPUT, MEASURES, PIVOT, measure

Spread = tuple[float, float | None]
"""Mean and sample standard deviation."""


class Measured(NamedTuple):
    """One measure of the graphs of one line on one target."""

    target: str
    line: str
    measure: str
    given: Spread
    two_steps: Spread
    to_pivots: Spread | None
    alone: bool = False
    """Whether lambda = 1 in all its runs, so that no message goes over the learned graph."""

    @property
    def difference(self) -> float:
        """What messages go over, against the input graph."""
        return self.two_steps[0] - self.given[0]


def measured_graphs(rows: Sequence[ResultRow]) -> list[Measured]:
    """A line for each measure that rows have over epochs, and on the input graph."""
    column = target_column(rows)
    names = line_names(rows, lambda row: (column(row), row.x))
    groups: dict[tuple[str, str, str], list[ResultRow]] = {}
    for row in rows:
        for metric in of_two_graphs(row):
            groups.setdefault((column(row), names[row.cell], metric), []).append(row)
    found = []
    for (target, line, metric), group in groups.items():
        given = spread([row.metrics[f"{INPUT}{metric}"] for row in group])
        after = spread([_last(row, metric) for row in group])
        pivots = spread([_last(row, f"{PIVOT}{metric}") for row in group])
        if given is not None and after is not None:
            alone = all(row.alone for row in group)
            found.append(Measured(target, line, measure(metric), given, after, pivots, alone))
    return found


def meaning(found: Sequence[Measured]) -> list[str]:
    """What the paper's measure says of the learned graphs, in plain words."""
    mine = [one for one in found if one.measure == MEASURES["homophily"]]
    if not mine:
        return []
    below = sum(one.difference < 0 for one in mine)
    said = f"that of two steps is on {below} of {len(mine)}"
    pivots = [(*one.to_pivots, one.given[0]) for one in mine if one.to_pivots is not None]
    if pivots:
        under = [(mean, std, given) for mean, std, given in pivots if mean < given]
        within = sum(std is not None and given - mean <= std for mean, std, given in under)
        said += f", that to pivots on {len(under)} of {len(pivots)}"
        said += f" ({within} within one standard deviation)" if within else ""
    if below == 0 and not any(one.alone for one in mine):
        said = (
            "When training ends, the learned graph is more homophilous than the input graph on "
            f"{len(mine)} of {len(mine)} targets, as the paper reports."
        )
    elif below == len(mine):
        said = (
            "When training ends, the learned graph is less homophilous than the input graph on "
            f"these targets: {said}. The paper reports the opposite, a rise to well above the "
            "input graph."
        )
    else:
        said = (
            f"When training ends, below the homophily of the input graph: {said}. The paper "
            "reports a rise to well above it on all."
        )
    sentences = [said]
    if any(one.alone for one in found):
        which = "these" if all(one.alone for one in found) else "some of these"
        sentences.append(
            f"In {which} runs lambda = 1 won on validation: no message goes over the learned "
            "graph, and accuracy does not depend on it. Measured is what the frozen learner would "
            "join, given the embeddings of that epoch."
        )
    return sentences


def of_two_graphs(row: ResultRow) -> list[str]:
    """Metrics that a row has over epochs and, as one number, of the input graph."""
    return [
        name
        for name, value in row.metrics.items()
        if isinstance(value, tuple) and isinstance(row.metrics.get(f"{INPUT}{name}"), float)
    ]


def spread(values: Sequence[object]) -> Spread | None:
    """Of those that are numbers."""
    known = [value for value in values if isinstance(value, float)]
    if not known:
        return None
    return statistics.mean(known), statistics.stdev(known) if len(known) > 1 else None


def _last(row: ResultRow, name: str) -> float | None:
    values = row.metrics.get(name)
    known = [v for v in values if v is not None] if isinstance(values, tuple) else []
    return known[-1] if known else None
