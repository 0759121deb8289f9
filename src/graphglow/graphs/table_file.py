"""Tables by what they are: CSV or Parquet, in one file or in a folder of parts, or a DataFrame."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphglow.errors import InputError
from graphglow.graphs.csv_table import CSV_SUFFIXES, CsvTable
from graphglow.graphs.frame_table import FrameTable
from graphglow.graphs.parquet_table import ParquetTable, require_pyarrow
from graphglow.graphs.table_rows import TableRows

SUFFIXES = (*CSV_SUFFIXES, ".parquet")

__all__ = ["SUFFIXES", "find_table", "is_frame", "is_table_file", "open_table", "require_pyarrow"]


def find_table(folder: Path, name: str) -> TableRows | None:
    """Open ``name.csv``, ``name.parquet`` and the like, or the parts in the folder ``name/``."""
    found = [folder / f"{name}{s}" for s in SUFFIXES if (folder / f"{name}{s}").is_file()]
    if (folder / name).is_dir():
        found.append(folder / name)
    if len(found) > 1:
        given = " and ".join(path.name for path in found)
        raise InputError(
            f"a graph folder must hold one {name} table; got two in {folder} ({given})"
        )
    return open_table(found[0]) if found else None


def open_table(source: Any) -> TableRows:
    """Open a table: a path to a file or a folder of parts, or a DataFrame."""
    if is_frame(source):
        return FrameTable(source, "the DataFrame")
    path = Path(source).expanduser()
    if not path.is_dir():
        return _of_files([path], path)
    parts = sorted(p for p in path.iterdir() if is_table_file(p) and p.name[0] not in "._")
    return _of_files(parts, path)


def is_table_file(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def is_frame(source: object) -> bool:
    pandas = sys.modules.get("pandas")  # never imported: then it is no DataFrame
    return pandas is not None and isinstance(source, pandas.DataFrame)


def _of_files(files: Sequence[Path], path: Path) -> TableRows:
    for file in files:
        if not file.is_file():
            raise InputError(f"a table must exist; got {file}")
    if files and all(file.name.lower().endswith(CSV_SUFFIXES) for file in files):
        return CsvTable(files)
    if files and all(file.name.lower().endswith(".parquet") for file in files):
        return ParquetTable(files)
    raise InputError(
        f"a table must be one of {', '.join(SUFFIXES)}, or a folder of such parts, all of one "
        f"kind; got {path}"
    )
