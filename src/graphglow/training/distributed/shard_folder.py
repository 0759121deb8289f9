"""A graph as a folder of shards: written a block at a time, read by each rank for itself.

    FOLDER/shards.json       sizes, counts, the number of parts
    FOLDER/part-0/nodes.npy  [N_r] numbers of its nodes in the whole graph, ascending
                  crow.npy, col.npy, values.npy    its rows of the normalised adjacency
                  x.npy, or x_crow.npy, x_col.npy, x_values.npy    its features, scaled
                  y.npy, split.npy    labels; 1 training, 2 validation, 3 test, 0 none

Columns count nodes in the order of the parts: those of part 0, then those of part 1, and so on.
All files are plain arrays that can be mapped; a rank opens those of its own part only.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs.graph import DENSE_ABOVE, normalised_features
from graphglow.graphs.sparse import SparseMatrix
from graphglow.training.distributed.graph_arrays import Array, GraphArrays, blocks, distinct
from graphglow.training.distributed.partition import BLOCK, Partition, partition

FORMAT_VERSION = 1
META = "shards.json"


def write_shards(
    arrays: GraphArrays, folder: str | Path, parts: int, *, method: Partition = "auto"
) -> dict[str, Any]:
    """Write a graph as ``parts`` shards into a new folder; return what ``shards.json`` says.

    Beside a block of edges or features, the edges of one part and some numbers per node are in
    memory. The adjacency is that of :func:`graphglow.graphs.adjacency.normalised_adjacency`, the
    features those of :func:`graphglow.graphs.graph.normalised_features`. ``near`` and ``metis``
    hold all edges while they partition.
    """
    part = partition(arrays.edge_index, arrays.num_nodes, parts, method)
    with _new_folder(Path(folder)) as path:
        sizes = np.bincount(part, minlength=parts)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        order = np.argsort(part, kind="stable")  # nodes by part, ascending within
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        for p in range(parts):
            (path / f"part-{p}").mkdir()
            _write_nodes(arrays, order[starts[p] : starts[p + 1]], path / f"part-{p}")
        entries, halo = _write_adjacency(arrays, part, place, starts, path)
        dense = _mostly_non_zero(arrays.x)
        for p in range(parts):
            _write_features(arrays.x, order[starts[p] : starts[p + 1]], path / f"part-{p}", dense)
        meta = {
            "version": FORMAT_VERSION,
            "name": arrays.name,
            "starts": starts.tolist(),
            "entries": entries,
            "halo": halo,
            "num_features": int(arrays.x.shape[1]),
            "num_classes": arrays.num_classes,
            "train_count": int(arrays.train.sum()),
            "val_count": int(arrays.val.sum()),
            "test_count": int(arrays.test.sum()),
            "sparse_features": not dense,
        }
        (path / META).write_text(json.dumps(meta))
    return meta


def _write_nodes(arrays: GraphArrays, nodes: Array, path: Path) -> None:
    np.save(path / "nodes.npy", nodes)
    np.save(path / "y.npy", arrays.y[nodes])
    split = arrays.train[nodes] + 2 * arrays.val[nodes] + 3 * arrays.test[nodes]
    np.save(path / "split.npy", split.astype(np.int8))


def _write_adjacency(
    arrays: GraphArrays, part: Array, place: Array, starts: Array, path: Path
) -> tuple[list[int], list[int]]:
    """Write each part's rows of D^-1/2 (A + I) D^-1/2.

    Return how many entries each has, and how many nodes of other parts they name.
    """
    scale = np.empty(arrays.num_nodes)  # D^-1/2 by place
    weighted = arrays.edge_weight is not None
    _sort_by_part(arrays, part, place, path)
    entries, halo = [], []
    for p in range(len(starts) - 1):
        folder, size = path / f"part-{p}", int(starts[p + 1] - starts[p])
        row, col, weight = _merged(folder, int(starts[p]), size, arrays.num_nodes, weighted)
        degree = np.bincount(row, weight, size)  # self-loop included
        scale[starts[p] : starts[p + 1]] = 1 / np.sqrt(degree)
        crow = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=size))])
        np.save(folder / "crow.npy", crow)
        np.save(folder / "col.npy", col)
        np.save(folder / "weight.npy", weight)
        entries.append(len(col))
        away = (col < starts[p]) | (col >= starts[p + 1])
        halo.append(len(distinct(col[away])))
    for p in range(len(starts) - 1):
        folder = path / f"part-{p}"
        crow, col = np.load(folder / "crow.npy"), np.load(folder / "col.npy")
        own = np.repeat(scale[starts[p] : starts[p + 1]], np.diff(crow))
        values = own * scale[col] * np.load(folder / "weight.npy")
        np.save(folder / "values.npy", values.astype(np.float32))
        (folder / "weight.npy").unlink()
    return entries, halo


def _sort_by_part(arrays: GraphArrays, part: Array, place: Array, path: Path) -> None:
    """Append both directions of every edge to a file of the part that has its row."""
    parts = int(part.max()) + 1
    weight = arrays.edge_weight
    for start in range(0, arrays.edge_index.shape[1], BLOCK):
        block = slice(start, start + BLOCK)
        u, v = np.asarray(arrays.edge_index[:, block], dtype=np.int64)
        apart = u != v
        w = np.ones(0) if weight is None else np.asarray(weight[block], dtype=np.float64)[apart]
        u, v = u[apart], v[apart]
        for row, col in ((u, v), (v, u)):
            order = np.argsort(part[row], kind="stable")
            ends = np.searchsorted(part[row[order]], np.arange(parts + 1))
            for p in range(parts):
                mine = order[ends[p] : ends[p + 1]]
                with (path / f"part-{p}" / "edges.bin").open("ab") as file:
                    np.stack([place[row[mine]], place[col[mine]]], axis=1).tofile(file)
                if weight is not None:
                    with (path / f"part-{p}" / "weights.bin").open("ab") as file:
                        w[mine].tofile(file)


def _merged(
    folder: Path, start: int, size: int, num_nodes: int, weighted: bool
) -> tuple[Array, Array, Array]:
    """A part's rows: each neighbour once with its largest weight, and the node itself with 1."""
    file = folder / "edges.bin"
    pairs = np.fromfile(file, dtype=np.int64).reshape(-1, 2) if file.exists() else np.empty((0, 2))
    key = (pairs[:, 0].astype(np.int64) - start) * num_nodes + pairs[:, 1].astype(np.int64)
    own = np.arange(size, dtype=np.int64) * (num_nodes + 1) + start  # the diagonal
    if weighted and file.exists():
        given = np.fromfile(folder / "weights.bin", dtype=np.float64)
        order = np.lexsort((-given, key))
        key, given = key[order], given[order]
        first = np.ones(len(key), dtype=bool)
        first[1:] = key[1:] != key[:-1]
        first &= given > 0
        key, weight = key[first], given[first]
    else:
        key = distinct(key)
        weight = np.ones(len(key))
    for name in ("edges.bin", "weights.bin"):
        (folder / name).unlink(missing_ok=True)
    key, weight = np.concatenate([key, own]), np.concatenate([weight, np.ones(size)])
    order = np.argsort(key, kind="stable")
    key, weight = key[order], weight[order]
    return key // num_nodes, key % num_nodes, weight


def _mostly_non_zero(x: Array) -> bool:
    return sum(int(np.count_nonzero(block)) for block in blocks(x)) > DENSE_ABOVE * x.size


def _write_features(x: Array, nodes: Array, path: Path, dense: bool) -> None:
    """The part's features, each row scaled to unit length."""
    rows = max(1, BLOCK // x.shape[1])
    whole = np.lib.format.open_memmap(
        path / "x.npy", mode="w+", dtype=np.float32, shape=(len(nodes), x.shape[1])
    ) if dense else None  # fmt: skip
    crow, col, values = [np.zeros(1, dtype=np.int64)], [], []
    for start in range(0, len(nodes), rows):
        block = _unit_rows(x[nodes[start : start + rows]])
        if whole is not None:
            whole[start : start + rows] = block
            continue
        row, column = np.nonzero(block)
        crow.append(crow[-1][-1] + np.cumsum(np.bincount(row, minlength=len(block))))
        col.append(column)
        values.append(block[row, column])
    if whole is not None:
        whole.flush()
        return
    for name, arrays in (("x_crow", crow), ("x_col", col), ("x_values", values)):
        np.save(path / f"{name}.npy", np.concatenate(arrays))


def _unit_rows(block: Array) -> Array:
    scaled: SparseMatrix | Tensor = normalised_features(
        torch.from_numpy(np.array(block, dtype=np.float32))
    )
    array: Array = scaled.to_dense().numpy()
    return array


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A temporary sibling that takes the name only once it is complete."""
    if path.exists():
        raise InputError(f"the output folder must not exist; got {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise InputError(
            f"the output folder must be writable; got {path} ({error.strerror})"
        ) from error
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        temporary.rename(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"the output folder must be writable; got {path} ({reason})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
