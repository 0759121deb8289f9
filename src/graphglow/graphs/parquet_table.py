"""Parquet files as pandas tables, read whole or in batches; a damaged file is one sentence."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphglow.errors import InputError
from graphglow.graphs.table_rows import BATCH_ROWS, TableRows, columns_of_parts

T = TypeVar("T")


def require_pyarrow() -> None:
    """Raise one sentence where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            "Parquet files need pyarrow: pip install graphglow[parquet]; got no pyarrow here"
        ) from error


class ParquetTable(TableRows):
    """One Parquet file, or several parts of one table. Rows are numbered from 1."""

    def __init__(self, files: Sequence[Path]) -> None:
        require_pyarrow()
        self.files = list(files)
        names = [_tried(path, lambda p: _open(p).schema_arrow.names) for path in self.files]
        kept = [[n for n in part if not n.startswith("__index_level_")] for part in names]
        self.columns = columns_of_parts(self.files, kept)
        self.what = str(self.files[0] if len(self.files) == 1 else self.files[0].parent)

    def frame(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Any:
        """All rows at once. Types are the file's own, so ``text`` changes nothing."""
        import pyarrow as pa

        names = list(columns)
        parts = [_tried(path, lambda p: _open(p).read(columns=names)) for path in self.files]
        try:
            table = pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(
                f"all parts of {self.what} must have the same types of columns; got others "
                f"({str(error).splitlines()[0]})"
            ) from error
        frame = _to_pandas(table)
        frame.index = np.concatenate(
            [self.keys(i, np.arange(1, len(part) + 1)) for i, part in enumerate(parts)]
        )
        return frame

    def batches(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Iterator[Any]:
        """The rows of all parts, some at a time."""
        for part, path in enumerate(self.files):
            with _tried(path, _open) as file:
                batches = file.iter_batches(BATCH_ROWS, columns=list(columns))
                row = 1
                while (batch := _tried(path, lambda _: next(batches, None))) is not None:  # noqa: B023
                    frame = _to_pandas(batch)
                    frame.index = self.keys(part, np.arange(row, row + len(frame)))
                    row += len(frame)
                    yield frame

    def row_name(self, key: int) -> str:
        part, row = self.part_and_row(key)
        where = f" of {self.files[part]}" if len(self.files) > 1 else ""
        return f"row {row}{where} (counted from 1)"


def _open(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path)


def _to_pandas(table: Any) -> Any:
    return table.to_pandas(ignore_metadata=True, date_as_object=False)


def _tried(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except Exception as error:  # pyarrow errors of a damaged file
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path} must be a Parquet table; it is damaged or foreign ({line})"
        ) from error
