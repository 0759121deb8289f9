"""What the rows of the suite say: how far ahead, how often, how bad at worst; and its curves.

A cell is a target under a condition. Methods are compared on the same cells and seeds. Conditions
of one target are not independent, so tests and standard errors count each target once.
"""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from graphglow.lab.open_world.methods import NAMES, NEED_FEATURES, OTHERS, POOL
from graphglow.lab.open_world.suite import EXPERIMENT
from graphglow.lab.open_world.targets import (
    AS_IT_IS,
    ATTACKS,
    CONDITIONS,
    NO_FEATURES,
    attack_name,
)
from graphglow.lab.rows import Row
from graphglow.lab.tables import NO_ROWS, markdown

BEST = "best"
HISTORY = {
    "untrained-0.2": "untrained 0.2 (five GNNs)",
    "instant-0.2": "instant 0.2",
    "transfer-0.2": "transfer 0.2 (five GNNs)",
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
SHOWN = ("as it is", "false edges 1x", "lost edges 60%", "5 labels per class",
         "half the features noise", "no features")  # fmt: skip
"""Conditions that are columns of the table."""
AXES: dict[str, dict[float, str]] = {
    series: dict(sorted({c.x: c.name for c in CONDITIONS.values() if c.series == series}.items()))
    for series in ("false edges", "lost edges", "labels per class")
} | {"attacked edges": {share / 100: attack_name(share) for share in ATTACKS}}
"""Curves: the condition at each swept value."""
for _axis in ("false edges", "lost edges"):
    AXES[_axis] = {0.0: AS_IT_IS} | AXES[_axis]
MOSTLY = 0.6
"""A point of a curve needs so large a share of the targets; the rest would shift it."""


class Standings:
    """Accuracies of the suite by target, condition and seed (rows), and method (columns).

    Of several rows for one run the last counts.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        mine = [row for row in rows if row["experiment"] == EXPERIMENT]
        names = ["target", "series", "seed", "method"]
        table = pd.DataFrame([row for row in mine if "test_accuracy" in row]).reindex(
            columns=[*names, "test_accuracy", "val_accuracy"]
        )
        table = table.drop_duplicates(names, keep="last")
        self.runs = len(table)
        self.scores = table.pivot(index=names[:3], columns="method", values="test_accuracy")
        others = table[table["method"].isin(OTHERS)]
        top = others.groupby(names[:3])["val_accuracy"].transform("max")
        level = others[others["val_accuracy"] == top]  # several may share the best validation
        self.scores[BEST] = level.groupby(names[:3])["test_accuracy"].mean()
        known = self.scores.columns[self.scores.notna().any()]
        self.methods = [name for name in LABELS if name in known]
        self.ours = "predict" if "predict" in self.scores else "transfer-0.2"
        self.cells = self.scores.groupby(level=["target", "series"]).mean()

    def leads(self, method: str) -> pd.Series:
        """Return ours less the method's by cell, over the seeds that both have."""
        apart = (self.scores[self.ours] - self.scores[method]).dropna()
        return apart.groupby(level=["target", "series"]).mean()

    def whole(self) -> pd.DataFrame:
        """Return the cells that every method has, those aside that lack features there."""
        bare = self.cells.index.get_level_values("series") == NO_FEATURES
        known = self.cells[self.methods].notna()
        known.loc[bare, [name for name in NEED_FEATURES if name in known]] = True
        return self.cells[known.all(axis=1)]


class Line(NamedTuple):
    """A method over all cells that it shares with ours; shares, not per cent."""

    method: str
    means: dict[str, float]
    """By condition, over cells that all methods have."""
    mean: float
    """Over the conditions but that without features and attacks, each counting once."""
    lead: float
    """Of ours over it, in the mean over targets."""
    error: float
    """Standard error of the lead, over targets."""
    p: float | None
    """That of a paired t-test over targets; None for fewer than three."""
    worst: float
    """The least lead in a cell."""
    wins: int
    ties: int
    losses: int
    """Cells where ours is ahead, level and behind."""


def lines_of(found: Standings) -> list[Line]:
    """Return a line for each method, ours among them."""
    from scipy.stats import ttest_1samp

    conditions = found.whole().groupby(level="series")
    lines = []
    for method in found.methods:
        leads = found.leads(method)
        if leads.empty:
            continue
        means = conditions[method].mean().dropna().to_dict()
        counted = [
            mean
            for name, mean in means.items()
            if name != NO_FEATURES and not name.startswith("metattack")  # of one graph
        ]
        each = leads.groupby(level="target").mean()
        spread = len(each) > 2 and each.max() > each.min()
        lines.append(
            Line(
                method,
                means,
                sum(counted) / len(counted) if counted else float("nan"),
                float(each.mean()),
                float(each.sem()) if len(each) > 1 else 0.0,
                float(ttest_1samp(each, 0).pvalue) if spread else None,
                float(leads.min()),
                int((leads >= TIE).sum()),
                int((leads.abs() < TIE).sum()),
                int((leads <= -TIE).sum()),
            )
        )
    return lines


def standings_table(rows: Iterable[Row]) -> str:
    """Return the table in Markdown: per cent, and points that ours is ahead."""
    found = Standings(rows)
    if not found.runs:
        return NO_ROWS
    lines, best = lines_of(found), LABELS[found.ours]
    conditions = [name for name in SHOWN if any(name in line.means for line in lines)]
    table = []
    for line in lines:
        ours = line.method == found.ours
        cells = [
            LABELS[line.method],
            _labels_of(line.method),
            *(f"{100 * line.means[c]:.1f}" if c in line.means else "" for c in conditions),
            f"{100 * line.mean:.1f}",
            "" if ours else f"{100 * line.lead:+.1f} +- {100 * line.error:.1f}",
            "" if ours else f"{100 * line.worst:+.1f}",
            "" if ours else f"{line.wins} / {line.ties} / {line.losses}",
        ]
        table.append([f"**{cell}**" if ours and cell else cell for cell in cells])
    titles = ["", "labels", *conditions, "mean", f"{best} ahead by", "worst"]
    return markdown([*titles, "wins / ties / losses"], table)


def _labels_of(method: str) -> str:
    """What a method does with the labels."""
    if method == BEST:
        return ""
    return "pool" if method in POOL else "train only" if method == "instant-0.2" else "split"


class Sweep(NamedTuple):
    """Accuracy along an axis: by swept value (rows) and method (columns), with standard errors."""

    axis: str
    means: pd.DataFrame
    errors: pd.DataFrame
    targets: dict[str, pd.DataFrame]
    """The means of each target that has every point."""


def sweeps(found: Standings) -> list[Sweep]:
    """Return a sweep for each axis with two points or more that most targets have."""
    whole = found.whole()[[name for name in found.methods if name != BEST]]
    made = []
    for axis, points in AXES.items():
        at = {x: whole.xs(name, level="series") for x, name in points.items()
              if name in whole.index.get_level_values("series")}  # fmt: skip
        most = max(map(len, at.values()), default=0)
        at = {x: cells for x, cells in at.items() if len(cells) > MOSTLY * most}
        shared = (
            sorted(set.intersection(*(set(cells.index) for cells in at.values()))) if at else []
        )
        if len(at) > 1 and shared:
            means = pd.DataFrame({x: cells.loc[shared].mean() for x, cells in at.items()}).T
            errors = pd.DataFrame({x: cells.loc[shared].sem() for x, cells in at.items()}).T
            each = {
                name: pd.DataFrame({x: c.loc[name] for x, c in at.items()}).T for name in shared
            }
            made.append(Sweep(axis, means, errors.fillna(0.0), each))
    return made
