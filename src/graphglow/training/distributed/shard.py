"""One rank's share of a graph: what ``shards.json`` says of all of them, and how one is read.

Nothing is believed that the arrays can contradict: a checksum tells damage and mixed-up parts, but
anybody can make one.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs import Graph
from graphglow.graphs.files import SHARDS, holds, own_path
from graphglow.ops.sparse import SparseMatrix
from graphglow.storage import existing_file
from graphglow.training.distributed.agreement import together
from graphglow.training.distributed.graph_arrays import (
    Array,
    check_finite,
    check_within,
    file_checksum,
    mapped,
)
from graphglow.training.distributed.ranks import Ranks, halo_matrix

FORMAT_VERSION = 2
"""Version 1 had no checksums."""
LARGEST_COUNT = 2**48
"""Sums of such counts are still exact."""
PART = "part.json"
AGAIN = "make them again with graphglow shard"


@dataclass(frozen=True, eq=False)
class Shard:
    """The nodes of one rank, as a :class:`Graph` whose adjacency is a ``HaloMatrix``.

    Shapes:
        nodes [N_r] the numbers of its nodes in the whole graph, ascending;
        graph.train, graph.val, graph.test: rows of the shard
    """

    graph: Graph
    nodes: Tensor
    num_nodes: int
    """N, of the whole graph."""
    train_count: int
    """Training nodes of the whole graph."""
    val_count: int
    test_count: int


@dataclass(frozen=True, kw_only=True)
class PartInfo:
    """What ``shards.json`` says of one part; the rank that reads it compares."""

    nodes: int
    entries: int
    """Of its rows of the adjacency."""
    halo: int
    """Nodes of other parts that these rows name."""
    train: int
    val: int
    test: int
    classes: int
    """The highest class of its nodes, and 1."""
    sha256: str
    """Of the checksums in its ``part.json``."""


@dataclass(frozen=True, kw_only=True)
class ShardsInfo:
    """What ``shards.json`` says of the whole graph."""

    identity: str
    """SHA-256 of all the rest: two folders that have it in common hold the same parts."""
    name: str
    num_features: int
    sparse_features: bool
    parts: tuple[PartInfo, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """Part p has the nodes ``starts[p] .. starts[p + 1] - 1`` in the order of the parts."""
        return tuple(accumulate((part.nodes for part in self.parts), initial=0))

    @property
    def num_nodes(self) -> int:
        return self.starts[-1]

    @property
    def num_classes(self) -> int:
        return max(part.classes for part in self.parts)

    @property
    def split_counts(self) -> tuple[int, int, int]:
        """Training, validation and test nodes."""
        train, val, test = (
            sum(getattr(part, name) for part in self.parts) for name in ("train", "val", "test")
        )
        return train, val, test


def is_shard_folder(path: str | Path) -> bool:
    """Whether :func:`read_shard` reads this, and not another loader."""
    return holds(path, SHARDS)


def shards_info(folder: str | Path) -> ShardsInfo:
    """Read ``shards.json``; what it says fits together, and is what was written."""
    path = own_path(folder) / SHARDS
    meta = read_facts(path)
    if meta.get("version") != FORMAT_VERSION:
        raise InputError(
            f"shards must have format version {FORMAT_VERSION}; "
            f"got {meta.get('version')!r} in {path} ({AGAIN})"
        )
    identity = meta.pop("identity", None)
    if identity != digest(meta):
        raise _damaged(path)
    try:
        info = ShardsInfo(
            identity=str(identity),
            name=str(meta["name"]),
            num_features=meta["num_features"],
            sparse_features=bool(meta["sparse_features"]),
            parts=tuple(PartInfo(**part) for part in meta["parts"]),
        )
    except (LookupError, TypeError) as error:
        raise InputError(f"{path} must describe the parts of a graph; got other facts") from error
    names = [field.name for field in fields(PartInfo) if field.name != "sha256"]
    counts = [getattr(part, name) for part in info.parts for name in names]
    for count in (info.num_features, *counts):
        if type(count) is not int or not 0 <= count <= LARGEST_COUNT:
            raise InputError(
                f"counts in {path} must be whole numbers from 0 to {LARGEST_COUNT}; got {count!r}"
            )
    least = min((part.nodes for part in info.parts), default=0)
    if min(least, info.num_features, *info.split_counts[:2]) < 1:
        raise InputError(
            f"{path} must count features, training and validation nodes, and nodes of each part "
            "from 1; got fewer"
        )
    if not 2 <= info.num_classes <= info.num_nodes:
        raise InputError(
            f"{path} must have from 2 classes to as many as nodes ({info.num_nodes}); "
            f"got {info.num_classes}"
        )
    return info


def read_facts(path: Path) -> dict[str, Any]:
    """A JSON object that is in a file of a folder of shards."""
    existing_file(path, f"{path.name} of a folder of shards")
    try:
        facts: Any = json.loads(path.read_bytes())
        if not isinstance(facts, dict):
            raise ValueError(f"it is a {type(facts).__name__}")
        digest(facts)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} must be a JSON object; got another file ({error})") from error
    return facts


def digest(facts: Any) -> str:
    """SHA-256 of JSON facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{path} must be as graphglow shard wrote it; got a file that was damaged, changed or "
        f"taken from elsewhere (its checksum is wrong; {AGAIN})"
    )


def read_shard(folder: str | Path, ranks: Ranks) -> Shard:
    """Read this rank's part onto its device; all ranks call this together."""
    folder = own_path(folder)
    with together(ranks):
        info = shards_info(folder)
        if len(info.parts) != ranks.size:
            raise InputError(
                f"a folder of shards must have one part per rank ({ranks.size}); "
                f"got {len(info.parts)} parts in {folder}"
            )
        part = _Part.of(folder, info, ranks.rank)
        own = part.array("nodes", np.int64, part.said.nodes, within=(0, info.num_nodes - 1))
        if (np.diff(own) <= 0).any():
            raise InputError(f"{part.path}/nodes.npy must ascend; got others")
        nodes = torch.from_numpy(own).to(ranks.device)
        y, split = _labels(part)
        crow, col, values = _sparse_rows(part, "", info.num_nodes)
        part.must_hold("entries", part.said.entries, len(col))
        check_within(values, f"{part.path}/values.npy", 0, 1)
        x = _features(part, info, ranks.device)
    _check_each_node_once(nodes, info.num_nodes, folder, ranks)
    adj = halo_matrix(crow, col, values, np.array(info.starts), ranks)
    part.must_hold("nodes of other parts that it needs", part.said.halo, adj.halo.size)
    train, val, test = (np.flatnonzero(split == number) for number in (1, 2, 3))
    rows = [torch.from_numpy(array).to(ranks.device) for array in (y, train, val, test)]
    graph = Graph(info.name, x, adj, rows[0], rows[1], rows[2], rows[3], info.num_classes)
    return Shard(graph, nodes, info.num_nodes, *info.split_counts)


@dataclass(frozen=True)
class _Part:
    """A part's folder, what ``shards.json`` says of it, and the checksums of its arrays."""

    path: Path
    said: PartInfo
    sums: dict[str, str]

    @classmethod
    def of(cls, folder: Path, info: ShardsInfo, number: int) -> "_Part":
        path, said = folder / f"part-{number}", info.parts[number]
        facts = read_facts(path / PART)
        if facts.get("graph") != info.identity:
            raise InputError(
                f"{path} must belong to the {SHARDS} beside it; got a part of another graph"
            )
        if facts.get("part") != number:
            raise InputError(f"{path} must be part {number}; got part {facts.get('part')!r}")
        sums = facts.get("sha256")
        if not isinstance(sums, dict) or digest(sums) != said.sha256:
            raise _damaged(path / PART)
        return cls(path, said, sums)

    def array(
        self, name: str, dtype: type, *shape: int, within: tuple[int, int] | None = None
    ) -> Array:
        """An array of the part, in memory; refused unless it is as it was written, and in range."""
        path = self.path / f"{name}.npy"
        array = mapped(path)
        if file_checksum(path) != self.sums.get(path.name):
            raise _damaged(path)
        if array.shape != shape or array.dtype != dtype:
            raise InputError(
                f"{path} must be {np.dtype(dtype)} {shape}; got {array.dtype} {array.shape}"
            )
        if array.dtype.kind == "f":
            check_finite(array, path)
        if within is not None:
            check_within(array, str(path), *within)
        return np.array(array, order="C")

    def must_hold(self, what: str, said: int, found: int) -> None:
        """Raise unless ``shards.json`` counts right."""
        if said != found:
            raise InputError(f"{self.path} must hold {said} {what}, as {SHARDS} says; got {found}")


def _check_each_node_once(nodes: Tensor, num_nodes: int, folder: Path, ranks: Ranks) -> None:
    """Raise unless sums of the numbers, and of their squares, over all ranks are right."""
    sums, n = ranks.total(torch.stack([nodes.sum(), (nodes * nodes).sum()])), num_nodes
    expected = n * (n - 1) // 2, (n - 1) * n * (2 * n - 1) // 6
    if any((a - b) % 2**64 for a, b in zip(sums.tolist(), expected, strict=True)):
        raise InputError(f"the parts in {folder} must hold each of {n} nodes once; got others")


def _labels(part: _Part) -> tuple[Array, Array]:
    """Classes of the own nodes, and to which part of the split they belong."""
    said = part.said
    y = part.array("y", np.int64, said.nodes, within=(-1, said.classes - 1))
    split = part.array("split", np.int8, said.nodes, within=(0, 3))
    part.must_hold("classes", said.classes, int(y.max()) + 1)
    part.must_hold("training nodes", said.train, int((split == 1).sum()))
    part.must_hold("validation nodes", said.val, int((split == 2).sum()))
    part.must_hold("test nodes", said.test, int((split == 3).sum()))
    if (y[split > 0] < 0).any():
        raise InputError(f"nodes of the split in {part.path} must have a label; got -1 in y.npy")
    return y, split


def _features(part: _Part, info: ShardsInfo, device: torch.device) -> SparseMatrix | Tensor:
    shape = (part.said.nodes, info.num_features)
    if not info.sparse_features:
        return torch.from_numpy(part.array("x", np.float32, *shape)).to(device)
    crow, col, values = _sparse_rows(part, "x_", info.num_features)
    return SparseMatrix.from_scipy(sp.csr_array((values, col, crow), shape=shape)).to(device)


def _sparse_rows(part: _Part, prefix: str, columns: int) -> tuple[Array, Array, Array]:
    """The three arrays of a CSR matrix, checked: whoever multiplies by it trusts them."""
    crow = part.array(f"{prefix}crow", np.int64, part.said.nodes + 1)
    if int(crow[0]) != 0 or (np.diff(crow) < 0).any():
        raise InputError(f"{part.path}/{prefix}crow.npy must ascend from 0; got others")
    entries = int(crow[-1])
    col = part.array(f"{prefix}col", np.int64, entries, within=(0, columns - 1))
    return crow, col, part.array(f"{prefix}values", np.float32, entries)
