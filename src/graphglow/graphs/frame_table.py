"""A pandas DataFrame in the place of a file."""

from collections.abc import Iterator, Sequence
from typing import Any

from graphglow.errors import InputError
from graphglow.graphs.table_rows import TableRows


class FrameTable(TableRows):
    """Rows of a DataFrame, numbered from 0 as ``iloc`` does; its own index is not read."""

    def __init__(self, frame: Any, what: str) -> None:
        self.columns = [str(name) for name in frame.columns]
        self.what = what
        twice = next((name for name in self.columns if self.columns.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{what} must have columns of different names; got {twice!r} twice")
        self._frame = frame.reset_index(drop=True).set_axis(self.columns, axis=1)

    def frame(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Any:
        return self._frame[list(columns)]

    def batches(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Iterator[Any]:
        yield self._frame[list(columns)]

    def row_name(self, key: int) -> str:
        return f"row {key} (counted from 0)"
