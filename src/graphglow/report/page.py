"""The demo's page: one self-contained HTML file, no network, no scripts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphglow.experiments.demo import Refined, Row, Summary, summarise
from graphglow.report.template import percent, render
from graphglow.storage import atomic_path

METHOD_NOTES = {
    "graphglow": "The pre-trained structure learner, frozen; only a small GNN is trained on the "
    "target.",
    "graphglow*": "The same model with the structure learner trained on the target itself.",
    "random-theta": "Control: the same model and training with a structure learner that was never "
    "trained. What graphglow gains over it is what pre-training gives.",
    "gcn": "Control: the same GNN, of the same size, on the input graph alone. What graphglow "
    "gains over it is what the learned graph gives.",
    "logistic-regression": "Control: scikit-learn's logistic regression on the node features, "
    "without any graph. Where it wins, the graph is no help.",
}
"""What each method is, in words; a method that is not here is shown by its name alone."""


@dataclass(frozen=True)
class Line:
    """One method in the table of one target."""

    method: str
    accuracy: str
    spread: str
    share: float
    seconds: str
    best: bool


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
    summary = summarise(rows)
    methods = list(dict.fromkeys(row.method for row in rows))
    page = render(
        "page.html.j2",
        title=title,
        targets={target: _lines(methods) for target, methods in summary.items()},
        num_seeds=len({row.seed for row in rows}),
        verdicts=verdicts(rows),
        notes={method: METHOD_NOTES.get(method, "") for method in methods},
        pretraining=pretraining,
        settings=settings or {},
        versions=versions or {},
        refined=refined,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def verdicts(rows: list[Row]) -> list[str]:
    """Say, for each control, on how many targets graphglow's mean is above, at and below it."""
    summary = summarise(rows)
    sentences = []
    for control in dict.fromkeys(row.method for row in rows if row.method != "graphglow"):
        pairs = [
            (methods["graphglow"].mean, methods[control].mean)
            for methods in summary.values()
            if "graphglow" in methods and control in methods
        ]
        known = [(o, t) for o, t in pairs if o is not None and t is not None]
        if known:
            above = sum(ours > theirs for ours, theirs in known)
            below = sum(ours < theirs for ours, theirs in known)
            sentences.append(
                f"graphglow against {control}: mean accuracy higher on {above}, equal on "
                f"{len(known) - above - below}, lower on {below} of {len(known)} targets."
            )
    return sentences


def _lines(methods: dict[str, Summary]) -> list[Line]:
    best = max((s.mean for s in methods.values() if s.mean is not None), default=None)
    return [
        Line(
            method=method,
            accuracy=percent(summary.mean),
            spread="" if summary.std is None else f"\u00b1 {100 * summary.std:.1f}",
            share=100 * (summary.mean or 0.0),
            seconds=f"{summary.seconds:.2f}",
            best=best is not None and summary.mean == best,
        )
        for method, summary in methods.items()
    ]
