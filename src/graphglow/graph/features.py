"""Columns of any kind as node features, and labels as classes.

A column is numbers (``12%`` is 0.12, ``1,000`` is 1000) or dates if its filled cells are; else its
values are categories. Text in which values hardly repeat is a name or a comment, and left out with
an :class:`InputWarning`.

What new nodes must know to be encoded alike is one plain dict per column, in the order of the
features: ``{"name", "mean", "scale"}`` of numbers (scale 0 if constant), with ``"date"``, the
format for pandas, if they are days since 1970; ``{"name", "categories"}`` of text.
"""

import warnings
from collections.abc import Mapping, Sequence
from datetime import date as Date
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graph.files import note
from graphglow.graph.table_file import MISSING

MAX_CATEGORIES = 1000
"""A text column with more distinct values is left out."""
FEW_CATEGORIES = 20
"""So is one with more than these, if they are more than half as many as its filled cells."""
LARGEST = 1e38
"""Of a number, as it is written and as the model reads it: float32 ends soon after."""
PLAIN = str | bool | int | float | np.generic | Decimal | Date | None
THOUSANDS = r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"


def encode_columns(frame: Any, what: str) -> tuple[Tensor, list[dict[str, Any]]]:
    """Turn a pandas table, ``what`` in errors, into features; say how.

    A number that is missing takes the mean of its column; a category that is missing is a row of
    zeros. A constant column of numbers becomes zeros. Without any column D is 0.

    Shapes:
        N rows of columns -> x [N, D]
    """
    described = [_described(frame[name], f"column {name!r} of {what}") for name in frame.columns]
    columns = [facts for facts in described if facts is not None]
    if not any(width(facts) for facts in columns):
        return torch.empty(len(frame), 0), []
    x = encode_alike(frame, columns, [facts["name"] for facts in columns], what)
    if not x.any():
        raise InputError(
            f"{what} must have a feature column that differs between rows; got the same value, or "
            f"blanks, in all {len(frame)} rows"
        )
    return x, columns


def encode_alike(
    frame: Any, columns: Sequence[Mapping[str, Any]], here: Sequence[str], what: str
) -> Tensor:
    """Encode rows as the ``columns`` of training were; ``here`` are their names in ``frame``.

    A category that training has not seen is a row of zeros, and said.
    """
    import pandas as pd

    x = np.zeros((len(frame), sum(map(width, columns))), dtype=np.float32)
    start = 0
    for facts, name in zip(columns, here, strict=True):
        where = f"column {name!r} of {what}"
        if "categories" in facts:
            text = filled(frame[name])
            if set(facts["categories"]) <= {"True", "False"}:  # a file may write them otherwise
                text = text.str.capitalize()
            code = pd.Index(facts["categories"], dtype=object).get_indexer(text)
            _say_unseen(text[(code < 0) & (text != "")], len(text), where)
            x[np.flatnonzero(code >= 0), start + code[code >= 0]] = 1
        else:
            values = numbers_of(frame[name], where, facts.get("date"))
            with np.errstate(over="ignore"):  # infinity, which is refused
                scaled = (values - facts["mean"]) / (facts["scale"] or np.inf)
            _refuse_large(scaled, f"{where}, scaled as in training,")
            x[:, start] = np.nan_to_num(scaled)
        start += width(facts)
    return torch.from_numpy(x)


def numbers_of(column: Any, where: str, date: str | None = None) -> np.ndarray:
    """A column as finite numbers, or dates as days since 1970; NaN for blanks: [N]."""
    values, bad = _parsed(column, date)
    if bad.any():
        kind = "dates" if date else "numbers"
        raise InputError(f"{where} must be {kind} in every filled cell; got {_first(column[bad])}")
    _refuse_large(values, where)
    return values


def _refuse_large(values: np.ndarray, where: str) -> None:
    bad = values[np.abs(values) > LARGEST]  # NaN, a blank, is not
    if len(bad):
        raise InputError(f"{where} must be finite and below {LARGEST:g}; got {bad[0]:g}")


def _parsed(column: Any, date: str | None) -> tuple[np.ndarray, np.ndarray]:
    """The numbers or days of a column, and which of its filled cells are none: [N], [N]."""
    import pandas as pd

    kinds, bad = pd.api.types, np.zeros(len(column), dtype=bool)
    if kinds.is_numeric_dtype(column) and not date:
        return column.to_numpy(dtype=np.float64, na_value=np.nan), bad
    if not kinds.is_datetime64_any_dtype(column):
        text = filled(column)
        if date:
            given = text.where(text != "", None)
            column = pd.to_datetime(given, format=date, utc=True, errors="coerce")
            bad = ((text != "") & column.isna()).to_numpy()
        else:
            bare = text.str.removesuffix("%").str.rstrip()
            bare = bare.mask(bare.str.fullmatch(THOUSANDS), bare.str.replace(",", "", regex=False))
            values = pd.to_numeric(bare, errors="coerce").to_numpy(np.float64)
            percent = text.str.endswith("%").to_numpy(bool)
            bad = np.isnan(values) & (text != "").to_numpy()
            return np.where(percent, values / 100, values), bad
    start = pd.Timestamp(0, unit="s", tz=column.dt.tz).as_unit("s")  # nanoseconds end in 2262
    days = (column - start) / pd.Timedelta(days=1).as_unit("s")
    return days.to_numpy(dtype=np.float64, na_value=np.nan), bad


def _described(column: Any, where: str) -> dict[str, Any] | None:
    """How a column is encoded, or None if it is left out."""
    import pandas as pd

    kinds = pd.api.types
    facts: dict[str, Any] = {"name": str(column.name)}
    if kinds.is_datetime64_any_dtype(column):
        return facts | _scaling(column, where, "ISO8601")
    if isinstance(column.dtype, pd.CategoricalDtype) or kinds.is_bool_dtype(column):
        return facts | {"categories": sorted(set(filled(column)) - {""})}
    if kinds.is_numeric_dtype(column):
        return facts | _scaling(column, where)
    other = next((cell for cell in column if not isinstance(cell, PLAIN)), None)
    if other is not None:
        raise InputError(
            f"{where} must be numbers, dates, text or booleans; got {type(other).__name__}"
        )
    text = filled(column)
    present = text[text != ""]
    wrong = {date: int(_parsed(text, date)[1].sum()) for date in _guessed_formats(present)}
    for date in (None, "ISO8601", *sorted(wrong, key=lambda date: wrong[date])):
        if 2 * _parsed(text, date)[1].sum() <= len(present):  # most are: then all must be
            if date in wrong:
                either = list(wrong.values()) == [0, 0]
                other = " (all can be read with the day first, too)" if either else ""
                note(f"{where} is read as dates by the format {date}{other}")
            return facts | _scaling(column, where, date)
    if (some := present.nunique()) > MAX_CATEGORIES or FEW_CATEGORIES < some > len(present) / 2:
        note(
            f"{where} is left out: {some} different texts in {len(present)} filled cells are names "
            "or comments, not categories"
        )
        return None
    return facts | {"categories": sorted(set(present))}


def _guessed_formats(present: Any) -> list[str]:
    """Formats of dates that pandas reads in the first cell, if it has a year in full.

    There are two where the month may come first, which is tried first, or the day.
    """
    from pandas.tseries.api import guess_datetime_format

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas' of days that come first
        guessed = [
            guess_datetime_format(cell, dayfirst=dayfirst)
            for cell in present.iloc[:1]
            for dayfirst in (False, True)
        ]
    return [date for date in dict.fromkeys(guessed) if date and "%Y" in date]


def _scaling(column: Any, where: str, date: str | None = None) -> dict[str, Any]:
    """Mean and deviation of the filled cells."""
    values = numbers_of(column, where, date)
    known = values[~np.isnan(values)]
    constant = len(known) == 0 or known.min() == known.max()
    facts: dict[str, Any] = {
        "mean": float(known.mean()) if len(known) else 0.0,
        "scale": 0.0 if constant else float(known.std()),
    }
    return facts | ({"date": date} if date else {})


def width(facts: Mapping[str, Any]) -> int:
    """How many features a column is."""
    return len(facts["categories"]) if "categories" in facts else 1


def text_of(column: Any) -> Any:
    """Stripped text, empty for blanks; whole numbers that pandas keeps as floats are whole."""
    import pandas as pd

    if pd.api.types.is_float_dtype(column):  # integers with blanks, as pandas keeps them
        whole = column.dropna()
        if (whole == whole.round()).all() and (whole.abs() < 2**53).all():
            column = column.astype("Int64")
    if isinstance(column.dtype, pd.StringDtype):  # the common case, and much faster
        return column.fillna("").str.strip().astype(object)
    blank = column.isna()
    text = ["" if none else str(cell).strip() for cell, none in zip(column, blank, strict=True)]
    return pd.Series(text, column.index, dtype=object, name=column.name)


def filled(column: Any) -> Any:
    """The same, where words for nothing are blanks too."""
    text = text_of(column)
    return text.where(~text.isin(MISSING), "")


def _first(column: Any) -> str:
    """The first cell, as errors show it."""
    cell = text_of(column.iloc[:1]).iloc[0][:40]
    return repr(cell) if cell else "a blank"


def _say_unseen(unseen: Any, total: int, where: str) -> None:
    if len(unseen):
        different = unseen.unique()
        some = ", ".join(repr(value[:40]) for value in different[:3])
        note(
            f"{where} has categories that training has not seen in {len(unseen)} of {total} nodes "
            f"({some}{', ...' if len(different) > 3 else ''}); they count as blanks"
        )


def encode_labels(labels: Any, what: str) -> tuple[Tensor, list[str]]:
    """Number the classes; blank, missing and -1 mean unlabelled.

    Labels are numbers if at least half of them are; then all must be whole.

    Returns:
        ``y`` [N] with -1 for unlabelled, and the class names in order; numbers as text.
    """
    import pandas as pd

    text = filled(pd.Series(labels))
    present = text[text != ""]
    number = pd.to_numeric(present, errors="coerce")
    classes: Any = present
    if 2 * number.isna().sum() <= len(present):
        bad = ~((number >= -1) & (number % 1 == 0) & (number.astype(float) < 2.0**63))
        if bad.any():
            raise InputError(
                f"{what} must be text, or whole numbers from 0 (-1 or blank for unlabelled); got "
                f"{_first(present[bad])} (a number to predict must be cut into classes, as "
                "pandas.qcut does)"
            )
        classes = number.astype(np.int64)[number >= 0]
    names = sorted(set(classes))
    y = np.full(len(text), -1, dtype=np.int64)
    y[text.index.get_indexer(classes.index)] = pd.Index(names).get_indexer(classes)
    return torch.from_numpy(y), [str(name) for name in names]
