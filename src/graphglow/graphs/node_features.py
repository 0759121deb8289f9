"""Columns of any kind as node features: numbers and dates standardised, text one-hot.

The arithmetic is scikit-learn's. A column of text is numbers if every filled cell is one, dates if
every filled cell is one (:mod:`graphglow.graphs.table_cells`), and categories otherwise; if only
most cells are numbers or dates, the first that is not is an error. Text in which values hardly
repeat is a name or a comment, no category: the column is left out with an :class:`InputWarning`.
So are dates whose days and months cannot be told apart.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.table_cells import (
    UNCLEAR,
    days_of,
    looks_like_dates,
    parse_dates,
    parse_numbers,
)
from graphglow.graphs.table_rows import MISSING

MAX_CATEGORIES = 1000
"""A text column with more distinct values is left out."""
FEW_CATEGORIES = 20
"""So is one with more than these, if they are more than half as many as its filled cells."""
LARGEST = 1e100
PLAIN = str | bool | int | float | np.generic

RowName = Callable[[int], str]
"""Names the row at a position in errors."""


def row_from_one(position: int) -> str:
    return f"row {position + 1}"


def encode_features(
    frames: Any, what: str, *, row_name: RowName = row_from_one, decimal: str = "."
) -> Tensor:
    """Turn pandas tables into features; see :func:`encode_columns`."""
    return encode_columns(frames, what, row_name=row_name, decimal=decimal)[0]


def encode_columns(
    frames: Any, what: str, *, row_name: RowName = row_from_one, decimal: str = "."
) -> tuple[Tensor, list[dict[str, Any]]]:
    """Turn pandas tables into features: first the numbers of a table, then its categories.

    A number that is missing takes the mean of its column; a category that is missing is a row of
    zeros. A constant column of numbers becomes zeros.

    Args:
        frames: One DataFrame with a row per node, or several, each with some of the columns.
        what: Names the table in errors.
        row_name: Names a row in errors.
        decimal: The decimal point of numbers that came as text.

    Returns:
        ``x``, and how it was made, in its order and as plain values: ``{"name", "mean", "scale"}``
        of a column of numbers (scale 0 if constant), with ``"date"``, the order of its parts, if
        they are days since 1970, and ``"decimal"`` if its decimal sign is not the file's;
        ``{"name", "categories"}`` of a column of text.

    Shapes:
        N rows of columns -> x [N, D]
    """
    blocks: list[Any] = []
    columns: list[dict[str, Any]] = []
    left_out: list[str] = []
    for frame in [frames] if hasattr(frames, "columns") else frames:
        for block, made in _blocks(frame, what, row_name, decimal, left_out):
            blocks.append(block)
            columns += made
    if not any(block.shape[1] for block in blocks):
        but = f" but {', '.join(left_out)}" if left_out else ""
        raise InputError(f"{what} must have at least one feature column; got none{but}")
    x = _joined(blocks)
    if not x.any():
        raise InputError(
            f"{what} must have a feature column that differs between rows; got the same value, or "
            "blanks, in all of each"
        )
    return x, columns


class _Column(NamedTuple):
    """A column of numbers: [N] with NaN for blanks, and what new rows must know to read alike."""

    values: np.ndarray
    facts: dict[str, str]


def _blocks(
    frame: Any, what: str, row_name: RowName, decimal: str, left_out: list[str]
) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    numbers: dict[str, _Column] = {}
    categories: dict[str, Any] = {}
    for name in frame.columns:
        where = f"column {name!r} of {what}"
        found = _numbers(frame[name], where, row_name, decimal)
        if isinstance(found, _Column):
            numbers[name] = found._replace(values=_checked(found.values, where, row_name))
            continue
        text = _text(frame[name])
        reason = found or _no_category(text)
        if reason is None:
            categories[name] = text
        else:
            left_out.append(str(name))
            _warn(f"{where} is left out: {reason}")
    if numbers:
        values = np.stack([column.values for column in numbers.values()], axis=1)
        scaled, mean, scale = _standardised(values)
        made: list[dict[str, Any]] = [
            {"name": str(name), "mean": float(m), "scale": float(s), **column.facts}
            for (name, column), m, s in zip(numbers.items(), mean, scale, strict=True)
        ]
        yield scaled, made
    if categories:
        known = {name: sorted(set(text) - {""}) for name, text in categories.items()}
        made = [{"name": str(name), "categories": values} for name, values in known.items()]
        yield _one_hot(list(categories.values()), list(known.values())), made


def _warn(sentence: str) -> None:
    warnings.warn(sentence, InputWarning, stacklevel=2)


def _numbers(column: Any, where: str, row_name: RowName, decimal: str) -> _Column | str | None:
    """The column as numbers; why it must be left out; or None if it holds categories."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_datetime64_any_dtype(column):
        return _Column(days_of(column), {"date": "iso"})
    if pd.api.types.is_numeric_dtype(column):
        return _Column(column.to_numpy(dtype=np.float64, na_value=np.nan), {})
    if pd.api.types.infer_dtype(column, skipna=True) in ("date", "datetime"):
        dates = pd.to_datetime(column, utc=True, errors="coerce")
        return _Column(days_of(dates), {"date": "iso"})
    _refuse_objects(column, where, row_name)
    text = _text(column)
    values, sign = parse_numbers(text, decimal)
    if _all_of_a_kind(~np.isnan(values), text, "numbers", where, row_name):
        _say_how_numbers(text, values, where, decimal)
        return _Column(values, {} if sign == decimal else {"decimal": sign})
    if not _all_of_a_kind(looks_like_dates(text), text, "dates", where, row_name):
        return None
    days, order = parse_dates(text)
    if order == UNCLEAR:
        first = text[text != ""].iloc[0]
        return f"in {first!r} day and month cannot be told apart (write dates as 2024-01-31)"
    _all_of_a_kind(~np.isnan(days), text, "dates", where, row_name)
    if order in ("dmy", "mdy"):
        row = int((~np.isnan(days)).argmax())
        day = pd.Timestamp(0) + pd.Timedelta(days=days[row])
        _warn(f"{where} is read as dates: {text.iloc[row]!r} as {day:%Y-%m-%d}")
    return _Column(days, {"date": order})


def _say_how_numbers(text: Any, values: np.ndarray, where: str, decimal: str) -> None:
    """Say how the first number that is not written plainly is read."""
    import pandas as pd

    plain = text.str.replace(",", ".", regex=False) if decimal == "," else text
    odd = pd.to_numeric(plain, errors="coerce").to_numpy(np.float64) != values
    odd &= ~np.isnan(values)
    if odd.any():
        row = int(odd.argmax())
        _warn(f"{where} is read as numbers: {text.iloc[row]!r} as {values[row]:.10g}")


def _all_of_a_kind(fits: np.ndarray, text: Any, kind: str, where: str, row_name: RowName) -> bool:
    """Whether all filled cells fit; an error if only most of them do."""
    filled = (text != "").to_numpy()
    bad = filled & ~fits
    if not bad.any():
        return True
    if 2 * bad.sum() <= filled.sum():
        row = int(bad.argmax())
        raise InputError(
            f"{where} must be {kind} in every filled cell, as most are; got "
            f"{text.iloc[row][:40]!r} in {row_name(row)}"
        )
    return False


def _checked(values: np.ndarray, where: str, row_name: RowName) -> np.ndarray:
    bad = np.abs(values) > LARGEST  # NaN, a blank, is not
    if bad.any():
        row = int(bad.argmax())
        rule = "finite" if np.isinf(values[row]) else f"below {LARGEST:g}"
        raise InputError(f"{where} must be {rule}; got {values[row]:g} in {row_name(row)}")
    return values


def _refuse_objects(column: Any, where: str, row_name: RowName) -> None:
    import decimal

    import pandas as pd

    if pd.api.types.infer_dtype(column, skipna=True) not in (
        "mixed",
        "bytes",
        "period",
        "interval",
    ):
        return
    for row, value in enumerate(column):
        if not isinstance(value, PLAIN | decimal.Decimal) and value is not None:
            raise InputError(
                f"{where} must hold numbers, dates, text or booleans; got {type(value).__name__} "
                f"in {row_name(row)}"
            )


def _text(column: Any) -> Any:
    """Stripped text, with an empty one for each blank."""
    known = column.notna()
    text = column.astype(object).where(known, "").astype(str).str.strip()
    return text.where(~text.isin(MISSING), "")


def _no_category(text: Any) -> str | None:
    """Why a column of text is no category, or None if it is one."""
    filled = text[text != ""]
    distinct = filled.nunique()
    if distinct > MAX_CATEGORIES or (distinct > FEW_CATEGORIES and 2 * distinct > len(filled)):
        return (
            f"{distinct} different texts in {len(filled)} filled cells are names or comments, not "
            "categories"
        )
    return None


def _standardised(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean 0 and deviation 1 over the filled cells; blanks become the mean.

    Shapes:
        [N, D] -> [N, D] (float32), mean [D], scale [D], which is 0 for constant columns
    """
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    values[:, np.isnan(values).all(axis=0)] = 0.0
    constant = np.nanmax(values, axis=0) == np.nanmin(values, axis=0)
    scaler = StandardScaler()
    filler = SimpleImputer(strategy="constant", fill_value=0.0)
    scaled = filler.fit_transform(scaler.fit_transform(values)).astype(np.float32)
    scaled[:, constant] = 0.0  # and not the rounding errors of their mean
    return scaled, scaler.mean_, np.where(constant, 0.0, scaler.scale_)


def _one_hot(columns: list[Any], categories: list[list[str]]) -> Any:
    """A sparse matrix: a column per category; blanks are rows of zeros."""
    from sklearn.preprocessing import OneHotEncoder

    table = np.stack([text.to_numpy(dtype=object) for text in columns], axis=1)
    encoder = OneHotEncoder(
        categories=[np.array(known, dtype=object) for known in categories],
        handle_unknown="ignore",
        sparse_output=True,
        dtype=np.float32,
    )
    return encoder.fit_transform(table)


def _joined(blocks: list[Any]) -> Tensor:
    """One dense matrix; the parts are given up one by one, so that memory holds it about once."""
    x = np.zeros((blocks[0].shape[0], sum(block.shape[1] for block in blocks)), dtype=np.float32)
    start = 0
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        if isinstance(block, np.ndarray):
            x[:, start : start + block.shape[1]] = block
        else:
            entries = block.tocoo()
            x[entries.row, start + entries.col] = entries.data
        start += block.shape[1]
    return torch.from_numpy(x)
