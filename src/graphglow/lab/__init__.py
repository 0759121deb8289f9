"""The laboratory: the paper's experiments and the open-world suite.

The product never imports it, but for the commands ``reproduce`` and ``compare``, and
:mod:`graphglow.compare`.
"""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what was done last, how many jobs are done, and of how many."""


def no_progress(done: str, count: int, total: int) -> None:
    """Say nothing."""
