"""CSV files as people have them, as pandas tables; a bad one is one sentence that names the row.

The separator is that of the header line: comma, semicolon, tab or bar. Text is UTF-8, with or
without a byte order mark, or UTF-16 with one; ``.gz`` is unpacked on the way. Rows are numbered as
a spreadsheet shows them: the header is row 1. Lines without any cell are passed over.
"""

import csv
import gzip
import io
import itertools
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from graphglow.errors import InputError
from graphglow.graphs.archive import Unpacked
from graphglow.graphs.table_rows import BATCH_ROWS, MISSING, TableRows, columns_of_parts

SEPARATORS = ",;\t|"
CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


@dataclass(frozen=True)
class Header:
    """The first row with anything in it."""

    names: list[str]
    separator: str
    row: int


class CsvTable(TableRows):
    """One CSV file, or several parts of one table.

    ``decimal`` is a comma where semicolons separate the cells, as spreadsheets write it there.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        self.headers = [_read_header(path) for path in self.files]
        self.columns = columns_of_parts(self.files, [header.names for header in self.headers])
        self.decimal = "," if any(h.separator == ";" for h in self.headers) else "."
        self.what = str(self.files[0] if len(self.files) == 1 else self.files[0].parent)

    def frame(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Any:
        """All rows at once; columns in ``text`` are kept as they are written."""
        import pandas as pd

        text, parts = list(text), []
        for _ in range(2):  # where parts disagree, a second time and as text
            parts = [
                _keyed(frame, part, header)
                for part, (path, header) in enumerate(zip(self.files, self.headers, strict=True))
                for frame in _frames(path, header, columns, text, None)
            ]
            kinds = [{c: pd.api.types.is_numeric_dtype(p[c]) for c in columns} for p in parts]
            mixed = [c for c in columns if c not in text and len({k[c] for k in kinds}) > 1]
            if not mixed:
                break
            text += mixed
        return pd.concat(parts) if len(parts) != 1 else parts[0]

    def batches(self, columns: Sequence[str], *, text: Sequence[str] = ()) -> Iterator[Any]:
        """The rows of all parts, some at a time."""
        for part, (path, header) in enumerate(zip(self.files, self.headers, strict=True)):
            for frame in _frames(path, header, columns, list(text), BATCH_ROWS):
                yield _keyed(frame, part, header)

    def row_name(self, key: int) -> str:
        part, row = self.part_and_row(key)
        where = f" of {self.files[part]}" if len(self.files) > 1 else ""
        return f"row {row}{where} (the header is row {self.headers[part].row})"


def _keyed(frame: Any, part: int, header: Header) -> Any:
    """Index the rows by part and row, and drop those without any cell."""
    frame.index = TableRows.keys(part, frame.index.to_numpy() + header.row + 1)
    blank = (frame.isna() | (frame == "")).all(axis=1)
    return frame[~blank] if blank.any() else frame


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The text of a file; what can be wrong with it becomes one sentence."""
    try:
        with _bytes_of(path) as raw:
            start = raw.peek(2)[:2]
            if start == b"PK":
                raise InputError(
                    f"{path} must be a CSV table; got a spreadsheet or an archive (save the table "
                    "as CSV UTF-8)"
                )
            encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            with io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
                yield text
    except InputError:
        raise
    except UnicodeError as error:
        raise InputError(
            f"{path} must be UTF-8 text (spreadsheets call it CSV UTF-8); got other bytes in "
            f"row {_bad_line(path)}"
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:  # a damaged .gz, a disk error
        raise InputError(f"{path} {_NO_TABLE} ({_first_line(error)})") from error


_NO_TABLE = "must be a CSV table with a header; it cannot be read"


@contextmanager
def _bytes_of(path: Path) -> Iterator[Any]:
    """The bytes of a file, unpacked up to a limit."""
    if path.suffix.lower() != ".gz":
        with path.open("rb") as raw:
            yield raw
        return
    with gzip.open(path, "rb") as packed, io.BufferedReader(Unpacked(packed, path)) as raw:
        yield raw


def _bad_line(path: Path) -> int:
    with suppress(OSError, EOFError, zlib.error), _bytes_of(path) as raw:
        for number, line in enumerate(raw, start=1):
            try:
                line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeError:
                return number
    return 1


def _read_header(path: Path) -> Header:
    with _opened(path) as text:
        return _take_header(text, path)


def _take_header(text: TextIO, path: Path) -> Header:
    """Read the header, and leave ``text`` at the row below it."""
    separator = None
    for row, line in enumerate(text, start=1):
        told = re.fullmatch(r"sep=(.)\s*", line)  # a line that spreadsheets write and hide
        if told:
            separator = told.group(1)
        elif line.strip().strip(SEPARATORS):
            bare = re.sub(r'"[^"]*"', "", line)
            separator = separator or max(SEPARATORS, key=bare.count)
            reader = csv.reader(
                itertools.chain([line], text), delimiter=separator, skipinitialspace=True
            )
            names = [name.strip() for name in next(reader)]
            return Header(names=names, separator=separator, row=row)
    raise InputError(f"{path} must be a CSV table with a header; it is empty")


def _frames(
    path: Path, header: Header, columns: Sequence[str], text: list[str], rows: int | None
) -> Iterator[Any]:
    """The table, whole or ``rows`` at a time, indexed from 0 at the row below the header."""
    import pandas as pd

    unnamed = [f"\0{place}" for place in range(len(header.names))]
    names = [name or unnamed[place] for place, name in enumerate(header.names)]
    with _opened(path) as handle:
        _take_header(handle, path)
        try:
            reader = pd.read_csv(
                handle,
                sep=header.separator,
                header=None,
                names=names,
                usecols=None,
                dtype=dict.fromkeys(text, str),
                na_values={name: MISSING for name in names if name not in text},
                keep_default_na=False,
                index_col=False,
                skipinitialspace=True,
                skip_blank_lines=False,
                iterator=True,
                low_memory=False,
            )
        except pd.errors.EmptyDataError:  # nothing below the header
            yield pd.DataFrame({name: pd.Series(dtype=str) for name in columns})
            return
        except pd.errors.ParserError as error:  # a quote that is never closed
            raise InputError(f"{path} {_NO_TABLE} ({_first_line(error)})") from error
        with reader:
            while (frame := _next(reader, rows, path, header)) is not None:
                yield frame[list(columns)]


def _next(reader: Any, rows: int | None, path: Path, header: Header) -> Any:
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            return reader.read(rows)
    except StopIteration:
        return None
    except (UnicodeError, InputError):
        raise
    except Exception as error:  # parser and value errors of a damaged file
        ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if ragged:
            expected, line, got = map(int, ragged.groups())
            raise InputError(
                f"{path} must be a CSV table with a header and at most {expected} cells in every "
                f"row; got {got} in row {line + header.row} (the header is row {header.row})"
            ) from error
        opened = re.search(r"EOF inside string starting at row (\d+)", str(error))
        if opened:
            raise InputError(
                f"{path} must close every quotation mark; got one that is not, in row "
                f"{int(opened[1]) + header.row + 1} (the header is row {header.row})"
            ) from error
        if isinstance(error, pd.errors.ParserWarning):
            raise InputError(
                f"{path} must be a CSV table with a header and at most {len(header.names)} cells "
                "in every row; got rows that are longer than the header"
            ) from error
        raise InputError(f"{path} {_NO_TABLE} ({_first_line(error)})") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
