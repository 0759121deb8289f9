"""One loader for every door: names, files, tables, and graph objects of other libraries."""

import copy
import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scipy.sparse import issparse
from torch import Tensor
from torch_geometric.data import Data, Dataset
from torch_geometric.data.data import BaseData

from graphglow.errors import InputError
from graphglow.graph import files, objects
from graphglow.graph.check import check_graph, check_masks, one_graph
from graphglow.graph.datasets import DATASETS, OGB, is_dataset_path, read_dataset_path, read_ogb
from graphglow.graph.files import is_there, note, own_path
from graphglow.graph.leaks import say_label_like, say_leaks
from graphglow.graph.split import MASKS, with_random_split
from graphglow.graph.table_file import SUFFIXES, is_frame, is_table_file
from graphglow.graph.tables import Columns, check_columns, read_tables
from graphglow.storage import existing_file

READERS: dict[str, Callable[[Path, bool], Data]] = {
    ".pt": files.read_pt,
    ".pth": files.read_pt,
    ".npz": files.read_npz,
    ".graphml": objects.read_graphml,
}
"""Suffix -> reader, which is told whether a graph without labels is an error."""
ACCEPTED = (
    ".pt, .npz, .graphml, a folder with a nodes table and an edges table (csv, parquet), "
    "NODES.csv+EDGES.csv, or a nodes table alone"
)


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
            that are not to be read: ``{"leave_out": ["phone", "notes"]}``. The same for attributes
            of NetworkX graphs and GraphML: label, split, weight and leave_out.
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
        names), ``split`` (which it got: ``public``, ``own``, ``file:PATH`` or ``random seed K``)
        and, where the source has them, ``edge_weight`` and ``node_id``, the user's own ids: a node
        without an id is known by its index. Every edge stands in both directions; edges that came
        in one stay so in ``directed_edge_index``, and ``directed_edge_weight``.

    Shapes:
        x [N, D], y [N] with -1 for unlabelled, edge_index [2, E], edge_weight [E], masks [N]
    """
    check_columns(columns)
    tables: dict[str, Any] = {
        "columns": columns,
        "need_labels": need_labels,
        "skip_unknown_edges": skip_unknown_edges,
    }
    if (x is not None or y is not None) and not issparse(source):
        raise InputError(
            f"x and y go with a SciPy adjacency matrix only; got {type(source).__name__}"
        )
    if isinstance(source, str | Path):
        data = _read_name_or_path(source, data_folder(data_root), split_seed, tables)
    else:
        data = _read_object(source, x, y, tables)
    if split_file is not None:
        data = files.apply_split_file(data, split_file)
    data = check_graph(data, split_seed=split_seed, need_labels=need_labels, need_validation=False)
    if data.get("class_names") is None:
        data.class_names = [str(label) for label in range(int(data.y.max()) + 1)]
    say_leaks(data)
    say_label_like(data)
    return data


def as_graph(source: Any, *, need_labels: bool = True, split: bool = True) -> Data:
    """A ``Data`` as it is, anything else by :func:`load_graph`; leaks and a drawn split are said.

    The split is that of :func:`load_graph`: drawn where there are labels and no mask.

    Args:
        source: What :func:`load_graph` takes.
        need_labels: As there.
        split: Whether a split is of use, so that it is to be drawn and said.
    """
    if not isinstance(source, Data):
        data = load_graph(source, need_labels=need_labels)
        say_no_edges(data)
        if split:
            say_split(data)
        return data
    one_graph(source)
    if not isinstance(source.get("split"), str):  # it has not come through load_graph
        say_leaks(source)
    data, y = copy.copy(source), source.get("y")
    if not isinstance(y, Tensor) or y.is_floating_point() or y.numel() != y.shape[:1].numel():
        return data  # a check will have more to say
    data.y = y.flatten()
    if split:
        check_masks(data)
    if split and bool((y >= 0).any()) and not any(name in data for name in MASKS):
        say_split(with_random_split(data, 0, by_class=True))
    return data


def say_split(data: Data) -> None:
    """Say which nodes were drawn for what, if they were."""
    if str(data.get("split", "")).startswith("random") and bool(data.train_mask.any()):
        train, val, test = (int(data[name].sum()) for name in MASKS)
        note(
            f"{data.get('name') or 'the graph'} has no split of its own: {train} training, {val} "
            f"validation and {test} test nodes are drawn ({data.split})"
        )


def without_drawn_split(data: Data) -> Data:
    """The graph less a split that it did not bring along: then every label is given."""
    if str(data.get("split", "")).startswith("random"):
        for name in (*MASKS, "split"):
            data.pop(name, None)
    return data


def say_no_edges(data: Data) -> None:
    """Say that edges were made, if they were."""
    if data.get("knn_graph"):
        note(f"{data.name} has no edges of its own: those between nearest neighbours stand in")


def data_folder(data_root: str | Path | None) -> Path:
    """Where raw files are: the argument, else ``GRAPHGLOW_DATA``, else ``data/``."""
    return Path(data_root or os.environ.get("GRAPHGLOW_DATA") or "data").expanduser()


def _read_object(source: Any, x: Any, y: Any, tables: dict[str, Any]) -> Data:
    pair = (source, None) if is_frame(source) else source
    pair = pair if isinstance(pair, tuple | list) and len(pair) == 2 else (None, None)
    if pair[0] is not None and all(isinstance(t, str | Path | None) or is_frame(t) for t in pair):
        data = read_tables(*pair, **tables)
        data.name = "graph"
        return data
    columns, need_labels = tables["columns"], tables["need_labels"]
    if not objects.is_networkx(source):
        _refuse_columns(type(source).__name__, columns)
    if isinstance(source, Dataset) and len(source) == 1:
        source = source[0]
    if isinstance(source, BaseData):
        data = one_graph(source).clone()
        data.pop("split", None)
    else:
        data = objects.from_object(source, x=x, y=y, columns=columns, need_labels=need_labels)
    data.name = str(data.get("name") or "graph")
    return data


def _read_name_or_path(
    source: str | Path, root: Path, split_seed: int, tables: dict[str, Any]
) -> Data:
    given, name, path = str(source), str(source).lower(), own_path(source)
    check_source(given)
    if name in DATASETS and (isinstance(source, str) or not is_there(path)):
        _refuse_columns(name, tables["columns"])
        data = DATASETS[name].read(root)
        data.split = "public"  # if it has one
        with_random_split(data, split_seed)
    elif given and is_there(path):
        data = _read_file(path, tables)
        name = _stem(path) if path.is_file() else path.resolve().name
    elif (pair := files.pair_of_tables(given)) is not None:
        data, name = read_tables(*pair, **tables), _stem(pair[0])
    elif name.startswith(OGB):
        _refuse_columns(given, tables["columns"])
        data, name = read_ogb(given, root), given.removeprefix(OGB)
        data.split = "public"
    else:
        _refuse_columns(given, tables["columns"])
        data, name = read_dataset_path(given, root, split_seed), given.rpartition(".")[2]
    data.name = name
    return data


def check_source(source: str) -> None:
    """Raise unless ``source`` is a known name, or a path of what is there; nothing is read."""
    there = source and is_there(own_path(source))
    known = source.lower() in DATASETS or source.lower().startswith(OGB) or is_dataset_path(source)
    if there or known or files.pair_of_tables(source) is not None:
        return
    _refuse_missing_files(source)
    near = difflib.get_close_matches(source.lower(), DATASETS, n=3, cutoff=0.5) or sorted(DATASETS)
    raise InputError(
        f"a graph must be a known name (nearest: {', '.join(near)}) or an existing path "
        f"({ACCEPTED}); got {source!r}"
    )


def _stem(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem


def _refuse_columns(source: str, columns: Columns | None) -> None:
    if columns:
        raise InputError(
            "columns can be chosen in tables only: .csv, .parquet, DataFrames, or attributes of "
            f"NetworkX and GraphML; got {source!r}"
        )


def _read_file(path: Path, tables: dict[str, Any]) -> Data:
    """Read a graph, not yet checked, from a file or folder that exists.

    A table alone is one of nodes without edges, except that ``nodes.csv`` in a folder with
    ``edges.csv`` stands for the folder.
    """
    if path.is_dir():
        return read_tables(path, **tables)
    existing_file(path, "a graph file")
    if is_table_file(path):
        beside_edges = path.name.lower() in {f"nodes{suffix}" for suffix in SUFFIXES}
        return read_tables(path.parent if beside_edges else path, **tables)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"a graph file must be {ACCEPTED}; got {path}")
    if reader is objects.read_graphml:
        return objects.read_graphml(path, tables["need_labels"], tables["columns"])
    _refuse_columns(str(path), tables["columns"])
    return reader(path, tables["need_labels"])


def _refuse_missing_files(source: str) -> None:
    """Raise where a file, or two as ``people.csv+relations.csv``, is meant that is not there."""
    for pair in files.pairs_of_paths(source):
        missing = [str(path) for path in pair if not is_there(path)]
        if len(missing) == 1 or all(path.name.lower().endswith(SUFFIXES) for path in pair):
            raise InputError(f"both tables of a graph must exist; got no {' and '.join(missing)}")
    if source.lower().endswith((*SUFFIXES, *READERS)) or "/" in source or os.sep in source:
        raise InputError(f"a graph file must exist; got {source}")
