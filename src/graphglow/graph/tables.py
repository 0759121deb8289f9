"""Graphs as tables: one of nodes and, where there are edges, one of edges.

``nodes``: an id column, a label column, optionally ``split`` (``train``, ``val``, ``test`` or
blank), called as in ``NAMES``; all other columns are features. ``edges``: two ends and optionally
``weight``. No column is guessed by its place, except that the two columns of an edges table (beside
``weight``) can only be its ends.

``data.feature_columns`` keeps what reading new nodes needs: ``["columns"]`` as
:mod:`graphglow.graph.features` encoded them and ``["chosen"]``, the columns the user had named.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, did_you_mean, warn
from graphglow.graph.features import (
    encode_alike,
    encode_columns,
    encode_labels,
    numbers_of,
    text_of,
)
from graphglow.graph.files import one_sentence
from graphglow.graph.split import SPLITS
from graphglow.graph.table_file import Table, find_table, is_frame, is_table_file, open_table

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "node_id", "node"),
    "label": ("label", "y", "class"),
    "split": ("split",),
    "source": ("source", "from", "src"),
    "target": ("target", "to", "dst"),
    "weight": ("weight",),
}
"""Role of a column -> what it may be called, in any case; of several the first."""
ENDS = ("source", "target", "weight")
"""Roles of the edges table; the others are of the nodes table."""
LEAVE_OUT, CATEGORY = "leave_out", "category"
LISTS = (LEAVE_OUT, CATEGORY)
"""Roles of any number of columns: not read; read as text, and never as numbers."""
Columns = Mapping[str, str | Sequence[str]]
"""Role -> name of the column, or, of the roles in ``LISTS``, names."""
SPLIT_NAMES = {"valid": "val", "validation": "val"}


class Roles(NamedTuple):
    """What the user has said of columns."""

    chosen: dict[str, str]
    leave_out: tuple[str, ...]
    category: tuple[str, ...]

    @classmethod
    def of(cls, columns: Columns | None, known: Sequence[str] = tuple(NAMES)) -> "Roles":
        """Check ``columns``; ``known`` are the roles of one column that the source has."""
        if not isinstance(columns, Mapping | None):
            raise InputError(
                f"columns is {columns!r:.60}. Map roles to names, as "
                '{"id": "person", "leave_out": ["phone"]}.'
            )
        given = dict(columns or {})
        for role, name in (columns or {}).items():
            right = Sequence if role in LISTS else str  # of text
            if role not in (*known, *LISTS) or not isinstance(name, right):
                raise InputError(
                    f"columns has {role!r}: {name!r}. Name one column for some of "
                    f"{', '.join(known)}, or any number for {' and '.join(LISTS)}."
                )
        lists = [given.pop(role, ()) for role in LISTS]
        listed = [(names,) if isinstance(names, str) else tuple(names) for names in lists]
        return cls({str(role): str(name) for role, name in given.items()}, *listed)


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
    are those of :func:`~graphglow.graph.load.load_graph`.
    """
    roles = Roles.of(columns)
    node_table, edge_table = _open_tables(nodes, edges, roles.chosen)
    if node_table is None:
        assert edge_table is not None
        node_table = _ends_as_nodes(edge_table, roles.chosen, need_labels=need_labels)
    everywhere = node_table.columns + ([] if edge_table is None else edge_table.columns)
    for name in (*roles.leave_out, *roles.category):
        if name not in everywhere:
            raise _missing(f"column {name!r}, which columns names", node_table, name)
    data, ids = _read_nodes(node_table.without(roles.leave_out), roles, need_labels)
    if edge_table is not None:
        data.edge_index, weight = _read_edges(
            edge_table.without(roles.leave_out), ids, roles.chosen, skip_unknown_edges
        )
        if weight is not None:
            data.edge_weight = weight
    return data


def _open_tables(
    nodes: Any, edges: Any, chosen: Mapping[str, str]
) -> tuple[Table | None, Table | None]:
    """The tables of nodes and of edges; one may be absent."""
    if isinstance(nodes, Path) and edges is None and nodes.is_dir():
        node_table, edge_table = find_table(nodes, "nodes"), find_table(nodes, "edges")
        others = [p for p in nodes.iterdir() if is_table_file(p) and p.name[:5].lower() != "edges"]
        if node_table is None and (edge_table is None or others):
            names = ", ".join(sorted(p.name for p in nodes.iterdir() if p.name[0] != ".")[:10])
            raise InputError(
                f"{nodes} has no nodes.csv or nodes.parquet, but {names or 'nothing'}. Name the "
                "tables: --target NODES+EDGES, or NODES alone."
            )
        return node_table, edge_table
    first, second = open_table(nodes), None if edges is None else open_table(edges)
    if second is None and _is_of_edges(first, chosen):
        return None, first
    if second is None and is_frame(nodes) and _find("id", first, chosen) is None:
        warn(f"{first.what} has no id column: a node's id is the number of its row")
        first = open_table(nodes.assign(id=range(len(nodes))))
    return first, second


def _is_of_edges(table: Table, chosen: Mapping[str, str]) -> bool:
    """Whether a table alone is a list of edges: it has both ends by name, no id and no label."""
    lower = {name.lower() for name in table.columns}
    pairs = zip(NAMES["source"], NAMES["target"], strict=True)
    ends = {"source", "target"} <= {*chosen} or any({*pair} <= lower for pair in pairs)
    other = {"id", "label"}
    return ends and other.isdisjoint(chosen) and not any(lower & {*NAMES[role]} for role in other)


def _ends_as_nodes(edges: Table, chosen: Mapping[str, str], *, need_labels: bool) -> Table:
    """The nodes of a graph of which only edges are known: every end, in order."""
    import pandas as pd

    if need_labels:
        raise InputError(
            f"{edges.what} has edges alone, and no labels to learn from. audit and refine read it "
            "as it is; with a table of nodes that has an id and a label, give --target "
            "NODES.csv+EDGES.csv."
        )
    ends = _ends(edges, chosen)
    frame = edges.read(ends, ends)
    ids = pd.concat([text_of(frame[name]) for name in ends]).drop_duplicates()
    return open_table(pd.DataFrame({chosen.get("id", "id"): ids[ids != ""]}))


def _find(role: str, table: Table, chosen: Mapping[str, str]) -> str | None:
    """The column of that role, if there is one; an error if there are several."""
    if role in chosen:
        if chosen[role] not in table.columns:
            raise _missing(f"column {chosen[role]!r}, chosen as {role}", table, chosen[role])
        return chosen[role]
    taken = [name for other, name in chosen.items() if (other in ENDS) == (role in ENDS)]
    found = [name for name in table.columns if name.lower() in NAMES[role] and name not in taken]
    if role == "id":  # "node" may be a feature beside "id"
        found = sorted(found, key=lambda name: NAMES["id"].index(name.lower()))[:1]
    if len(found) > 1:
        raise InputError(
            f"{table.what} has {' and '.join(found)}, which may both be the {role}. Say which: "
            f"--columns {role}={found[0]}."
        )
    if (
        not found
        and role in ("split", "weight")
        and (near := did_you_mean(role, table.columns, 0.8))
    ):
        warn(f"{table.what} has no {role} column{near}; call it {role} if it is meant so")
    return found[0] if found else None


def _need(role: str, table: Table, chosen: Mapping[str, str]) -> str:
    """The column of that role, or what it may be called."""
    name = _find(role, table, chosen)
    if name is None:
        raise _missing(
            f"{role} column, called {', '.join(NAMES[role])}", table, *NAMES[role], role=role
        )
    return name


def _missing(what: str, table: Table, *wanted: str, role: str | None = None) -> InputError:
    """An error about a column that is not there: which are, and which has a name most like it."""
    names = table.columns
    near = [found for name in wanted if (found := did_you_mean(name, names, 0.65))]
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    text = f"{table.what} has no {what}; it has {listed or 'none'}{near[0] if near else ''}."
    how = f' Say which: --columns {role}=NAME (in Python columns={{"{role}": "NAME"}}).'
    return InputError(text + (how if role else ""))


def _ends(table: Table, chosen: Mapping[str, str]) -> list[str]:
    """The two ends of an edge: ``source`` goes with ``target``, ``from`` with ``to``, and so on."""
    if "source" in chosen or "target" in chosen:
        return [_need(role, table, chosen) for role in ("source", "target")]
    others = [name for name in table.columns if name != chosen.get("weight")]
    lower = {name.lower(): name for name in others}
    for pair in zip(NAMES["source"], NAMES["target"], strict=True):
        if set(pair) <= set(lower):
            return [lower[name] for name in pair]
    others = [name for name in others if name.lower() != "weight" or "weight" in chosen]
    return others if len(others) == 2 else [_need(role, table, {}) for role in ENDS[:2]]


def _read_nodes(table: Table, roles: Roles, need_labels: bool) -> tuple[Data, Any]:
    """Read nodes: a graph, and their ids as text in a pandas Index."""
    known = {role: _find(role, table, roles.chosen) for role in ("id", "label", "split")}
    for role in ("id", "label") if need_labels else ("id",):
        known[role] = _need(role, table, roles.chosen)
    text = [name for name in (*known.values(), *roles.category) if name in table.columns]
    frame = table.read(table.columns, list(dict.fromkeys(text)))
    ids = _checked_ids(frame[known["id"]], table.what)
    data = Data(y=torch.full((len(ids),), -1), node_id=own_ids(ids))
    if (label := known["label"]) is not None:
        data.y, data.class_names = encode_labels(frame[label], f"column {label!r} of {table.what}")
    if (split := known["split"]) is not None:
        add_masks(data, frame[split], f"column {split!r} of {table.what}")
    features = frame.drop(columns=[name for name in known.values() if name is not None])
    data.x, columns = encode_columns(features, table.what, roles.category)
    data.feature_columns = {"columns": columns}
    if roles.chosen:
        data.feature_columns["chosen"] = roles.chosen
    return data, ids


def _checked_ids(column: Any, what: str, old: Sequence[str] = ()) -> Any:
    """The ids of a table as text, in a pandas Index: filled, once each, and none of ``old``."""
    import pandas as pd

    ids, where = text_of(column), f"column {column.name!r} of {what}"
    rules = (
        ("a blank for an id", "Give every row one", ids == ""),
        ("an id twice", "Give each node one row", ids.duplicated()),
        ("the id of an old node", "Give new nodes new ids", ids.isin(old)),
    )
    for problem, remedy, bad in rules:
        if bad.any():
            got = ids[bad].iloc[0]
            raise InputError(f"{where} has {problem} ({got!r:.80}). {remedy}.")
    return pd.Index(ids, dtype=object)


def own_ids(ids: Any) -> list[int] | list[str]:
    """The ids as integers where every one of them is written as an integer."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value) for value in ids):
        return [int(value) for value in ids]
    return list(ids)


def add_masks(data: Data, split: Any, where: str) -> None:
    """Set the masks from one of ``train``, ``val``, ``test`` or a blank per node, in a Series."""
    names = text_of(split).str.lower().replace(SPLIT_NAMES)
    other = names[~names.isin([*SPLITS, ""])]
    if len(other):
        raise InputError(f"{where} has {other.iloc[0]!r:.80}. Write train, val, test or a blank.")
    for name in SPLITS:
        data[f"{name}_mask"] = torch.from_numpy((names == name).to_numpy(bool).copy())


def _read_edges(
    table: Table, ids: Any, chosen: Mapping[str, str], skip_unknown: bool, num_old: int = 0
) -> tuple[Tensor, Tensor | None]:
    """Read edges between ``ids``, text in a pandas Index: [2, E], and weights [E] or None.

    Of the first ``num_old`` ids an edge may have one end only.
    """
    import pandas as pd

    ends, weight = _ends(table, chosen), _find("weight", table, chosen)
    usual = {*NAMES["source"], *NAMES["target"]}
    if all(name in ids and name.lower() not in usual for name in ends):
        raise InputError(
            f"{table.what} starts with the edge {', '.join(ends)}. Add a header: source,target."
        )
    frame = table.read([*ends, *([weight] if weight else [])], ends)
    found = np.empty((2, len(frame)), np.int64)
    for end, name in enumerate(ends):
        codes, values = pd.factorize(frame[name])  # each different end is looked up once
        place = ids.get_indexer(text_of(pd.Series(values)))
        found[end] = np.append(place, -1)[codes]
    unknown = (found < 0).any(axis=0)
    if unknown.any():
        first = int(unknown.argmax())
        name, count = ends[int((found[:, first] < 0).argmax())], int(unknown.sum())
        got = text_of(frame[name].iloc[[first]]).iloc[0]
        problem = (
            f"{count} of {len(frame)} edges of {table.what} name an id that no node has, such as "
            f"{got!r:.80} in column {name!r}"
        )
        if not skip_unknown or (unknown.all() and not num_old):
            raise InputError(
                f"{problem}. Add these nodes, or leave such edges out: --skip-unknown-edges (in "
                "Python skip_unknown_edges=True)."
            )
        warn(f"{problem}; these edges are left out")
        frame, found = frame[~unknown], found[:, ~unknown]
    if weight is None:
        return torch.from_numpy(found), None
    values = numbers_of(frame[weight], table.what)
    return torch.from_numpy(found), torch.from_numpy(values.astype(np.float32))


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

    Names of columns may differ from those of training in case. A graph that did not come from
    tables has one column of numbers per feature, in order. ``data`` is the graph of training; the
    others are those of ``TransferResult.predict_new_tables``.
    """
    import pandas as pd

    roles, stored = Roles.of(columns), data.get("feature_columns")
    table = open_table(nodes).without(roles.leave_out)
    with one_sentence("feature_columns of the graph do not say how its table became features"):
        before = {} if stored is None else dict(stored.get("chosen", {}))
        chosen = _in_any_case(before, table) | roles.chosen
        id_column = _need("id", table, chosen)
        encoded = _plain_columns(table, chosen, data) if stored is None else stored["columns"]
        names = _in_any_case({facts["name"]: facts["name"] for facts in encoded}, table)
        for facts in encoded:
            if facts["name"] not in names:
                raise _missing(f"column {facts['name']!r}, as training had", table, facts["name"])
        text = [names[facts["name"]] for facts in encoded if "categories" in facts]
        frame = table.read(table.columns, [id_column, *text])
        x = encode_alike(frame, encoded, list(names.values()), table.what)
    old = [str(own) for own in data.get("node_id", range(len(data.y)))]
    ids = _checked_ids(frame[id_column], table.what, old)
    if edges is None:
        return NewNodes(x, None, None, list(ids))
    joined = open_table(edges).without(roles.leave_out)
    chosen = _in_any_case(before, joined) | roles.chosen
    everyone = pd.Index([*old, *ids], dtype=object)
    found = _read_edges(joined, everyone, chosen, skip_unknown_edges, len(old))
    return NewNodes(x, *found, list(ids))


def _in_any_case(names: Mapping[str, str], table: Table) -> dict[str, str]:
    """The names of columns as ``table`` writes them, of those that it has."""
    lower = {name.lower(): name for name in table.columns}
    return {
        key: name if name in table.columns else lower[name.lower()]
        for key, name in names.items()
        if name.lower() in lower
    }


def _plain_columns(table: Table, chosen: Mapping[str, str], data: Data) -> list[dict[str, Any]]:
    """How columns are encoded of a graph that did not come from tables: as they are, in order."""
    known = {_find(role, table, chosen) for role in ("id", "label", "split")}
    names = [name for name in table.columns if name not in known]
    if len(names) != data.x.shape[1]:
        raise InputError(
            f"{table.what} has {len(names)} columns beside the id. Give the {data.x.shape[1]} "
            "features of training, in order."
        )
    return [{"name": name, "mean": 0.0, "scale": 1.0} for name in names]
