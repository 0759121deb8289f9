"""One loader for every door: names, files, tables, and graph objects of other libraries."""

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scipy.sparse import issparse
from torch import Tensor
from torch_geometric.data import Data, Dataset
from torch_geometric.data.data import BaseData

from graphglow.errors import InputError, did_you_mean, warn
from graphglow.graph import files, objects
from graphglow.graph.check import carry_check, check_graph, check_masks, one_graph
from graphglow.graph.datasets import DATASETS, OGB, is_dataset_path, read_dataset_path, read_ogb
from graphglow.graph.leaks import warn_of_label_like_columns, warn_of_leaks
from graphglow.graph.split import MASKS, with_random_split
from graphglow.graph.table_file import SUFFIXES, is_frame, is_table_file
from graphglow.graph.tables import Columns, read_tables
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
        source: A name in ``DATASETS``; ``"ogb:ogbn-arxiv"``; a class path such as
            ``"torch_geometric.datasets.Amazon:name=Photo"``; a ``.pt``, ``.npz`` or ``.graphml``
            file; tables: a folder with ``nodes.csv|parquet`` and ``edges.csv|parquet``, a file,
            ``"people.csv+relations.csv"``, or a pair of paths or DataFrames; a PyG ``Data``, or a
            data set of one; a NetworkX or DGL graph, or a SciPy sparse adjacency matrix.
        x: Node features, for a SciPy adjacency matrix.
        y: Labels, for a SciPy adjacency matrix.
        columns: What columns of tables, or attributes of NetworkX and GraphML, are: ``{"id":
            "person", "label": "risk", "source": "payer", "target": "payee", "weight": "amount"}``;
            ``"leave_out": ["phone"]`` are not read, ``"category": ["zip"]`` never numbers.
        need_labels: Whether a graph without labels is an error; else ``y`` may be all -1.
        skip_unknown_edges: Leave out edges of a table that name ids which no node has, with an
            :class:`InputWarning` that counts them; else they are an error.
        data_root: Where the files of named data sets are; else ``GRAPHGLOW_DATA``, else ``data/``.
        split_file: An ``.npz`` with index arrays ``train``, ``val``, ``test``, in place of any
            split of the graph.
        split_seed: Seed of the random 50/25/25 split where the graph has none of its own: within
            each class, or over all labelled nodes, as the paper draws it, for ``DATASETS``.

    Returns:
        A new ``Data`` with ``x``, ``y``, ``edge_index``, ``train_mask``, ``val_mask``,
        ``test_mask``, ``name``, ``class_names`` (text), ``split`` (``public``, ``own``,
        ``file:PATH`` or ``random seed K``) and, where the source has them, ``edge_weight`` and
        ``node_id``. Every edge stands in both directions; edges that came in one stay so in
        ``directed_edge_index``, and ``directed_edge_weight``.

    Shapes:
        x [N, D], y [N] with -1 for unlabelled, edge_index [2, E], edge_weight [E], masks [N]
    """
    tables: dict[str, Any] = {
        "columns": columns,
        "need_labels": need_labels,
        "skip_unknown_edges": skip_unknown_edges,
    }
    if (x is not None or y is not None) and not issparse(source):
        raise InputError(
            f"x and y go with a SciPy adjacency matrix, not with a {type(source).__name__}. Leave "
            "them out, or set data.x and data.y."
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
        carry_check(data)
    warn_of_leaks(data)
    warn_of_label_like_columns(data)
    return data


def as_graph(source: Any, *, need_labels: bool = True, split: bool = True) -> Data:
    """Return a ``Data`` as it is, anything else by :func:`load_graph`; warn of leaks.

    With ``split`` one is drawn where there are labels and no mask, with a warning.
    """
    if not isinstance(source, Data):
        data = load_graph(source, need_labels=need_labels)
        warn_of_made_edges(data)
        if split:
            warn_of_drawn_split(data)
        return data
    data = copy.copy(one_graph(source))
    if not isinstance(data.get("split"), str):  # it has not come through load_graph
        warn_of_leaks(data)
    y = data.get("y")
    if not isinstance(y, Tensor) or y.is_floating_point() or y.numel() != y.shape[:1].numel():
        return data  # a check will have more to say
    data.y = y.flatten() if y.ndim > 1 else y
    if split:
        check_masks(data)
        if bool((y >= 0).any()) and not any(name in data for name in MASKS):
            warn_of_drawn_split(with_random_split(data, 0, by_class=True))
    return data


def warn_of_drawn_split(data: Data) -> None:
    """Say which nodes were drawn for what, if they were."""
    if str(data.get("split", "")).startswith("random") and bool(data.train_mask.any()):
        train, val, test = (int(data[name].sum()) for name in MASKS)
        warn(
            f"{data.get('name') or 'the graph'} has no split of its own: {train} training, {val} "
            f"validation and {test} test nodes are drawn ({data.split})"
        )


def without_drawn_split(data: Data) -> Data:
    """The graph less a split that it did not bring along: then every label is given."""
    if str(data.get("split", "")).startswith("random"):
        for name in (*MASKS, "split"):
            data.pop(name, None)
    return data


def warn_of_made_edges(data: Data) -> None:
    """Say that edges were made, if they were."""
    if data.get("knn_graph"):
        warn(f"{data.name} has no edges of its own: those between nearest neighbours stand in")


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
    given, name = str(source), str(source).lower()
    path = Path(os.path.expanduser(given))
    check_source(given)
    if name in DATASETS and (isinstance(source, str) or not os.path.exists(path)):
        data = DATASETS[name].read(root)
        data.split = "public"  # if it has one
        with_random_split(data, split_seed)
    elif given and os.path.exists(path):
        data = _read_file(path, tables)
        data.name = _stem(path) if path.is_file() else path.resolve().name
        return data
    elif (pair := pair_of_tables(given)) is not None:
        data = read_tables(*pair, **tables)
        data.name = _stem(pair[0])
        return data
    elif name.startswith(OGB):
        data, name = read_ogb(given, root), given.removeprefix(OGB)
        data.split = "public"
    else:
        data, name = read_dataset_path(given, root, split_seed), given.rpartition(".")[2]
    _refuse_columns(given, tables["columns"])
    data.name = name
    return data


def check_source(source: str) -> None:
    """Raise unless ``source`` is a known name, or a path of what is there; nothing is read."""
    exists = source and os.path.exists(os.path.expanduser(source))
    known = source.lower() in DATASETS or source.lower().startswith(OGB) or is_dataset_path(source)
    if exists or known or pair_of_tables(source) is not None:
        return
    for pair in _pairs(source):
        missing = [str(path) for path in pair if not os.path.exists(path)]
        if len(missing) == 1 or all(path.name.lower().endswith(SUFFIXES) for path in pair):
            raise InputError(f"There is no table {' and no '.join(missing)}. Check the path.")
    if source.lower().endswith((*SUFFIXES, *READERS)) or "/" in source or os.sep in source:
        raise InputError(f"There is no graph file {source}. Check the path.")
    raise InputError(
        f"There is no graph {source!r}{did_you_mean(source, DATASETS)}. Give a known name "
        f"({', '.join(sorted(DATASETS))}), or a path ({ACCEPTED})."
    )


def _pairs(source: str) -> Iterator[tuple[Path, Path]]:
    """Every way to read ``people.csv+relations.csv`` as two paths."""
    for place, letter in enumerate(source):
        if letter == "+" and source[:place] and source[place + 1 :]:
            first, second = source[:place], source[place + 1 :]
            yield Path(os.path.expanduser(first)), Path(os.path.expanduser(second))


def pair_of_tables(source: str) -> tuple[Path, Path] | None:
    """``people.csv+relations.csv`` as two tables that exist; None if it is something else."""
    return next((pair for pair in _pairs(source) if all(map(os.path.exists, pair))), None)


def _stem(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem


def _refuse_columns(source: str, columns: Columns | None) -> None:
    if columns:
        raise InputError(
            f"{source} has no columns to choose. Leave columns out: they are for tables, and for "
            "attributes of NetworkX and GraphML."
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
        raise InputError(f"{path} is no graph file. Give {ACCEPTED}.")
    if reader is objects.read_graphml:
        return objects.read_graphml(path, tables["need_labels"], tables["columns"])
    _refuse_columns(str(path), tables["columns"])
    return reader(path, tables["need_labels"])
