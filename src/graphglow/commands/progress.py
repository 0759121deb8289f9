"""Progress on standard error, where somebody watches: nothing is shown in a pipe or a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports torch
    from graphglow.gnn.train import Epoch


def interactive() -> bool:
    """Whether somebody watches."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def spinner(what: str) -> AbstractContextManager[object]:
    """Show a spinner while the block runs."""
    if not interactive():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that moves a bar: what is being done, how many are done, of how many."""
    if not interactive():
        yield lambda what, done, total: None
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

        def on_epoch(epoch: "Epoch") -> None:
            what = f"{epoch.graph}: loss {epoch.loss:.3f}, validation {epoch.val_accuracy:.1%}"
            move(what, epoch.epoch, epochs)

        yield on_epoch
