"""What the rows of the suite say: how far ahead, how often, how bad at worst; and its curves.

A cell is a target under a condition. Methods are compared on the same cells and seeds. Conditions
of one target are not independent, so tests and standard errors count each target once.
"""

from collections.abc import Iterable

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


TITLES = ("mean", "ahead", "error", "worst", "wins", "ties", "losses")


def leads_of(found: Standings) -> pd.DataFrame:
    """Return a line for each method, ours among them; shares, not per cent.

    Means by condition are over cells that all methods have; ``mean`` is over the conditions but
    that without features and attacks, each counting once. ``ahead`` is the lead of ours over the
    method, with its standard error, in the mean over targets; ``worst`` the least in a cell; then
    cells where ours is ahead, level and behind.
    """
    means = found.whole().groupby(level="series").mean().T
    counted = [c for c in means if c != NO_FEATURES and not c.startswith("metattack")]
    lines = {}
    for method in found.methods:
        leads = found.leads(method)
        if leads.empty:
            continue
        each = leads.groupby(level="target").mean()
        level, error = leads.abs() < TIE, each.sem() if len(each) > 1 else 0.0
        cells = ((leads >= TIE).sum(), level.sum(), (leads <= -TIE).sum())
        mean = means.loc[method, counted].mean()
        lines[method] = [mean, each.mean(), error, leads.min(), *cells]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=TITLES)
    return means.join(table, how="right")


def standings_table(rows: Iterable[Row]) -> str:
    """Return the table in Markdown: per cent, and points that ours is ahead."""
    found = Standings(rows)
    if not found.runs:
        return NO_ROWS
    lines = leads_of(found)
    conditions = [name for name in SHOWN if name in lines]
    table = []
    for method, line in lines.iterrows():
        ours = method == found.ours
        means = [*conditions, "mean"]
        cells = [LABELS[method], _labels_of(method)]
        cells += ["" if pd.isna(line[c]) else f"{100 * line[c]:.1f}" for c in means]
        cells += 3 * [""] if ours else [
            f"{100 * line.ahead:+.1f} +- {100 * line.error:.1f}",
            f"{100 * line.worst:+.1f}",
            f"{line.wins:.0f} / {line.ties:.0f} / {line.losses:.0f}",
        ]  # fmt: skip
        table.append([f"**{cell}**" if ours and cell else cell for cell in cells])
    titles = ["", "labels", *conditions, "mean", f"{LABELS[found.ours]} ahead by", "worst"]
    return markdown([*titles, "wins / ties / losses"], table)


def _labels_of(method: str) -> str:
    """What a method does with the labels."""
    if method == BEST:
        return ""
    return "pool" if method in POOL else "train only" if method == "instant-0.2" else "split"


def curves(found: Standings) -> dict[str, pd.DataFrame]:
    """Return accuracy along each axis: targets and swept values (rows) by methods.

    Of points that most targets have, and of targets that have every such point.
    """
    whole = found.whole()[[name for name in found.methods if name != BEST]]
    made = {}
    for axis, points in AXES.items():
        x = {name: value for value, name in points.items()}
        part = whole[whole.index.isin(x, level="series")].rename(index=x, level="series")
        count = part.groupby(level="series").size()
        kept = count.index[count > MOSTLY * count.max()]
        part = part[part.index.isin(kept, level="series")]
        part = part[part.groupby(level="target").transform("size") == len(kept)]
        if len(kept) > 1 and len(part):
            made[axis] = part.rename_axis(index={"series": "x"}).sort_index()
    return made
