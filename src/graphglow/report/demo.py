"""The demo's page: no scripts, so it needs no Plotly."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphglow.experiments.demo import Refined, Row, summarise
from graphglow.report.page import write_page


def write_report(
    rows: list[Row],
    path: str | Path,
    *,
    title: str = "graphglow report",
    pretraining: Mapping[str, Any] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    versions: Mapping[str, str] | None = None,
    refined: Refined | None = None,
) -> None:
    """Write the page, whole or not at all; an existing file is replaced.

    Args:
        rows: One row per method, target and seed.
        path: Where to write.
        title: Heading of the page.
        pretraining: How the learner was made: ``sources``, ``seed``, ``val_accuracy``, ``seconds``.
        settings: For each command, the flags that differ from the defaults.
        versions: What ran, and on what.
        refined: The refined graph of one target.
    """
    write_page(
        path,
        "demo.html.j2",
        charts=False,
        title=title,
        targets=summarise(rows),
        methods=list(dict.fromkeys(row.method for row in rows)),
        num_seeds=len({row.seed for row in rows}),
        verdicts=verdicts(rows),
        pretraining=pretraining,
        settings=settings or {},
        versions=versions or {},
        refined=refined,
    )


def verdicts(rows: list[Row]) -> list[str]:
    """Say, for each control, on how many targets a learner's mean is above, at and below it."""
    sentences, targets = [], summarise(rows).values()
    methods = dict.fromkeys(row.method for row in rows)
    evidence = [name for name in methods if name.startswith("evidence")]
    paper = [name for name in methods if name not in ("graphglow", *evidence)]
    pairs = [("evidence", name) for name in (*evidence[1:], *paper) if name != "random-theta"]
    for both in [*pairs, *(("graphglow", name) for name in paper)]:
        means = [[of[name].mean for name in both] for of in targets if of.keys() >= set(both)]
        signs = [(a > b) - (a < b) for a, b in means if a is not None and b is not None]
        if signs:
            higher, equal, lower = map(signs.count, (1, 0, -1))
            sentences.append(
                f"{both[0]} against {both[1]}: mean accuracy higher on {higher}, equal on {equal}, "
                f"lower on {lower} of {len(signs)} targets."
            )
    return sentences
