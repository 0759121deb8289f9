"""One loader for every door: names, files, tables, and graph objects of other libraries."""

import difflib
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

from torch_geometric.data import Data, Dataset

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.check import MASKS, check_graph, complete_masks
from graphglow.graphs.dataset_info import DatasetInfo
from graphglow.graphs.dataset_path import is_dataset_path, read_dataset_path
from graphglow.graphs.dgl_graph import from_dgl, is_dgl
from graphglow.graphs.facebook100 import FACEBOOK100
from graphglow.graphs.files import (
    ACCEPTED,
    TABLES_ONLY,
    is_there,
    own_path,
    pair_of_tables,
    read_graph_file,
    refuse_missing_files,
)
from graphglow.graphs.ogb import PREFIX as OGB
from graphglow.graphs.ogb import read_ogb
from graphglow.graphs.planetoid import PLANETOID
from graphglow.graphs.split import apply_split_file, with_random_split
from graphglow.graphs.synthetic import SYNTHETIC
from graphglow.graphs.table_columns import Columns
from graphglow.graphs.table_file import is_frame
from graphglow.graphs.table_folder import read_tables
from graphglow.graphs.tables import TABLES

DATASETS: dict[str, DatasetInfo] = {
    info.name: info for info in (*PLANETOID, *FACEBOOK100, *TABLES, *SYNTHETIC)
}
"""Every known name (lower case) and what is known about it."""


def load_graph(
    source: "str | Path | Data | Any",
    *,
    x: Any = None,
    y: Any = None,
    columns: Columns | None = None,
    need_labels: bool = True,
    skip_unknown_edges: bool = False,
    data_root: str | Path | None = None,
    split_file: str | Path | None = None,
    split_seed: int = 0,
) -> Data:
    """Load a graph from anywhere, checked and completed (see :func:`check_graph`).

    Args:
        source: A name in ``DATASETS`` (any case; it goes before a file of the same name);
            ``"ogb:ogbn-arxiv"``; a class path such as
            ``"torch_geometric.datasets.Amazon:name=Photo"``; a path to a ``.pt``, ``.npz`` or
            ``.graphml`` file, to a folder with ``nodes.csv|parquet`` and ``edges.csv|parquet``, or
            to a table of nodes alone; two tables as ``"people.csv+relations.csv"`` or as a pair of
            paths or DataFrames; a PyG ``Data``, or a data set of one; a NetworkX graph, a DGL
            graph, or a SciPy sparse adjacency matrix.
        x: Node features, for a SciPy adjacency matrix.
        y: Labels, for a SciPy adjacency matrix.
        columns: Names of columns in tables that are not called as usual, e.g. ``{"id": "person",
            "label": "risk", "source": "payer", "target": "payee", "weight": "amount"}``, and those
            that are not to be read: ``{"leave_out": ["phone", "notes"]}``.
        need_labels: Whether a graph without labels is an error; else ``y`` may be all -1.
        skip_unknown_edges: Whether edges of a table that name ids which the nodes table does not
            have are left out, with an :class:`InputWarning` that counts them; else they are an
            error.
        data_root: Where the raw files of named data sets are; else ``GRAPHGLOW_DATA``, else
            ``data/`` in the working folder.
        split_file: An ``.npz`` with index arrays ``train``, ``val``, ``test``, which replaces any
            split of the graph.
        split_seed: Seed of the random 50/25/25 split where the graph has no split of its own:
            within each class for graphs of the user's own, over all labelled nodes, as the paper
            draws it, for those in ``DATASETS``.

    Returns:
        A new ``Data`` with ``x``, ``y``, ``edge_index``, ``train_mask``, ``val_mask``,
        ``test_mask``, ``name``, ``class_names`` (text; the classes' numbers where they have no
        names), and, where the source has them, ``edge_weight`` and ``node_id``, the user's own ids:
        a node without an id is known by its index.

    Shapes:
        x [N, D], y [N] with -1 for unlabelled, edge_index [2, E], edge_weight [E], masks [N]
    """
    tables: dict[str, Any] = {
        "columns": columns,
        "need_labels": need_labels,
        "skip_unknown_edges": skip_unknown_edges,
    }
    if isinstance(source, str | Path):
        data = _read_name_or_path(source, data_root, split_seed, tables)
    else:
        data = _read_object(source, x, y, tables)
    if (x is not None or y is not None) and not _is_scipy(source):
        raise InputError(
            f"x and y go with a SciPy adjacency matrix only; got {type(source).__name__}"
        )
    if split_file is None:
        return _named(check_graph(data, split_seed=split_seed, need_labels=need_labels))
    bare = data.clone()
    for mask in MASKS:
        bare.pop(mask, None)
    with warnings.catch_warnings():  # of a random split that is not used
        warnings.simplefilter("ignore", InputWarning)
        checked = check_graph(bare, need_labels=need_labels)
    return _named(complete_masks(apply_split_file(checked, split_file), split_seed))


def _named(data: Data) -> Data:
    """``data`` with a name for each class."""
    if data.get("class_names") is None:
        data.class_names = [str(label) for label in range(int(data.y.max()) + 1)]
    return data


def data_folder(data_root: str | Path | None) -> Path:
    """Where raw files are: the argument, else ``GRAPHGLOW_DATA``, else ``data/``."""
    return Path(data_root or os.environ.get("GRAPHGLOW_DATA") or "data").expanduser()


def _read_object(source: object, x: Any, y: Any, tables: dict[str, Any]) -> Data:
    if isinstance(source, Dataset) and len(source) == 1:
        source = source[0]
    if tables["columns"] and not (is_frame(source) or _is_pair(source)):
        raise InputError(f"{TABLES_ONLY}; got {type(source).__name__}")
    if isinstance(source, Data):
        data = source.clone()
    elif is_frame(source):
        data = read_tables(source, None, **tables)
    elif _is_pair(source):
        data = read_tables(*source, **tables)
    elif _is_scipy(source):
        from graphglow.graphs.scipy_graph import from_scipy

        data = from_scipy(source, x=x, y=y, name="the graph")
    elif is_dgl(source):
        data = from_dgl(source)
    elif _is_networkx(source):
        from graphglow.graphs.networkx_graph import from_networkx

        graph: Any = source
        name = str(graph.name or "graph")
        data = from_networkx(graph, name=name, need_labels=tables["need_labels"])
        data.name = graph.name
    else:
        raise InputError(
            "a graph must be a name, a path, a pair of tables, a torch_geometric Data or a "
            f"NetworkX graph, DGL graph or SciPy sparse matrix; got {type(source).__name__}"
        )
    data.name = str(data.get("name") or "graph")
    return data


def _is_pair(source: object) -> TypeGuard[Sequence[Any]]:
    """A nodes table and an edges table, or None for no edges."""
    if not isinstance(source, tuple | list) or len(source) != 2 or source[0] is None:
        return False
    return all(t is None or isinstance(t, str | Path) or is_frame(t) for t in source)


def _is_scipy(source: object) -> bool:
    scipy = sys.modules.get("scipy.sparse")
    return scipy is not None and bool(scipy.issparse(source))


def _is_networkx(source: object) -> bool:
    networkx = sys.modules.get("networkx")  # never imported: then it is no NetworkX graph
    return networkx is not None and isinstance(source, networkx.Graph)


def _stem(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem


def _read_name_or_path(
    source: str | Path, data_root: str | Path | None, split_seed: int, tables: dict[str, Any]
) -> Data:
    name, path, root = str(source).lower(), own_path(source), data_folder(data_root)
    if name in DATASETS and (isinstance(source, str) or not is_there(path)):
        _refuse_columns(name, tables["columns"])
        data = DATASETS[name].read(root, split_seed)
        data.name = name
        return with_random_split(data, split_seed)
    if str(source) and is_there(path):
        data = read_graph_file(path, **tables)
        data.name = _stem(path) if path.is_file() else path.resolve().name
        return data
    pair = pair_of_tables(str(source))
    if pair is not None:
        data = read_tables(*pair, **tables)
        data.name = _stem(pair[0])
        return data
    _refuse_columns(str(source), tables["columns"])
    if name.startswith(OGB):
        data = read_ogb(str(source), root)
        data.name = str(source).removeprefix(OGB)
        return data
    if is_dataset_path(str(source)):
        data = read_dataset_path(str(source), root, split_seed)
        data.name = str(source).rpartition(".")[2]
        return data
    refuse_missing_files(str(source))
    near = difflib.get_close_matches(name, DATASETS, n=3, cutoff=0.5) or sorted(DATASETS)
    raise InputError(
        f"a graph must be a known name (nearest: {', '.join(near)}) or an existing path "
        f"({ACCEPTED}); got {str(source)!r}"
    )


def _refuse_columns(source: str, columns: Columns | None) -> None:
    if columns:
        refuse_missing_files(source)
        raise InputError(f"{TABLES_ONLY}; got {source!r}")
