"""Parquet files as pandas tables, read whole or in batches; a damaged file is one sentence.

How much a file unpacks to is looked up in its footer before any row is read. A text that stands
once in the file may stand in every row of the table: texts are read as such a list and counted
before they are repeated.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphglow.errors import InputError
from graphglow.graphs.archive import FREE, check_unpacked
from graphglow.graphs.table_rows import BATCH_ROWS, TableRows, columns_of_parts

T = TypeVar("T")


def require_pyarrow() -> None:
    """Raise one sentence where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Parquet files need pyarrow; got no pyarrow here (pip install "graphglow[parquet]")'
        ) from error


class ParquetTable(TableRows):
    """One Parquet file, or several parts of one table. Rows are numbered from 1."""

    def __init__(self, files: Sequence[Path]) -> None:
        require_pyarrow()
        self.files = list(files)
        names = [_tried(path, lambda p: _Opened(p).schema.names) for path in self.files]
        kept = [[n for n in part if not n.startswith("__index_level_")] for part in names]
        self.columns = columns_of_parts(self.files, kept)
        self.what = str(self.files[0] if len(self.files) == 1 else self.files[0].parent)

    def frame(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Any:
        """All rows at once. Types are the file's own, so ``text`` changes nothing."""
        import pyarrow as pa

        names = list(columns)
        parts = [_tried(path, lambda p: _Opened(p).read(names)) for path in self.files]
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
            batches = _tried(path, lambda p: _Opened(p).batches(list(columns)))
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


def _to_pandas(table: Any) -> Any:
    return table.to_pandas(ignore_metadata=True, date_as_object=False)


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
"""Bytes of a value; 8 for others."""
_TEXT = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


class _Opened:
    """A file whose rows, as its footer counts them, are not too many for its size."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            self.path, self.schema, facts = path, file.schema_arrow, file.metadata
            columns = [file.schema.column(place) for place in range(facts.num_columns)]
        groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
        rows = max(facts.num_rows, sum(group.num_rows for group in groups))
        width = sum(_WIDTHS.get(column.physical_type, 8) for column in columns)
        check_unpacked(max(rows * width, sum(group.total_byte_size for group in groups)), path)
        self.texts = [c.path for c in columns if c.physical_type in _TEXT and c.path == c.name]

    def read(self, names: list[str]) -> Any:
        """All rows of some columns."""
        import pyarrow.parquet as pq

        self._refuse_nested(names)
        with pq.ParquetFile(self.path, read_dictionary=self.texts) as file:
            return self._repeated(file.read(columns=names))

    def batches(self, names: list[str]) -> Iterator[Any]:
        """The same rows, some at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._refuse_nested(names)
        with pq.ParquetFile(self.path, read_dictionary=self.texts) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=names):
                yield self._repeated(pa.Table.from_batches([batch]))

    def _refuse_nested(self, names: list[str]) -> None:
        import pyarrow as pa

        for name in names:
            if pa.types.is_nested(self.schema.field(name).type):
                raise InputError(
                    f"column {name!r} of {self.path} must hold numbers, dates, text or booleans; "
                    f"got {self.schema.field(name).type!s:.80}"
                )

    def _repeated(self, table: Any) -> Any:
        """The table with its texts in every row, if that is not too much."""
        import pyarrow as pa

        told = [self.schema.field(name) for name in table.column_names]
        read = [name for name in table.column_names if name in self.texts]
        check_unpacked(sum(_text_bytes(table.column(name)) for name in read), self.path)
        plain = pa.schema([f.with_type(_as_text(f.type)) for f in told])
        try:
            table = table.cast(plain)
            for name in read:  # a file may call text what is none
                table.column(name).validate(full=True)
            return table
        except pa.ArrowInvalid as error:
            raise InputError(f"texts of {self.path} must be UTF-8; got other bytes") from error


def _text_bytes(column: Any) -> int:
    """Bytes of a column of texts once each row has its own; at most these, where they are few."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = 0
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            lengths = pc.binary_length(chunk.dictionary)
            most = len(chunk) * (pc.max(lengths).as_py() or 0)
            if most > FREE // 8:
                most = pc.sum(lengths.take(chunk.indices).cast(pa.int64())).as_py() or 0
            total += most
    return total


def _as_text(kind: Any) -> Any:
    import pyarrow as pa

    return pa.large_string() if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else kind


def _tried(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except InputError:
        raise
    except Exception as error:  # pyarrow errors of a damaged file
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path} must be a Parquet table; it is damaged or foreign ({line})"
        ) from error
