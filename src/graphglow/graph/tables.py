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
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
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
ROLES: dict[str, tuple[str, ...]] = {
    "id": ("id", "node_id", "node", "unique_id"),
    "label": ("label", "y", "class"),
    "split": ("split",),
    "source": ("source", "from", "src", "src_id", "unique_id_l"),
    "target": ("target", "to", "dst", "tgt_id", "unique_id_r"),
    "weight": ("weight", "match_probability"),
}
"""Role of a column -> what it may be called, in any case; the first one goes first."""
EDGE_ROLES = ("source", "target", "weight")
FOLDERS = (("nodes", "edges"), ("entities", "relationships"))
"""Tables of a folder; the second pair is what GraphRAG writes, whose relationships name titles."""
GRAPHRAG = ("id", "human_readable_id", "text_unit_ids", "frequency", "degree", "x", "y")
"""Columns of GraphRAG's entities that say nothing of them."""
Columns = Mapping[str, str | Sequence[str]]
"""Role -> name of the column; ``leave_out`` and ``category`` -> names of columns."""


def roles_of(columns: Columns | None) -> tuple[dict[str, str], Sequence[str], Sequence[str]]:
    """What the user says of columns: role -> name, names not to read, and those of categories."""
    if not isinstance(columns, Mapping | None):
        example = '{"id": "person", "leave_out": ["phone"]}'
        raise InputError(f"columns is {columns!r:.60}. Map roles to names, as {example}.")
    chosen: dict[str, Any] = dict(columns or {})
    lists = [chosen.pop(role, ()) for role in ("leave_out", "category")]
    leave_out, category = ([names] if isinstance(names, str) else names for names in lists)
    for role, name in chosen.items():
        if role not in ROLES or not isinstance(name, str):
            how = (
                f"Name one column for some of {', '.join(ROLES)}, or any for leave_out and category"
            )
            raise InputError(f"columns has {role!r}: {name!r}. {how}.")
    return chosen, leave_out, category


@contextmanager
def one_sentence(rule: str) -> Iterator[None]:
    """Turn whatever a parser raises into ``rule`` and the first line of the parser's message."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        unsafe = re.search("eights.only|pickle", line)  # advice to read the file unsafely
        raise InputError(rule if unsafe else f"{rule} ({line:.200})") from error


class Table(NamedTuple):
    """A table whose header is known and whose rows are not read yet."""

    what: str
    """Its name in errors."""
    columns: list[str]
    frame: Any = None
    files: Sequence[Path] = ()

    def without(self, names: Sequence[str]) -> "Table":
        return self._replace(columns=[name for name in self.columns if name not in names])

    def read(self, columns: Sequence[str], text: Sequence[str]) -> pd.DataFrame:
        """Read ``columns``; those in ``text`` as they are written."""
        if self.frame is not None:
            return self.frame[list(columns)]
        if len(self.files) > 1:  # a column might be numbers in one part, text in another
            text = columns
        return pd.concat([_read_file(f, columns, text) for f in self.files], ignore_index=True)


def open_table(source: Any, what: str = "the DataFrame") -> Table:
    """Open a file, a folder of parts, or a DataFrame (called ``what`` in errors)."""
    if isinstance(source, Table):
        return source
    frame, files = None, []
    if isinstance(source, pd.DataFrame):
        frame = source.set_axis([str(name) for name in source.columns], axis=1)
        headers = {what: list(frame.columns)}
    else:
        path = Path(os.path.expanduser(source))
        if not os.path.exists(path):
            raise InputError(f"There is no table {path}.")
        files, what = [path], str(path)
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if is_table_file(p) and p.name[0] not in "._")
        if not files or not all(map(is_table_file, files)):
            raise InputError(
                f"{path} is no table. Give a {', '.join(SUFFIXES)} file, or a folder of such parts."
            )
        headers = {str(file): [name for name in _header(file)[0] if name] for file in files}
    first, columns = next(iter(headers.items()))
    for file, names in headers.items():
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"{file} has two columns {twice[0]!r}. Rename one.")
        if other := set(names) ^ set(columns):
            raise InputError(
                f"The parts of a table need the same columns, but {min(other)!r} is in only one of "
                f"{first} and {file}."
            )
    return Table(what, columns, frame, files)


def is_table_file(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def require_pyarrow() -> None:
    """Raise where Parquet cannot be read or written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Parquet files need pyarrow, which is missing: pip install "graphglow[parquet]".'
        ) from error


def _rule(path: Path) -> str:
    kind = "Parquet table; it is damaged or foreign"
    kind = kind if path.suffix == ".parquet" else "CSV table with a header, in UTF-8"
    return f"{path} cannot be read as a {kind}"


def _opened(path: Path) -> Any:
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def _header(path: Path) -> tuple[list[str], str]:
    """Names of the columns, blank ones too, and the separator."""
    if path.suffix == ".parquet":
        require_pyarrow()
        import pyarrow.parquet as pq

        with one_sentence(_rule(path)):
            names = pq.read_schema(path).names
        return [name for name in names if not name.startswith("__index_")], ""
    with one_sentence(_rule(path)), _opened(path) as text:
        line = next((line for line in text if line.strip()), "")
        unquoted = re.sub('"[^"]*"', "", line)  # a name in quotes may hold separators
        separator = max(",;\t|", key=unquoted.count)
        names = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    header = [name.strip() for name in names]
    if not any(header):
        raise InputError(f"{_rule(path)}: it is empty.")
    return header, separator


def _read_file(path: Path, columns: Sequence[str], text: Sequence[str]) -> pd.DataFrame:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with one_sentence(_rule(path)):
            table = pq.read_table(path, columns=list(columns))
            table.validate(full=True)  # bytes may claim to be text
            return table.to_pandas(ignore_metadata=True, date_as_object=False)
    header, separator = _header(path)
    names = [name or f"\0{place}" for place, name in enumerate(header)]
    with one_sentence(_rule(path)), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        try:
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
        except (pd.errors.ParserError, pd.errors.ParserWarning):
            _need_whole_rows(path, separator, len(header))
            raise
        if frame[names[-1]].isna().any():  # as in a row that is too short
            _need_whole_rows(path, separator, len(header))
    return frame.dropna(how="all")[list(columns)]


def _need_whole_rows(path: Path, separator: str, width: int) -> None:
    """Raise if a row, unless it is blank, has more or fewer fields than the header."""
    with suppress(csv.Error), _opened(path) as text:
        rows = csv.reader(text, delimiter=separator, skipinitialspace=True)
        for row in rows:
            if len(row) != width and any(cell.strip() for cell in row):
                raise InputError(
                    f"{path} has {len(row)} fields in line {rows.line_num}, but {width} in its "
                    "header. Give each row one field per column: nothing between two separators "
                    f"is a blank, and text that holds {separator!r} goes in quotes."
                )


def find_column(role: str, table: Table, chosen: Mapping[str, str]) -> str | None:
    """The column of that role, if there is one; an error if there are several."""
    if role in chosen:
        name = chosen[role]
        if name not in table.columns:
            raise missing_column(f"column {name!r}, chosen as {role}", table, [name])
        return name
    taken = [n for other, n in chosen.items() if (other in EDGE_ROLES) == (role in EDGE_ROLES)]
    found = [name for name in table.columns if name.lower() in ROLES[role] and name not in taken]
    if role == "id":  # "node" may be a feature beside "id"
        found = sorted(found, key=lambda name: ROLES["id"].index(name.lower()))[:1]
    if len(found) > 1:
        got = f"{table.what} has {' and '.join(found)}, which may both be the {role}"
        raise InputError(f"{got}. Say which: --columns {role}={found[0]}.")
    near = did_you_mean(role, table.columns, 0.8)
    if near and not found and role in ("split", "weight"):
        warn(f"{table.what} has no {role} column{near}; call it {role} if it is meant so")
    return found[0] if found else None


def need_column(role: str, table: Table, chosen: Mapping[str, str]) -> str:
    """The column of that role; an error if there is none."""
    if (name := find_column(role, table, chosen)) is not None:
        return name
    what = f"{role} column, called {', '.join(ROLES[role][:3])}"
    python = f'load_graph(.., columns={{"{role}": "NAME"}})'
    how = f"Say which: --columns {role}=NAME (in Python {python})."
    raise InputError(f"{missing_column(what, table, ROLES[role])} {how}")


def missing_column(what: str, table: Table, wanted: Sequence[str]) -> InputError:
    """An error that lists the columns, and the one whose name is most like those ``wanted``."""
    near = next(filter(None, (did_you_mean(name, table.columns, 0.65) for name in wanted)), "")
    listed = ", ".join(table.columns[:20]) + (", ..." if len(table.columns) > 20 else "")
    return InputError(f"{table.what} has no {what}; it has {listed or 'none'}{near}.")


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
    parts = source.split("+")
    for place in range(1, len(parts)):
        pair = "+".join(parts[:place]), "+".join(parts[place:])
        if all(pair):
            yield Path(os.path.expanduser(pair[0])), Path(os.path.expanduser(pair[1]))


def _open_tables(
    nodes: Any, edges: Any, chosen: Mapping[str, str]
) -> tuple[Table | None, Table | None]:
    """Open the tables of nodes and of edges, one of which may be absent.

    ``nodes`` may be a folder with both, or a list of edges alone.
    """
    if isinstance(nodes, Path) and edges is None and nodes.is_dir():
        return _tables_of_folder(nodes)
    table = open_table(nodes)
    if edges is not None:
        return table, open_table(edges)
    lower = {name.lower() for name in table.columns}
    has = {role: role in chosen or bool(lower & {*ROLES[role]}) for role in ROLES}
    if has["source"] and has["target"] and not (has["id"] or has["label"]):
        return None, table
    if isinstance(nodes, pd.DataFrame) and not find_column("id", table, chosen):
        warn(f"{table.what} has no id column: a node's id is the number of its row")
        table = open_table(nodes.assign(id=range(len(nodes))))
    return table, None


def _tables_of_folder(folder: Path) -> tuple[Table | None, Table | None]:
    """Open ``nodes.csv``, ``edges.parquet`` and the like, or parts in ``nodes/`` and ``edges/``."""
    found: dict[str, Table | None] = {}
    graphrag = is_graphrag(folder)
    for name in FOLDERS[graphrag]:
        paths = [p for end in (*SUFFIXES, "") if (p := folder / f"{name}{end}").exists()]
        if len(paths) > 1:
            raise InputError(
                f"{folder} has two {name} tables, {paths[0].name} and {paths[1].name}. Remove one."
            )
        found[name] = open_table(paths[0]) if paths else None
    if graphrag and found["entities"] is not None:
        return found["entities"].without(GRAPHRAG), found["relationships"]
    others = [p for p in folder.iterdir() if is_table_file(p) and p.name[:5].lower() != "edges"]
    if found["nodes"] is None and (found["edges"] is None or others):
        names = ", ".join(sorted(p.name for p in folder.iterdir() if p.name[0] != ".")[:10])
        raise InputError(
            f"{folder} has no nodes.csv or nodes.parquet, but {names or 'nothing'}. Name the "
            "tables: --target NODES+EDGES, or NODES alone."
        )
    return found["nodes"], found["edges"]


def is_graphrag(folder: Path) -> bool:
    """Whether a folder has the tables of a graph that GraphRAG extracted from texts."""
    return all(any((folder / f"{name}{end}").exists() for end in SUFFIXES) for name in FOLDERS[1])


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
    if isinstance(nodes, Path) and edges is None and is_graphrag(nodes):
        columns = {"id": "title", **(columns or {})}
    chosen, leave_out, category = roles_of(columns)
    node_table, edge_table = _open_tables(nodes, edges, chosen)
    opened = [table for table in (node_table, edge_table) if table is not None]
    for name in (*leave_out, *category):
        if not any(name in table.columns for table in opened):
            raise missing_column(f"column {name!r}, which columns names", opened[0], [name])
    edge_table = edge_table and edge_table.without(leave_out)
    if node_table is None:
        assert edge_table is not None
        node_table = _ends_as_nodes(edge_table, chosen, need_labels=need_labels)
    data, ids = _read_nodes(node_table.without(leave_out), chosen, category, need_labels)
    if edge_table is not None:
        data.edge_index, weight = _read_edges(edge_table, ids, chosen, skip_unknown_edges)
        if weight is not None:
            data.edge_weight = weight
    return data


def _ends_as_nodes(edges: Table, chosen: Mapping[str, str], *, need_labels: bool) -> Table:
    """The nodes of a graph of which only edges are known: every end, in order."""
    if need_labels:
        raise InputError(
            f"{edges.what} has edges alone, and no labels to learn from. Give --target "
            "NODES.csv+EDGES.csv (audit and refine read edges alone)."
        )
    ends = [need_column(role, edges, chosen) for role in ("source", "target")]
    frame = edges.read(ends, ends)
    ids = pd.concat([text_of(frame[name]) for name in ends]).drop_duplicates()
    return open_table(pd.DataFrame({chosen.get("id", "id"): ids[ids != ""]}))


def _read_nodes(
    table: Table, chosen: dict[str, str], category: Sequence[str], need_labels: bool
) -> tuple[Data, pd.Index]:
    """Read nodes: a graph, and their ids as text."""
    id_column = need_column("id", table, chosen)
    label = (need_column if need_labels else find_column)("label", table, chosen)
    split = find_column("split", table, chosen)
    known = [name for name in (id_column, label, split) if name is not None]
    text = [name for name in dict.fromkeys((*known, *category)) if name in table.columns]
    frame = table.read(table.columns, text)
    ids = _checked_ids(frame[id_column], table.what)
    data = Data(y=torch.full((len(ids),), -1), node_id=parse_ids(ids))
    if label is not None:
        data.y, data.class_names = encode_labels(frame[label], f"column {label!r} of {table.what}")
    if split is not None:
        names = text_of(frame[split]).str.lower()
        for other in names[~names.isin([*SPLITS, ""])]:
            got = f"column {split!r} of {table.what} has {other!r:.80}"
            raise InputError(f"{got}. Write train, val, test or a blank.")
        for name in SPLITS:
            data[f"{name}_mask"] = torch.from_numpy((names == name).to_numpy(bool).copy())
    data.x, columns = encode_columns(frame.drop(columns=known), table.what, category)
    data.feature_columns = {"columns": columns} | ({"chosen": chosen} if chosen else {})
    return data, ids


def _checked_ids(column: pd.Series, what: str, old: Sequence[str] = ()) -> pd.Index:
    """The ids of a table as text: filled, once each, and none of ``old``."""
    ids = text_of(column)
    problems = {
        "a blank for an id": ids == "",
        "an id twice": ids.duplicated(),
        "the id of an old node": ids.isin(old),
    }
    for problem, bad in problems.items():
        if bad.any():
            got = f"has {problem} ({ids[bad].iloc[0]!r:.80})"
            raise InputError(
                f"column {column.name!r} of {what} {got}. Give each row an id of its own."
            )
    return pd.Index(ids, dtype=object)


def parse_ids(ids: Iterable[str]) -> list[int] | list[str]:
    """Ids as integers where every one of them is written as an integer."""
    texts = list(ids)
    whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in texts)
    return [int(text) for text in texts] if whole else texts


def _read_edges(
    table: Table, ids: pd.Index, chosen: Mapping[str, str], skip_unknown: bool, num_old: int = 0
) -> tuple[Tensor, Tensor | None]:
    """Read edges between ``ids``: [2, E], and weights [E] or None.

    With ``num_old`` > 0 all edges may be left out: the nodes are known without them.
    """
    ends = [need_column(role, table, chosen) for role in ("source", "target")]
    weight = find_column("weight", table, chosen)
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


def read_new_nodes(
    nodes: Any,
    edges: Any,
    data: Data,
    num_features: int,
    columns: Columns | None = None,
    *,
    skip_unknown_edges: bool = False,
) -> Data:
    """Read a nodes table and, where given, an edges table: paths or pandas DataFrames.

    Columns are called as in training. A graph that did not come from tables has one column of
    numbers per feature, in order. ``data`` is the old graph, of which ids, labels and
    ``feature_columns`` are read.

    Shapes:
        x [M, F]; edge_index [2, E] or None, new nodes behind the N old ones; edge_weight [E]
    """
    given, leave_out, _ = roles_of(columns)
    table, stored = open_table(nodes).without(leave_out), data.get("feature_columns")
    with one_sentence("feature_columns of the graph do not say how its table became features"):
        before = {} if stored is None else dict(stored.get("chosen", {}))
        chosen = {role: name for role, name in before.items() if name in table.columns} | given
        id_column = need_column("id", table, chosen)
        if stored is None:
            known = {id_column, *(find_column(role, table, chosen) for role in ("label", "split"))}
            plain = [name for name in table.columns if name not in known]
            if len(plain) != num_features:
                got = f"{table.what} has {len(plain)} columns beside the id"
                raise InputError(f"{got}. Give the {num_features} features of training, in order.")
            stored = {"columns": [{"name": name, "mean": 0.0, "scale": 1.0} for name in plain]}
        encoded: list[dict[str, Any]] = stored["columns"]
        for name in (facts["name"] for facts in encoded):
            if name not in table.columns:
                raise missing_column(f"column {name!r}, as training had", table, [name])
        text = [facts["name"] for facts in encoded if "categories" in facts]
        frame = table.read(table.columns, [id_column, *text])
        x = encode_alike(frame, encoded, table.what)
    node_id = data.get("node_id", range(len(data.y)))
    old = [str(one) for one in node_id]
    ids = _checked_ids(frame[id_column], table.what, old)
    own = parse_ids(ids) if all(isinstance(one, int) for one in node_id) else list(ids)
    if edges is None:
        return Data(x, None, edge_weight=None, node_id=own)
    joined = open_table(edges).without(leave_out)
    everyone = pd.Index([*old, *ids], dtype=object)
    chosen = {role: name for role, name in before.items() if name in joined.columns} | given
    pairs, weight = _read_edges(joined, everyone, chosen, skip_unknown_edges, len(old))
    among_old = (pairs < len(old)).all(0).nonzero()[:, 0]
    if len(among_old):
        u, v = (everyone[int(end)] for end in pairs[:, among_old[0]])
        got = f"{joined.what} joins {u!r} and {v!r}, which are both old nodes"
        raise InputError(f"{got}. Keep the edges with a new end.")
    return Data(x, pairs, edge_weight=weight, node_id=own)
