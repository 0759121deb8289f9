"""A folder with a nodes table and an edges table, as CSV or Parquet.

``nodes``: an id column (``id``, ``node_id`` or ``node``), a label column (``label``, ``y`` or
``class``), optionally ``split`` (``train``, ``val``, ``test`` or blank); all other columns are
features. ``edges``: ``source`` and ``target`` (or ``from`` and ``to``, ``src`` and ``dst``; two
columns alone may have any name), optionally ``weight``. No column is guessed by its place: a
wrong guess would be a wrong graph without a word. Without an edges table the check builds a kNN
graph. Rows are counted from 1, below the header.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.labels import encode_labels
from graphglow.graphs.node_features import encode_features
from graphglow.graphs.split import mask_from
from graphglow.graphs.table_file import read_columns, read_frame

ID_COLUMNS = ("id", "node_id", "node")
LABEL_COLUMNS = ("label", "y", "class")
END_COLUMNS = (("source", "target"), ("from", "to"), ("src", "dst"))
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def read_table_folder(folder: Path) -> Data:
    """Read a graph, not yet checked, from the tables in ``folder``."""
    nodes_file = _table(folder, "nodes")
    if nodes_file is None:
        raise InputError(f"a graph folder must hold nodes.csv or nodes.parquet; got {folder}")
    data, ids = _read_nodes(nodes_file)
    edges_file = _table(folder, "edges")
    if edges_file is not None:
        _add_edges(data, ids, edges_file)
    return data


def _table(folder: Path, name: str) -> Path | None:
    found = [
        path for path in (folder / f"{name}.csv", folder / f"{name}.parquet") if path.is_file()
    ]
    if len(found) > 1:
        raise InputError(f"a graph folder must hold one {name} table; got two in {folder}")
    return found[0] if found else None


def _read_nodes(path: Path) -> tuple[Data, list[str]]:
    columns = read_columns(path)
    lower = {str(name).lower(): name for name in columns}
    label = _label_column(columns, lower, path)
    split = lower.get("split")
    id_column = next((lower[name] for name in ID_COLUMNS if name in lower), None)
    if id_column is None:
        raise InputError(
            f"{path} must have an id column, called {', '.join(ID_COLUMNS)}; got the columns "
            f"{', '.join(map(str, columns[:20]))}"
        )
    known = [name for name in (id_column, label, split) if name is not None]
    frame = read_frame(path, text=known)
    if len(frame) == 0:
        raise InputError(f"{path} must have at least one row; got the header only")
    ids = _text(frame[id_column])
    _check_ids(ids, path)
    y, class_names = encode_labels(frame[label], f"column {label!r} of {path}")
    data = Data(x=encode_features(frame.drop(columns=known), str(path)), y=y)
    data.node_id = own_ids(ids)
    if class_names is not None:
        data.class_names = class_names
    if split is not None:
        add_masks(data, _text(frame[split]), str(path))
    return data, ids


def _label_column(columns: list[Any], lower: dict[str, Any], path: Path) -> Any:
    labels = [lower[name] for name in LABEL_COLUMNS if name in lower]
    if len(labels) != 1:
        got = " and ".join(map(str, labels)) or f"the columns {', '.join(map(str, columns[:20]))}"
        raise InputError(
            f"{path} must have one label column, called {', '.join(LABEL_COLUMNS)}; got {got}"
        )
    return labels[0]


def _check_ids(ids: list[str], path: Path) -> None:
    first: dict[str, int] = {}
    for row, value in enumerate(ids, start=1):
        if value == "":
            raise InputError(f"{path} must have an id in every row; got a blank in row {row}")
        if value in first:
            raise InputError(
                f"{path} must have unique ids; got {value!r} in rows {first[value]} and {row}"
            )
        first[value] = row


def _add_edges(data: Data, ids: list[str], path: Path) -> None:
    import pandas as pd

    columns = read_columns(path)
    lower = {str(name).lower(): name for name in columns}
    named = next((pair for pair in END_COLUMNS if set(pair) <= set(lower)), None)
    if named is None and len([name for name in lower if name != "weight"]) != 2:
        raise InputError(
            f"{path} must have the columns source and target; got "
            f"{', '.join(map(str, columns[:20]))}"
        )
    ends = [lower[name] for name in named or [n for n in lower if n != "weight"]]
    index = pd.Index(ids)
    if not named and path.suffix == ".csv" and all(str(name) in index for name in ends):
        raise InputError(
            f"{path} must start with a header such as source,target; got the edge "
            f"{ends[0]}, {ends[1]}"
        )
    frame = read_frame(path, text=ends)
    rows = []
    for name in ends:
        values = _text(frame[name])
        position = index.get_indexer(values)
        if (position < 0).any():
            row = int((position < 0).argmax())
            raise InputError(
                f"{path} must name nodes of the nodes table; got {name} {values[row]!r} "
                f"in row {row + 1}"
            )
        rows.append(torch.from_numpy(position.astype(np.int64)))
    data.edge_index = torch.stack(rows)
    if "weight" in lower:
        data.edge_weight = _weights(frame[lower["weight"]], path)


def _weights(column: Any, path: Path) -> torch.Tensor:
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"weights in {path} must be numbers from 0; got {column.iloc[row]!r} in row {row + 1}"
        )
    return torch.from_numpy(values.astype(np.float32))


def add_masks(data: Data, split: list[str], what: str) -> None:
    """Set the masks from one of ``train``, ``val``, ``test`` or a blank per node."""
    names = [SPLIT_NAMES.get(value.lower(), value) for value in split]
    for row, name in enumerate(names, start=1):
        if name not in ("train", "val", "test", ""):
            raise InputError(
                f"split of {what} must be train, val, test or blank; got {name!r} in row {row}"
            )
    array = np.asarray(names)
    for name in ("train", "val", "test"):
        data[f"{name}_mask"] = mask_from(array == name, len(names), f"{name} of {what}")


def own_ids(ids: list[str]) -> list[int] | list[str]:
    """The ids as integers where every one of them is written as an integer."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value) for value in ids):
        return [int(value) for value in ids]
    return ids


def _text(column: Any) -> list[str]:
    import pandas as pd

    if pd.api.types.is_float_dtype(column):  # integers with blanks, as pandas keeps them
        whole = column.dropna()
        if (whole == whole.round()).all():
            column = column.astype("Int64")
    text = column.astype(object).where(column.notna(), "").astype(str).str.strip()
    values: list[str] = text.tolist()
    return values
