"""Graphs in files of the user's own: which reader for which file.

A reader takes the path and whether a graph without labels is an error. No reader unpickles: ``.pt``
is read with ``weights_only=True`` and ``.npz`` without pickles.
"""

import os
from collections.abc import Callable
from pathlib import Path

from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.arrays import read_npz, read_pt
from graphglow.graphs.networkx_graph import read_graphml
from graphglow.graphs.table_columns import Columns
from graphglow.graphs.table_file import SUFFIXES, is_table_file
from graphglow.graphs.table_folder import read_table_folder, read_tables

READERS: dict[str, Callable[[Path, bool], Data]] = {
    ".pt": read_pt,
    ".pth": read_pt,
    ".npz": read_npz,
    ".graphml": read_graphml,
}
ACCEPTED = (
    ".pt, .npz, .graphml, a folder with a nodes table and an edges table (csv, parquet), "
    "NODES.csv+EDGES.csv, or a nodes table alone"
)
TABLES_ONLY = "columns can be chosen in tables only: .csv, .parquet, DataFrames"
SHARDS = "shards.json"
"""What makes a folder one of shards."""
ARRAYS = ("x.npy", "edge_index.npy", "y.npy")
"""What makes a folder one of arrays."""


def read_graph_file(
    path: Path,
    *,
    columns: Columns | None = None,
    need_labels: bool = True,
    skip_unknown_edges: bool = False,
) -> Data:
    """Read a graph, not yet checked, from a file or folder that exists.

    A table alone is one of nodes without edges, except that ``nodes.csv`` in a folder with
    ``edges.csv`` stands for the folder.
    """
    if not os.access(path, os.R_OK):
        raise InputError(f"a graph file must be readable; got {path}")
    if not path.is_dir() and not path.is_file():
        raise InputError(f"a graph file must be a regular file; got {path}")
    if path.is_dir():
        _refuse_parts_and_arrays(path)
    beside_edges = path.name.lower() in {f"nodes{suffix}" for suffix in SUFFIXES}
    if path.is_dir() or (is_table_file(path) and beside_edges):
        return read_table_folder(
            path if path.is_dir() else path.parent,
            columns=columns,
            need_labels=need_labels,
            skip_unknown_edges=skip_unknown_edges,
        )
    if is_table_file(path):
        return read_tables(path, None, columns=columns, need_labels=need_labels)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"a graph file must be {ACCEPTED}; got {path}")
    if columns:
        raise InputError(f"{TABLES_ONLY}; got {path}")
    if path.stat().st_size == 0:
        raise InputError(f"a graph file must not be empty; got {path}")
    return reader(path, need_labels)


def _refuse_parts_and_arrays(path: Path) -> None:
    """Raise where a folder is one of those that belong to ``graphglow shard``."""
    if any(holds(path, f"nodes{s}") for s in SUFFIXES) or (path / "nodes").is_dir():
        return  # tables all the same
    if holds(path, SHARDS):
        got = f"a folder of shards, which graphglow transfer alone reads: {path}"
    elif holds(path / "part-0", "nodes.npy"):
        got = f"shards without their {SHARDS} (make them again with graphglow shard): {path}"
    elif holds(path, "nodes.npy", "crow.npy"):
        got = f"one part of a folder of shards (give the folder above it): {path}"
    elif holds(path, *ARRAYS):
        got = f"a folder of arrays, which graphglow shard cuts for graphglow transfer: {path}"
    else:
        return
    raise InputError(f"a graph folder must hold nodes.csv or nodes.parquet; got {got}")


def holds(folder: str | Path, *names: str) -> bool:
    """Whether all these files are in ``folder``, which need not be the name of one."""
    try:
        return all((own_path(folder) / name).is_file() for name in names)
    except (OSError, ValueError):  # too long, a zero byte
        return False


def own_path(source: str | Path) -> Path:
    """A path with ``~`` filled in, as far as there is such a user."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        return Path(source)


def is_there(path: Path) -> bool:
    """Whether something is at ``path``; what cannot be the name of a file is not there."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, a zero byte
        return False


def pair_of_tables(source: str) -> tuple[Path, Path] | None:
    """``people.csv+relations.csv`` as two tables that exist; None if it is something else."""
    for place in (i for i, letter in enumerate(source) if letter == "+"):
        nodes, edges = (own_path(part) for part in (source[:place], source[place + 1 :]))
        if source[:place] and source[place + 1 :] and is_there(nodes) and is_there(edges):
            return nodes, edges
    return None


def refuse_missing_files(source: str) -> None:
    """Raise where a file, or two as ``people.csv+relations.csv``, is meant that is not there."""
    for place in (i for i, letter in enumerate(source) if letter == "+"):
        parts = [own_path(part) for part in (source[:place], source[place + 1 :])]
        missing = [part for part in parts if not is_there(part)]
        if all(part.name.lower().endswith(SUFFIXES) for part in parts) or len(missing) == 1:
            what = "the table of nodes" if missing[0] == parts[0] else "the table of edges"
            if len(missing) == 2:
                what = "the tables of nodes and edges"
            raise InputError(f"{what} must exist; got {' and '.join(map(str, missing))}")
    if source.lower().endswith((*SUFFIXES, *READERS)) or "/" in source or os.sep in source:
        raise InputError(f"a graph file must exist; got {source}")
