"""Tables as pandas reads them: CSV or Parquet, in one file or a folder of parts, or a DataFrame.

CSV is UTF-8; the separator is the one of ``,;|`` or a tab that the header line has most of, and the
decimal sign behind semicolons is a comma. Whatever is wrong with a file is one sentence.
"""

import csv
import gzip
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from graphglow.errors import InputError
from graphglow.graph.files import check_gzip, check_unpacked, one_sentence

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
MISSING = ["", "nan", "NaN", "NA", "N/A", "n/a", "null", "NULL", "None"]
"""What counts as blank, except in ids, which are text as written."""
Names = Sequence[str]
Read = Callable[[Names, Names], Any]
"""``(columns, text) -> DataFrame``: those columns, the ones in ``text`` as a CSV has them."""


class Table(NamedTuple):
    """One table, of which the names of the columns are known."""

    what: str
    """Its name in errors."""
    columns: list[str]
    parts: list[Read]

    def frame(self, columns: Names, text: Names = ()) -> Any:
        """All rows of some columns; those in ``text`` are kept as a CSV has them.

        Where there are several parts all are: a column might be numbers in one, text in another.
        """
        import pandas as pd

        text = columns if len(self.parts) > 1 else text
        return pd.concat([read(columns, text) for read in self.parts], ignore_index=True)


def open_table(source: Any) -> Table:
    """Open a table: a path to a file or a folder of parts, or a DataFrame."""
    if is_frame(source):
        frame = source.set_axis([str(name) for name in source.columns], axis=1)
        names = _once_each(list(frame.columns), "the DataFrame")
        return Table("the DataFrame", names, [lambda columns, _: frame[list(columns)]])
    path, files = Path(source).expanduser(), [Path(source).expanduser()]
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if is_table_file(p) and p.name[0] not in "._")
    elif not path.is_file():
        raise InputError(f"a table must exist; got {path}")
    parquet = {file.suffix.lower() == ".parquet" for file in files}
    if len(parquet) != 1 or not all(map(is_table_file, files)):
        raise InputError(
            f"a table must be one of {', '.join(SUFFIXES)}, or a folder of such parts, all of one "
            f"kind; got {path}"
        )
    opened = [_open_parquet(file) if True in parquet else _open_csv(file) for file in files]
    columns = _once_each(opened[0][0], files[0])
    for file, (names, _) in zip(files, opened, strict=True):
        if other := set(_once_each(names, file)) ^ set(columns):
            raise InputError(
                f"all parts of a table must have the same columns; got {min(other)!r} in only one "
                f"of {files[0]} and {file}"
            )
    return Table(str(path), columns, [read for _, read in opened])


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


def _once_each(names: Names, what: object) -> list[str]:
    """The columns that have a name, which must be of their own."""
    named = Counter(name for name in names if name)
    twice = next((name for name, times in named.items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{what} must have columns of different names; got {twice!r} twice")
    return list(named)


def _open_csv(path: Path) -> tuple[list[str], Read]:
    rule = f"{path} must be a CSV table with a header, in UTF-8; it cannot be read"
    opened: Any = open
    with one_sentence(rule):
        if path.suffix.lower() == ".gz":
            check_gzip(path)
            opened = gzip.open
        with opened(path, "rt", encoding="utf-8-sig") as text:
            line = next((line for line in text if line.strip()), "")
            separator = max(",;\t|", key=line.count)
            rows = csv.reader(chain([line], text), delimiter=separator, skipinitialspace=True)
            names = [name.strip() for name in next(rows, [])]
    if not any(names):
        raise InputError(f"{path} must be a CSV table with a header; it is empty")
    return names, partial(_read_csv, path, rule, names, separator)


def _read_csv(path: Path, rule: str, header: Names, separator: str, own: Names, text: Names) -> Any:
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
    return frame.dropna(how="all")[list(own)]


def _open_parquet(path: Path) -> tuple[list[str], Read]:
    """A footer that tells of more than the file can mean is refused."""
    require_pyarrow()
    import pyarrow.parquet as pq

    rule = f"{path} must be a Parquet table; it is damaged or foreign"
    with one_sentence(rule), pq.ParquetFile(path) as file:
        facts = file.metadata
        unpacked = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        check_unpacked(max(unpacked, 8 * facts.num_rows * facts.num_columns), path)
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_")]
        return names, partial(_read_parquet, path, rule, file.schema_arrow)


def _read_parquet(path: Path, rule: str, schema: Any, own: Names, _: Names) -> Any:
    """A text that stands once in the file may stand in every row: they are counted before."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with one_sentence(rule):
        text = [name for name in own if pa.types.is_string(schema.field(name).type)]
        table = pq.read_table(path, columns=list(own), read_dictionary=text)
        for chunk in (chunk for name in text for chunk in table.column(name).chunks):
            longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
            check_unpacked(longest * len(chunk), path)
        table.validate(full=True)  # a file may call text what is none
        frame = table.to_pandas(ignore_metadata=True, date_as_object=False, self_destruct=True)
        return frame.astype(dict.fromkeys(text, object))
