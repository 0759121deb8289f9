"""Graphs as tables: one of nodes and, where there are edges, one of edges.

``nodes``: an id column, a label column, optionally ``split`` (``train``, ``val``, ``test`` or
blank); all other columns are features. ``edges``: two ends and optionally ``weight``.

``data.feature_columns`` keeps what reading new nodes needs: ``["columns"]`` as
:mod:`graphglow.graph.features` encoded them and ``["chosen"]``, the columns the user had named.
"""

import csv
import gzip
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, did_you_mean, warn
from graphglow.graph.check import SPLITS
from graphglow.graph.features import (
    MISSING,
    encode_alike,
    encode_columns,
    encode_labels,
    numbers_of,
    text_of,
)

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "node_id", "node"),
    "label": ("label", "y", "class"),
    "split": ("split",),
    "source": ("source", "from", "src"),
    "target": ("target", "to", "dst"),
    "weight": ("weight",),
}
"""Role of a column -> what it may be called, in any case; the first one goes first."""
EDGE_ROLES = ("source", "target", "weight")
Columns = Mapping[str, str | Sequence[str]]
"""Role -> name of the column; ``leave_out`` and ``category`` -> names of columns."""


class Roles(NamedTuple):
    """What the user says of columns."""

    chosen: dict[str, str]
    leave_out: Sequence[str]
    """Not read."""
    category: Sequence[str]
    """Never taken for numbers."""

    @classmethod
    def of(cls, columns: Columns | None) -> "Roles":
        if not isinstance(columns, Mapping | None):
            raise InputError(
                f"columns is {columns!r:.60}. Map roles to names, as "
                '{"id": "person", "leave_out": ["phone"]}.'
            )
        given: dict[str, Any] = dict(columns or {})
        lists = [given.pop(role, ()) for role in ("leave_out", "category")]
        lists = [[names] if isinstance(names, str) else names for names in lists]
        for role, name in given.items():
            if role not in NAMES or not isinstance(name, str):
                raise InputError(
                    f"columns has {role!r}: {name!r}. Name one column for some of "
                    f"{', '.join(NAMES)}, or any number for leave_out and category."
                )
        return cls(given, *lists)


@contextmanager
def one_sentence(rule: str) -> Iterator[None]:
    """Turn whatever a parser raises into ``rule`` and the first line of the parser's message."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        if (
            "weights_only" in line or "eights only" in line or "pickle" in line
        ):  # advice to read the file unsafely
            raise InputError(rule) from error
        raise InputError(f"{rule} ({line:.200})") from error


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose header is known and whose rows are not read yet."""

    what: str
    """Its name in errors."""
    columns: list[str]
    files: Sequence[Path] = ()
    frame: Any = None

    def without(self, names: Sequence[str]) -> "Table":
        return replace(self, columns=[name for name in self.columns if name not in names])

    def read(self, columns: Sequence[str], text: Sequence[str]) -> Any:
        """Read ``columns`` as a DataFrame; those in ``text`` as they are written."""
        if self.frame is not None:
            return self.frame[list(columns)]
        import pandas as pd

        if len(self.files) > 1:  # a column might be numbers in one part, text in another
            text = columns
        parts = [_read_file(file, columns, text) for file in self.files]
        return pd.concat(parts, ignore_index=True)


def open_table(source: Any, what: str = "the DataFrame") -> Table:
    """Open a file, a folder of parts, or a DataFrame (called ``what`` in errors)."""
    if isinstance(source, Table):
        return source
    if is_frame(source):
        frame = source.set_axis([str(name) for name in source.columns], axis=1)
        return Table(what, _named_once(list(frame.columns), what), frame=frame)
    path = Path(source).expanduser()
    if not path.exists():
        raise InputError(f"There is no table {path}.")
    files = [path]
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if is_table_file(p) and p.name[0] not in "._")
    if not files or not all(map(is_table_file, files)):
        raise InputError(
            f"{path} is no table. Give a {', '.join(SUFFIXES)} file, or a folder of such parts."
        )
    headers = [_header(file) for file in files]
    for file, names in zip(files, headers, strict=True):
        if other := set(names) ^ set(headers[0]):
            raise InputError(
                f"The parts of a table need the same columns, but {min(other)!r} is in only one of "
                f"{files[0]} and {file}."
            )
    return Table(str(path), headers[0], files)


def _named_once(names: Sequence[str], what: object) -> list[str]:
    """The columns that have a name; each must have its own."""
    named = [name for name in names if name]
    for name in named:
        if named.count(name) > 1:
            raise InputError(f"{what} has two columns {name!r}. Rename one.")
    return named


def _header(path: Path) -> list[str]:
    if path.suffix != ".parquet":
        return _named_once(_csv_header(path)[0], path)
    require_pyarrow()
    import pyarrow.parquet as pq

    with one_sentence(_rule(path)), pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_")]
    return _named_once(names, path)


def _csv_header(path: Path) -> tuple[list[str], str]:
    """Names of the columns, blank ones too, and the separator."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with one_sentence(_rule(path)):
        with opened(path, "rt", encoding="utf-8-sig") as text:
            line = next((line for line in text if line.strip()), "")
        unquoted = re.sub('"[^"]*"', "", line)  # a name in quotes may hold separators
        separator = max(",;\t|", key=unquoted.count)
        names = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    header = [name.strip() for name in names]
    if not any(header):
        raise InputError(f"{_rule(path)}: it is empty.")
    return header, separator


def _rule(path: Path) -> str:
    if path.suffix == ".parquet":
        return f"{path} cannot be read as a Parquet table; it is damaged or foreign"
    return f"{path} cannot be read as a CSV table with a header, in UTF-8"


def _read_file(path: Path, columns: Sequence[str], text: Sequence[str]) -> Any:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with one_sentence(_rule(path)):
            table = pq.read_table(path, columns=list(columns))
            table.validate(full=True)  # bytes may claim to be text
            return table.to_pandas(ignore_metadata=True, date_as_object=False)
    import pandas as pd

    header, separator = _csv_header(path)
    names = [name or f"\0{place}" for place, name in enumerate(header)]
    with one_sentence(_rule(path)), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        frame = pd.read_csv(
            path,
            sep=separator,
            decimal="," if separator == ";" else ".",
            header=0,
            names=names,
            index_col=False,
            dtype=dict.fromkeys(text, str),
            na_values={name: [""] if name in text else MISSING for name in names},
            keep_default_na=False,
            skipinitialspace=True,
            low_memory=False,
        )
    return frame.dropna(how="all")[list(columns)]


def is_table_file(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def is_frame(source: object) -> bool:
    pandas = sys.modules.get("pandas")  # never imported: then it is no DataFrame
    return pandas is not None and isinstance(source, pandas.DataFrame)


def require_pyarrow() -> None:
    """Raise where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Parquet files need pyarrow, which is missing: pip install "graphglow[parquet]".'
        ) from error


def find_column(role: str, table: Table, chosen: Mapping[str, str]) -> str | None:
    """The column of that role, if there is one; an error if there are several."""
    if role in chosen:
        name = chosen[role]
        if name not in table.columns:
            raise missing_column(f"column {name!r}, chosen as {role}", table, [name])
        return name
    taken = [n for other, n in chosen.items() if (other in EDGE_ROLES) == (role in EDGE_ROLES)]
    found = [name for name in table.columns if name.lower() in NAMES[role] and name not in taken]
    if role == "id":  # "node" may be a feature beside "id"
        found = sorted(found, key=lambda name: NAMES["id"].index(name.lower()))[:1]
    if len(found) > 1:
        raise InputError(
            f"{table.what} has {' and '.join(found)}, which may both be the {role}. Say which: "
            f"--columns {role}={found[0]}."
        )
    return found[0] if found else None


def need_column(role: str, table: Table, chosen: Mapping[str, str]) -> str:
    """The column of that role; an error if there is none."""
    if (name := find_column(role, table, chosen)) is not None:
        return name
    what = f"{role} column, called {', '.join(NAMES[role])}"
    how = f'Say which: --columns {role}=NAME (in Python columns={{"{role}": "NAME"}}).'
    raise InputError(f"{missing_column(what, table, NAMES[role])} {how}")


def missing_column(what: str, table: Table, wanted: Sequence[str]) -> InputError:
    """An error that lists the columns, and the one whose name is most like those ``wanted``."""
    near = next(filter(None, (did_you_mean(name, table.columns, 0.65) for name in wanted)), "")
    listed = ", ".join(table.columns[:20]) + (", ..." if len(table.columns) > 20 else "")
    return InputError(f"{table.what} has no {what}; it has {listed or 'none'}{near}.")


def find_ends(table: Table, chosen: Mapping[str, str]) -> list[str]:
    """The two ends of an edge by name; where a table has two columns beside the weight, these."""
    ends = [find_column(role, table, chosen) for role in ("source", "target")]
    weight = chosen.get("weight", "weight").lower()
    others = [name for name in table.columns if name.lower() != weight]
    if None in ends and chosen.keys().isdisjoint(("source", "target")) and len(others) == 2:
        return others
    return [need_column(role, table, chosen) for role in ("source", "target")]


def open_tables(nodes: Any, edges: Any, roles: Roles) -> tuple[Table | None, Table | None]:
    """Open the tables of nodes and of edges, one of which may be absent.

    ``nodes`` may be a folder with both, or a list of edges alone.
    """
    if isinstance(nodes, Path) and edges is None and nodes.is_dir():
        node_table, edge_table = _tables_of_folder(nodes)
    else:
        node_table = open_table(nodes)
        edge_table = None if edges is None else open_table(edges)
        if edge_table is None and _is_edge_list(node_table, roles.chosen):
            node_table, edge_table = None, node_table
        elif is_frame(nodes) and edges is None and not find_column("id", node_table, roles.chosen):
            warn(f"{node_table.what} has no id column: a node's id is the number of its row")
            node_table = open_table(nodes.assign(id=range(len(nodes))))
    opened = [table for table in (node_table, edge_table) if table is not None]
    for name in (*roles.leave_out, *roles.category):
        if not any(name in table.columns for table in opened):
            raise missing_column(f"column {name!r}, which columns names", opened[0], [name])
    nodes, edges = (table and table.without(roles.leave_out) for table in (node_table, edge_table))
    return nodes, edges


def _tables_of_folder(folder: Path) -> tuple[Table | None, Table | None]:
    """Open ``nodes.csv``, ``edges.parquet`` and the like, or parts in ``nodes/`` and ``edges/``."""
    found: dict[str, Table | None] = {}
    for name in ("nodes", "edges"):
        paths = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
        paths = [p for p in (*paths, folder / name) if p.is_file() or (p.is_dir() and not p.suffix)]
        if len(paths) > 1:
            raise InputError(
                f"{folder} has two {name} tables, {paths[0].name} and {paths[1].name}. Remove one."
            )
        found[name] = open_table(paths[0]) if paths else None
    others = [p for p in folder.iterdir() if is_table_file(p) and p.name[:5].lower() != "edges"]
    if found["nodes"] is None and (found["edges"] is None or others):
        names = ", ".join(sorted(p.name for p in folder.iterdir() if p.name[0] != ".")[:10])
        raise InputError(
            f"{folder} has no nodes.csv or nodes.parquet, but {names or 'nothing'}. Name the "
            "tables: --target NODES+EDGES, or NODES alone."
        )
    return found["nodes"], found["edges"]


def _is_edge_list(table: Table, chosen: Mapping[str, str]) -> bool:
    """Whether a table has both ends of edges by name, no id and no label."""
    lower = {name.lower() for name in table.columns}
    has = {role: role in chosen or bool(lower & {*NAMES[role]}) for role in NAMES}
    return has["source"] and has["target"] and not (has["id"] or has["label"])


def tables_at(source: str) -> tuple[Path, Path | None] | None:
    """The tables that ``source`` names: of nodes (or a folder of both), and of edges.

    None where it names something else. A table alone is one of nodes, except that ``nodes.csv``
    in a folder with ``edges.csv`` stands for the folder.
    """
    path = Path(os.path.expanduser(source))
    if source and os.path.isdir(path):
        return path, None
    if os.path.exists(path):
        stands_for_folder = path.name.lower() in {f"nodes{suffix}" for suffix in SUFFIXES}
        return (path.parent if stands_for_folder else path, None) if is_table_file(path) else None
    return next((p for p in pairs_of_paths(source) if all(map(os.path.exists, p))), None)


def pairs_of_paths(source: str) -> Iterator[tuple[Path, Path]]:
    """Every way to read ``people.csv+relations.csv`` as two paths."""
    for place, letter in enumerate(source):
        if letter == "+" and source[:place] and source[place + 1 :]:
            first, second = source[:place], source[place + 1 :]
            yield Path(os.path.expanduser(first)), Path(os.path.expanduser(second))


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
