"""What commands print and write: tables, JSON, progress, and files that are checked beforehand."""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphglow.errors import InputError

if TYPE_CHECKING:  # it imports torch
    from graphglow.gnn.train import Epoch

TENSOR_SUFFIXES = (".safetensors", ".st")
SHIPPED = Path(__file__).parents[1] / "pretrained"
"""Where the learners are that names stand for."""
LABELS = {
    "leave_one_out_accuracy": "accuracy",
    "val_accuracy": "validation accuracy",
    "input_weight": "lambda, weight of the input graph",
    "peak_memory_bytes": "peak memory",
    "target_was_source": "pre-trained on a graph of this name",
    "out": "written to",
    "predictions": "predictions in",
}
"""Facts whose names do not say enough to people."""
NUMBERS = ("weight_decay", "input_weight", "auroc", "average_precision", "log_loss")
"""Facts that are fractions, but not shown as percentages."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table; under names, numbers stand right. A wide cell is folded, never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    lines = [[escape(printable(cell)) for cell in row] for row in rows]
    table = Table(title=escape(printable(title)) or None, title_justify="left", box=SIMPLE_HEAD)
    table.show_header, table.pad_edge, table.padding = any(columns), False, (0, 2, 0, 0)
    for place, column in enumerate(columns):
        number = column and lines and lines[0][place].strip("+-%").replace(",", "")[:1].isdigit()
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    Console().print(table)


def print_text(text: str) -> None:
    """Print plain text as it is, less control characters."""
    sys.stdout.write(printable(text) + "\n")


def print_json(facts: Mapping[str, Any]) -> None:
    """Print one line of strict JSON."""
    sys.stdout.write(json.dumps(strict(facts), allow_nan=False) + "\n")


def print_facts(title: str, facts: Mapping[str, Any], *, json: bool) -> None:
    """Print the facts of a run: as they are for programs, with units and words for people."""
    if json:
        return print_json(facts)
    rows = [
        (LABELS.get(name, name.replace("_", " ")), _in_words(name, value))
        for name, value in facts.items()
        if value is not None and value is not False and name != "command"
    ]
    print_table(("", ""), rows, title)


def print_note(text: str) -> None:
    """Print one line on standard error, which scripts that read standard output do not see."""
    with suppress(OSError):  # no room for words is no reason to stop
        print(f"graphglow: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def _in_words(name: str, value: Any) -> str:
    """Return the value of a fact as people read it."""
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, int):
        return f"{value / 2**20:.0f} MiB" if name.endswith("bytes") else f"{value:,}"
    if isinstance(value, float):
        if name in NUMBERS:
            return f"{value:.3g}"
        return f"{value:.1f}" if name.endswith("seconds") else percent(value)
    if isinstance(value, Mapping):
        items = [(k, v) for k, v in value.items() if v is not None and not isinstance(v, list)]
        return ", ".join(f"{k.replace('_', ' ')} {_in_words(k, v)}" for k, v in items)
    if isinstance(value, list | tuple):
        return ", ".join(_in_words(name, item) for item in value)
    return "-" if value is None else str(value)


def percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{share:.1%}"


def printable(value: object) -> str:
    """Text without control characters other than line breaks, which file names may hold."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in str(value)
    )


def strict(value: Any) -> Any:
    """Return ``value`` as strict JSON: NaN and infinity become None, paths become text."""
    if hasattr(value, "_asdict"):  # a NamedTuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def check_output(
    path: Path,
    *,
    overwrite: bool,
    suffixes: Sequence[str] = (),
    inputs: Sequence[object] = (),
) -> Path:
    """Return ``path`` if a file can be written there, which may not be one of the ``inputs``."""
    from graphglow.graph.tables import require_pyarrow, tables_at

    path = path.expanduser()
    if suffixes and path.suffix.lower() not in suffixes:
        raise InputError(f"the output file must end in {', '.join(suffixes)}; got {path}")
    if path.suffix.lower() == ".parquet":
        require_pyarrow()
    try:
        for name in map(str, filter(None, inputs)):
            shipped = SHIPPED / f"{name.lower()}.safetensors"
            for part in filter(None, (name, shipped, *(tables_at(name) or ()))):
                source, real = Path(part).expanduser().resolve(), path.resolve()
                inside = real.exists() and source.is_dir() and source in real.parents
                if source == real or inside:
                    raise InputError(f"{path} is one of the inputs: choose another output")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is no regular file: choose another output")
        if os.path.lexists(path) and not overwrite:
            raise InputError(f"{path} exists: choose another output, or pass --overwrite")
        if not path.absolute().parent.exists():
            raise InputError(f"{path} cannot be written: there is no folder for it; make it first")
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.absolute().parent):
            pass
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror})") from error
    return path


class Outputs:
    """The files of a command: checked before it begins, written at its end, named in its facts."""

    def __init__(
        self, overwrite: bool, inputs: Sequence[object], **files: tuple[Path | None, Sequence[str]]
    ) -> None:
        """Take the file of each flag, None where it is not asked for, and its suffixes."""
        self.paths = {
            flag: path and check_output(path, overwrite=overwrite, suffixes=suffixes, inputs=inputs)
            for flag, (path, suffixes) in files.items()
        }
        asked = [path.absolute() for path in self.paths.values() if path is not None]
        if len(set(asked)) < len(asked):
            raise InputError("Two outputs go to one file. Name different ones.")

    def write(self, **writers: Callable[[Path], object]) -> None:
        """Write the files that are asked for, even if one of them cannot be written."""
        failed = []
        for flag, path in self.paths.items():
            try:
                if path is not None:
                    writers[flag](path)
            except InputError as error:
                failed.append(error)
        if failed:
            raise InputError("; ".join(map(str, failed))) from failed[0].__cause__


# Progress on standard error, where somebody watches

SECONDS_BETWEEN_LINES = 10


def interactive() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def spinner(what: str) -> AbstractContextManager[object]:
    """Show a spinner while the block runs."""
    if not interactive():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)


@contextmanager
def progress_bar(*, in_logs: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that moves a bar: what is being done, how many are done, of how many.

    Where nobody watches, it writes a line every few seconds if that is asked for (``in_logs``).
    """
    stage, began, last = "", 0.0, -math.inf

    def line(what: str, done: int, total: int) -> None:
        nonlocal stage, began, last
        now = time.monotonic()
        stage, began = (stage, began) if what == stage else (what, now)
        if in_logs and (now - last >= SECONDS_BETWEEN_LINES or done == total):
            minutes = (now - began) * (total / max(1, done) - 1) / 60
            left = f", about {minutes:.0f} minutes left" if minutes >= 1 else ""
            print_note(f"{done:,} of {total:,}: {what}{left}")
            last = now

    if not interactive():
        yield line
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), "{task.completed}/{task.total}", TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, "{task.description}", console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=escape(what), completed=done, total=total
        )


@contextmanager
def epoch_bar(epochs: int) -> Iterator["Callable[[Epoch], None]"]:
    """Yield an ``on_epoch`` that moves a bar of ``epochs``, from the start again for each GNN."""
    with progress_bar() as move:
        yield lambda epoch: move(
            f"{epoch.graph}: loss {epoch.loss:.3f}, validation {epoch.val_accuracy:.1%}",
            epoch.epoch,
            epochs,
        )
