"""Graphs as tables: one of nodes and, where there are edges, one of edges.

``nodes``: an id column (``id``, ``node_id`` or ``node``), a label column (``label``, ``y`` or
``class``), optionally ``split`` (``train``, ``val``, ``test`` or blank); all other columns are
features. ``edges``: ``source`` and ``target`` (or ``from`` and ``to``, ``src`` and ``dst``; two
columns alone may have any name), optionally ``weight``. Without an edges table the check builds a
kNN graph. Errors name rows as a spreadsheet shows them: in CSV the header is row 1.

Edges are read in batches and kept as numbers; of the nodes table, Parquet is read some columns at
a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.labels import encode_labels
from graphglow.graphs.node_features import RowName, encode_columns, row_from_one
from graphglow.graphs.parquet_table import ParquetTable
from graphglow.graphs.split import mask_from
from graphglow.graphs.table_cells import text_of
from graphglow.graphs.table_columns import (
    Chosen,
    Columns,
    check_left_out,
    check_roles,
    find_column,
    need_column,
    note_misspelt,
)
from graphglow.graphs.table_edges import edge_batches, joined, own_ids
from graphglow.graphs.table_file import find_table, open_table
from graphglow.graphs.table_rows import TableRows

SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
COLUMNS_AT_ONCE = 64
WHY_LABELS = " (what is to be predicted; blank where unknown)"


def read_table_folder(
    folder: Path,
    *,
    columns: Columns | None = None,
    need_labels: bool = True,
    skip_unknown_edges: bool = False,
) -> Data:
    """Read a graph, not yet checked, from the tables in ``folder``."""
    nodes = find_table(folder, "nodes")
    if nodes is None:
        raise InputError(f"a graph folder must hold nodes.csv or nodes.parquet; got {folder}")
    edges = find_table(folder, "edges")
    return graph_of_tables(nodes, edges, columns, need_labels, skip_unknown_edges)


def read_tables(
    nodes: Any,
    edges: Any,
    *,
    columns: Columns | None = None,
    need_labels: bool = True,
    skip_unknown_edges: bool = False,
) -> Data:
    """Read a graph, not yet checked, from two tables: paths or DataFrames; no edges is ``None``."""
    joins = None if edges is None else open_table(edges)
    return graph_of_tables(open_table(nodes), joins, columns, need_labels, skip_unknown_edges)


def graph_of_tables(
    nodes: TableRows,
    edges: TableRows | None,
    columns: Columns | None,
    need_labels: bool,
    skip_unknown_edges: bool,
) -> Data:
    """Make a graph, not yet checked, from opened tables."""
    asked = check_roles(columns)
    there = nodes.columns if edges is None else [*nodes.columns, *edges.columns]
    check_left_out(asked.leave_out, there, nodes.what)
    data, ids = _read_nodes(nodes, asked, need_labels)
    if edges is not None:
        _add_edges(data, ids, edges, asked, skip_unknown_edges)
    return data


def _read_nodes(table: TableRows, asked: Chosen, need_labels: bool) -> tuple[Data, Any]:
    import pandas as pd

    chosen = asked.roles
    columns = [name for name in table.columns if name not in asked.leave_out]
    id_column = need_column("id", columns, table.what, chosen)
    if need_labels:
        label: str | None = need_column("label", columns, table.what, chosen, WHY_LABELS)
    else:
        label = find_column("label", columns, table.what, chosen)
    split = find_column("split", columns, table.what, chosen)
    if split is None:
        note_misspelt("split", columns, table.what, "is read as a feature, not as the split")
    known = [name for name in (id_column, label, split) if name is not None]
    features = [name for name in columns if name not in known]
    whole = not isinstance(table, ParquetTable)  # else column by column
    frame = table.frame([*known, *features] if whole else known, text=known)
    if len(frame) == 0:
        raise InputError(f"{table.what} must have at least one row; got the header only")
    if len(frame) == 1:
        raise InputError(f"{table.what} must have at least two nodes; got one row")
    keys = frame.index.to_numpy()

    def row_name(position: int) -> str:
        return table.row_name(keys[position])

    ids = pd.Index(text_of(frame[id_column]), dtype=object)
    _check_ids(ids, f"column {id_column!r} of {table.what}", row_name)
    data = Data()
    data.y = torch.full((len(ids),), -1)
    if label is not None:
        where = f"column {label!r} of {table.what}"
        data.y, data.class_names = encode_labels(frame[label], where, row_name=row_name)
        if need_labels:
            _check_classes(data, where)
    data.node_id = own_ids(ids)
    if split is not None:
        where = f"column {split!r} of {table.what}"
        add_masks(data, text_of(frame[split]).tolist(), where, row_name)
        if need_labels:
            _check_split(data, where)
    parts = [frame[features]] if whole else _column_groups(table, features)
    data.x, made = encode_columns(parts, table.what, row_name=row_name, decimal=table.decimal)
    data.feature_columns = {"columns": made} | ({"chosen": chosen} if chosen else {})
    return data, ids


def _check_classes(data: Data, where: str) -> None:
    """The check's own rule, with the names of the file and the class."""
    classes = data.y[data.y >= 0].unique().tolist()
    if len(classes) < 2:
        got = f"only {data.class_names[classes[0]]!r}" if classes else "no label at all"
        raise InputError(f"{where} must label at least two classes; got {got}")


def _check_split(data: Data, where: str) -> None:
    for name in ("train", "val"):
        if not (data[f"{name}_mask"] & (data.y >= 0)).any():
            raise InputError(
                f"{where} must say {name} in at least one row that has a label; got none"
            )


def _column_groups(table: TableRows, features: list[str]) -> Iterator[Any]:
    for start in range(0, len(features), COLUMNS_AT_ONCE):
        yield table.frame(features[start : start + COLUMNS_AT_ONCE])


def _check_ids(ids: Any, where: str, row_name: RowName) -> None:
    blank = ids == ""
    if blank.any():
        raise InputError(
            f"{where} must have an id in every row; got a blank in {row_name(int(blank.argmax()))}"
        )
    twice = ids.duplicated()
    if twice.any():
        second = int(twice.argmax())
        first = int((ids == ids[second]).argmax())
        raise InputError(
            f"{where} must have unique ids; got {ids[second]!r} in "
            f"{row_name(first).split(' (')[0]} and {row_name(second)}"
        )


def _add_edges(data: Data, ids: Any, table: TableRows, asked: Chosen, skip: bool) -> None:
    whose = "nodes of the nodes table"
    batches = edge_batches(table, ids, asked, whose=whose, skip_unknown=skip, need_some=True)
    data.edge_index, weight = joined(batches)
    if weight is not None:
        data.edge_weight = weight


def add_masks(data: Data, split: list[str], where: str, row_name: RowName = row_from_one) -> None:
    """Set the masks from one of ``train``, ``val``, ``test`` or a blank per node."""
    names = [SPLIT_NAMES.get(value.lower(), value) for value in split]
    for row, name in enumerate(names):
        if name not in ("train", "val", "test", ""):
            raise InputError(
                f"{where} must be train, val, test or blank; got {name!r} in {row_name(row)}"
            )
    array = np.asarray(names)
    for name in ("train", "val", "test"):
        data[f"{name}_mask"] = mask_from(array == name, len(names), where)
