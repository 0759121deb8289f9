"""CSV and Parquet files as pandas tables; a damaged file is one sentence."""

import warnings
from pathlib import Path
from typing import Any

from graphglow.errors import InputError

MISSING = ["", "nan", "NaN", "NA", "N/A", "n/a", "null", "NULL", "None"]
"""What counts as blank in a column of features; other columns are text as written."""


def read_columns(path: Path) -> list[str]:
    """Return the column names."""
    if path.suffix == ".parquet":
        return [str(name) for name in _read_parquet(path).columns]
    return [str(name) for name in _read_csv(path, nrows=0).columns]


def read_frame(path: Path, *, text: list[str]) -> Any:
    """Return the table; in CSV the columns in ``text`` are kept as they are written."""
    if path.suffix == ".parquet":
        frame = _read_parquet(path)
        frame.columns = [str(name) for name in frame.columns]
        return frame.reset_index(drop=True)
    values = [name for name in read_columns(path) if name not in text]
    return _read_csv(path, text=text, na_values=dict.fromkeys(values, MISSING))


def require_pyarrow() -> None:
    """Raise one sentence where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            "Parquet files need pyarrow: pip install graphglow[parquet]; got no pyarrow here"
        ) from error


def _read_parquet(path: Path) -> Any:
    import pandas as pd

    require_pyarrow()
    try:
        return pd.read_parquet(path, engine="pyarrow")
    except Exception as error:  # pyarrow errors of a damaged file
        raise InputError(
            f"{path} must be a Parquet table; it is damaged or foreign ({_first_line(error)})"
        ) from error


def _read_csv(
    path: Path,
    *,
    nrows: int | None = None,
    text: list[str] | None = None,
    na_values: dict[str, list[str]] | None = None,
) -> Any:
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            return pd.read_csv(
                path,
                nrows=nrows,
                dtype=dict.fromkeys(text or [], str),
                na_values=na_values,
                keep_default_na=False,
                index_col=False,
                skipinitialspace=True,
                encoding="utf-8-sig",
                low_memory=False,
            )
    except Exception as error:  # parser, encoding and value errors of a damaged file
        raise InputError(
            f"{path} must be a CSV table with a header; it cannot be read ({_first_line(error)})"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
