"""The demo's page."""

from pathlib import Path

from graphglow.demo import LABELS, METHODS, DemoResult, gains, summarise
from graphglow.report.page import signed, write_page


def write_report(result: DemoResult, path: str | Path, *, title: str = "graphglow demo") -> None:
    """Write the page, whole or not at all; an existing file is replaced."""
    write_page(
        path,
        "demo.html.j2",
        title=title,
        targets=summarise(result.rows),
        about=result.targets,
        methods=[name for name in METHODS if any(row.method == name for row in result.rows)],
        labels=LABELS,
        gains=gains(result.rows),
        headline=headline(result),
        refined=result.refined,
        settings=result.settings,
        versions=result.versions,
    )


def headline(result: DemoResult) -> list[str]:
    """Say what predict gains or loses against others, and against itself untrained."""
    sentences = []
    for who, untrained in (
        ("the best of GCN, a bag of five and logistic regression", False),
        ("the same network never trained", True),
    ):
        over = [gain for gain in gains(result.rows) if (gain.control == "untrained") is untrained]
        parts = [f"{signed(gain.difference)} points on {gain.target}" for gain in over]
        ahead = sum(gain.difference > 0 and gain.beyond_chance for gain in over)
        if over:
            sentences.append(
                f"predict over {who}: {', '.join(parts)}; beyond chance on {ahead} of "
                f"{len(over)} targets."
            )
    return sentences
