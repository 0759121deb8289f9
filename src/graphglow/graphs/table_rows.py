"""What all tables share: the names of their rows, what counts as blank, how much is read at once.

A table has ``columns`` and ``what`` (its name in errors), gives its rows whole (``frame``) or some
at a time (``batches``) as pandas tables, and names each row in errors (``row_name``) by its label
in their index: the part of the table in the upper bits, the row within it in the lower ones.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphglow.errors import InputError

MISSING = ["", "nan", "NaN", "NA", "N/A", "n/a", "null", "NULL", "None"]
"""What counts as blank, except in ids, which are text as written."""
BATCH_ROWS = 2**18
ROW_BITS = 40


class TableRows(ABC):
    """Rows of one table, in one or several parts."""

    columns: list[str]
    what: str
    decimal: str = "."

    @abstractmethod
    def frame(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Any:
        """All rows at once."""

    @abstractmethod
    def batches(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Iterator[Any]:
        """All rows, some at a time."""

    @abstractmethod
    def row_name(self, key: int) -> str:
        """The row of a label of the index, as a user would look it up."""

    @staticmethod
    def keys(part: int, rows: np.ndarray) -> np.ndarray:
        keys: np.ndarray = rows.astype(np.int64) + (part << ROW_BITS)
        return keys

    @staticmethod
    def part_and_row(key: int) -> tuple[int, int]:
        return int(key) >> ROW_BITS, int(key) & ((1 << ROW_BITS) - 1)


def columns_of_parts(files: Sequence[Path], columns: Sequence[list[str]]) -> list[str]:
    """The columns of all parts, which must be the same and named once; those without a name not."""
    for path, names in zip(files, columns, strict=True):
        named = [name for name in names if name]
        twice = next((name for name, times in Counter(named).items() if times > 1), None)
        if twice is not None:
            raise InputError(f"{path} must have columns of different names; got {twice!r} twice")
        other = set(named) ^ {name for name in columns[0] if name}
        if other:
            raise InputError(
                f"all parts of a table must have the same columns; got {min(other)!r} in only one "
                f"of {files[0]} and {path}"
            )
    return [name for name in columns[0] if name]
