"""Tables as pandas reads them: CSV or Parquet, in one file or a folder of parts, or a DataFrame.

CSV is UTF-8. The separator is the one of ``,;|`` or a tab that the header line has most of,
outside quotes; behind semicolons the decimal sign is a comma.
"""

import csv
import gzip
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from graphglow.errors import InputError
from graphglow.graph.features import MISSING
from graphglow.graph.files import one_sentence

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
Names = Sequence[str]
Read = Callable[[Names, Names], Any]
"""``(columns, text) -> DataFrame``: those columns; the ones in ``text`` as a CSV has them."""


class Table(NamedTuple):
    """A table that is open: the names of its columns are known, its rows are not read yet."""

    what: str
    """Its name in errors."""
    columns: list[str]
    read: Read

    def without(self, names: Names) -> "Table":
        return self._replace(columns=[name for name in self.columns if name not in names])


def open_table(source: Any) -> Table:
    """Open a table: a path to a file or a folder of parts, or a DataFrame."""
    if is_frame(source):
        frame = source.set_axis([str(name) for name in source.columns], axis=1)
        names = _distinct(list(frame.columns), "the DataFrame")
        return Table("the DataFrame", names, lambda columns, _: frame[list(columns)])
    path = Path(source).expanduser()
    files = [path]
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if is_table_file(p) and p.name[0] not in "._")
    elif not path.is_file():
        raise InputError(f"There is no table {path}.")
    if not files or not all(map(is_table_file, files)):
        raise InputError(
            f"{path} is no table. Give a {', '.join(SUFFIXES)} file, or a folder of such parts."
        )
    opened = [
        _open_parquet(file) if file.suffix == ".parquet" else _open_csv(file) for file in files
    ]
    columns = opened[0][0]
    for file, (names, _) in zip(files, opened, strict=True):
        if other := set(names) ^ set(columns):
            raise InputError(
                f"The parts of a table need the same columns, but {min(other)!r} is in only one of "
                f"{files[0]} and {file}."
            )

    def read_parts(columns: Names, text: Names) -> Any:
        import pandas as pd

        if len(opened) > 1:  # a column might be numbers in one part, text in another
            text = columns
        return pd.concat([read(columns, text) for _, read in opened], ignore_index=True)

    return Table(str(path), columns, read_parts)


def find_table(folder: Path, name: str) -> Table | None:
    """Open ``name.csv``, ``name.parquet`` and the like, or the parts in the folder ``name/``."""
    found = [folder / f"{name}{s}" for s in SUFFIXES if (folder / f"{name}{s}").is_file()]
    found += [folder / name] if (folder / name).is_dir() else []
    if len(found) > 1:
        raise InputError(
            f"{folder} has two {name} tables, {found[0].name} and {found[1].name}. Remove one."
        )
    return open_table(found[0]) if found else None


def is_table_file(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def is_frame(source: object) -> bool:
    pandas = sys.modules.get("pandas")  # never imported: then it is no DataFrame
    return pandas is not None and isinstance(source, pandas.DataFrame)


def require_pyarrow() -> None:
    """Raise where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Parquet files need pyarrow, which is missing: pip install "graphglow[parquet]".'
        ) from error


def _distinct(names: Names, what: object) -> list[str]:
    """The columns that have a name, which must be of their own."""
    named = [name for name in names if name]
    for name in named:
        if named.count(name) > 1:
            raise InputError(f"{what} has two columns {name!r}. Rename one.")
    return named


def _open_csv(path: Path) -> tuple[list[str], Read]:
    rule = f"{path} cannot be read as a CSV table with a header, in UTF-8"
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with one_sentence(rule):
        with opened(path, "rt", encoding="utf-8-sig") as text:
            line = next((line for line in text if line.strip()), "")
        bare = re.sub('"[^"]*"', "", line)  # a name in quotes may hold separators
        separator = max(",;\t|", key=bare.count)
        names = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    header = [name.strip() for name in names]
    if not any(header):
        raise InputError(f"{rule}: it is empty.")
    return _distinct(header, path), partial(_read_csv, path, rule, header, separator)


def _read_csv(
    path: Path, rule: str, header: Names, separator: str, columns: Names, text: Names
) -> Any:
    import pandas as pd

    names = [name or f"\0{place}" for place, name in enumerate(header)]
    with one_sentence(rule), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        frame = pd.read_csv(
            path,
            sep=separator,
            decimal="," if separator == ";" else ".",
            header=0,
            names=names,
            index_col=False,
            dtype=dict.fromkeys(text, str),
            na_values={name: [""] if name in text else MISSING for name in names},
            keep_default_na=False,
            skipinitialspace=True,
            low_memory=False,
        )
    return frame.dropna(how="all")[list(columns)]


def _open_parquet(path: Path) -> tuple[list[str], Read]:
    require_pyarrow()
    import pyarrow.parquet as pq

    rule = f"{path} cannot be read as a Parquet table; it is damaged or foreign"
    with one_sentence(rule), pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_")]

    def read(columns: Names, _: Names) -> Any:
        with one_sentence(rule):
            table = pq.read_table(path, columns=list(columns))
            table.validate(full=True)  # a file may call text what is none
            return table.to_pandas(ignore_metadata=True, date_as_object=False)

    return _distinct(names, path), read
