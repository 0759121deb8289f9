"""Columns of any kind as node features, and labels as classes.

A column is numbers or dates if every filled cell is one; if only most are, the first that is not is
an error. ``12%`` is 0.12 and ``1,000`` is 1000 (``1.234,5`` in files with decimal commas). A date
such as ``03/04/2021`` is read only where some other cell of its column says which of the two is the
day. Everything else is categories; text in which values hardly repeat is a name or a comment, and
left out with an :class:`InputWarning`.

What new nodes must know to be encoded alike is one plain dict per column, in the order of the
features: ``{"name", "mean", "scale"}`` of numbers (scale 0 if constant), with ``"date"``, the order
of its parts, if they are days since 1970; ``{"name", "categories"}`` of text.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.table_file import MISSING, Table

MAX_CATEGORIES = 1000
"""A text column with more distinct values is left out."""
FEW_CATEGORIES = 20
"""So is one with more than these, if they are more than half as many as its filled cells."""
LARGEST = 1e100
LARGEST_SCALED = 1e38
"""Of a feature as the model reads it: float32 ends soon after."""
PLAIN = str | bool | int | float | np.generic | Decimal | None
COMMAS = r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"
POINTS = r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?"
DATE = r"(\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}/\d{1,2}/\d{4}|(\d{1,2}[.-]){2}\d{4})([T ].*)?"
ORDERS = {"iso": "ISO8601", "dmy": "%d/%m/%Y", "mdy": "%m/%d/%Y"}
"""Order of the parts of a date -> its format for pandas."""
EXAMPLES = {"iso": "2024-01-31", "dmy": "31/01/2024", "mdy": "01/31/2024"}


def encode_columns(frame: Any, rows: Table) -> tuple[Tensor, list[dict[str, Any]]]:
    """Turn a pandas table into features, and say how.

    A number that is missing takes the mean of its column; a category that is missing is a row of
    zeros. A constant column of numbers becomes zeros.

    Shapes:
        N rows of columns -> x [N, D]
    """
    from sklearn.preprocessing import StandardScaler

    cells: list[Any] = []
    columns: list[dict[str, Any]] = []
    for name in frame.columns:
        found, facts = _cells(frame[name], rows)
        if found is None:
            continue
        if isinstance(found, np.ndarray):
            rule = f"finite and below {LARGEST:g}"
            refuse(np.abs(found) > LARGEST, frame[name], rule, rows)  # NaN, a blank, is not
            known = found[~np.isnan(found)][:, None]
            constant = len(known) == 0 or known.min() == known.max()
            scaler = StandardScaler().fit(known if len(known) else np.zeros((1, 1)))
            scale = 0.0 if constant else float(scaler.scale_[0])
            facts |= {"mean": float(scaler.mean_[0]), "scale": scale}
        else:
            facts["categories"] = sorted(set(found) - {""})
        cells.append(found)
        columns.append({"name": str(name)} | facts)
    if not any(width(column) for column in columns):
        left_out = ", ".join(map(str, frame.columns))
        but = f" but {left_out}" if left_out else ""
        raise InputError(f"{rows.what} must have at least one feature column; got none{but}")
    x = _joined(cells, columns, len(frame))
    if not x.any():
        raise InputError(
            f"{rows.what} must have a feature column that differs between rows; got the same "
            "value, or blanks, in all of each"
        )
    return x, columns


def encode_alike(
    frame: Any, columns: Sequence[Mapping[str, Any]], here: Sequence[str], rows: Table
) -> Tensor:
    """Encode new rows as the ``columns`` of training were; ``here`` are their names in ``frame``.

    A category that training has not seen is a row of zeros, and said.
    """
    import pandas as pd

    cells: list[Any] = []
    for column, name in zip(columns, here, strict=True):
        values, order = frame[name], column.get("date")
        if "categories" in column:
            text = filled(values)
            if set(column["categories"]) <= {"True", "False"}:  # a file may write them otherwise
                text = text.str.capitalize()
            _say_unseen(text[~text.isin(["", *column["categories"]])], len(text), name, rows.what)
            cells.append(text)
            continue
        if order and not pd.api.types.is_datetime64_any_dtype(values):
            text = filled(values)
            numbers, rule = parse_dates(text, order), f"dates such as {EXAMPLES[order]}"
            refuse(np.isnan(numbers) & (text != "").to_numpy(), values, rule, rows)
        else:
            numbers = days_of(values) if order else plain_numbers(values, rows)
        with np.errstate(over="ignore"):  # infinity, which is refused
            scaled = np.abs(numbers - column["mean"]) / (column["scale"] or np.inf)
        rule = f"numbers below {LARGEST_SCALED:g} once they are scaled as in training"
        refuse(scaled > LARGEST_SCALED, values, rule, rows)
        cells.append(numbers)
    return _joined(cells, columns, len(frame))


def plain_numbers(column: Any, rows: Table) -> np.ndarray:
    """A column as finite numbers, with NaN for blanks; what is no number is refused: [N]."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        values: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        text = filled(column)
        values = parse_numbers(text, rows.decimal)
        refuse(np.isnan(values) & (text != "").to_numpy(), column, "numbers", rows)
    refuse(np.isinf(values), column, "finite", rows)
    return values


def width(column: Mapping[str, Any]) -> int:
    """How many features a column is."""
    return len(column["categories"]) if "categories" in column else 1


def _joined(cells: list[Any], columns: Sequence[Mapping[str, Any]], num_rows: int) -> Tensor:
    """Numbers standardised, text one-hot, side by side: [N, D]."""
    import pandas as pd

    x = np.zeros((num_rows, sum(map(width, columns))), dtype=np.float32)
    start = 0
    for values, column in zip(cells, columns, strict=True):
        if "categories" in column:
            code = pd.Index(column["categories"], dtype=object).get_indexer(values)
            x[np.flatnonzero(code >= 0), start + code[code >= 0]] = 1
        elif column["scale"] > 0:
            x[:, start] = np.nan_to_num((values - column["mean"]) / column["scale"])
        start += width(column)
    return torch.from_numpy(x)


def _cells(column: Any, rows: Table) -> tuple[Any, dict[str, Any]]:
    """A column as numbers [N] or as text, or None if it is left out; and what dates it holds."""
    import pandas as pd

    kinds, where = pd.api.types, f"column {column.name!r} of {rows.what}"
    if isinstance(column.dtype, pd.CategoricalDtype) or kinds.is_bool_dtype(column):
        return filled(column), {}
    if kinds.is_datetime64_any_dtype(column):
        return days_of(column), {"date": "iso"}
    if kinds.is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan), {}
    if kinds.infer_dtype(column, skipna=True) in ("date", "datetime"):
        return days_of(pd.to_datetime(column, utc=True, errors="coerce")), {"date": "iso"}
    for label, value in column.items() if column.dtype == object else ():
        if not isinstance(value, PLAIN):
            raise InputError(
                f"{where} must hold numbers, dates, text or booleans; got {type(value).__name__} "
                f"in {rows.row_name(label)}"
            )
    text = filled(column)
    numbers = parse_numbers(text, rows.decimal)
    if _all_of_a_kind(~np.isnan(numbers), text, "numbers", rows):
        sign = text.str.replace(",", ".", regex=False) if rows.decimal == "," else text
        odd = ~np.isnan(numbers) & pd.to_numeric(sign, errors="coerce").isna().to_numpy()
        if odd.any():
            first = int(odd.argmax())
            _warn(f"{where} is read as numbers: {text.iloc[first]!r} as {numbers[first]:.10g}")
        return numbers, {}
    if _all_of_a_kind(text.str.fullmatch(DATE).to_numpy(bool), text, "dates", rows):
        return _dates(text, where, rows)
    present = text[text != ""]
    if (some := present.nunique()) > MAX_CATEGORIES or FEW_CATEGORIES < some > len(present) / 2:
        _warn(
            f"{where} is left out: {some} different texts in {len(present)} filled cells are names "
            "or comments, not categories"
        )
        return None, {}
    return text, {}


def _all_of_a_kind(fits: np.ndarray, text: Any, kind: str, rows: Table) -> bool:
    """Whether all filled cells fit; an error if only most of them do."""
    present = (text != "").to_numpy()
    bad = present & ~fits
    if 2 * bad.sum() <= present.sum():
        refuse(bad, text, f"{kind} in every filled cell, as most are", rows)
    return not bad.any()


def _dates(text: Any, where: str, rows: Table) -> tuple[Any, dict[str, Any]]:
    import pandas as pd

    present = (text != "").to_numpy()
    days = {order: parse_dates(text, order) for order in ORDERS}
    fit = [order for order in ORDERS if not np.isnan(days[order][present]).any()]
    if fit == ["dmy", "mdy"] and not text[present].str.contains(".", regex=False).all():
        _warn(
            f"{where} is left out: in {text[present].iloc[0]!r} day and month cannot be told apart "
            "(write dates as 2024-01-31)"
        )
        return None, {}
    order = fit[0] if fit else min(ORDERS, key=lambda o: np.isnan(days[o]).sum())
    _all_of_a_kind(~np.isnan(days[order]), text, "dates", rows)
    if order in ("dmy", "mdy"):
        first = int(present.argmax())
        day = pd.Timestamp(0) + pd.Timedelta(days=days[order][first])
        _warn(f"{where} is read as dates: {text.iloc[first]!r} as {day:%Y-%m-%d}")
    return days[order], {"date": order}


def parse_numbers(text: Any, decimal: str) -> np.ndarray:
    """Numbers as they are written, NaN for blanks and for what is none: [N]."""
    import pandas as pd

    bare = text.str.removesuffix("%").str.rstrip()
    if decimal == "," and bare.str.contains(",", regex=False).any():
        with_point = bare[bare.str.contains(".", regex=False)]
        if with_point.str.fullmatch(POINTS).all():
            bare = bare.str.replace(".", "", regex=False)
        bare = bare.str.replace(",", ".", regex=False)
    elif decimal == ".":
        bare = bare.mask(bare.str.fullmatch(COMMAS), bare.str.replace(",", "", regex=False))
    values: np.ndarray = pd.to_numeric(bare, errors="coerce").to_numpy(np.float64)
    return np.where(text.str.endswith("%").to_numpy(bool), values / 100, values)


def parse_dates(text: Any, order: str) -> np.ndarray:
    """Dates as days since 1970, NaN for blanks and for what is none: [N].

    A time of day counts behind ``2024-01-31`` only.
    """
    import pandas as pd

    if order != "iso":
        text = text.str.replace(r"[T ].*$", "", regex=True).str.replace(r"[.-]", "/", regex=True)
    given = text.where(text != "", None)
    return days_of(pd.to_datetime(given, format=ORDERS[order], utc=True, errors="coerce"))


def days_of(dates: Any) -> np.ndarray:
    """Dates of pandas as days since 1970, NaN for blanks: [N] (float64)."""
    import pandas as pd

    start = pd.Timestamp(0, unit="s", tz=dates.dt.tz).as_unit("s")  # nanoseconds end in 2262
    days = (dates - start) / pd.Timedelta(days=1).as_unit("s")
    values: np.ndarray = days.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


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


def _warn(sentence: str) -> None:
    warnings.warn(sentence, InputWarning, stacklevel=2)


def _say_unseen(unseen: Any, total: int, name: str, what: str) -> None:
    if len(unseen):
        different = unseen.unique()
        some = ", ".join(repr(value[:40]) for value in different[:3])
        _warn(
            f"column {name!r} of {what} has categories that training has not seen in {len(unseen)} "
            f"of {total} nodes ({some}{', ...' if len(different) > 3 else ''}); they count as "
            "blanks"
        )


def refuse(bad: np.ndarray, column: Any, rule: str, rows: Table) -> None:
    """Raise if any cell of a column breaks the rule, with the first that does."""
    if bad.any():
        first = int(bad.argmax())
        cell = text_of(column.iloc[[first]]).iloc[0][:40]
        raise InputError(
            f"column {column.name!r} of {rows.what} must be {rule}; got "
            f"{repr(cell) if cell else 'a blank'} in {rows.row_name(column.index[first])}"
        )


def encode_labels(
    labels: Any, what: str, row_name: Callable[[Any], str] = "row {}".format
) -> tuple[Tensor, list[str]]:
    """Number the classes; blank, missing and -1 mean unlabelled.

    Labels are numbers if at least half of them are; then all must be. ``what`` and ``row_name``
    name them and their rows in errors.

    Returns:
        ``y`` [N] with -1 for unlabelled, and the class names in order; numbers as text.
    """
    import pandas as pd

    text = filled(pd.Series(labels))
    present = text[text != ""]
    number = pd.to_numeric(present, errors="coerce")
    words = present[number.isna()]
    classes: Any = present
    if 2 * len(words) <= len(present):
        if len(words):
            raise InputError(
                f"{what} must be all numbers or all text (blank for unlabelled); got "
                f"{words.iloc[0][:40]!r} among numbers in {row_name(words.index[0])}"
            )
        bad = (number < -1) | (number % 1 != 0) | ~np.isfinite(number.astype(float))
        if bad.any():
            raise InputError(
                f"{what} must be text, or whole numbers from 0 (-1 or blank for unlabelled); got "
                f"{float(number[bad].iloc[0]):g} in {row_name(number.index[bad.argmax()])}"
            )
        classes = number.astype(np.int64)[number >= 0]
    names = sorted(set(classes))
    y = np.full(len(text), -1, dtype=np.int64)
    y[text.index.get_indexer(classes.index)] = pd.Index(names).get_indexer(classes)
    return torch.from_numpy(y), [str(name) for name in names]
