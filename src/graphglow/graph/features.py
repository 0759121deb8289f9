"""Columns of a table as node features, and labels as classes.

Numbers and ISO dates are standardised, everything else becomes one column of 0 and 1 per value.
Text in which values hardly repeat is a name or a comment, and left out with a warning.

How a column was encoded, so that new nodes are encoded alike, is one plain dict per column, in the
order of the features: ``{"name", "mean", "scale"}`` (scale 0 if constant; with ``"date": True`` for
days since 1970), or ``{"name", "categories"}``.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError, warn

MISSING = ["", "nan", "NaN", "NA", "N/A", "n/a", "null", "NULL", "None"]
"""What counts as blank, except in ids, which are text as written."""
MAX_CATEGORIES = 1000
"""A text column with more distinct values is left out."""
FEW_CATEGORIES = 20
"""So is one with more than these, if they are more than half as many as its filled cells."""
LARGEST = 1e38
"""Magnitude of a number that float32 still holds."""


def encode_columns(
    frame: Any, what: str, categories: Sequence[str] = ()
) -> tuple[Tensor, list[dict[str, Any]]]:
    """Turn a pandas table, ``what`` in errors, into features; also return how.

    A missing number is the mean of its column; a missing category is a row of zeros. A constant
    column of numbers becomes zeros. Columns in ``categories`` are never taken for numbers.

    Shapes:
        N rows -> x [N, D]; D is 0 without any column
    """
    described = [_describe(frame[name], what, name in categories) for name in frame.columns]
    columns = [facts for facts in described if facts is not None]
    if not any(width(facts) for facts in columns):
        return torch.empty(len(frame), 0), []
    x = encode_alike(frame, columns, [facts["name"] for facts in columns], what)
    if not x.any():
        raise InputError(
            f"No feature column of {what} differs between its {len(frame)} rows, so that nodes "
            "cannot be told apart. Add a column that does."
        )
    return x, columns


def encode_alike(
    frame: Any, columns: Sequence[Mapping[str, Any]], names: Sequence[str], what: str
) -> Tensor:
    """Encode rows as ``columns`` say; ``names`` are theirs in ``frame``: M rows -> [M, D]."""
    import pandas as pd

    parts = [np.zeros((len(frame), 0), np.float32)]
    for facts, name in zip(columns, names, strict=True):
        if "categories" in facts:
            text = filled(frame[name])
            if set(facts["categories"]) <= {"True", "False"}:  # a file may write them otherwise
                text = text.str.capitalize()
            code = pd.Index(facts["categories"], dtype=object).get_indexer(text)
            unseen = text[(code < 0) & (text != "")]
            if len(unseen):
                warn(
                    f"column {name!r} of {what} has categories that training has not seen in "
                    f"{len(unseen)} of {len(text)} rows, such as {unseen.iloc[0][:40]!r}; they "
                    "count as blanks"
                )
            parts.append((code[:, None] == np.arange(width(facts))).astype(np.float32))
        else:
            values = numbers_of(frame[name], what, is_date=facts.get("date", False))
            with np.errstate(over="ignore"):  # infinity, which is refused
                scaled = (values - facts["mean"]) / (facts["scale"] or np.inf)
            _refuse(np.abs(scaled) > LARGEST, frame[name], what, "a number that is too large")
            parts.append(np.nan_to_num(scaled).astype(np.float32)[:, None])
    return torch.from_numpy(np.concatenate(parts, axis=1))


def numbers_of(column: Any, what: str, *, is_date: bool = False) -> np.ndarray:
    """A column as finite numbers, or dates as days since 1970; NaN for blanks: [N]."""
    values, bad = _parse(column, is_date)
    _refuse(bad, column, what, "text among dates" if is_date else "text among numbers")
    _refuse(np.abs(values) > LARGEST, column, what, "a number that is too large")
    return values


def _refuse(bad: np.ndarray, column: Any, what: str, problem: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"Column {column.name!r} of {what} has {problem} in row {row + 1} "
            f"({text_of(column.iloc[[row]]).iloc[0][:40]!r}). Clean it, or leave the column out: "
            f'--columns leave_out={column.name} (in Python columns={{"leave_out": '
            f"[{str(column.name)!r}]}})."
        )


def _parse(column: Any, is_date: bool) -> tuple[np.ndarray, np.ndarray]:
    """The numbers or days of a column, and which of its filled cells are none: [N], [N]."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not is_date:
        return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), bool)
    text = filled(column)
    if is_date:
        given = column if pd.api.types.is_datetime64_any_dtype(column) else text.replace("", None)
        when = pd.to_datetime(given, format="ISO8601", utc=True, errors="coerce")
        start = pd.Timestamp(0, unit="s", tz="UTC").as_unit("s")  # nanoseconds end in 2262
        values = (when - start) / pd.Timedelta(days=1).as_unit("s")
    else:
        values = pd.to_numeric(text, errors="coerce")
    values = values.to_numpy(np.float64, na_value=np.nan)
    return values, np.isnan(values) & (text != "").to_numpy(bool)


def _describe(column: Any, what: str, is_category: bool) -> dict[str, Any] | None:
    """How a column is to be encoded, or None if it is left out."""
    import pandas as pd

    kinds = pd.api.types
    facts: dict[str, Any] = {"name": str(column.name)}
    if is_category or isinstance(column.dtype, pd.CategoricalDtype) or kinds.is_bool_dtype(column):
        return facts | {"categories": sorted(set(filled(column)) - {""})}
    if kinds.is_datetime64_any_dtype(column):
        return facts | _scaling(column, what, True)
    if kinds.is_numeric_dtype(column):
        return facts | _scaling(column, what, False)
    plain = (str, Real, np.bool_, Decimal, date, type(None))
    other = next((cell for cell in column if not (isinstance(cell, plain) or cell is pd.NA)), None)
    if other is not None:
        warn(
            f"column {column.name!r} of {what} is left out: features are numbers, dates, text or "
            f"booleans, not {type(other).__name__}"
        )
        return None
    text = filled(column)
    present = text[text != ""]
    for is_date in (False, True):
        if 2 * _parse(text, is_date)[1].sum() <= len(present):  # most are: then all must be
            return facts | _scaling(column, what, is_date)
    different = present.nunique()
    if different > MAX_CATEGORIES or FEW_CATEGORIES < different > len(present) / 2:
        warn(
            f"column {column.name!r} of {what} is left out: {different} different texts in "
            f"{len(present)} filled cells are names or comments, not categories (dates are "
            "written 2024-01-31)"
        )
        return None
    return facts | {"categories": sorted(set(present))}


def _scaling(column: Any, what: str, is_date: bool) -> dict[str, Any]:
    """Mean and deviation of the filled cells."""
    values = numbers_of(column, what, is_date=is_date)
    known = values[~np.isnan(values)]
    constant = len(known) == 0 or known.min() == known.max()
    facts: dict[str, Any] = {
        "mean": float(known.mean()) if len(known) else 0.0,
        "scale": 0.0 if constant else float(known.std()),
    }
    return facts | ({"date": True} if is_date else {})


def width(facts: Mapping[str, Any]) -> int:
    """How many features a column is."""
    return len(facts["categories"]) if "categories" in facts else 1


def text_of(column: Any) -> Any:
    """Stripped text, empty for blanks; whole numbers that pandas keeps as floats are whole."""
    import pandas as pd

    if pd.api.types.is_float_dtype(column):  # integers with blanks, as pandas keeps them
        known = column.dropna()
        if (known == known.round()).all() and (known.abs() < 2**53).all():
            column = column.astype("Int64")
    text = column.astype(object).where(column.notna(), "")
    return text.map(str).str.strip().astype(object)


def filled(column: Any) -> Any:
    """Stripped text where words for nothing are blanks too."""
    text = text_of(column)
    return text.where(~text.isin(MISSING), "")


def encode_labels(labels: Any, what: str) -> tuple[Tensor, list[str]]:
    """Number the classes; blank, missing and -1 mean unlabelled.

    Labels are numbers if at least half of them are; then all must be whole.

    Returns:
        ``y`` [N] with -1 for unlabelled, and the class names in order; numbers as text.
    """
    import pandas as pd

    text = filled(pd.Series(labels).reset_index(drop=True))
    classes = text[text != ""]
    number = pd.to_numeric(classes, errors="coerce")
    if 2 * number.isna().sum() <= len(classes):
        bad = ~((number >= -1) & (number % 1 == 0) & (number.astype(float) < 2.0**63))
        if bad.any():
            raise InputError(
                f"Labels in {what} are text or whole numbers from 0 (-1 or blank: unlabelled), not "
                f"{classes[bad].iloc[0][:40]!r} in row {classes.index[bad][0] + 1}. Cut a number "
                "that is to be predicted into classes, as pandas.qcut does."
            )
        classes = number.astype(np.int64)[number >= 0]
    codes, names = pd.factorize(classes, sort=True)
    y = np.full(len(text), -1, dtype=np.int64)
    y[classes.index] = codes
    return torch.from_numpy(y), [str(name) for name in names]
