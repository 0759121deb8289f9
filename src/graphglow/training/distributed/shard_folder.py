"""A graph as a folder of shards: written a block at a time, read by each rank for itself.

    FOLDER/shards.json       counts of each part, and an identity: SHA-256 of all of them
    FOLDER/part-0/part.json  that identity, the part's number, SHA-256 of each of its arrays
                  nodes.npy  [N_r] numbers of its nodes in the whole graph, ascending
                  crow.npy, col.npy, values.npy    its rows of the normalised adjacency
                  x.npy, or x_crow.npy, x_col.npy, x_values.npy    its features, scaled
                  y.npy, split.npy    labels; 1 training, 2 validation, 3 test, 0 none

Columns count nodes in the order of the parts: those of part 0, then those of part 1, and so on.
All files are plain arrays that can be mapped; a rank opens those of its own part only.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphglow.errors import InputError
from graphglow.graphs.files import SHARDS, own_path
from graphglow.graphs.graph import DENSE_ABOVE, normalised_features
from graphglow.storage import try_lock
from graphglow.training.distributed.graph_arrays import (
    BLOCK,
    Array,
    GraphArrays,
    blocks,
    distinct,
    save_array,
)
from graphglow.training.distributed.partition import Partition, partition
from graphglow.training.distributed.shard import (
    FORMAT_VERSION,
    PART,
    ShardsInfo,
    digest,
    shards_info,
)


@dataclass
class _Part:
    """A part's folder while it is written."""

    path: Path
    counts: dict[str, int] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)

    def save(self, name: str, array: Array) -> None:
        self.save_blocks(name, [array], len(array))

    def save_blocks(self, name: str, rows: Iterable[Array], count: int) -> None:
        self.sums[f"{name}.npy"] = save_array(self.path / f"{name}.npy", rows, count)


def write_shards(
    arrays: GraphArrays, folder: str | Path, parts: int, *, method: Partition = "auto"
) -> ShardsInfo:
    """Write a graph as ``parts`` shards into a new folder; return what ``shards.json`` says.

    Beside a block of edges or features, the edges of one part and some numbers per node are in
    memory. The adjacency is that of :func:`graphglow.graphs.graph.normalised_adjacency`, the
    features those of :func:`graphglow.graphs.graph.normalised_features`. ``near`` and ``metis``
    hold all edges while they partition.
    """
    part = partition(arrays.edge_index, arrays.num_nodes, parts, method)
    with _new_folder(own_path(folder)) as path:
        sizes = np.bincount(part, minlength=parts)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        order = np.argsort(part, kind="stable")  # nodes by part, ascending within
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        written = [_Part(path / f"part-{p}") for p in range(parts)]
        for p, one in enumerate(written):
            one.path.mkdir()
            _write_nodes(arrays, order[starts[p] : starts[p + 1]], one)
        _write_adjacency(arrays, part, place, starts, written)
        filled = sum(int(np.count_nonzero(block)) for block in blocks(arrays.x))
        dense = filled > DENSE_ABOVE * arrays.x.size
        for p, one in enumerate(written):
            _write_features(arrays.x, order[starts[p] : starts[p + 1]], one, dense)
        meta = {
            "version": FORMAT_VERSION,
            "name": arrays.name,
            "num_features": int(arrays.x.shape[1]),
            "sparse_features": not dense,
        }
        _sign(path, meta, written)
        return shards_info(path)


def _sign(path: Path, meta: dict[str, Any], written: list[_Part]) -> None:
    """Bind the parts to each other: ``shards.json`` has their checksums, they have its own."""
    meta["parts"] = [one.counts | {"sha256": digest(one.sums)} for one in written]
    identity = digest(meta)
    for p, one in enumerate(written):
        facts = {"graph": identity, "part": p, "sha256": one.sums}
        (one.path / PART).write_text(json.dumps(facts))
    (path / SHARDS).write_text(json.dumps({**meta, "identity": identity}))


def _write_nodes(arrays: GraphArrays, nodes: Array, part: _Part) -> None:
    y = arrays.y[nodes].astype(np.int64, copy=False)
    masks = {name: getattr(arrays, name)[nodes] for name in ("train", "val", "test")}
    part.save("nodes", nodes)
    part.save("y", y)
    split = sum(number * mask for number, mask in enumerate(masks.values(), start=1))
    part.save("split", split.astype(np.int8))
    part.counts |= {"nodes": len(nodes), "classes": int(y.max()) + 1}
    part.counts |= {name: int(mask.sum()) for name, mask in masks.items()}


def _write_adjacency(
    arrays: GraphArrays, part: Array, place: Array, starts: Array, written: list[_Part]
) -> None:
    """Write each part's rows of D^-1/2 (A + I) D^-1/2."""
    scale = np.empty(arrays.num_nodes)  # D^-1/2 by place
    weighted = arrays.edge_weight is not None
    _sort_by_part(arrays, part, place, [one.path for one in written])
    for p, one in enumerate(written):
        size = int(starts[p + 1] - starts[p])
        row, col, weight = _merged(one.path, int(starts[p]), size, arrays.num_nodes, weighted)
        degree = np.bincount(row, weight, size)  # self-loop included
        scale[starts[p] : starts[p + 1]] = 1 / np.sqrt(degree)
        one.save("crow", np.concatenate([[0], np.cumsum(np.bincount(row, minlength=size))]))
        one.save("col", col)
        save_array(one.path / "weight.npy", [weight], len(weight))
        away = (col < starts[p]) | (col >= starts[p + 1])
        one.counts |= {"entries": len(col), "halo": len(distinct(col[away]))}
    for p, one in enumerate(written):
        crow, col = np.load(one.path / "crow.npy"), np.load(one.path / "col.npy")
        own = np.repeat(scale[starts[p] : starts[p + 1]], np.diff(crow))
        values = own * scale[col] * np.load(one.path / "weight.npy")
        one.save("values", values.astype(np.float32))
        (one.path / "weight.npy").unlink()


def _sort_by_part(arrays: GraphArrays, part: Array, place: Array, paths: list[Path]) -> None:
    """Append both directions of every edge to a file of the part that has its row."""
    weight = arrays.edge_weight
    for start in range(0, max(1, arrays.edge_index.shape[1]), BLOCK):
        block = slice(start, start + BLOCK)
        u, v = np.asarray(arrays.edge_index[:, block], dtype=np.int64)
        apart = u != v
        w = np.ones(0) if weight is None else np.asarray(weight[block], dtype=np.float64)[apart]
        u, v = u[apart], v[apart]
        for row, col in ((u, v), (v, u)):
            order = np.argsort(part[row], kind="stable")
            ends = np.searchsorted(part[row[order]], np.arange(len(paths) + 1))
            for p, path in enumerate(paths):
                mine = order[ends[p] : ends[p + 1]]
                with (path / "edges.bin").open("ab") as file:
                    file.write(np.stack([place[row[mine]], place[col[mine]]], axis=1).data)
                if weight is not None:
                    with (path / "weights.bin").open("ab") as file:
                        file.write(w[mine].data)


def _merged(
    folder: Path, start: int, size: int, num_nodes: int, weighted: bool
) -> tuple[Array, Array, Array]:
    """A part's rows: each neighbour once with its largest weight, and the node itself with 1."""
    row, col = np.fromfile(folder / "edges.bin", dtype=np.int64).reshape(-1, 2).T
    key = (row - start) * num_nodes + col
    own = np.arange(size, dtype=np.int64) * (num_nodes + 1) + start  # the diagonal
    if weighted:
        given = np.fromfile(folder / "weights.bin", dtype=np.float64)
        order = np.lexsort((-given, key))
        key, given = key[order], given[order]
        first = (np.diff(key, prepend=-1) != 0) & (given > 0)  # keys are from 0
        key, weight = key[first], given[first]
    else:
        key = distinct(key)
        weight = np.ones(len(key))
    for name in ("edges.bin", "weights.bin"):
        (folder / name).unlink(missing_ok=True)
    key, weight = np.concatenate([key, own]), np.concatenate([weight, np.ones(size)])
    order = np.argsort(key, kind="stable")
    return key[order] // num_nodes, key[order] % num_nodes, weight[order]


def _write_features(x: Array, nodes: Array, part: _Part, dense: bool) -> None:
    """The part's features, each row scaled to unit length."""
    rows = max(1, BLOCK // x.shape[1])
    blocks = (x[nodes[i : i + rows]].astype(np.float32) for i in range(0, len(nodes), rows))
    scaled = (normalised_features(torch.from_numpy(b)).to_dense().numpy() for b in blocks)
    if dense:
        part.save_blocks("x", scaled, len(nodes))
        return
    crow, col, values = [np.zeros(1, dtype=np.int64)], [], []
    for block in scaled:
        row, column = np.nonzero(block)
        crow.append(crow[-1][-1] + np.cumsum(np.bincount(row, minlength=len(block))))
        col.append(column)
        values.append(block[row, column])
    for name, arrays in (("x_crow", crow), ("x_col", col), ("x_values", values)):
        part.save(name, np.concatenate(arrays))


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A sibling that takes the name only once it is complete, and goes if it cannot be.

    A process that is killed leaves it; the next one with the same output begins by clearing it.
    """
    unfinished = path.parent / f".{path.name}.unfinished"
    try:
        if path.exists() or path.is_symlink():
            raise InputError(f"the output folder must not exist; got {path}")
        unfinished.mkdir(parents=True, exist_ok=True)
        lock = try_lock(unfinished / "lock")
        if lock is None:
            raise InputError(f"the output folder must have one writer; got {path}, which has one")
        with lock:
            try:
                for part in unfinished.glob("part-*"):
                    shutil.rmtree(part)
                yield unfinished
                (unfinished / "lock").unlink()
                unfinished.rename(path)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"the output folder must be writable; got {path} ({reason})") from error
