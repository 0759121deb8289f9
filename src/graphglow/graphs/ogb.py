"""Node data sets of the Open Graph Benchmark: ``ogb:ogbn-arxiv``, by the package ``ogb``."""

import contextlib
import difflib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.split import mask_from

PREFIX = "ogb:"
NAMES = ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M")
"""One class per node and one kind of node; the others are of another task."""
SPLITS = {"train": "train", "valid": "val", "test": "test"}


def read_ogb(source: str, root: Path) -> Data:
    """Read a data set with its official split, not yet checked; files are kept in ``root/ogb``."""
    name = source.removeprefix(PREFIX)
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
        hint = f" (nearest: {near[0]})" if near else ""
        raise InputError(f"an OGB data set must be one of {', '.join(NAMES)}{hint}; got {name!r}")
    try:
        with _quiet():
            from ogb.nodeproppred import NodePropPredDataset  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError(
            f"{source} needs the package ogb: pip install graphglow[ogb]; got no ogb here"
        ) from error
    try:
        with _quiet(), torch.serialization.safe_globals(_arrays()):
            dataset = NodePropPredDataset(name=name, root=str(root / "ogb"))
            graph, labels = dataset[0]
            split = dataset.get_idx_split()
    except (Exception, SystemExit) as error:  # no network, a damaged file, no answer to a question
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the files of {name} must be in {root / 'ogb'} (set the data root by --data-root or "
            f"GRAPHGLOW_DATA) or be downloadable; got: {line}"
        ) from error
    labels = np.asarray(labels)
    if labels.dtype.kind == "f":  # blanks of ogbn-papers100M
        labels = np.where(np.isnan(labels), -1, labels)
    data = Data(
        x=torch.from_numpy(np.asarray(graph["node_feat"])),
        y=torch.from_numpy(labels.astype(np.int64)),
        edge_index=torch.from_numpy(np.asarray(graph["edge_index"])),
    )
    for theirs, ours in SPLITS.items():
        index = np.asarray(split[theirs])
        data[f"{ours}_mask"] = mask_from(index, len(labels), f"{theirs} of {name}")
    return data


def _arrays() -> list[Any]:
    """What plain NumPy arrays in a ``.pt`` file consist of, to be read without unpickling more."""
    kinds = {type(np.dtype(code)) for code in ("f4", "f8", "i4", "i8", "?")}
    multiarray = getattr(np, "_core", None) or np.core
    return [multiarray.multiarray._reconstruct, np.ndarray, np.dtype, *kinds]


@contextlib.contextmanager
def _quiet() -> Any:
    """Without the package's progress, its question whether it may download, and its warnings."""
    out = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        warnings.simplefilter("ignore")
        yield
