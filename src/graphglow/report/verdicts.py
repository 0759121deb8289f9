"""What a table says in words: who is ahead of whom, and where no learned graph plays a part."""

import statistics
from typing import NamedTuple

from graphglow.experiments.paper.lines import NAMES, OWN_LINES
from graphglow.report.comparison import Comparison, Line, Versus, against

JUDGED = {
    "graphglow": ("gcn", "random-theta"),
    "graphglow-on": ("gcn", "random-on"),
    "graphglow-degree": ("gcn", "random-degree"),
    "graphglow-sharp": ("gcn", "random-sharp"),
    "graphglow-backbone": ("gcn", "random-backbone"),
    "graphglow-star": ("gcn", "random-theta"),
}
"""Lines of ours, and what each must beat to be worth its while: the same GNN without a learned
graph, and the same model whose structure learner was never trained."""
LABELS = {key: label for key, (_, label) in OWN_LINES.items()}
"""Of lines that share their method with another."""
FALLBACK = ("graphglow-star",)
"""Judged only where none of the others is."""


class Verdicts(NamedTuple):
    """A line of ours against its controls, column by column."""

    ours: str
    controls: list[str]
    rows: list[tuple[str, list[Versus | None]]]
    """By column; None where one of the two has no score."""


def verdict_tables(table: Comparison) -> list[Verdicts]:
    """How each of ``JUDGED`` fares against those of its controls that are in the table."""
    found: list[Verdicts] = []
    for key, controls in JUDGED.items():
        ours = line_of(table, key)
        others = [line for control in controls if (line := line_of(table, control))]
        if ours is None or not others or (key in FALLBACK and found):
            continue
        rows = [
            (column, [against(ours.cells[at], line.name, line.cells[at]) for line in others])
            for at, column in enumerate(table.columns)
        ]
        found.append(Verdicts(ours.name, [line.name for line in others], rows))
    return found


def line_of(table: Comparison, key: str) -> Line | None:
    """The line that goes by the label of a key; else the only one of that method."""
    if key in LABELS:
        return next((line for line in table.lines if line.name == LABELS[key]), None)
    lines = [line for line in table.lines if line.method == key]
    named = [line for line in lines if line.name.lower() in (key, NAMES.get(key, key).lower())]
    lines = [line for line in lines if line.name not in LABELS.values()]
    return next(iter(named or (lines if len(lines) == 1 else [])), None)


def verdicts(table: Comparison) -> list[str]:
    """Say of each of our lines how it fares against the best control, and against the paper."""
    sentences = []
    for line in table.lines:
        cells = [cell for cell in line.cells if cell is not None and cell.mean is not None]
        tests = [cell.versus for cell in cells if cell.versus is not None]
        if line.ours and tests:
            said = [versus.verdict for versus in tests]
            sentences.append(
                f"{line.name} has the highest mean on {sum(c.best for c in cells)} of "
                f"{_targets(len(cells))}. Against the best control of each it is significantly "
                f"higher on {said.count('higher')} and lower on {said.count('lower')}."
            )
        apart = [cell.from_paper for cell in cells if cell.from_paper is not None]
        if line.ours and apart:
            sentences.append(
                f"{line.name} is {abs(100 * statistics.mean(apart)):.1f} points "
                f"{'above' if statistics.mean(apart) >= 0 else 'below'} the paper's figures on "
                f"average over {_targets(len(apart))}."
            )
    return sentences + _switched_off(table)


def _switched_off(table: Comparison) -> list[str]:
    """How often validation preferred the input graph alone, in one sentence."""
    counts = []
    for line in table.lines:
        cells = [cell for cell in line.cells if cell is not None and cell.mean is not None]
        alone = sum(bool(cell.alone) for cell in cells)
        if line.ours and alone:
            counts.append(f"{line.name} on {alone} of {_targets(len(cells))}")
    if not counts:
        return []
    return [
        f"The learned graph is switched off (\u2020) for {'; '.join(counts)}: what stands there is "
        "the backbone alone, and says nothing about the learned graph."
    ]


def _targets(count: int) -> str:
    return f"{count} target{'' if count == 1 else 's'}"
