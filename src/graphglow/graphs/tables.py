"""Graphs as tables: one of nodes and, where there are edges, one of edges.

``nodes``: an id column (``id``, ``node_id`` or ``node``), a label column (``label``, ``y`` or
``class``), optionally ``split`` (``train``, ``val``, ``test`` or blank); all other columns are
features. ``edges``: ``source`` and ``target`` (or ``from`` and ``to``, ``src`` and ``dst``; two
columns alone may have any name), optionally ``weight``. Without an edges table the check builds a
kNN graph.

Nodes that come after training are read with the ids and the encoding of the graph, which
``data.feature_columns`` keeps: ``["columns"]`` as :mod:`graphglow.graphs.features` made them and
``["chosen"]``, which columns the user had named as what.
"""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.check import LARGEST_WEIGHT
from graphglow.graphs.features import (
    LARGEST_SCALED,
    ORDERS,
    encode_alike,
    encode_columns,
    encode_labels,
    plain_numbers,
    refuse,
    text_of,
)
from graphglow.graphs.split import SPLITS
from graphglow.graphs.table_columns import (
    Chosen,
    Columns,
    check_roles,
    end_columns,
    find_column,
    listed,
    need_column,
    note_misspelt,
)
from graphglow.graphs.table_file import Table, find_table, open_table

SPLIT_NAMES = {"valid": "val", "validation": "val"}
WHY_LABELS = " (what is to be predicted; blank where unknown)"
HOW_TO_SKIP = "--skip-unknown-edges (in Python skip_unknown_edges=True) leaves such edges out"
NOT_FEATURES = ("label", "split")
ENCODING = "feature_columns of the graph must say how its table became features"


def read_tables(
    nodes: Any,
    edges: Any = None,
    *,
    columns: Columns | None = None,
    need_labels: bool = True,
    skip_unknown_edges: bool = False,
) -> Data:
    """Read a graph, not yet checked, from two tables, or from those in a folder.

    Each is a path or a DataFrame; a folder with ``nodes.csv`` and the like has both. The settings
    are those of :func:`~graphglow.graphs.load.load_graph`.
    """
    asked = check_roles(columns)
    if isinstance(nodes, Path) and edges is None and nodes.is_dir():
        node_table, edge_table = find_table(nodes, "nodes"), find_table(nodes, "edges")
        if node_table is None:
            raise InputError(f"a graph folder must hold nodes.csv or nodes.parquet; got {nodes}")
    else:
        node_table, edge_table = open_table(nodes), None if edges is None else open_table(edges)
    there = node_table.columns + ([] if edge_table is None else edge_table.columns)
    for name in asked.leave_out:
        if name not in there:
            raise InputError(
                f"{node_table.what} must have the column {name!r}, which is to be left out; got "
                f"{listed(there, [name])}"
            )
    data, ids = _read_nodes(node_table, asked, need_labels)
    if edge_table is not None:
        whose = "nodes of the nodes table"
        data.edge_index, weight = _read_edges(edge_table, ids, asked, whose, skip_unknown_edges)
        if weight is not None:
            data.edge_weight = weight
    return data


def _read_nodes(table: Table, asked: Chosen, need_labels: bool) -> tuple[Data, Any]:
    roles, what = asked.roles, table.what
    columns = [name for name in table.columns if name not in asked.leave_out]
    id_column = need_column("id", columns, what, roles)
    label = find_column("label", columns, what, roles)
    if label is None and need_labels:
        need_column("label", columns, what, roles, WHY_LABELS)
    split = find_column("split", columns, what, roles)
    if split is None:
        note_misspelt("split", columns, what, "is read as a feature, not as the split")
    known = [name for name in (id_column, label, split) if name is not None]
    frame = table.frame(columns, text=known)
    if len(frame) < 2:
        got = "one row" if len(frame) else "the header only"
        raise InputError(f"{what} must have at least two rows, one for each node; got {got}")
    ids = _checked_ids(frame[id_column], table)
    data = Data(y=torch.full((len(ids),), -1), node_id=own_ids(ids))
    if label is not None:
        where = f"column {label!r} of {what}"
        data.y, data.class_names = encode_labels(frame[label], where, table.row_name)
        if need_labels and len(data.class_names) < 2:
            got = f"only {data.class_names[0]!r:.80}" if data.class_names else "no label at all"
            raise InputError(f"{where} must label at least two classes; got {got}")
    if split is not None:
        add_masks(data, frame[split], f"column {split!r} of {what}", table.row_name)
        for name in SPLITS[:2]:
            if need_labels and not (data[f"{name}_mask"] & (data.y >= 0)).any():
                raise InputError(
                    f"column {split!r} of {what} must say {name} in at least one row that has a "
                    "label; got none"
                )
    data.x, made = encode_columns(frame[[n for n in columns if n not in known]], table)
    data.feature_columns = {"columns": made} | ({"chosen": roles} if roles else {})
    return data, ids


def _checked_ids(column: Any, table: Table, old: frozenset[str] = frozenset()) -> Any:
    """The ids of a table as text, in a pandas Index: filled, once each, and none of ``old``."""
    import pandas as pd

    ids, where = text_of(column), f"column {column.name!r} of {table.what}"
    refuse((ids == "").to_numpy(), ids, "an id in every row", table)
    refuse(ids.isin(old).to_numpy(), ids, "ids that are new", table)
    twice = ids.duplicated(keep=False)
    if twice.any():
        same = ids[twice][ids[twice] == ids[twice].iloc[0]]
        first, second = (table.row_name(label) for label in same.index[:2])
        raise InputError(
            f"{where} must have unique ids; got {same.iloc[0]!r:.80} in {first.split(' (')[0]} and "
            f"{second}"
        )
    return pd.Index(ids, dtype=object)


def own_ids(ids: Any) -> list[int] | list[str]:
    """The ids as integers where every one of them is written as an integer."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value) for value in ids):
        return [int(value) for value in ids]
    return list(ids)


def add_masks(data: Data, split: Any, where: str, row_name: Callable[[Any], str]) -> None:
    """Set the masks from one of ``train``, ``val``, ``test`` or a blank per node, in a Series."""
    names = text_of(split).str.lower().replace(SPLIT_NAMES)
    other = ~names.isin([*SPLITS, ""])
    if other.any():
        raise InputError(
            f"{where} must be train, val, test or blank; got {names[other].iloc[0]!r:.80} in "
            f"{row_name(names.index[other.argmax()])}"
        )
    for name in SPLITS:
        data[f"{name}_mask"] = torch.from_numpy((names == name).to_numpy(bool).copy())


def _read_edges(
    table: Table, ids: Any, asked: Chosen, whose: str, skip_unknown: bool, num_old: int = 0
) -> tuple[Tensor, Tensor | None]:
    """Read edges between ``ids``, as text in a pandas Index: [2, E], and weights [E] or None.

    ``whose`` names these nodes in errors; of the first ``num_old`` an edge may have one end only.
    """
    import pandas as pd

    columns = [name for name in table.columns if name not in asked.leave_out]
    ends, named = end_columns(columns, table.what, asked.roles)
    if not named and table.files and all(name in ids for name in ends):
        raise InputError(
            f"{table.what} must start with a header such as source,target; got the edge "
            f"{ends[0]}, {ends[1]}"
        )
    weight = find_column("weight", columns, table.what, asked.roles)
    if weight is None:
        note_misspelt("weight", columns, table.what, "is not read as the weight")
    numbers = own_ids(ids)  # whole numbers are looked up as such: text takes much more memory
    by_number = pd.Index(numbers, dtype=np.int64) if type(numbers[0]) is int else None
    frame = table.frame(
        [*ends, *([weight] if weight else [])], [] if by_number is not None else ends
    )
    found = np.empty((2, len(frame)), np.int64)
    for end, name in enumerate(ends):
        if by_number is not None and pd.api.types.is_integer_dtype(frame[name]):
            found[end] = by_number.get_indexer(frame[name])
        else:
            found[end] = ids.get_indexer(text_of(frame[name]))
    unknown = (found < 0).any(axis=0)
    if unknown.any():
        _say_unknown(frame, found, ids, table, whose, skip_unknown, may_be_all=num_old > 0)
        frame, found = frame[~unknown], found[:, ~unknown]
    between = (found < num_old).all(axis=0)
    if between.any():
        row = int(between.argmax())
        raise InputError(
            f"each edge of {table.what} must have a new end; got "
            f"{' - '.join(str(end) for end in frame[ends].iloc[row])} in "
            f"{table.row_name(frame.index[row])}"
        )
    edge_index = torch.from_numpy(found)
    if weight is None:
        return edge_index, None
    values = plain_numbers(frame[weight], table)
    bad = ~((values >= 0) & (values <= LARGEST_WEIGHT))  # NaN is neither
    refuse(bad, frame[weight], f"numbers from 0 to {LARGEST_WEIGHT:g}", table)
    return edge_index, torch.from_numpy(values.astype(np.float32))


def _say_unknown(
    frame: Any, found: np.ndarray, ids: Any, table: Table, whose: str, skip: bool, may_be_all: bool
) -> None:
    """Raise because of edges whose ends are no nodes, or warn where they are left out."""
    unknown = (found < 0).any(axis=0)
    first, count = int(unknown.argmax()), int(unknown.sum())
    name = frame.columns[int((found[:, first] < 0).argmax())]
    value = text_of(frame[name].iloc[[first]]).iloc[0][:80]
    place = table.row_name(frame.index[first])
    got = f"{repr(value) if value else 'a blank'} in {place}"
    if not skip:
        raise InputError(
            f"column {name!r} of {table.what} must name {whose}; got {f'{name} ' if value else ''}"
            f"{got}{_alike(value, ids)}{f', and {count - 1} more such rows' if count > 1 else ''}; "
            f"{HOW_TO_SKIP}"
        )
    if unknown.all() and not may_be_all:
        raise InputError(
            f"{table.what} must have an edge between {whose}; got none in {count}, but {got}"
        )
    warnings.warn(
        f"{count} of {len(frame)} edges of {table.what} are left out: they must name {whose}; got "
        f"{got}",
        InputWarning,
        stacklevel=2,
    )


def _alike(value: str, ids: Any) -> str:
    """A hint where a node is called so but for case, zeros or ``.0``, which programs change."""

    def bare(text: str) -> str:
        return text.lower().removesuffix(".0").lstrip("0")

    near = next((own for own in ids if value and bare(own) == bare(value)), None)
    return "" if near is None else f"; there is a node {near!r}: ids are text"


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

    Names of columns may differ from those of training in case and in spaces around them. A graph
    that did not come from tables has one column of numbers per feature, in order.

    Args:
        nodes: An id and the features; a label and a split are passed over.
        edges: Pairs of ids, old or new, each with a new end; optionally a weight.
        data: The graph of training.
        columns: Which column is what, where names do not say so, as in ``load_graph``; what was
            said there holds here too.
        skip_unknown_edges: Leave out edges with ids that no node has, as in ``load_graph``.
    """
    import pandas as pd

    made, chosen_before = _encoding(data)
    table, asked = open_table(nodes), check_roles(columns)
    roles = _as_called_here(chosen_before, table) | asked.roles
    id_column = need_column("id", table.columns, table.what, roles)
    here = [] if made is None else [_column_here(column["name"], table) for column in made]
    text = [name for name, c in zip(here, made or (), strict=True) if "categories" in c]
    frame = table.frame(table.columns, text=[id_column, *text])
    old = [str(own) for own in data.get("node_id", range(len(data.y)))]
    ids = _checked_ids(frame[id_column], table, frozenset(old))
    if made is not None:
        x = encode_alike(frame, made, here, table)
    else:
        others = {
            find_column(role, table.columns, table.what, roles) for role in ("label", "split")
        }
        others |= {id_column, *asked.leave_out}
        names = [name for name in table.columns if name not in others]
        x = _plain_features(frame[names], int(data.x.shape[1]), table)
    if edges is None:
        return NewNodes(x, None, None, list(ids))
    joined = open_table(edges)
    asked = Chosen(_as_called_here(chosen_before, joined) | asked.roles, asked.leave_out)
    everyone, whose = pd.Index([*old, *ids], dtype=object), "old or new nodes"
    found = _read_edges(joined, everyone, asked, whose, skip_unknown_edges, len(old))
    return NewNodes(x, *found, list(ids))


def _encoding(data: Data) -> tuple[list[dict[str, Any]] | None, dict[str, str]]:
    """How the nodes table of training was read, if it was one; a file may say anything of it."""
    told = data.get("feature_columns")
    if told is None:
        return None, {}
    try:
        columns, chosen = told["columns"], dict(told.get("chosen", {}))
        sound = len(columns) > 0 and all(isinstance(name, str) for name in chosen.values())
        for column in columns:
            texts = [column["name"], *column.get("categories", ())]
            sound &= not isinstance(column.get("categories"), str)
            sound &= all(isinstance(text, str) for text in texts) and "decimal" not in column
            sound &= len(set(texts[1:])) == len(texts) - 1
            if "categories" not in column:
                sound &= bool(np.isfinite(column["mean"]) and column["scale"] >= 0)
                sound &= column.get("date", "iso") in ORDERS
    except (LookupError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise InputError(f"{ENCODING}; got {told!r:.80} (an older graphglow, or another program)")
    return columns, chosen


def _as_called_here(chosen: dict[str, str], table: Table) -> dict[str, str]:
    """Which columns were chosen as what when the graph was loaded, as far as they are here."""
    here = {name.lower(): name for name in reversed(table.columns)}
    here |= {name: name for name in table.columns}
    found = {role: here.get(name, here.get(name.lower())) for role, name in chosen.items()}
    return {role: name for role, name in found.items() if name is not None}


def _column_here(name: str, table: Table) -> str:
    """A column of training by its name in ``table``, where case and spaces may be others."""
    alike = [own for own in table.columns if own.strip().lower() == name.strip().lower()]
    if name in table.columns or len(alike) == 1:
        return name if name in table.columns else alike[0]
    raise InputError(
        f"{table.what} must have every column of training; got none called {name!r} among "
        f"{listed(table.columns, [name])}"
    )


def _plain_features(frame: Any, count: int, table: Table) -> Tensor:
    """One column of numbers for each feature: [M, F]."""
    if len(frame.columns) != count:
        raise InputError(
            f"{table.what} must have an id and the {count} features of training, in order; got "
            f"{len(frame.columns)} other columns"
        )
    columns = [plain_numbers(frame[name], table) for name in frame.columns]
    for name, values in zip(frame.columns, columns, strict=True):
        refuse(np.isnan(values), frame[name], "filled", table)
        rule = f"numbers below {LARGEST_SCALED:g}"
        refuse(np.abs(values) > LARGEST_SCALED, frame[name], rule, table)
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float32))
