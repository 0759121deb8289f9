"""What the rows of the suite say: how far ahead, how often, how bad at worst; and its curves.

A cell is a target under a condition. Methods are compared on the same cells and seeds. Conditions
of one target are not independent, so that tests and standard errors count each target once.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from graphglow.lab.open_world.methods import NAMES, NEED_FEATURES, OTHERS, POOL
from graphglow.lab.open_world.suite import EXPERIMENT
from graphglow.lab.open_world.targets import (
    AS_IT_IS,
    ATTACKS,
    CONDITIONS,
    NO_FEATURES,
    attack_name,
)
from graphglow.lab.runs.rows import ResultRow

OURS = "predict"
BEST = "best"
HISTORY = {
    "untrained-0.2": "untrained 0.2 (five GNNs)",
    "instant": "instant 0.2",
    "graphglow": "transfer 0.2 (five GNNs)",
}
"""Methods of version 0.2 that have rows, and that nobody can run any more; all split the labels,
and ``instant`` leaves those of validation unread."""
LABELS = (
    {name: NAMES[name] for name in OTHERS}
    | {BEST: "best of these, by validation"}
    | HISTORY
    | NAMES
)
"""Of methods, and of what somebody has who tries all that have nothing of ours."""
TIE = 0.01
"""Means of a cell that are less apart are level."""


def _axis(series: str, first: dict[float, str]) -> dict[float, str]:
    swept = {c.x: c.name for c in CONDITIONS.values() if c.series == series}
    return dict(sorted((first | swept).items()))


AXES: dict[str, dict[float, str]] = {
    "false edges": _axis("false edges", {0.0: AS_IT_IS}),
    "lost edges": _axis("lost edges", {0.0: AS_IT_IS}),
    "labels per class": _axis("labels per class", {}),
    "attacked edges": {share / 100: attack_name(share) for share in ATTACKS},
}
"""Figures: the swept value of each condition."""
ORDER = (
    AS_IT_IS,
    *(name for points in AXES.values() for name in points.values() if name != AS_IT_IS),
    *(c.name for c in CONDITIONS.values() if c.series == "features"),
)
"""Of conditions, as people read them."""
MOSTLY = 0.6
"""A point of a curve needs so large a share of the targets; the rest would shift it."""

Cell = tuple[str, str]
"""Target and condition."""
Scores = dict[Cell, dict[str, dict[int, float]]]
"""By cell, method and seed."""


class Found:
    """Accuracies by cell, method and seed; of several rows for one run the last counts."""

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        known = {
            (row.target, row.series, row.method, row.seed): row
            for row in map(_with_history, rows)
            if row.experiment == EXPERIMENT
        }
        self.rows = [row for row in known.values() if row.test_accuracy is not None]
        self.failed = [row for row in known.values() if row.test_accuracy is None]
        self.scores: Scores = defaultdict(lambda: defaultdict(dict))
        tried: dict[tuple[Cell, int], list[tuple[float, float]]] = defaultdict(list)
        for row in self.rows:
            cell, accuracy = (row.target, row.series), row.test_accuracy or 0.0
            self.scores[cell][row.method][row.seed] = accuracy
            if row.method in OTHERS:
                tried[cell, row.seed].append((row.val_accuracy or 0.0, accuracy))
        for (cell, seed), some in tried.items():
            most = max(val for val, _ in some)
            level = [accuracy for val, accuracy in some if val == most]
            self.scores[cell][BEST][seed] = statistics.mean(level)

    @property
    def methods(self) -> list[str]:
        """Those that have rows."""
        there = {method for by_method in self.scores.values() for method in by_method}
        return [method for method in LABELS if method in there]

    @property
    def ours(self) -> str:
        """What others are compared with; of rows that are all older, the mixture of five GNNs."""
        there = {method for by_method in self.scores.values() for method in by_method}
        return OURS if OURS in there else "graphglow"

    def mean(self, cell: Cell, method: str) -> float | None:
        scores = self.scores[cell].get(method)
        return statistics.mean(scores.values()) if scores else None

    def lead(self, cell: Cell, method: str) -> float | None:
        """Ours less the method's, over the seeds that both have."""
        ours, theirs = (self.scores[cell].get(name, {}) for name in (self.ours, method))
        apart = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        return statistics.mean(apart) if apart else None

    def whole(self, conditions: Iterable[str]) -> list[Cell]:
        """Cells that every method has, but for those that need features where there are none."""
        wanted = [*conditions]
        return [
            cell
            for cell, found in self.scores.items()
            if cell[1] in wanted
            and all(m in found for m in self.methods if not lacks_features(m, cell[1]))
        ]


def _with_history(row: ResultRow) -> ResultRow:
    """``untrained`` trained five GNNs until version 0.2; its rows say nothing of labels."""
    if row.method == "untrained" and row.experiment == EXPERIMENT and "labels" not in row.config:
        return replace(row, method="untrained-0.2")
    return row


def labels_of(method: str) -> str:
    """What a line of the table does with the labels."""
    return "pool" if method in POOL else "train only" if method == "instant" else "split"


def lacks_features(method: str, condition: str) -> bool:
    """Whether there is nothing for the method to do."""
    return method in NEED_FEATURES and condition == NO_FEATURES


class Standing(NamedTuple):
    """A method over all cells that it shares with ours; shares, not per cent."""

    method: str
    means: dict[str, float]
    """By condition, over cells that all methods have."""
    mean: float
    """Over the conditions but that without features, each counting once."""
    cells: int
    lead: float
    """Of ours over it, in the mean over targets."""
    error: float
    """Standard error of the lead, over targets."""
    p: float | None
    """That of a paired t-test over targets; None for fewer than three."""
    worst: tuple[float, str, str]
    """The lead where it is least, with target and condition."""
    wins: int
    ties: int
    losses: int
    """Cells where ours is ahead, level and behind."""


def standings(found: Found) -> list[Standing]:
    """One for each method, ours among them."""
    from scipy.stats import ttest_1samp

    conditions = [c for c in ORDER if any(cell[1] == c for cell in found.scores)]
    whole = found.whole(conditions)
    lines = []
    for method in found.methods:
        means = {}
        for condition in conditions:
            some = [found.mean(cell, method) for cell in whole if cell[1] == condition]
            known = [mean for mean in some if mean is not None]
            if known:
                means[condition] = statistics.mean(known)
        leads = {
            cell: lead for cell in found.scores if (lead := found.lead(cell, method)) is not None
        }
        if not leads:
            continue
        of_target = defaultdict(list)
        for (target, _), lead in leads.items():
            of_target[target].append(lead)
        each = [statistics.mean(some) for some in of_target.values()]
        spread = len(each) > 2 and max(each) > min(each)
        worst = min((lead, *cell) for cell, lead in leads.items())
        level = [
            mean
            for condition, mean in means.items()
            if condition != NO_FEATURES and not condition.startswith("metattack")  # one graph
        ]
        lines.append(
            Standing(
                method,
                means,
                statistics.mean(level) if level else float("nan"),
                len(leads),
                statistics.mean(each),
                _error(each),
                float(ttest_1samp(each, 0).pvalue) if spread else None,
                worst,
                sum(lead >= TIE for lead in leads.values()),
                sum(-TIE < lead < TIE for lead in leads.values()),
                sum(lead <= -TIE for lead in leads.values()),
            )
        )
    return lines


class Curve(NamedTuple):
    """A method along an axis: means over targets (or seeds, of one target), and their errors."""

    method: str
    x: list[float]
    y: list[float]
    error: list[float]

    @classmethod
    def through(cls, method: str, points: dict[float, list[float]]) -> "Curve":
        """The means of the values at each x, and their standard errors."""
        values = points.values()
        return cls(method, [*points], [*map(statistics.mean, values)], [*map(_error, values)])


class Sweep(NamedTuple):
    """Curves over an axis: means over targets that have every point, and each of these alone."""

    axis: str
    curves: list[Curve]
    targets: dict[str, list[Curve]]


def sweeps(found: Found) -> list[Sweep]:
    """A figure for each axis that has two points or more."""
    methods = [method for method in found.methods if method != BEST]
    made = []
    for axis, points in AXES.items():
        whole = found.whole(points.values())
        there = {x: {t for t, c in whole if c == name} for x, name in points.items()}
        most = max(map(len, there.values()), default=0)
        kept = {x: points[x] for x, targets in there.items() if len(targets) > MOSTLY * most}
        shared = sorted(set.intersection(*(there[x] for x in kept))) if kept else []
        if len(kept) > 1 and shared:
            made.append(Sweep(axis, [], {target: [] for target in shared}))
            for m in methods:
                every = {x: [found.mean((t, c), m) or 0.0 for t in shared] for x, c in kept.items()}
                made[-1].curves.append(Curve.through(m, every))
                for target, own in made[-1].targets.items():
                    seeds = {x: [*found.scores[target, c][m].values()] for x, c in kept.items()}
                    own.append(Curve.through(m, seeds))
    return made


def _error(values: list[float]) -> float:
    """Standard error of their mean."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
