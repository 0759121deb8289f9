"""Tables of nodes that come after training, read with the ids and the encoding of the graph.

``data.feature_columns["columns"]`` says how the nodes table of training became features, column by
column and in the order of the features: ``{"name", "mean", "scale"}`` for numbers, with ``"date"``
where they are days of dates, and ``{"name", "categories"}`` for text; ``["chosen"]`` says which
columns the user had named as what. A graph that did not come from tables has neither: its new nodes
have one column of numbers per feature, in order. Names of columns may differ from those of training
in case and in spaces around them.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.feature_columns import check_feature_columns
from graphglow.graphs.table_cells import EXAMPLES, days_of, parse_dates, parse_numbers, text_of
from graphglow.graphs.table_columns import (
    Chosen,
    Columns,
    check_roles,
    find_column,
    listed,
    need_column,
)
from graphglow.graphs.table_edges import EdgeBatch, edge_batches, joined
from graphglow.graphs.table_file import open_table
from graphglow.graphs.table_rows import MISSING, TableRows

LARGEST = 1e38
"""Of a feature as the model reads it: float32 ends soon after."""


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
    nodes: Any,
    edges: Any,
    data: Data,
    columns: Columns | None = None,
    *,
    skip_unknown_edges: bool = False,
) -> NewNodes:
    """Read a nodes table and, where given, an edges table: paths or pandas DataFrames.

    Args:
        nodes: An id and the features; a label and a split are passed over.
        edges: Pairs of ids, old or new, each with a new end; optionally a weight.
        data: The graph of training.
        columns: Which column is what, where names do not say so, as in ``load_graph``; what was
            said there holds here too.
        skip_unknown_edges: Leave out edges with ids that no node has, as in ``load_graph``.
    """
    import pandas as pd

    check_feature_columns(data)
    table = open_table(nodes)
    asked = check_roles(columns)
    chosen = _roles_of_training(data, table) | asked.roles
    id_column = need_column("id", table.columns, table.what, chosen)
    known = _as_called_here((data.get("feature_columns") or {}).get("columns"), table)
    text = [c["here"] for c in known or [] if "categories" in c]
    frame = table.frame(table.columns, text=[id_column, *text])
    ids = text_of(frame[id_column])
    old = [str(own) for own in data.get("node_id", range(len(data.y)))]
    _check_new_ids(ids, set(old), f"column {id_column!r} of {table.what}", table)
    if known is None:
        others = {find_column(role, table.columns, table.what, chosen) for role in _NO_FEATURES}
        others |= {id_column, *asked.leave_out}
        names = [name for name in table.columns if name not in others]
        x = _plain_numbers(frame, names, int(data.x.shape[1]), table)
    else:
        x = _encoded(frame, known, table)
    new_ids = [str(value) for value in ids]
    if edges is None:
        return NewNodes(x, None, None, new_ids)
    chosen = _roles_of_training(data, edge_table := open_table(edges)) | asked.roles
    batches = edge_batches(
        edge_table,
        pd.Index([*old, *new_ids], dtype=object),
        Chosen(chosen, asked.leave_out),
        whose="old or new nodes",
        skip_unknown=skip_unknown_edges,
    )
    return NewNodes(x, *joined(_with_new_ends(batches, len(old), edge_table)), new_ids)


_NO_FEATURES = ("label", "split")


def _roles_of_training(data: Data, table: TableRows) -> dict[str, str]:
    """Which columns were chosen as what when the graph was loaded, as far as they are here."""
    chosen: dict[str, str] = (data.get("feature_columns") or {}).get("chosen") or {}
    here = {name.lower(): name for name in reversed(table.columns)}
    found = {role: here.get(name.lower()) for role, name in chosen.items()}
    return {
        role: chosen[role] if chosen[role] in table.columns else name
        for role, name in found.items()
        if name is not None
    }


def _as_called_here(
    columns: Sequence[Mapping[str, Any]] | None, table: TableRows
) -> list[dict[str, Any]] | None:
    """The columns of training, each with its name in ``table`` as ``here``; all must be there."""
    if columns is None:
        return None
    alike: dict[str, list[str]] = {}
    for name in table.columns:
        alike.setdefault(name.strip().lower(), []).append(name)
    found = []
    for column in columns:
        name = str(column["name"])
        near = alike.get(name.strip().lower(), [])
        if name not in table.columns and len(near) != 1:
            raise InputError(
                f"{table.what} must have every column of training; got none called {name!r} among "
                f"{listed(table.columns, [name])}"
            )
        found.append({**column, "here": name if name in table.columns else near[0]})
    return found


def _encoded(frame: Any, columns: Sequence[Mapping[str, Any]], table: TableRows) -> Tensor:
    """Encode a table as that of training was.

    A number that is missing takes the mean of training; a category that is missing, or that
    training has not seen, is a row of zeros.

    Shapes:
        M rows -> [M, F]
    """
    blocks: list[np.ndarray] = []
    for column in columns:
        values = frame[column["here"]]
        if "categories" in column:
            blocks.append(_one_hot(values, list(column["categories"]), table))
            continue
        if column.get("date"):
            numbers = _days(values, column["date"], table)
        else:
            numbers = _numbers(values, table, column.get("decimal", table.decimal))
        centred, scale = np.nan_to_num(numbers - float(column["mean"])), float(column["scale"])
        with np.errstate(over="ignore"):  # infinity, which is refused
            scaled = centred / scale if scale > 0 else 0 * centred
        rule = f"numbers below {LARGEST:g} once they are scaled as in training"
        _refuse(np.abs(scaled) > LARGEST, values, rule, table)
        blocks.append(scaled[:, None])
    return torch.from_numpy(np.concatenate(blocks, axis=1).astype(np.float32))


def _one_hot(values: Any, categories: list[str], table: TableRows) -> np.ndarray:
    import pandas as pd

    text = _filled(values)
    if set(categories) <= {"True", "False"}:  # a file may write them otherwise
        text = text.str.capitalize()
    position = pd.Index(categories, dtype=object).get_indexer(text)  # -1 for the others
    unseen = text[(position < 0) & (text != "").to_numpy()]
    if len(unseen):
        different = unseen.unique()
        some = ", ".join(repr(value[:40]) for value in different[:3])
        warnings.warn(
            f"column {values.name!r} of {table.what} has categories that training has not seen in "
            f"{len(unseen)} of {len(text)} nodes ({some}{', ...' if len(different) > 3 else ''}); "
            "they count as blanks",
            InputWarning,
            stacklevel=2,
        )
    encoded: np.ndarray = position[:, None] == np.arange(len(categories))
    return encoded


def _plain_numbers(frame: Any, names: list[str], count: int, table: TableRows) -> Tensor:
    if len(names) != count:
        raise InputError(
            f"{table.what} must have an id and the {count} features of training, in order; got "
            f"{len(names)} other columns"
        )
    columns = [_numbers(frame[name], table, table.decimal) for name in names]
    for name, values in zip(names, columns, strict=True):
        _refuse_blanks(np.isnan(values), frame[name], table)
        _refuse(np.abs(values) > LARGEST, frame[name], f"numbers below {LARGEST:g}", table)
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float32))


def _numbers(values: Any, table: TableRows, decimal: str) -> np.ndarray:
    """As float64, with NaN for blanks; what is no number is refused with its row."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values):
        out: np.ndarray = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        text = _filled(values)
        out = parse_numbers(text, decimal).values
        _refuse(np.isnan(out) & (text != "").to_numpy(), values, "numbers", table)
    _refuse(np.isinf(out), values, "finite", table)
    return out


def _days(values: Any, order: Any, table: TableRows) -> np.ndarray:
    """Dates as days since 1970, with NaN for blanks; ``order`` is that of training."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        return days_of(values)
    text = _filled(values)
    order = order if order in EXAMPLES else "iso"  # older files say no more than that it is a date
    days = parse_dates(text, order).days
    rule = f"dates such as {EXAMPLES[order]}"
    _refuse(np.isnan(days) & (text != "").to_numpy(), values, rule, table)
    return days


def _filled(values: Any) -> Any:
    text = text_of(values)
    return text.where(~text.isin(MISSING), "")


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


def _with_new_ends(
    batches: Iterable[EdgeBatch], num_old: int, table: TableRows
) -> Iterator[EdgeBatch]:
    """The same edges; one between two old nodes is refused with its row."""
    for batch in batches:
        among_old = (batch.pairs < num_old).all(axis=0)
        if among_old.any():
            row = int(among_old.argmax())
            raise InputError(
                f"each edge of {table.what} must have a new end; got "
                f"{' - '.join(str(end) for end in batch.rows.iloc[row, :2])} in "
                f"{table.row_name(batch.rows.index[row])}"
            )
        yield batch
