"""Labels as people write them (text, whole numbers, blanks) as classes 0..C-1."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs.node_features import RowName, row_from_one
from graphglow.graphs.table_rows import MISSING

EXACT = 2**53
"""Whole numbers beyond this are not told apart as floats: they are names."""


def encode_labels(
    labels: Any, what: str, *, row_name: RowName = row_from_one
) -> tuple[Tensor, list[str]]:
    """Number the classes; blank, missing and -1 mean unlabelled.

    Labels are numbers if at least half of them are; then all must be.

    Args:
        labels: A pandas Series or anything it can be made of.
        what: Names the labels in errors.
        row_name: Names a row in errors.

    Returns:
        ``y`` [N] with -1 for unlabelled, and the class names in order; numbers as text.
    """
    import pandas as pd

    series = pd.Series(labels).reset_index(drop=True)
    text = series.astype(object).where(series.notna(), "").astype(str).str.strip()
    present = text[~text.isin(MISSING)]
    number = pd.to_numeric(present, errors="coerce").astype(np.float64)
    if number.abs().ge(EXACT).any() and not np.isinf(number).any():
        number[:] = np.nan
    words = present[number.isna()]
    if len(present) and 2 * len(words) <= len(present):
        if len(words):
            raise InputError(
                f"{what} must be all numbers or all text (blank for unlabelled); got "
                f"{words.iloc[0]!r} among numbers in {row_name(int(words.index[0]))}"
            )
        return _encode_numbers(number, len(text), what, row_name)
    names = sorted(set(present))
    return _positions(present, names, len(text)), names


def _encode_numbers(
    number: Any, num_nodes: int, what: str, row_name: RowName
) -> tuple[Tensor, list[str]]:
    values = number.to_numpy(dtype=np.float64)
    bad = ~((values == np.floor(values)) & (values >= -1) & np.isfinite(values))
    if bad.any():
        row = int(number.index[bad.argmax()])
        raise InputError(
            f"{what} must be text, or whole numbers from 0 (-1 or blank for unlabelled); "
            f"got {values[bad.argmax()]:g} in {row_name(row)}"
        )
    number = number.astype(np.int64)
    number = number[number >= 0]
    classes = sorted(set(number.tolist()))
    return _positions(number, classes, num_nodes), [str(c) for c in classes]


def _positions(present: Any, classes: list[Any], num_nodes: int) -> Tensor:
    import pandas as pd

    y = np.full(num_nodes, -1, dtype=np.int64)
    y[present.index.to_numpy()] = pd.Index(classes).get_indexer(present)
    return torch.from_numpy(y)
