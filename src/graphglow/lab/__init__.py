"""Experiments as data: what is run, with which settings, and the rows that come out."""

from collections.abc import Callable

Told = Callable[[str, int, int], None]
"""Told what is being done, how many jobs are done, and of how many."""


def unheard(said: str, done: int, total: int) -> None:
    """Where nobody wants to be told."""
