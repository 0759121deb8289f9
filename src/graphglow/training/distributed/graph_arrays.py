"""A graph as plain arrays, in memory or mapped from files, so that it need not fit in memory."""

import hashlib
import io
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs import Graph, check_graph
from graphglow.graphs.check import LARGEST_WEIGHT, MASKS, complete_masks
from graphglow.graphs.files import ARRAYS, holds, one_sentence, own_path
from graphglow.ops.sparse import SparseMatrix

BLOCK = 10_000_000
"""Numbers looked at together."""
READ_BYTES = 2**22
"""Bytes of a file read together."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class GraphArrays:
    """Features, edges, labels and split of one graph, checked.

    Shapes:
        x [N, D], edge_index [2, E], edge_weight [E] or None, y [N] (-1: unlabelled),
        train, val, test [N] boolean
    """

    name: str
    x: Array
    edge_index: Array
    edge_weight: Array | None
    y: Array
    train: Array
    val: Array
    test: Array

    def __post_init__(self) -> None:
        seen = np.unique(self.y[self.train])
        if len(seen) < 2:
            raise InputError(
                f"training nodes must have at least two classes; got only {int(seen[0])}"
            )

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @classmethod
    def of_data(cls, data: Data, *, split_seed: int = 0) -> "GraphArrays":
        """The arrays of a PyG graph, checked as every graph is; nothing is copied."""
        data = check_graph(data, split_seed=split_seed)
        weight = data.get("edge_weight")
        return cls(
            str(data.get("name", "graph")),
            data.x.numpy(),
            data.edge_index.numpy(),
            None if weight is None else weight.numpy(),
            data.y.numpy(),
            *(data[name].numpy() for name in MASKS),
        )

    @classmethod
    def of_graph(cls, graph: Graph) -> "GraphArrays":
        """The arrays of a prepared graph without edge weights, as random ones are."""
        row, col = graph.entries
        upper = row < col
        masks = torch.zeros(3, graph.num_nodes, dtype=torch.bool)
        for mask, nodes in zip(masks, (graph.train, graph.val, graph.test), strict=True):
            mask[nodes.cpu()] = True
        x = graph.x.to_dense() if isinstance(graph.x, SparseMatrix) else graph.x
        edges = torch.stack([row[upper], col[upper]]).cpu().numpy()
        split = (mask.numpy() for mask in masks)
        return cls(graph.name, x.cpu().numpy(), edges, None, graph.y.cpu().numpy(), *split)

    @classmethod
    def of_folder(cls, folder: str | Path, *, split_seed: int = 0) -> "GraphArrays":
        """Map ``x.npy``, ``edge_index.npy`` and ``y.npy`` of a folder, and more where there is.

        That is ``edge_weight.npy``, and ``train_mask.npy``, ``val_mask.npy``, ``test_mask.npy``;
        without masks the labelled nodes are split at random. What is in memory as a whole are
        numbers per node: features and edges are read a block at a time.
        """
        folder = own_path(folder)
        x, edges, y = (mapped(folder / name) for name in ARRAYS)
        weight = _mapped_if_there(folder / "edge_weight.npy")
        _check(x, y, edges, weight)
        labels = torch.from_numpy(np.array(y, dtype=np.int64))
        given = {name: _mapped_if_there(folder / f"{name}.npy") for name in MASKS}
        masks = {n: torch.from_numpy(np.array(m)) for n, m in given.items() if m is not None}
        split = complete_masks(Data(y=labels, **masks), split_seed)
        train, val, test = (split[name].numpy() for name in MASKS)
        return cls(folder.resolve().name, x, edges, weight, labels.numpy(), train, val, test)


def is_array_folder(path: str | Path) -> bool:
    """Whether :meth:`GraphArrays.of_folder` reads this, and not another loader."""
    return holds(path, *ARRAYS)


def mapped(path: Path) -> Array:
    """An array file, read where and when it is looked at."""
    if not path.is_file():
        raise InputError(f"a folder with a graph must hold {path.name}; got {path.parent}")
    rule = f"{path} must be an array file (.npy); got another or a damaged one"
    with one_sentence(rule), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a header, which is a Python expression
        array: Array = np.lib.format.open_memmap(path, mode="r")  # no pickles, no archives
    return array


def save_array(path: Path, blocks: Iterable[Array], rows: int) -> str:
    """Write an array file of so many rows, some of them at a time; return its SHA-256.

    What ``np.save`` leaves to chance: bytes that a full disk does not take are an ``OSError``.
    """
    total = hashlib.sha256()
    with path.open("wb") as file:
        for number, block in enumerate(blocks):
            if number == 0:
                facts = np.lib.format.header_data_from_array_1_0(block)
                facts |= {"fortran_order": False, "shape": (rows, *block.shape[1:])}
                header = io.BytesIO()
                np.lib.format.write_array_header_1_0(header, facts)
                total.update(header.getbuffer())
                file.write(header.getbuffer())
            part = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
            total.update(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return total.hexdigest()


def file_checksum(path: Path) -> str:
    """SHA-256 of what is in a file, read a block at a time."""
    total = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(READ_BYTES):
            total.update(block)
    return total.hexdigest()


def blocks(array: Array) -> Iterator[Array]:
    """Some rows at a time, in memory."""
    rows = max(1, BLOCK // max(1, int(np.prod(array.shape[1:]))))
    return (np.asarray(array[start : start + rows]) for start in range(0, len(array), rows))


def distinct(numbers: Array) -> Array:
    """Each number once, sorted; several times as fast as ``np.unique``, which hashes first."""
    numbers = np.sort(numbers)
    once: Array = numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]
    return once


def _mapped_if_there(path: Path) -> Array | None:
    return mapped(path) if path.exists() else None


def check_finite(array: Array, what: object) -> None:
    """Raise unless all of it is finite, a block at a time."""
    if not all(bool(np.isfinite(block).all()) for block in blocks(array)):
        raise InputError(f"{what} must be finite; got NaN or infinity")


def check_within(array: Array, what: str, low: float, high: float) -> None:
    """Raise unless all of it lies in [low, high], a block at a time."""
    for block in blocks(array):
        least, most = block.min(), block.max()
        if least < low or most > high:
            got = least if least < low else most
            raise InputError(f"{what} must lie in [{low}, {high}]; got {got}")


def _check(x: Array, y: Array, edges: Array, weight: Array | None) -> None:
    """What ``check_graph`` asks of a graph in memory, of one that is not."""
    num_nodes = len(x) if x.ndim else 0
    if x.ndim != 2 or 0 in x.shape or x.dtype.kind not in "fiu":
        raise InputError(f"x must be real numbers [N, D]; got {x.dtype} {x.shape}")
    check_finite(x, "x")
    if y.shape != (num_nodes,) or y.dtype.kind not in "iu":
        raise InputError(f"y must be {num_nodes} integers, one per node; got {y.dtype} {y.shape}")
    check_within(y, "y, -1 for unlabelled nodes,", -1, num_nodes - 1)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise InputError(f"edge_index must be integers [2, E]; got {edges.dtype} {edges.shape}")
    if edges.shape[1] == 0:
        raise InputError("edge_index of a folder of arrays must have an edge; got none")
    for ends in edges:
        check_within(ends, "edge_index", 0, num_nodes - 1)
    if weight is None:
        return
    if weight.shape != edges.shape[1:] or weight.dtype.kind not in "fiu":
        raise InputError(
            f"edge_weight must be {edges.shape[1]} numbers, one per edge; "
            f"got {weight.dtype} {weight.shape}"
        )
    check_finite(weight, "edge_weight")
    check_within(weight, "edge_weight", 0, LARGEST_WEIGHT)
