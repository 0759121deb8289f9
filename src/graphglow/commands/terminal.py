"""What people see: tables on standard output, progress on standard error if it is a terminal."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:  # these import torch
    from graphglow.gnn.train import Epoch, OnEpoch


def interactive() -> bool:
    """Whether somebody watches."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def waiting(what: str) -> AbstractContextManager[object]:
    """Show a spinner while the block runs."""
    return Console(stderr=True).status(escape(what)) if interactive() else nullcontext()


@contextmanager
def epoch_bar(label: str, epochs: int, visits: int = 1) -> Iterator["OnEpoch | None"]:
    """Yield an ``on_epoch`` that moves a progress bar, or None where nobody watches.

    Args:
        label: What is being done.
        epochs: Most epochs of one visit; a visit may end early.
        visits: How often the epochs start again at 1.
    """
    if not interactive():
        yield None
        return
    columns = ("{task.description}", BarColumn(), "{task.fields[facts]}", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(escape(label), total=epochs * visits, facts="")
        visit = -1

        def on_epoch(epoch: "Epoch") -> None:
            nonlocal visit
            visit += epoch.epoch == 1
            facts = (
                f"{epoch.graph} epoch {epoch.epoch}/{epochs}  loss {epoch.loss:.3f}  "
                f"validation {epoch.val_accuracy:.1%}"
            )
            progress.update(bar, completed=visit * epochs + epoch.epoch, facts=escape(facts))

        yield on_epoch


@contextmanager
def job_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yield what moves a bar: told what is being done, how many are done, and of how many."""
    if not interactive():
        yield lambda said, done, total: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), "{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda said, done, total: bar.update(
            task, description=escape(said), completed=done, total=total
        )


def show_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print lines of text as a table; under names, numbers (by the first row) stand right.

    One that is wider than the terminal is folded, never cut.
    """
    lines = [[escape(printable(cell)) for cell in row] for row in rows]
    table = Table(title=escape(printable(title)) or None, title_justify="left", box=SIMPLE_HEAD)
    table.show_header, table.pad_edge, table.padding = any(columns), False, (0, 2, 0, 0)
    for column, first in zip(columns, lines[0], strict=True):
        number = column and first.translate(str.maketrans("", "", ",.%")).isdecimal()
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    Console().print(table)


def say(text: str) -> None:
    """Print plain text as it is, less control characters."""
    lines = "\n".join(map(printable, text.split("\n")))
    Console(soft_wrap=True).print(lines, markup=False, highlight=False)


def note(text: str) -> None:
    """Print one line on standard error, which scripts that read standard output do not see."""
    with suppress(OSError):  # no room for words is no reason to stop
        print(f"graphglow: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def tell(title: str, facts: Mapping[str, Any], *, json: bool) -> None:
    """Print the facts of a run: as they are for programs, with units and words for people."""
    if json:
        print_json(facts)
        return
    hidden = (*NOT_SHOWN, *(name for name, v in facts.items() if v is None or v is False))
    shown = {name: value for name, value in facts.items() if name not in hidden}
    rows = [(LABELS.get(n, n.replace("_", " ")), _worded(n, v)) for n, v in shown.items()]
    show_rows(("", ""), rows, title)


NOT_SHOWN = ("command", "visit_scores")
LABELS = {
    "val_accuracy": "validation accuracy",
    "input_weight": "lambda, weight of the input graph",
    "chosen_by": "lambda chosen by",
    "peak_memory_bytes": "peak memory",
    "target_was_source": "pre-trained on a graph of this name",
    "out": "written to",
    "predictions": "predictions in",
    "controls": "others on this split",
    "metrics": "more on the test nodes",
}
"""What facts are called where their name does not say it."""
SHARES = {
    "balanced_accuracy": "balanced accuracy",
    "f1_macro": "F1",
    "auc": "AUC",
    "calibration_error": "calibration error",
}
"""What people see of a run's metrics."""


def _worded(name: str, value: Any) -> str:
    """The value of a fact as people read it."""
    if isinstance(value, float):
        if name in ("weight_decay", "input_weight"):
            return f"{value:g}"
        return f"{value:.1f}" if name.endswith("seconds") else percent(value)
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, int):
        return f"{value / 2**20:.0f} MiB" if name.endswith("bytes") else f"{value:,}"
    if name == "controls":  # on test nodes, where there are some
        best = {
            one: next((v for v in found.values() if v is not None), None)
            for one, found in value.items()
        }
        return ", ".join(f"{one} {percent(share)}" for one, share in best.items())
    if name == "metrics":
        shares = {one: share for one, share in value.items() if one in SHARES}
        return ", ".join(f"{SHARES[one]} {percent(share)}" for one, share in shares.items())
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    return ", ".join(_worded(name, one) for one in value) if isinstance(value, list) else str(value)


def print_json(facts: Mapping[str, Any]) -> None:
    """Print one line of strict JSON."""
    sys.stdout.write(json.dumps(strict(facts), allow_nan=False) + "\n")


def percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{share:.1%}"


def printable(value: object) -> str:
    """Text without control characters, which file names may hold."""
    text = str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def strict(value: Any) -> Any:
    """``value`` as strict JSON can hold it: NaN and infinity become None, paths become text."""
    if hasattr(value, "_asdict"):  # a NamedTuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
