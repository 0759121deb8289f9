"""What the rows of the suite say: how far ahead, how often, how bad at worst; and its curves.

A cell is a target under a condition. Methods are compared on the same cells and seeds. Conditions
of one target are not independent, so standard errors count each target once.
"""

from collections.abc import Iterable

import pandas as pd

from graphglow.lab.open_world.methods import METHOD_TITLES, NEED_FEATURES, POOL, RIVALS
from graphglow.lab.open_world.targets import AS_IT_IS, CONDITIONS, NO_FEATURES
from graphglow.lab.paper_markdown import NO_ROWS, markdown
from graphglow.lab.row_files import Row

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
    names = ["target", "series", "seed", "method"]
    given = [row for row in rows if "test_accuracy" in row]
    table = pd.DataFrame(given, columns=[*names, "test_accuracy", "val_accuracy"])
    table = table.drop_duplicates(names, keep="last")
    scores = table.pivot(index=names[:3], columns="method", values="test_accuracy")
    rivals = table[table["method"].isin(RIVALS)]
    top = rivals.groupby(names[:3])["val_accuracy"].transform("max")
    level = rivals[rivals["val_accuracy"] == top]
    scores[BEST] = level.groupby(names[:3])["test_accuracy"].mean()
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
