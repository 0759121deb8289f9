"""Graphs as tables: one of nodes and, where there are edges, one of edges.

``nodes``: an id column, a label column, optionally ``split`` (``train``, ``val``, ``test`` or
blank); all other columns are features. ``edges``: two ends and optionally ``weight``.

``data.feature_columns`` keeps what reading new nodes needs: ``["columns"]`` as
:mod:`graphglow.graph.features` encoded them and ``["chosen"]``, the columns the user had named.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
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
from graphglow.graph.split import SPLITS
from graphglow.graph.table_file import (
    NAMES,
    Columns,
    Roles,
    Table,
    find_column,
    find_ends,
    missing_column,
    need_column,
    one_sentence,
    open_table,
    open_tables,
)

SPLIT_NAMES = {"valid": "val", "validation": "val"}


def read_tables(
    nodes: Any,
    edges: Any = None,
    *,
    columns: Columns | None = None,
    need_labels: bool = True,
    skip_unknown_edges: bool = False,
) -> Data:
    """Read a graph, not yet checked, from tables of nodes and of edges; a folder has both.

    The settings are those of :func:`~graphglow.graph.load.load_graph`.
    """
    roles = Roles.of(columns)
    node_table, edge_table = open_tables(nodes, edges, roles)
    if node_table is None:
        assert edge_table is not None
        node_table = _ends_as_nodes(edge_table, roles.chosen, need_labels=need_labels)
    data, ids = _read_nodes(node_table, roles, need_labels)
    if edge_table is not None:
        data.edge_index, weight = _read_edges(edge_table, ids, roles.chosen, skip_unknown_edges)
        if weight is not None:
            data.edge_weight = weight
    return data


def _ends_as_nodes(edges: Table, chosen: Mapping[str, str], *, need_labels: bool) -> Table:
    """The nodes of a graph of which only edges are known: every end, in order."""
    import pandas as pd

    if need_labels:
        raise InputError(
            f"{edges.what} has edges alone, and no labels to learn from. audit and refine read it "
            "as it is; with a table of nodes that has an id and a label, give --target "
            "NODES.csv+EDGES.csv."
        )
    ends = find_ends(edges, chosen)
    frame = edges.read(ends, ends)
    ids = pd.concat([text_of(frame[name]) for name in ends]).drop_duplicates()
    return open_table(pd.DataFrame({chosen.get("id", "id"): ids[ids != ""]}))


def _find_optional(role: str, table: Table, chosen: Mapping[str, str]) -> str | None:
    """The column of that role; where there is none, but one of nearly its name, warn."""
    name = find_column(role, table, chosen)
    if name is None and (near := did_you_mean(role, table.columns, 0.8)):
        warn(f"{table.what} has no {role} column{near}; call it {role} if it is meant so")
    return name


def _read_nodes(table: Table, roles: Roles, need_labels: bool) -> tuple[Data, Any]:
    """Read nodes: a graph, and their ids as text in a pandas Index."""
    find_label = need_column if need_labels else find_column
    id_column = need_column("id", table, roles.chosen)
    label = find_label("label", table, roles.chosen)
    split = _find_optional("split", table, roles.chosen)
    known = [name for name in (id_column, label, split) if name is not None]
    text = [name for name in dict.fromkeys((*known, *roles.category)) if name in table.columns]
    frame = table.read(table.columns, text)
    ids = _checked_ids(frame[id_column], table.what)
    data = Data(y=torch.full((len(ids),), -1), node_id=parse_ids(ids))
    if label is not None:
        data.y, data.class_names = encode_labels(frame[label], f"column {label!r} of {table.what}")
    if split is not None:
        _add_masks(data, frame[split], f"column {split!r} of {table.what}")
    features = frame.drop(columns=known)
    data.x, columns = encode_columns(features, table.what, roles.category)
    data.feature_columns = {"columns": columns}
    if roles.chosen:
        data.feature_columns["chosen"] = roles.chosen
    return data, ids


def _checked_ids(column: Any, what: str, old: Sequence[str] = ()) -> Any:
    """The ids of a table as text, in a pandas Index: filled, once each, and none of ``old``."""
    import pandas as pd

    ids = text_of(column)
    rules = (
        ("a blank for an id", "Give every row one", ids == ""),
        ("an id twice", "Give each node one row", ids.duplicated()),
        ("the id of an old node", "Give new nodes new ids", ids.isin(old)),
    )
    for problem, remedy, bad in rules:
        if bad.any():
            got = f"column {column.name!r} of {what} has {problem} ({ids[bad].iloc[0]!r:.80})"
            raise InputError(f"{got}. {remedy}.")
    return pd.Index(ids, dtype=object)


def parse_ids(ids: Iterable[str]) -> list[int] | list[str]:
    """Ids as integers where every one of them is written as an integer."""
    texts = list(ids)
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in texts):
        return [int(text) for text in texts]
    return texts


def _add_masks(data: Data, split: Any, where: str) -> None:
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

    With ``num_old`` > 0 all edges may be left out: the nodes are known without them.
    """
    import pandas as pd

    ends, weight = find_ends(table, chosen), _find_optional("weight", table, chosen)
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
        name = ends[int(found[0, first] >= 0)]
        got = text_of(frame[name].iloc[[first]]).iloc[0]
        problem = (
            f"{int(unknown.sum())} of {len(frame)} edges of {table.what} name an id that no node "
            f"has, such as {got!r:.80} in column {name!r}"
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
    node_id: list[int] | list[str]


def read_new_nodes(
    nodes: Any,
    edges: Any,
    data: Data,
    num_features: int,
    columns: Columns | None = None,
    *,
    skip_unknown_edges: bool = False,
) -> NewNodes:
    """Read a nodes table and, where given, an edges table: paths or pandas DataFrames.

    Names of columns may differ from those of training in case. A graph that did not come from
    tables has one column of numbers per feature, in order. ``data`` is the old graph, of which ids,
    labels and ``feature_columns`` are read; the others are those of
    ``Prediction.predict_new_tables``.
    """
    import pandas as pd

    roles, stored = Roles.of(columns), data.get("feature_columns")
    table = open_table(nodes).without(roles.leave_out)
    with one_sentence("feature_columns of the graph do not say how its table became features"):
        before = {} if stored is None else dict(stored.get("chosen", {}))
        chosen = _in_any_case(before, table) | roles.chosen
        id_column = need_column("id", table, chosen)
        encoded = (
            _plain_columns(table, chosen, num_features) if stored is None else stored["columns"]
        )
        names = _in_any_case({facts["name"]: facts["name"] for facts in encoded}, table)
        for facts in encoded:
            if (name := facts["name"]) not in names:
                raise missing_column(f"column {name!r}, as training had", table, [name])
        text = [names[facts["name"]] for facts in encoded if "categories" in facts]
        frame = table.read(table.columns, [id_column, *text])
        x = encode_alike(frame, encoded, list(names.values()), table.what)
    known = data.get("node_id", range(len(data.y)))
    old = [str(one) for one in known]
    ids = _checked_ids(frame[id_column], table.what, old)
    own = parse_ids(ids) if all(isinstance(one, int) for one in known) else list(ids)
    if edges is None:
        return NewNodes(x, None, None, own)
    joined = open_table(edges).without(roles.leave_out)
    chosen = _in_any_case(before, joined) | roles.chosen
    everyone = pd.Index([*old, *ids], dtype=object)
    found = _read_edges(joined, everyone, chosen, skip_unknown_edges, len(old))
    among_old = (found[0] < len(old)).all(0).nonzero()[:, 0]
    if len(among_old):
        u, v = (everyone[int(end)] for end in found[0][:, among_old[0]])
        raise InputError(
            f"{joined.what} joins {u!r} and {v!r}, which are both old nodes. Keep the edges with "
            "a new end."
        )
    return NewNodes(x, *found, own)


def _in_any_case(names: Mapping[str, str], table: Table) -> dict[str, str]:
    """The names of columns as ``table`` writes them, of those that it has."""
    lower = {name.lower(): name for name in table.columns}
    lower |= {name: name for name in table.columns}
    found = {key: lower.get(name, lower.get(name.lower())) for key, name in names.items()}
    return {key: name for key, name in found.items() if name is not None}


def _plain_columns(
    table: Table, chosen: Mapping[str, str], num_features: int
) -> list[dict[str, Any]]:
    """How columns are encoded of a graph that did not come from tables: as they are, in order."""
    known = {find_column(role, table, chosen) for role in ("id", "label", "split")}
    names = [name for name in table.columns if name not in known]
    if len(names) != num_features:
        raise InputError(
            f"{table.what} has {len(names)} columns beside the id. Give the {num_features} "
            "features of training, in order."
        )
    return [{"name": name, "mean": 0.0, "scale": 1.0} for name in names]
