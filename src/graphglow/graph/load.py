"""One loader for every door: names, files, tables, and graph objects of other libraries."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from scipy.sparse import issparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data, Dataset
from torch_geometric.data.data import BaseData
from torch_geometric.utils import homophily, subgraph

from graphglow.errors import InputError, did_you_mean, warn
from graphglow.graph import formats
from graphglow.graph.check import (
    MASKS,
    check_graph,
    check_masks,
    edges_were_made,
    one_graph,
    with_random_split,
)
from graphglow.graph.datasets import DATASETS, OGB, is_dataset_path, read_dataset_path, read_ogb
from graphglow.graph.features import warn_of_leaks
from graphglow.graph.graph import graph_of
from graphglow.graph.tables import SUFFIXES, Columns, pairs_of_paths, read_tables, tables_at
from graphglow.graph.write import own_classes
from graphglow.linalg.rows import entries
from graphglow.storage import existing_file

READERS: dict[str, Callable[[Path], Any]] = {
    ".pt": formats.read_pt,
    ".pth": formats.read_pt,
    ".npz": formats.read_npz,
    ".graphml": formats.read_graphml,
}
"""Suffix -> reader of a ``Data``, or of a NetworkX graph."""
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
    split_seed: int | None = 0,
) -> Data:
    """Load a graph from anywhere, checked and completed (:func:`check_graph`).

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
        split_file: An ``.npz`` with index arrays ``train``, ``val`` and ``test``.
        split_seed: Seed of the random 50/25/25 split where the graph has none of its own: within
            each class, or over all labelled nodes, as the paper draws it, for ``DATASETS``. None
            draws no split: then ``predict``, ``audit`` and ``refine`` read every label.

    Returns:
        A new ``Data`` with ``x``, ``y``, ``edge_index``, the three masks, ``name``, ``class_names``
        (text), ``split`` (``public``, ``own``, ``file:PATH`` or ``random seed K``) and, where the
        source has them, ``edge_weight`` and ``node_id``. Every edge comes in both directions; edges
        given in one are kept in ``directed_edge_index`` and ``directed_edge_weight``.

    Shapes:
        x [N, D], y [N] with -1 for unlabelled, edge_index [2, E], edge_weight [E], masks [N]
    """
    if (x is not None or y is not None) and not issparse(source):
        raise InputError(
            f"x and y go with a SciPy adjacency matrix, not with a {type(source).__name__}. Leave "
            "them out, or set data.x and data.y."
        )
    draw, split_seed = split_seed is not None, split_seed or 0
    settings: dict[str, Any] = {
        "columns": columns,
        "need_labels": need_labels,
        "skip_unknown_edges": skip_unknown_edges,
    }
    by_name, name = isinstance(source, str | Path), "graph"
    if (tables := _tables_of(source)) is not None:
        data, path = read_tables(*tables, **settings), tables[0]
        if by_name:
            name = path.resolve().name
            name = name if path.is_dir() else Path(name.removesuffix(".gz")).stem
    else:
        if by_name:
            data, name = _read_name_or_path(source, data_folder(data_root), split_seed)
        else:
            data = _read_object(source, x, y)
        if formats.is_networkx(data):
            data = formats.from_networkx(data, str(data.name or name), **settings)
        elif columns:
            raise InputError(
                f"{source if by_name else type(source).__name__} has no columns to choose. Leave "
                "columns out: they are for tables, and for attributes of NetworkX and GraphML."
            )
    data.name = str(data.get("name") or name)
    if split_file is not None:
        data = formats.apply_split_file(data, split_file)
    data = check_graph(data, split_seed=split_seed, need_labels=need_labels, need_validation=False)
    if data.get("class_names") is None:
        data.class_names = [str(label) for label in range(int(data.y.max()) + 1)]
    warn_of_leaks(data)
    return data if draw else without_drawn_split(data)


def as_graph(source: Any, *, need_labels: bool = True, split: bool = True) -> Data:
    """Return a ``Data`` as it is, anything else by :func:`load_graph`.

    With ``split`` one is drawn where there are labels and no mask, with a warning.
    """
    if not isinstance(source, Data):
        data = load_graph(source, need_labels=need_labels)
        warn_of_made_edges(data)
        if split:
            warn_of_drawn_split(data)
        return data
    data = copy.copy(one_graph(source))
    y = data.get("y")
    if not isinstance(y, Tensor) or y.is_floating_point() or y.numel() != y.shape[:1].numel():
        return data  # a check will have more to say
    data.y = y.flatten()
    if split:
        check_masks(data)
        if bool((y >= 0).any()) and not any(name in data for name in MASKS):
            warn_of_drawn_split(with_random_split(data, 0, by_class=True))
    return data


def as_given(source: Any) -> Data:
    """Return a ``Data`` as it is, anything else loaded; where there is no split none is drawn."""
    if isinstance(source, Data):
        return as_graph(source, need_labels=False, split=any(name in source for name in MASKS))
    data = load_graph(source, need_labels=False, split_seed=None)
    warn_of_made_edges(data)
    return data


def warn_of_drawn_split(data: Data) -> None:
    """Warn that a split was drawn, if it was."""
    if str(data.get("split", "")).startswith("random") and bool(data.train_mask.any()):
        train, val, test = (int(data[name].sum()) for name in MASKS)
        warn(
            f"{data.get('name') or 'the graph'} has no split of its own: {train} training, {val} "
            f"validation and {test} test nodes are drawn ({data.split})"
        )


def without_drawn_split(data: Data) -> Data:
    """Drop a split that was drawn: then every label may be read."""
    if str(data.get("split", "")).startswith("random"):
        for name in (*MASKS, "split"):
            data.pop(name, None)
    return data


def warn_of_made_edges(data: Data) -> None:
    """Warn that edges join nearest neighbours because none were given."""
    if data.get("knn_graph"):
        warn(f"{data.name} has no edges of its own: those between nearest neighbours stand in")


def data_folder(data_root: str | Path | None) -> Path:
    """Where raw files are: the argument, else ``GRAPHGLOW_DATA``, else ``data/``."""
    return Path(data_root or os.environ.get("GRAPHGLOW_DATA") or "data").expanduser()


def _tables_of(source: Any) -> tuple[Any, Any] | None:
    """The tables of nodes and of edges, where a source is such."""
    if isinstance(source, str | Path):
        known = isinstance(source, str) and source.lower() in DATASETS
        return None if known else tables_at(str(source))
    pair = (source, None) if isinstance(source, pd.DataFrame) else source
    kinds = (str, Path, pd.DataFrame)
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], kinds):
        return None
    return (pair[0], pair[1]) if pair[1] is None or isinstance(pair[1], kinds) else None


def _read_object(source: Any, x: Any, y: Any) -> Any:
    """A graph, not yet checked; one of NetworkX as it is."""
    if isinstance(source, Dataset) and len(source) == 1:
        source = source[0]
    if formats.is_networkx(source):
        return source
    if issparse(source):
        return formats.from_scipy(source, x=x, y=y)
    if type(source).__module__.split(".")[0] == "dgl" and hasattr(source, "ndata"):
        return formats.from_dgl(source)
    if not isinstance(source, BaseData):
        raise InputError(
            f"A {type(source).__name__} is no graph. Give a name, a path, a pair of tables, a "
            "torch_geometric Data, or a NetworkX graph, DGL graph or SciPy sparse matrix."
        )
    data = one_graph(source).clone()
    data.pop("split", None)
    return data


def _read_name_or_path(source: str | Path, root: Path, split_seed: int) -> tuple[Any, str]:
    """A graph, not yet checked, and its name; one of NetworkX as it is."""
    given, name = str(source), str(source).lower()
    path = Path(os.path.expanduser(given))
    check_source(given)
    if name in DATASETS and (isinstance(source, str) or not os.path.exists(path)):
        data = DATASETS[name].read(root)
        data.split = "public"  # if it has one
        return with_random_split(data, split_seed), name
    if given and os.path.exists(path):
        reader = READERS.get(existing_file(path, "a graph file").suffix.lower())
        if reader is None:
            raise InputError(f"{path} is no graph file. Give {ACCEPTED}.")
        return reader(path), path.stem
    if name.startswith(OGB):
        return read_ogb(given, root), given.removeprefix(OGB)
    return read_dataset_path(given, root, split_seed), given.rpartition(".")[2]


def check_source(source: str) -> None:
    """Raise unless ``source`` is a known name, or a path of what is there; nothing is read."""
    exists = source and os.path.exists(os.path.expanduser(source))
    known = source.lower() in DATASETS or source.lower().startswith(OGB) or is_dataset_path(source)
    if exists or known or tables_at(source) is not None:
        return
    for pair in pairs_of_paths(source):
        missing = [str(path) for path in pair if not os.path.exists(path)]
        if len(missing) == 1 or all(path.name.lower().endswith(SUFFIXES) for path in pair):
            raise InputError(f"There is no table {' and no '.join(missing)}. Check the path.")
    if source.lower().endswith((*SUFFIXES, *READERS)) or "/" in source or os.sep in source:
        raise InputError(f"There is no graph file {source}. Check the path.")
    raise InputError(
        f"There is no graph {source!r}{did_you_mean(source, DATASETS)}. Give a known name "
        f"({', '.join(sorted(DATASETS))}), or a path ({ACCEPTED})."
    )


def describe(data: Any) -> dict[str, Any]:
    """Count nodes, edges, degrees and classes, and say how alike neighbours are.

    ``edges`` counts each undirected edge once, and no self-loop. ``homophily`` is the share of
    edges within a class; ``homophily_over_chance`` is 0 where classes are joined as chance would
    and 1 where all edges are within (class-insensitive edge homophily). Both are over all nodes
    whose label is known, test nodes too, and None where no edge joins two such nodes or they have
    one class.

    Args:
        data: A ``Data``, or anything else that :func:`graphglow.load_graph` takes.
    """
    data = as_graph(data, need_labels=False, split=False)
    graph = graph_of(data)
    y, known = graph.y, graph.y >= 0
    pairs = torch.stack(entries(graph.links)[:2])
    among, _ = subgraph(known, pairs, relabel_nodes=True, num_nodes=graph.num_nodes)
    methods = {"homophily": "edge", "homophily_over_chance": "edge_insensitive"}
    comparable = among.numel() > 0 and int(y[known].min()) < int(y[known].max())
    names = own_classes(data, int(y.max()) + 1)
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": len(graph.low),
        "made_of_nearest_neighbours": edges_were_made(data),
        "features": 0 if data.get("x") is None else int(data.x.shape[1]),
        "labelled": int(known.sum()),
        "classes": {name: int((y == code).sum()) for code, name in enumerate(names)},
        "mean_degree": float(graph.degree.double().mean()),
        "median_degree": float(graph.degree.median()),
        "largest_degree": int(graph.degree.max()),
        "isolated": int((graph.degree == 0).sum()),
        "components": int(connected_components(graph.links.to_scipy())[0]),
        **{
            name: float(homophily(among, y[known], method=method)) if comparable else None
            for name, method in methods.items()
        },
    }
