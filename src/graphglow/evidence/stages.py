"""Stages of the work on a graph: what is under way, for who watches and where memory runs out."""

import multiprocessing
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch

from graphglow.errors import InputError

Watch = Callable[[str], AbstractContextManager[None]]
_watch: ContextVar[Watch] = ContextVar("_watch", default=lambda name: nullcontext())
_smaller: ContextVar[tuple[str, str]] = ContextVar(
    "_smaller", default=("this graph", "fewer columns of features by --columns leave_out=NAME")
)
NO_ROOM = re.compile(r"allocate memory|bad_alloc|out of memory|ALLOC_FAILED")
ASKED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) (\w+)", re.IGNORECASE)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Enter ``watch(name)`` around every stage."""
    before = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(before)


@contextmanager
def made_smaller(what: str, by: str) -> Iterator[None]:
    """In the block, stages are of this, and without room for it they advise that."""
    before = _smaller.set((what, by))
    try:
        yield
    finally:
        _smaller.reset(before)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name what is done, in a ``with`` or above a function.

    An allocator's failure becomes one sentence: where, what was asked for, and what needs less.
    """
    try:
        with _watch.get()(name):
            yield
    except (MemoryError, RuntimeError) as error:
        asked = no_room(error)
        if asked is None:
            raise
        what, by = _smaller.get()
        smaller = [by]
        if multiprocessing.parent_process() is not None:
            smaller.insert(0, "fewer --workers")
        if isinstance(error, torch.OutOfMemoryError):
            smaller.insert(0, "--device cpu")
        raise InputError(
            f"{name} of {what} must fit in memory; got no room for {asked or 'more'} "
            f"(what helps: {', '.join(smaller)})"
        ) from error


def no_room(error: Exception) -> str | None:
    """What an allocator that failed was asked for, "" if it does not say; None: another error."""
    said = str(error)
    if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not NO_ROOM.search(said):
        return None
    if (asked := ASKED.search(said)) is None:
        return ""
    number, unit = float(asked[1]), asked[2]
    if unit != "bytes":
        return f"{number:g} {unit}"
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.3g} MB"
