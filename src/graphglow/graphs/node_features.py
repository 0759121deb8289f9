"""Columns of any kind as node features: numbers standardised, text and booleans one-hot."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError

MAX_CATEGORIES = 1000
"""A text column with more distinct values is refused: it is a name or a comment, no category."""


def encode_features(frame: Any, what: str) -> Tensor:
    """Turn a pandas DataFrame into features.

    A number that is missing takes the mean of its column; a category that is missing is a row of
    zeros. A constant column of numbers becomes zeros.

    Args:
        frame: One row per node.
        what: Names the table in errors.

    Shapes:
        N rows of columns -> x [N, D]
    """
    import pandas as pd

    blocks: list[np.ndarray] = []
    for name in frame.columns:
        column, where = frame[name], f"column {name!r} of {what}"
        if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
            blocks.append(_one_hot(column, where))
        else:
            blocks.append(_standardised(column, where))
    if not blocks:
        raise InputError(f"{what} must have at least one feature column; got none")
    return torch.from_numpy(np.concatenate(blocks, axis=1).astype(np.float32))


def _standardised(column: Any, where: str) -> np.ndarray:
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise InputError(f"{where} must be finite; got {values[row]} in row {row + 1}")
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros((len(values), 1))
    values = np.where(known, values - values[known].mean(), 0.0)
    spread = values[known].std()
    scaled: np.ndarray = values / spread if spread > 1e-12 else np.zeros_like(values)
    return scaled[:, None]


def _one_hot(column: Any, where: str) -> np.ndarray:
    import pandas as pd

    known = column[column.notna()]
    for value in known.iloc[:1]:
        if not isinstance(value, str | bool | int | float | np.generic):
            raise InputError(
                f"{where} must hold numbers, text or booleans; got {type(value).__name__}"
            )
    text = column.astype(object).where(column.notna(), "").astype(str).str.strip()
    categories = sorted(set(text) - {""})
    if len(categories) > MAX_CATEGORIES:
        raise InputError(
            f"{where} must have at most {MAX_CATEGORIES} distinct values to be a category; "
            f"got {len(categories)} (leave the column out, or make it numbers)"
        )
    position = pd.Index(categories, dtype=object).get_indexer(text)  # -1 for missing
    encoded: np.ndarray = position[:, None] == np.arange(len(categories))
    return encoded
