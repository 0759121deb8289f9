"""One loader for every door: a known name, a file or folder, a PyG ``Data``, a NetworkX graph."""

import difflib
import os
import sys
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.check import MASKS, check_graph, complete_masks
from graphglow.graphs.dataset_info import DatasetInfo
from graphglow.graphs.facebook100 import FACEBOOK100
from graphglow.graphs.files import ACCEPTED, read_graph_file
from graphglow.graphs.planetoid import PLANETOID
from graphglow.graphs.split import apply_split_file
from graphglow.graphs.synthetic import SYNTHETIC
from graphglow.graphs.tables import TABLES

DATASETS: dict[str, DatasetInfo] = {
    info.name: info for info in (*PLANETOID, *FACEBOOK100, *TABLES, *SYNTHETIC)
}
"""Every known name (lower case) and what is known about it."""


def load_graph(
    source: "str | Path | Data | Any",
    *,
    data_root: str | Path | None = None,
    split_file: str | Path | None = None,
    split_seed: int = 0,
) -> Data:
    """Load a graph from anywhere, checked and completed (see :func:`check_graph`).

    Args:
        source: A name in ``DATASETS`` (any case; it goes before a file of the same name), a path
            to a ``.pt``, ``.npz`` or ``.graphml`` file or to a folder with ``nodes.csv|parquet``
            and ``edges.csv|parquet``, a PyG ``Data``, or a NetworkX graph.
        data_root: Where the raw files of named data sets are; else ``GRAPHGLOW_DATA``, else
            ``data/`` in the working folder.
        split_file: An ``.npz`` with index arrays ``train``, ``val``, ``test``, which replaces any
            split of the graph.
        split_seed: Seed of the random 50/25/25 split where the graph has no split of its own.

    Returns:
        A new ``Data`` with ``x``, ``y``, ``edge_index``, ``train_mask``, ``val_mask``,
        ``test_mask``, ``name``, and, where the source has them, ``edge_weight``, ``node_id`` (the
        user's own ids) and ``class_names``.

    Shapes:
        x [N, D], y [N] with -1 for unlabelled, edge_index [2, E], edge_weight [E], masks [N]
    """
    data = _read(source, data_root, split_seed)
    if split_file is None:
        return check_graph(data, split_seed=split_seed)
    bare = data.clone()
    for mask in MASKS:
        bare.pop(mask, None)
    return complete_masks(apply_split_file(check_graph(bare), split_file), split_seed)


def data_folder(data_root: str | Path | None) -> Path:
    """Where raw files are: the argument, else ``GRAPHGLOW_DATA``, else ``data/``."""
    return Path(data_root or os.environ.get("GRAPHGLOW_DATA") or "data").expanduser()


def _read(source: object, data_root: str | Path | None, split_seed: int) -> Data:
    if isinstance(source, Data):
        data = source.clone()
        data.name = str(data.get("name") or "graph")
        return data
    if isinstance(source, str | Path):
        return _read_name_or_path(source, data_root, split_seed)
    networkx = sys.modules.get("networkx")  # never imported: then it is no NetworkX graph
    if networkx is not None and isinstance(source, networkx.Graph):
        from graphglow.graphs.networkx_graph import from_networkx

        return from_networkx(source, name=str(source.name or "graph"))
    raise InputError(
        "a graph must be a name, a path, a torch_geometric Data or a NetworkX graph; "
        f"got {type(source).__name__}"
    )


def _read_name_or_path(source: str | Path, data_root: str | Path | None, split_seed: int) -> Data:
    name, path = str(source).lower(), Path(source).expanduser()
    if name in DATASETS and (isinstance(source, str) or not path.exists()):
        data = DATASETS[name].read(data_folder(data_root), split_seed)
        data.name = name
        return data
    if str(source) and path.exists():
        data = read_graph_file(path)
        data.name = path.stem if path.is_file() else path.resolve().name
        return data
    near = difflib.get_close_matches(name, DATASETS, n=3, cutoff=0.5) or sorted(DATASETS)
    raise InputError(
        f"a graph must be a known name (nearest: {', '.join(near)}) or an existing path "
        f"({ACCEPTED}); got {str(source)!r}"
    )
