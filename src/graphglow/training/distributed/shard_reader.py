"""Read one rank's shard of a folder that ``graphglow shard`` wrote.

Nothing is believed that the arrays can contradict: a checksum tells damage and mixed-up parts, but
anybody can make one.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs import Graph
from graphglow.graphs.files import SHARDS, own_path
from graphglow.ops.sparse import SparseMatrix
from graphglow.training.distributed.agreement import together
from graphglow.training.distributed.graph_arrays import Array, blocks, file_checksum, mapped
from graphglow.training.distributed.halo import halo_matrix
from graphglow.training.distributed.ranks import Ranks
from graphglow.training.distributed.shard import (
    AGAIN,
    PartInfo,
    Shard,
    ShardsInfo,
    digest,
    read_facts,
    shards_info,
)
from graphglow.training.distributed.shard_folder import PART


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
        nodes = torch.from_numpy(_nodes(part, info.num_nodes)).to(ranks.device)
        y, split = _labels(part)
        crow, col, values = _sparse_rows(part, "", info.num_nodes, part.said.entries)
        if len(values) and not 0 <= float(values.min()) <= float(values.max()) <= 1:
            raise InputError(f"{part.path}/values.npy must lie in [0, 1]; got others")
        x = _features(part, info, ranks.device)
    _check_each_node_once(nodes, info.num_nodes, folder, ranks)
    adj = halo_matrix(crow, col, values, np.array(info.starts), ranks)
    part.must_hold("nodes of other parts that it needs", part.said.halo, adj.halo.size)
    train, val, test = (
        torch.from_numpy(np.flatnonzero(split == number)).to(ranks.device) for number in (1, 2, 3)
    )
    graph = Graph(
        name=info.name,
        x=x,
        adj=adj,
        y=torch.from_numpy(y).to(ranks.device),
        train=train,
        val=val,
        test=test,
        num_classes=info.num_classes,
    )
    counts = info.num_nodes, info.train_count, info.val_count, info.test_count
    return Shard(graph, nodes, *counts)


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

    def array(self, name: str, dtype: type, *shape: int) -> Array:
        """An array of the part, in memory; refused unless it is as it was written."""
        path = self.path / f"{name}.npy"
        array = mapped(path)
        if file_checksum(path) != self.sums.get(path.name):
            raise _damaged(path)
        if array.shape != shape or array.dtype != dtype:
            raise InputError(
                f"{path} must be {np.dtype(dtype)} {shape}; got {array.dtype} {array.shape}"
            )
        return np.array(array, order="C")

    def must_hold(self, what: str, said: int, found: int) -> None:
        """Raise unless ``shards.json`` counts right."""
        if said != found:
            raise InputError(f"{self.path} must hold {said} {what}, as {SHARDS} says; got {found}")

    def within(self, name: str, array: Array, low: int, high: int) -> Array:
        """``array``, if all of it lies there."""
        if len(array) and not low <= int(array.min()) <= int(array.max()) <= high:
            raise InputError(f"{self.path}/{name}.npy must lie in [{low}, {high}]; got others")
        return array


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{path} must be as graphglow shard wrote it; got a file that was damaged, changed or "
        f"taken from elsewhere (its checksum is wrong; {AGAIN})"
    )


def _nodes(part: _Part, num_nodes: int) -> Array:
    """The numbers of the own nodes."""
    nodes = part.array("nodes", np.int64, part.said.nodes)
    if (np.diff(nodes) <= 0).any():
        raise InputError(f"{part.path}/nodes.npy must ascend; got others")
    return part.within("nodes", nodes, 0, num_nodes - 1)


def _check_each_node_once(nodes: Tensor, num_nodes: int, folder: Path, ranks: Ranks) -> None:
    """Raise unless sums of the numbers, and of their squares, over all ranks are right."""
    sums = ranks.total(torch.stack([nodes.sum(), (nodes * nodes).sum()]))
    n = num_nodes
    expected = n * (n - 1) // 2, (n - 1) * n * (2 * n - 1) // 6
    if any((a - b) % 2**64 for a, b in zip(sums.tolist(), expected, strict=True)):
        raise InputError(f"the parts in {folder} must hold each of {n} nodes once; got others")


def _labels(part: _Part) -> tuple[Array, Array]:
    """Classes of the own nodes, and to which part of the split they belong."""
    said = part.said
    y = part.within("y", part.array("y", np.int64, said.nodes), -1, said.classes - 1)
    split = part.within("split", part.array("split", np.int8, said.nodes), 0, 3)
    part.must_hold("classes", said.classes, int(y.max()) + 1)
    kinds = (("training", said.train), ("validation", said.val), ("test", said.test))
    for number, (what, count) in enumerate(kinds, start=1):
        part.must_hold(f"{what} nodes", count, int((split == number).sum()))
    if (y[split > 0] < 0).any():
        raise InputError(f"nodes of the split in {part.path} must have a label; got -1 in y.npy")
    return y, split


def _features(part: _Part, info: ShardsInfo, device: torch.device) -> SparseMatrix | Tensor:
    shape = (part.said.nodes, info.num_features)
    if info.sparse_features:
        crow, col, values = _sparse_rows(part, "x_", info.num_features, None)
        return SparseMatrix.from_scipy(sp.csr_array((values, col, crow), shape=shape)).to(device)
    x = part.array("x", np.float32, *shape)
    _check_finite(x, part.path / "x.npy")
    return torch.from_numpy(x).to(device)


def _sparse_rows(
    part: _Part, prefix: str, columns: int, entries: int | None
) -> tuple[Array, Array, Array]:
    """The three arrays of a CSR matrix, checked: whoever multiplies by it trusts them."""
    crow = part.array(f"{prefix}crow", np.int64, part.said.nodes + 1)
    if int(crow[0]) != 0 or (np.diff(crow) < 0).any():
        raise InputError(f"{part.path}/{prefix}crow.npy must ascend from 0; got others")
    if entries is not None:
        part.must_hold("entries", entries, int(crow[-1]))
    col = part.array(f"{prefix}col", np.int64, int(crow[-1]))
    values = part.array(f"{prefix}values", np.float32, int(crow[-1]))
    _check_finite(values, part.path / f"{prefix}values.npy")
    return crow, part.within(f"{prefix}col", col, 0, columns - 1), values


def _check_finite(array: Array, path: Path) -> None:
    if not all(bool(np.isfinite(block).all()) for block in blocks(array)):
        raise InputError(f"{path} must be finite; got NaN or infinity")
