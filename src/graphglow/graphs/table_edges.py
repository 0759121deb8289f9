"""Edges as a table: pairs of ids and, where there are any, weights. Read and looked up in batches.

An edge that names an id which no node has is an error, or, where the caller says so, left out: then
one :class:`InputWarning` says how many there were.
"""

import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.check import LARGEST_WEIGHT
from graphglow.graphs.frame_table import FrameTable
from graphglow.graphs.table_cells import parse_numbers, text_of
from graphglow.graphs.table_columns import (
    Chosen,
    end_columns,
    find_column,
    note_misspelt,
    refuse_headerless,
)
from graphglow.graphs.table_rows import TableRows

HOW_TO_SKIP = "--skip-unknown-edges (in Python skip_unknown_edges=True) leaves such edges out"


class EdgeBatch(NamedTuple):
    """Some edges; ``rows`` is their part of the table, the two ends first.

    Shapes:
        pairs [2, E] (int32), weight [E] (float32) or None
    """

    rows: Any
    pairs: np.ndarray
    weight: np.ndarray | None


def edge_batches(
    table: TableRows,
    ids: Any,
    asked: Chosen,
    *,
    whose: str,
    skip_unknown: bool,
    need_some: bool = False,
) -> Iterator[EdgeBatch]:
    """Read the edges of a table, some at a time.

    Args:
        table: Two ends and perhaps a weight; other columns are not read.
        ids: Of all nodes, as text, in a pandas Index: their places are the numbers of the nodes.
        asked: Which columns are what.
        whose: The nodes that edges may name, for errors.
        skip_unknown: Leave out edges that name others, and say how many; else they are an error.
        need_some: Whether it is an error if they are all left out.
    """
    ends, named = end_columns(table.columns, table.what, asked.roles, asked.leave_out)
    if not named and not isinstance(table, FrameTable):
        refuse_headerless(ends, ids, table.what)
    columns = [name for name in table.columns if name not in asked.leave_out]
    weight = find_column("weight", columns, table.what, asked.roles)
    if weight is None:
        note_misspelt("weight", columns, table.what, "is not read as the weight")
    read = [*ends, *([] if weight is None else [weight])]
    position, skipped = _Positions(ids), _Skipped(table, whose)
    for rows in table.batches(read, text=ends):
        pairs = np.stack([position.of(rows[name]) for name in ends])
        if (pairs < 0).any():
            if not skip_unknown:
                _refuse_unknown(pairs, rows, position, table, whose)
            skipped.add(pairs, rows)
            known = (pairs >= 0).all(axis=0)
            rows, pairs = rows[known], pairs[:, known]
        skipped.kept += pairs.shape[1]
        yield EdgeBatch(rows, pairs, None if weight is None else _weights(rows[weight], table))
    skipped.say(need_some)


def joined(batches: Iterable[EdgeBatch]) -> tuple[Tensor, Tensor | None]:
    """All edges: [2, E] (int64), and their weights [E] where there are any."""
    pairs, weights = [np.empty((2, 0), np.int32)], []
    for batch in batches:
        pairs.append(batch.pairs)
        if batch.weight is not None:
            weights.append(batch.weight)
    narrow = np.concatenate(pairs, axis=1)
    pairs.clear()
    edge_index = torch.from_numpy(narrow).long()
    return edge_index, torch.from_numpy(np.concatenate(weights)) if weights else None


def own_ids(ids: Any) -> list[int] | list[str]:
    """The ids as integers where every one of them is written as an integer."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value) for value in ids):
        return [int(value) for value in ids]
    return list(ids)


class _Positions:
    """Where each id stands in the nodes table; whole numbers are looked up as such if they can."""

    def __init__(self, ids: Any) -> None:
        import pandas as pd

        numbers = own_ids(ids)
        self.by_text = ids
        self.by_number = pd.Index(numbers, dtype=np.int64) if type(numbers[0]) is int else None

    def of(self, column: Any) -> np.ndarray:
        """One end of a batch of edges -> node numbers [E] (int32), -1 for ids of no node."""
        import pandas as pd

        if self.by_number is not None and pd.api.types.is_integer_dtype(column.dtype):
            found = self.by_number.get_indexer(column)
        else:
            found = self.by_text.get_indexer(text_of(column))
        numbers: np.ndarray = found.astype(np.int32)
        return numbers

    def alike(self, value: str) -> str:
        """A hint where a node is called so but for case, zeros or ``.0``, which programs change."""

        def bare(text: str) -> str:
            return text.lower().removesuffix(".0").lstrip("0")

        near = next((own for own in self.by_text if bare(own) == bare(value)), None)
        return "" if near is None or not value else f"; there is a node {near!r}: ids are text"


def _refuse_unknown(
    pairs: np.ndarray, rows: Any, position: _Positions, table: TableRows, whose: str
) -> None:
    end = int((pairs < 0).any(axis=1).argmax())  # the first that has any
    unknown, name = pairs[end] < 0, rows.columns[end]
    value, place = _first(unknown, rows[name], table)
    others = int(unknown.sum()) - 1
    raise InputError(
        f"column {name!r} of {table.what} must name {whose}; got "
        f"{f'{name} {value!r}' if value else 'a blank'} in {place}{position.alike(value)}"
        f"{f', and {others} more such rows' if others else ''}; {HOW_TO_SKIP}"
    )


def _first(where: np.ndarray, column: Any, table: TableRows) -> tuple[str, str]:
    """The first value of a column there, cut short, and the name of its row."""
    row = int(where.argmax())
    return str(text_of(column).iloc[row])[:80], table.row_name(column.index[row])


class _Skipped:
    """Counts the edges that are left out."""

    def __init__(self, table: TableRows, whose: str) -> None:
        self.table, self.whose = table, whose
        self.kept = self.left_out = 0
        self.example = ""

    def add(self, pairs: np.ndarray, rows: Any) -> None:
        unknown = pairs < 0
        if not self.left_out:
            end = int(unknown[:, unknown.any(axis=0).argmax()].argmax())  # of the first such row
            value, place = _first(unknown[end], rows[rows.columns[end]], self.table)
            self.example = f"{repr(value) if value else 'a blank'} in {place}"
        self.left_out += int(unknown.any(axis=0).sum())

    def say(self, need_some: bool) -> None:
        if need_some and self.left_out and not self.kept:
            raise InputError(
                f"{self.table.what} must have an edge between {self.whose}; got none in "
                f"{self.left_out}, but {self.example}"
            )
        if self.left_out:
            warnings.warn(
                f"{self.left_out} of {self.left_out + self.kept} edges of {self.table.what} are "
                f"left out: they must name {self.whose}; got {self.example}",
                InputWarning,
                stacklevel=2,
            )


def _weights(column: Any, table: TableRows) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = parse_numbers(text_of(column), table.decimal).values
    bad = ~((values >= 0) & (values <= LARGEST_WEIGHT))  # NaN is neither
    if bad.any():
        row = int(bad.argmax())
        given = column.iloc[row]
        got = (
            "a blank"
            if pd.isna(given)
            else repr(given[:40] if isinstance(given, str) else f"{values[row]:g}")
        )
        most = f" to {LARGEST_WEIGHT:g}" if values[row] > LARGEST_WEIGHT else ""
        raise InputError(
            f"column {column.name!r} of {table.what}: weights must be numbers from 0{most}; "
            f"got {got} in {table.row_name(column.index[row])}"
        )
    narrow: np.ndarray = values.astype(np.float32)
    return narrow
