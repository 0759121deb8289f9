"""Stages of the work on a graph: what is under way, for who watches and where memory runs out."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch

from graphglow.errors import InputError

Watch = Callable[[str], AbstractContextManager[None]]
_watch: ContextVar[Watch] = ContextVar("_watch", default=lambda name: nullcontext())


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Enter ``watch(name)`` around every stage."""
    before = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(before)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name what is done, in a ``with`` or above a function.

    An allocator's failure becomes one sentence that says where it was and what was asked for.
    """
    try:
        with _watch.get()(name):
            yield
    except (MemoryError, RuntimeError) as error:
        said = str(error)
        gpu = isinstance(error, torch.OutOfMemoryError)
        if not gpu and not isinstance(error, MemoryError) and "allocate memory" not in said:
            raise
        wanted = re.search(r"tried to allocate ([\d.]+ \w+)", said, re.IGNORECASE)
        smaller = (
            "--device cpu has another memory" if gpu else "fewer columns of features need less"
        )
        raise InputError(
            f"{name} of this graph must fit in memory; got no room for "
            f"{wanted[1] if wanted else 'more'} ({smaller})"
        ) from error
