"""Experiments: the paper's tables and figures, and the open-world suite.

The product never imports this package, but for ``compare``, ``demo`` and ``reproduce``.
"""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what was done last, how many jobs are done, and of how many."""


def no_progress(done: str, count: int, total: int) -> None:
    """Say nothing."""
