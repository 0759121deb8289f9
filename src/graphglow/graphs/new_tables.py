"""Tables of nodes that come after training, read with the ids and the encoding of the graph.

``data.feature_columns["columns"]`` says how the nodes table of training became features, column by
column and in the order of the features: ``{"name", "mean", "scale"}`` for numbers, with ``"date"``
true where they are days of dates, and ``{"name", "categories"}`` for text. A graph that did not
come from tables has none: its new nodes have one column of numbers per feature, in order.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.frame_table import FrameTable
from graphglow.graphs.table_columns import (
    check_roles,
    end_columns,
    find_column,
    need_column,
    refuse_headerless,
)
from graphglow.graphs.table_file import open_table
from graphglow.graphs.table_folder import text_of
from graphglow.graphs.table_rows import MISSING, TableRows


class NewNodes(NamedTuple):
    """New nodes, numbered behind the N old ones.

    Shapes:
        x [M, F]; edge_index [2, E] or None where no edges table was given; edge_weight [E] or None
    """

    x: Tensor
    edge_index: Tensor | None
    edge_weight: Tensor | None
    node_id: list[str]


def read_new_nodes(
    nodes: Any, edges: Any, data: Data, columns: Mapping[str, str] | None = None
) -> NewNodes:
    """Read a nodes table and, where given, an edges table: paths or pandas DataFrames.

    Args:
        nodes: An id and the features; a label and a split are passed over.
        edges: Pairs of ids, old or new, each with a new end; optionally a weight.
        data: The graph of training.
        columns: Which column is what, where names do not say so, as in ``load_graph``.
    """
    chosen, table = check_roles(columns), open_table(nodes)
    id_column = need_column("id", table.columns, table.what, chosen)
    known = (data.get("feature_columns") or {}).get("columns")
    text = [c["name"] for c in known or [] if "categories" in c and c["name"] in table.columns]
    frame = table.frame(table.columns, text=[id_column, *text])
    ids = text_of(frame[id_column])
    old = [str(own) for own in data.get("node_id", range(len(data.y)))]
    _check_new_ids(ids, set(old), f"column {id_column!r} of {table.what}", table)
    if known is None:
        others = {find_column(role, table.columns, table.what, chosen) for role in _NO_FEATURES}
        names = [name for name in table.columns if name not in {id_column, *others}]
        x = _plain_numbers(frame, names, int(data.x.shape[1]), table)
    else:
        x = encode_like(frame, known, table)
    new_ids = [str(value) for value in ids]
    if edges is None:
        return NewNodes(x, None, None, new_ids)
    return NewNodes(x, *_read_edges(open_table(edges), [*old, *new_ids], len(old), chosen), new_ids)


_NO_FEATURES = ("label", "split")


def encode_like(frame: Any, columns: Sequence[Mapping[str, Any]], table: TableRows) -> Tensor:
    """Encode a table as that of training was; all its columns must be there.

    A number that is missing takes the mean of training; a category that is missing, or that
    training has not seen, is a row of zeros.

    Shapes:
        M rows -> [M, F]
    """
    missing = [str(c["name"]) for c in columns if c["name"] not in frame.columns]
    if missing:
        raise InputError(
            f"{table.what} must have every column of training; got none called {missing[0]!r}"
        )
    blocks: list[np.ndarray] = []
    for column in columns:
        values = frame[column["name"]]
        if "categories" in column:
            blocks.append(_one_hot(values, list(column["categories"])))
            continue
        numbers = _days(values, table) if column.get("date") else _numbers(values, table)
        centred, scale = np.nan_to_num(numbers - float(column["mean"])), float(column["scale"])
        blocks.append((centred / scale if scale > 0 else 0 * centred)[:, None])
    return torch.from_numpy(np.concatenate(blocks, axis=1).astype(np.float32))


def _one_hot(values: Any, categories: list[str]) -> np.ndarray:
    import pandas as pd

    text = text_of(values)
    if set(categories) <= {"True", "False"}:  # a file may write them otherwise
        text = text.str.capitalize()
    position = pd.Index(categories, dtype=object).get_indexer(text)  # -1 for the others
    encoded: np.ndarray = position[:, None] == np.arange(len(categories))
    return encoded


def _plain_numbers(frame: Any, names: list[str], count: int, table: TableRows) -> Tensor:
    if len(names) != count:
        raise InputError(
            f"{table.what} must have an id and the {count} features of training, in order; got "
            f"{len(names)} other columns"
        )
    columns = [_numbers(frame[name], table) for name in names]
    for name, values in zip(names, columns, strict=True):
        _refuse_blanks(np.isnan(values), frame[name], table)
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float32))


def _numbers(values: Any, table: TableRows) -> np.ndarray:
    """As float64, with NaN for blanks; what is no number is refused with its row."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(values):
        text = text_of(values)
        text = text.where(~text.isin(MISSING), "")
        numbers = pd.to_numeric(
            text.str.replace(",", ".") if table.decimal == "," else text, errors="coerce"
        )
        bad = numbers.isna() & (text != "")
        _refuse(bad.to_numpy(), values, "numbers", table)
        values = numbers.set_axis(values.index)
    out: np.ndarray = values.to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse(np.isinf(out), values, "finite", table)
    return out


def _days(values: Any, table: TableRows) -> np.ndarray:
    """Dates as days since 1970, with NaN for blanks."""
    import pandas as pd

    dates = values
    if not pd.api.types.is_datetime64_any_dtype(values):
        text = text_of(values)
        filled = ~text.isin(MISSING)
        dates = pd.to_datetime(text.where(filled), format="ISO8601", utc=True, errors="coerce")
        _refuse((dates.isna() & filled).to_numpy(), values, "dates", table)
    days = (dates - pd.Timestamp(0, tz=dates.dt.tz)) / pd.Timedelta(days=1)
    out: np.ndarray = days.to_numpy(dtype=np.float64, na_value=np.nan)
    return out


def _refuse(bad: np.ndarray, values: Any, rule: str, table: TableRows) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"column {values.name!r} of {table.what} must be {rule}; got "
            f"{str(values.iloc[row])[:40]!r} in {table.row_name(values.index[row])}"
        )


def _refuse_blanks(blank: np.ndarray, values: Any, table: TableRows) -> None:
    if blank.any():
        row = values.index[int(blank.argmax())]
        raise InputError(
            f"column {values.name!r} of {table.what} must be filled; got a blank in "
            f"{table.row_name(row)}"
        )


def _check_new_ids(ids: Any, old: set[str], where: str, table: TableRows) -> None:
    seen: dict[str, int] = {}
    for key, value in ids.items():
        if value == "":
            raise InputError(
                f"{where} must have an id in every row; got a blank in {table.row_name(key)}"
            )
        if value in old:
            raise InputError(
                f"{where} must have ids that are new; got {value!r}, a node of training, in "
                f"{table.row_name(key)}"
            )
        if value in seen:
            raise InputError(
                f"{where} must have unique ids; got {value!r} in {table.row_name(seen[value])} and "
                f"{table.row_name(key)}"
            )
        seen[value] = key


def _read_edges(
    table: TableRows, ids: list[str], num_old: int, chosen: dict[str, str]
) -> tuple[Tensor, Tensor | None]:
    import pandas as pd

    ends, named = end_columns(table.columns, table.what, chosen)
    if not named and not isinstance(table, FrameTable):
        refuse_headerless(ends, set(ids), table.what)
    weight = find_column("weight", table.columns, table.what, chosen)
    frame = table.frame([*ends, *([] if weight is None else [weight])], text=ends)
    index, found = pd.Index(ids, dtype=object), []
    for name in ends:
        position = index.get_indexer(text_of(frame[name]))
        _refuse(position < 0, frame[name], "ids of old or new nodes", table)
        found.append(torch.from_numpy(position.astype(np.int64)))
    pairs = torch.stack(found)
    among_old = (pairs < num_old).all(dim=0).nonzero()
    if len(among_old):
        row = int(among_old[0])
        raise InputError(
            f"each edge of {table.what} must have a new end; got "
            f"{' - '.join(str(frame[name].iloc[row]) for name in ends)} in "
            f"{table.row_name(frame.index[row])}"
        )
    if weight is None:
        return pairs, None
    values = _numbers(frame[weight], table)
    _refuse_blanks(np.isnan(values), frame[weight], table)
    _refuse(values < 0, frame[weight], "numbers from 0", table)
    return pairs, torch.from_numpy(values.astype(np.float32))
