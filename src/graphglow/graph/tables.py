"""Graphs as tables: one of nodes and, where there are edges, one of edges.

``nodes``: an id column, a label column, optionally ``split`` (``train``, ``val``, ``test`` or
blank), called as in ``NAMES``; all other columns are features. ``edges``: two ends and optionally
``weight``. Without an edges table the check builds a kNN graph.

No column is guessed by its place: a wrong guess would be a wrong graph without a word. The one
exception is a table of edges with two columns and perhaps ``weight``: it can mean nothing else.
The rows of a DataFrame without edges need no ids: they are then known by their number.

Nodes that come after training are read with the ids and the encoding of the graph, which
``data.feature_columns`` keeps: ``["columns"]`` as :mod:`graphglow.graph.features` made them and
``["chosen"]``, which columns the user had named as what.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph.check import LARGEST_WEIGHT
from graphglow.graph.features import (
    encode_alike,
    encode_columns,
    encode_labels,
    numbers_of,
    text_of,
)
from graphglow.graph.files import note, one_sentence
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
"""Role of a column -> what it may be called, in upper or lower case; the first goes before."""
ENDS = ("source", "target", "weight")
"""Roles of the edges table; the others are of the nodes table."""
LEAVE_OUT = "leave_out"
Columns = Mapping[str, str | Sequence[str]]
"""Role -> name of the column; ``leave_out`` -> names of columns that are not to be read."""
SPLIT_NAMES = {"valid": "val", "validation": "val"}
LARGEST_LOOKED_AT = 50_000_000
"""Bytes of tables that are read to say how they could be."""
HOW_TO_SKIP = "--skip-unknown-edges (in Python skip_unknown_edges=True) leaves such edges out"
HOW_TO_LEAVE_OUT = '--columns leave_out=NAME (in Python columns={"leave_out": ["NAME"]})'


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
    roles, left_out = _checked_roles(columns)
    if isinstance(nodes, Path) and edges is None and nodes.is_dir():
        node_table, edge_table = find_table(nodes, "nodes"), find_table(nodes, "edges")
        others = [p for p in nodes.iterdir() if is_table_file(p) and p.name[:5].lower() != "edges"]
        if node_table is None and (edge_table is None or others):
            raise _other_names(nodes)
    else:
        node_table, edge_table = open_table(nodes), None if edges is None else open_table(edges)
        if edge_table is None and _is_of_edges(node_table, roles):
            node_table, edge_table = None, node_table
        elif edge_table is None and is_frame(nodes) and _find("id", node_table, roles) is None:
            note(f"{node_table.what} has no id column: a node's id is the number of its row")
            node_table = open_table(nodes.assign(id=range(len(nodes))))
    if node_table is None:
        assert edge_table is not None
        node_table = _ends_as_nodes(edge_table, roles, need_labels=need_labels)
    problems: list[str] = []

    def found(find: Callable[..., Any], *given: Any) -> Any:
        try:
            return find(*given, roles)
        except InputError as error:  # said with all others
            problems.append(str(error))

    there = node_table.columns + ([] if edge_table is None else edge_table.columns)
    for name in left_out:
        if name not in there:
            rule = f"the column {name!r}, which is to be left out"
            if "," in name:
                several = " ".join(f"{LEAVE_OUT}={one}" for one in name.split(","))
                rule += f" (several are --columns {several})"
            problems.append(str(_missing(rule, node_table, there, name)))
    table = _without(node_table, left_out)
    known = [
        found(_need, "id", table),
        found(_need if need_labels else _find, "label", table),
        found(_find, "split", table),
    ]
    if edge_table is not None:
        edge_table = _without(edge_table, left_out)
        ends, weight = found(_need_ends, edge_table), found(_find, "weight", edge_table)
    if problems:
        raise InputError("; ".join(problems))
    data, ids = _read_nodes(table, known)
    if roles:
        data.feature_columns["chosen"] = roles
    if edge_table is not None:
        whose = "nodes of the nodes table"
        data.edge_index, weights = _read_edges(
            edge_table, ids, ends, weight, whose, skip_unknown_edges
        )
        if weights is not None:
            data.edge_weight = weights
    return data


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
            f"labels must be there to learn from; got {edges.what}, edges alone, which audit and "
            "refine read as they are (with a table of nodes, its columns id and label: --target "
            "NODES.csv+EDGES.csv)"
        )
    ends = _need_ends(edges, chosen)
    found = edges.frame(ends, text=ends)
    ids = pd.concat([text_of(found[name]) for name in ends]).drop_duplicates()
    return open_table(pd.DataFrame({chosen.get("id", "id"): ids[ids != ""]}))


def _other_names(folder: Path) -> InputError:
    """What to say of a folder without a nodes table: what is there, and how to read that."""
    paths = sorted(path for path in folder.iterdir() if path.name[0] != ".")
    files = [path for path in paths if is_table_file(path)]
    names = ", ".join(path.name for path in (files or paths)[:10]) or "nothing"
    advice = f"; --target {files[0]} reads that one" if len(files) == 1 else ""
    if len(files) > 1:
        advice = "; --target NODES+EDGES reads two of them, nodes first"
    if len(files) == 2 and sum(path.stat().st_size for path in files) < LARGEST_LOOKED_AT:
        with suppress(InputError):  # of a table that cannot be read
            found = [_as_edges(*two) for two in (files, files[::-1])]
            advice = next((f"; {said} reads them" for said in found if said), advice)
    rule = "a graph folder must hold nodes.csv or nodes.parquet, and edges.csv or edges.parquet"
    return InputError(f"{rule}; got {folder} with {names}{advice}")


def _as_edges(nodes: Path, edges: Path) -> str | None:
    """How to read ``edges`` as edges between ``nodes``, if two columns hold ids of these."""
    tables = [open_table(path) for path in (nodes, edges)]
    known, pairs = (table.frame(table.columns, text=table.columns).fillna("") for table in tables)
    for own in (name for name in known if known[name].is_unique):
        ends = [name for name in pairs if pairs[name].isin(known[own]).all()]
        if len(ends) == 2:
            label = "" if {*NAMES["label"]} & {n.lower() for n in known} else " label=NAME"
            roles = f"id={own}{label} source={ends[0]} target={ends[1]}"
            return f"--target {nodes}+{edges} --columns {roles}"
    return None


def check_columns(columns: object) -> None:
    """Raise unless roles are mapped to names; which roles there are depends on the source."""
    away = columns.get(LEAVE_OUT, "") if isinstance(columns, Mapping) else ""
    if not isinstance(columns, Mapping | None) or not isinstance(away, str | Sequence):
        raise InputError(
            'columns must map roles to names, as {"id": "person", "leave_out": ["phone"]}; got '
            f"{columns!r:.60}"
        )


def _checked_roles(columns: Columns | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """The name of the column for each role that ``columns`` gives, and those to be left out."""
    roles = dict(columns or {})
    left_out = roles.pop(LEAVE_OUT, None) or ()
    for role, name in roles.items():
        if role not in NAMES or not isinstance(name, str):
            raise InputError(
                f"columns must give names to some of {', '.join(NAMES)}, or name those to "
                f"{LEAVE_OUT}; got {role!r}: {name!r}"
            )
    chosen = {role: str(name) for role, name in roles.items()}
    for role, other in combinations(chosen, 2):
        if chosen[role] == chosen[other] and (role in ENDS) == (other in ENDS):
            raise InputError(
                f"columns must name a column for one role only; got {chosen[role]!r} as {role} and "
                f"{other}"
            )
    return chosen, (left_out,) if isinstance(left_out, str) else tuple(left_out)


def _without(table: Table, left_out: Sequence[str]) -> Table:
    return table._replace(columns=[name for name in table.columns if name not in left_out])


def _find(role: str, table: Table, chosen: Mapping[str, str]) -> str | None:
    """The column of that role, if there is one; an error if there are several."""
    if role in chosen:
        if chosen[role] not in table.columns:
            rule = f"the column {chosen[role]!r}, chosen as {role}"
            raise _missing(rule, table, table.columns, chosen[role])
        return chosen[role]
    taken = [name for other, name in chosen.items() if (other in ENDS) == (role in ENDS)]
    found = [name for name in table.columns if name.lower() in NAMES[role] and name not in taken]
    if role == "id":  # "node" may be a feature beside "id"
        found = sorted(found, key=lambda name: NAMES["id"].index(name.lower()))[:1]
    if len(found) > 1:
        raise InputError(
            f"{table.what} must have one {role} column, called {', '.join(NAMES[role])}; got "
            f"{' and '.join(found)}"
        )
    if not found and role in ("split", "weight"):
        lower = {name.lower(): name for name in table.columns}
        for name in difflib.get_close_matches(role, lower, n=1, cutoff=0.8):
            note(
                f"column {lower[name]!r} of {table.what} is not read as the {role}; call it {role} "
                "if it is meant so"
            )
    return found[0] if found else None


def _need(role: str, table: Table, chosen: Mapping[str, str]) -> str:
    """The column of that role, or one sentence that says what it may be called."""
    name = _find(role, table, chosen)
    if name is None:
        why = ", what is to be predicted, blank where unknown" if role == "label" else ""
        rule = (
            f"{'an' if role == 'id' else 'a'} {role} column, called {', '.join(NAMES[role])}{why}"
        )
        raise _missing(
            f'{rule} (--columns {role}=NAME, in Python columns={{"{role}": "NAME"}}, says which)',
            table,
            table.columns,
            *NAMES[role],
        )
    return name


def _need_ends(table: Table, chosen: Mapping[str, str]) -> list[str]:
    """The two ends of an edge: ``source`` goes with ``target``, ``from`` with ``to``, and so on."""
    if "source" in chosen or "target" in chosen:
        return [_need(role, table, chosen) for role in ("source", "target")]
    others = [name for name in table.columns if name != chosen.get("weight")]
    lower = {name.lower(): name for name in others}
    for pair in zip(NAMES["source"], NAMES["target"], strict=True):
        if set(pair) <= set(lower):
            return [lower[name] for name in pair]
    others = [name for name in others if name.lower() != "weight" or "weight" in chosen]
    if len(others) != 2:
        rule = (
            "the columns source and target (--columns source=NAME target=NAME, in Python "
            'columns={"source": "NAME", "target": "NAME"}, says which)'
        )
        raise _missing(rule, table, table.columns, "source", "target")
    return others


def _missing(rule: str, table: Table, columns: Sequence[str], *wanted: str) -> InputError:
    """What to say of a column that is not there: which are, and which has a name most like it."""
    text = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    lower = {name.lower(): name for name in columns}
    near = [m for name in wanted for m in difflib.get_close_matches(name.lower(), lower, 1, 0.65)]
    hint = f" (nearest: {lower[near[0]]!r})" if near else ""
    return InputError(f"{table.what} must have {rule}; got {text or 'none'}{hint}")


def _read_nodes(table: Table, columns: Sequence[str | None]) -> tuple[Data, Any]:
    """Read nodes, whose ids, labels and split are in these columns: a graph, and ids as text."""
    known = [name for name in columns if name is not None]
    id_column, (_, label, split) = known[0], columns
    frame = table.frame(table.columns, text=known)
    ids = _checked_ids(frame[id_column], table.what)
    data = Data(y=torch.full((len(ids),), -1), node_id=own_ids(ids))
    if label is not None:
        where = f"column {label!r} of {table.what}"
        data.y, data.class_names = encode_labels(frame[label], where)
    if split is not None:
        add_masks(data, frame[split], f"column {split!r} of {table.what}")
    data.x, made = encode_columns(frame.drop(columns=known), table.what)
    data.feature_columns = {"columns": made}
    return data, ids


def _checked_ids(column: Any, what: str, old: Sequence[str] = ()) -> Any:
    """The ids of a table as text, in a pandas Index: filled, once each, and none of ``old``."""
    import pandas as pd

    ids, where = text_of(column), f"column {column.name!r} of {what}"
    if (ids == "").any():
        raise InputError(f"{where} must have an id in every row; got a blank")
    for rule, bad in (("unique ids", ids.duplicated()), ("ids that are new", ids.isin(old))):
        if bad.any():
            raise InputError(f"{where} must have {rule}; got {ids[bad].iloc[0]!r:.80}")
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
        raise InputError(f"{where} must be train, val, test or blank; got {other.iloc[0]!r:.80}")
    for name in SPLITS:
        data[f"{name}_mask"] = torch.from_numpy((names == name).to_numpy(bool).copy())


def _read_edges(
    table: Table,
    ids: Any,
    ends: list[str],
    weight: str | None,
    whose: str,
    skip: bool,
    num_old: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """Read edges between ``ids``, as text in a pandas Index: [2, E], and weights [E] or None.

    ``whose`` names these nodes in errors; of the first ``num_old`` an edge may have one end only.
    """
    import pandas as pd

    usual = {*NAMES["source"], *NAMES["target"]}
    if all(name in ids and name.lower() not in usual for name in ends):
        raise InputError(
            f"{table.what} must start with a header such as source,target; got the edge "
            f"{', '.join(ends)}"
        )
    numbers = own_ids(ids)  # whole numbers are looked up as such: text takes much more memory
    whole = len(numbers) > 0 and type(numbers[0]) is int
    frame = table.frame([*ends, *([weight] if weight else [])], [] if whole else ends)
    found = np.empty((2, len(frame)), np.int64)
    for end, name in enumerate(ends):
        if whole and pd.api.types.is_integer_dtype(frame[name]):
            found[end] = pd.Index(numbers, dtype=np.int64).get_indexer(frame[name])
        else:
            found[end] = ids.get_indexer(text_of(frame[name]))
    unknown = (found < 0).any(axis=0)
    if unknown.any():
        first = int(unknown.argmax())
        name = ends[int((found[:, first] < 0).argmax())]
        value, count = text_of(frame[name].iloc[[first]]).iloc[0], int(unknown.sum())
        got = f"{value!r:.80}" if value else "a blank"
        if not skip:
            more = f", and {count - 1} more such rows" if count > 1 else ""
            raise InputError(
                f"column {name!r} of {table.what} must name {whose}; got {got}{more}; {HOW_TO_SKIP}"
            )
        if unknown.all() and not num_old:
            raise InputError(f"{table.what} must have an edge between {whose}; got {got} and such")
        note(
            f"{count} of {len(frame)} edges of {table.what} are left out: they must name {whose}; "
            f"got {got}"
        )
        frame, found = frame[~unknown], found[:, ~unknown]
    between = (found < num_old).all(axis=0)
    if between.any():
        pair = " - ".join(map(str, frame.loc[between, ends].iloc[0]))
        raise InputError(f"each edge of {table.what} must have a new end; got {pair}")
    if weight is None:
        return torch.from_numpy(found), None
    where = f"column {weight!r} of {table.what}"
    values = numbers_of(frame[weight], where)
    bad = values[~((values >= 0) & (values <= LARGEST_WEIGHT))]  # NaN, a blank, is neither
    if len(bad):
        got = "a blank" if np.isnan(bad[0]) else f"{bad[0]:g}"
        raise InputError(f"{where} must be numbers from 0 to {LARGEST_WEIGHT:g}; got {got}")
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
    tables has one column of numbers per feature, in order, where a blank is 0. ``data`` is the
    graph of training; the others are those of ``TransferResult.predict_new_tables``.
    """
    import pandas as pd

    check_columns(columns)
    roles, left_out = _checked_roles(columns)
    table, told = _without(open_table(nodes), left_out), data.get("feature_columns")
    with one_sentence("feature_columns of the graph must say how its table became features"):
        before = {} if told is None else dict(told.get("chosen", {}))
        chosen = _as_called_here(before, table) | roles
        id_column = _need("id", table, chosen)
        made = _plain_columns(table, chosen, data) if told is None else told["columns"]
        here = _as_called_here({facts["name"]: facts["name"] for facts in made}, table)
        for facts in made:
            if facts["name"] not in here:
                rule = f"every column of training, one called {facts['name']!r} too"
                raise _missing(rule, table, table.columns, facts["name"])
        text = [here[facts["name"]] for facts in made if "categories" in facts]
        frame = table.frame(table.columns, text=[id_column, *text])
        x = encode_alike(frame, made, list(here.values()), table.what)
    old = [str(own) for own in data.get("node_id", range(len(data.y)))]
    ids = _checked_ids(frame[id_column], table.what, old)
    if edges is None:
        return NewNodes(x, None, None, list(ids))
    joined = _without(open_table(edges), left_out)
    chosen = _as_called_here(before, joined) | roles
    everyone, whose = pd.Index([*old, *ids], dtype=object), "old or new nodes"
    ends, weight = _need_ends(joined, chosen), _find("weight", joined, chosen)
    found = _read_edges(joined, everyone, ends, weight, whose, skip_unknown_edges, len(old))
    return NewNodes(x, *found, list(ids))


def _as_called_here(names: Mapping[str, str], table: Table) -> dict[str, str]:
    """Columns of training by their names in ``table``, as far as they are here, in any case."""
    here = {}
    for key, name in names.items():
        alike = [own for own in table.columns if own.strip().lower() == name.strip().lower()]
        if name in alike or len(alike) == 1:
            here[key] = name if name in alike else alike[0]
    return here


def _plain_columns(table: Table, chosen: Mapping[str, str], data: Data) -> list[dict[str, Any]]:
    """Of a graph that did not come from tables: each column is a feature as it is."""
    known = {_find(role, table, chosen) for role in ("id", "label", "split")}
    names = [name for name in table.columns if name not in known]
    if len(names) != data.x.shape[1]:
        raise InputError(
            f"{table.what} must have an id and the {data.x.shape[1]} features of training, in "
            f"order; got {len(names)} other columns"
        )
    return [{"name": name, "mean": 0.0, "scale": 1.0} for name in names]
