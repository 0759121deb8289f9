"""Tables as pandas has them: CSV or Parquet, in one file or in a folder of parts, or a DataFrame.

CSV: the separator is that of the header line: comma, semicolon (then the decimal sign is a comma),
tab or bar. Text is UTF-8, with or without a byte order mark, or UTF-16 with one; ``.gz`` is
unpacked on the way. Rows are numbered as a spreadsheet shows them: the header is row 1. Lines
without any cell are passed over. Whatever is wrong with a file is one sentence.
"""

import csv
import gzip
import io
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from graphglow.errors import InputError
from graphglow.graphs.files import check_gzip, check_unpacked, one_sentence

SEPARATORS = ",;\t|"
CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
SUFFIXES = (*CSV_SUFFIXES, ".parquet")
MISSING = ["", "nan", "NaN", "NA", "N/A", "n/a", "null", "NULL", "None"]
"""What counts as blank, except in ids, which are text as written."""


class Header(NamedTuple):
    """The first row of a CSV file with anything in it."""

    names: list[str]
    separator: str
    row: int


@dataclass(frozen=True)
class Table:
    """One table, in one or several files or in a DataFrame."""

    what: str
    """Its name in errors."""
    columns: list[str]
    files: Sequence[Path] = ()
    headers: Sequence[Header] = ()
    """Of CSV files."""
    data: Any = None
    """Of a DataFrame."""
    nodes: Sequence[Any] | None = None
    """What its rows are called, where they are nodes of a graph object."""

    @property
    def decimal(self) -> str:
        """The decimal sign of numbers that are read as text."""
        return "," if any(header.separator == ";" for header in self.headers) else "."

    def frame(self, columns: Sequence[str], text: Sequence[str] = ()) -> Any:
        """All rows of some columns, indexed by what :meth:`row_name` takes.

        Columns of CSV in ``text`` are kept as they are written; where there are several parts all
        are, or a column might be numbers in one and text in another.
        """
        import pandas as pd

        if self.data is not None:
            return self.data[list(columns)]
        if self.headers:
            text = columns if len(self.files) > 1 else text
            pairs = zip(self.files, self.headers, strict=True)
            parts = [_csv_frame(path, header, columns, text) for path, header in pairs]
        else:
            parts = [_parquet_frame(path, columns) for path in self.files]
        return pd.concat(parts, keys=range(len(parts))) if len(parts) > 1 else parts[0]

    def row_name(self, label: Any) -> str:
        """The row of a label of the index, as a user would look it up."""
        if self.nodes is not None:
            return f"node {self.nodes[label]!r}"
        part, row = label if isinstance(label, tuple) else (0, label)
        where = f" of {self.files[part]}" if len(self.files) > 1 else ""
        if self.headers:
            return f"row {row}{where} (the header is row {self.headers[part].row})"
        return f"row {row}{where} (counted from {0 if self.data is not None else 1})"


def open_table(source: Any) -> Table:
    """Open a table: a path to a file or a folder of parts, or a DataFrame."""
    if is_frame(source):
        names = [str(name) for name in source.columns]
        _check_names([names], ["the DataFrame"])
        data = source.reset_index(drop=True).set_axis(names, axis=1)
        return Table("the DataFrame", names, data=data)
    path, files = Path(source).expanduser(), [Path(source).expanduser()]
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if is_table_file(p) and p.name[0] not in "._")
    elif not path.is_file():
        raise InputError(f"a table must exist; got {path}")
    headers: list[Header] = []
    names_of_parts: list[list[str]] = []
    if files and all(file.name.lower().endswith(CSV_SUFFIXES) for file in files):
        headers = [_read_header(file) for file in files]
        names_of_parts = [header.names for header in headers]
    elif files and all(file.name.lower().endswith(".parquet") for file in files):
        require_pyarrow()
        for file in files:
            with _parquet(file) as opened:
                names = [n for n in opened.schema_arrow.names if n[:8] != "__index_"]
                names_of_parts.append(names)
    else:
        raise InputError(
            f"a table must be one of {', '.join(SUFFIXES)}, or a folder of such parts, all of one "
            f"kind; got {path}"
        )
    columns = _check_names(names_of_parts, files)
    return Table(str(files[0] if len(files) == 1 else path), columns, files, headers)


def find_table(folder: Path, name: str) -> Table | None:
    """Open ``name.csv``, ``name.parquet`` and the like, or the parts in the folder ``name/``."""
    found = [folder / f"{name}{s}" for s in SUFFIXES if (folder / f"{name}{s}").is_file()]
    found += [folder / name] if (folder / name).is_dir() else []
    if len(found) > 1:
        given = " and ".join(path.name for path in found)
        raise InputError(
            f"a graph folder must hold one {name} table; got two in {folder} ({given})"
        )
    return open_table(found[0]) if found else None


def is_table_file(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def is_frame(source: object) -> bool:
    pandas = sys.modules.get("pandas")  # never imported: then it is no DataFrame
    return pandas is not None and isinstance(source, pandas.DataFrame)


def require_pyarrow() -> None:
    """Raise one sentence where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Parquet files need pyarrow; got no pyarrow here (pip install "graphglow[parquet]")'
        ) from error


def _check_names(parts: Sequence[list[str]], files: Sequence[Any]) -> list[str]:
    """The columns that have a name: once each, and the same in all parts."""
    for path, names in zip(files, parts, strict=True):
        named = Counter(name for name in names if name)
        twice = next((name for name, times in named.items() if times > 1), None)
        if twice is not None:
            raise InputError(f"{path} must have columns of different names; got {twice!r} twice")
        other = set(named) ^ {name for name in parts[0] if name}
        if other:
            raise InputError(
                f"all parts of a table must have the same columns; got {min(other)!r} in only one "
                f"of {files[0]} and {path}"
            )
    return [name for name in parts[0] if name]


@contextmanager
def _csv_text(path: Path) -> Iterator[TextIO]:
    """The text of a file; what can be wrong with it, and with what pandas makes of it, is said."""
    rule = f"{path} must be a CSV table with a header, in UTF-8 (CSV UTF-8 in spreadsheets)"
    with one_sentence(f"{rule}; it cannot be read"):
        opened: Any = path.open
        if path.suffix.lower() == ".gz":
            check_gzip(path)
            opened = partial(gzip.open, path)
        with opened("rb") as raw:
            start = raw.peek(2)[:2]
            if start == b"PK":
                raise InputError(f"{rule}; got a spreadsheet or an archive")
            encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            with io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
                yield text


def _read_header(path: Path) -> Header:
    with _csv_text(path) as text:
        separator = None
        lines = itertools.chain.from_iterable(line.splitlines() or [""] for line in text)
        for row, line in enumerate(lines, start=1):
            told = re.fullmatch(r"sep=(.)\s*", line)  # a line that spreadsheets write and hide
            if told:
                separator = told.group(1)
            elif line.strip().strip(SEPARATORS):
                bare = re.sub(r'"[^"]*"', "", line)
                separator = separator or max(SEPARATORS, key=bare.count)
                whole = itertools.chain([line], lines)  # a name in quotes may go on below
                names = next(csv.reader(whole, delimiter=separator, skipinitialspace=True))
                return Header([name.strip() for name in names], separator, row)
    raise InputError(f"{path} must be a CSV table with a header; it is empty")


def _csv_frame(path: Path, header: Header, columns: Sequence[str], text: Sequence[str]) -> Any:
    import pandas as pd

    names = [name or f"\0{place}" for place, name in enumerate(header.names)]
    with _csv_text(path) as handle, warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        try:
            frame = pd.read_csv(
                handle,
                sep=header.separator,
                decimal="," if header.separator == ";" else ".",
                header=None,
                names=names,
                skiprows=header.row,
                dtype=dict.fromkeys(text, str),
                na_values={name: MISSING for name in names if name not in text},
                keep_default_na=False,
                index_col=False,
                skipinitialspace=True,
                skip_blank_lines=False,
                low_memory=False,
            )
        except pd.errors.EmptyDataError:  # nothing below the header
            frame = pd.DataFrame({name: pd.Series(dtype=str) for name in names})
    frame.index += header.row + 1
    filled = (frame.notna() & (frame != "")).any(axis=1)
    return frame.loc[filled, list(columns)]


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """An opened file whose footer does not tell of more than the file can mean."""
    import pyarrow.parquet as pq

    rule = f"{path} must be a Parquet table; it is damaged or foreign"
    with one_sentence(rule), pq.ParquetFile(path) as file:
        facts = file.metadata
        unpacked = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        check_unpacked(max(unpacked, 8 * facts.num_rows * facts.num_columns), path)
        yield file


def _parquet_frame(path: Path, columns: Sequence[str]) -> Any:
    """A text that stands once in the file may stand in every row: they are counted before."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with _parquet(path) as file:
        kinds = {name: file.schema_arrow.field(name).type for name in columns}
        for name, kind in kinds.items():
            if pa.types.is_nested(kind) or pa.types.is_binary(kind):
                raise InputError(
                    f"column {name!r} of {path} must hold numbers, dates, text or booleans; got "
                    f"{kind!s:.80}"
                )
        text = [name for name, kind in kinds.items() if pa.types.is_string(kind)]
        table = pq.read_table(path, columns=list(columns), read_dictionary=text)
        for chunk in (chunk for name in text for chunk in table.column(name).chunks):
            longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
            check_unpacked(longest * len(chunk), path)
        table.validate(full=True)  # a file may call text what is none
        frame = table.to_pandas(ignore_metadata=True, date_as_object=False, self_destruct=True)
    frame.index += 1
    return frame.astype(dict.fromkeys(text, object))
