"""Read one rank's shard of a folder that ``graphglow shard`` wrote."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs import Graph
from graphglow.graphs.sparse import SparseMatrix
from graphglow.training.distributed.graph_arrays import mapped
from graphglow.training.distributed.halo import halo_matrix
from graphglow.training.distributed.ranks import Ranks
from graphglow.training.distributed.shard import Shard
from graphglow.training.distributed.shard_folder import FORMAT_VERSION, META


@dataclass(frozen=True)
class ShardsInfo:
    """What ``shards.json`` says of the whole graph."""

    name: str
    starts: tuple[int, ...]
    num_features: int
    num_classes: int
    train_count: int
    val_count: int
    test_count: int
    sparse_features: bool

    @property
    def parts(self) -> int:
        return len(self.starts) - 1


def is_shard_folder(path: str | Path) -> bool:
    """Whether :func:`read_shard` reads this, and not another loader."""
    return (Path(path) / META).is_file()


def shards_info(folder: str | Path) -> ShardsInfo:
    """Read ``shards.json``."""
    path = Path(folder) / META
    try:
        meta: Any = json.loads(path.read_text())
        version = meta["version"]
        if version != FORMAT_VERSION:
            raise InputError(f"{path} must have format version {FORMAT_VERSION}; got {version!r}")
        info = ShardsInfo(
            name=str(meta["name"]),
            starts=tuple(int(n) for n in meta["starts"]),
            num_features=int(meta["num_features"]),
            num_classes=int(meta["num_classes"]),
            train_count=int(meta["train_count"]),
            val_count=int(meta["val_count"]),
            test_count=int(meta["test_count"]),
            sparse_features=bool(meta["sparse_features"]),
        )
    except InputError:
        raise
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"a folder of shards must have a readable {META}; got {folder} ({error!r})"
        ) from error
    if info.parts < 1 or info.starts[0] != 0 or list(info.starts) != sorted(set(info.starts)):
        raise InputError(f"starts in {path} must ascend from 0; got {list(info.starts)}")
    if min(info.num_features, info.num_classes, info.train_count, info.val_count) < 1:
        raise InputError(
            f"{path} must count features, classes, training and validation nodes from 1; got fewer"
        )
    return info


def read_shard(folder: str | Path, ranks: Ranks) -> Shard:
    """Read this rank's part onto its device; all ranks call this together."""
    folder, info = Path(folder), shards_info(folder)
    if info.parts != ranks.size:
        raise InputError(
            f"a folder of shards must have one part per rank ({ranks.size}); "
            f"got {info.parts} parts in {folder}"
        )
    path = folder / f"part-{ranks.rank}"
    size = info.starts[ranks.rank + 1] - info.starts[ranks.rank]

    def integers(name: str, low: int, high: int) -> Tensor:
        array = vector(path / f"{name}.npy", "iu")
        if len(array) != size:
            raise InputError(f"{path} must hold {size} nodes, as {META} says; got {len(array)}")
        return torch.from_numpy(within_bounds(array, low, high, path / f"{name}.npy"))

    nodes = integers("nodes", 0, info.starts[-1] - 1).to(ranks.device)
    split = integers("split", 0, 3).to(ranks.device)
    y = integers("y", -1, info.num_classes - 1).to(ranks.device)
    crow, col, values = sparse_rows(path, "", size, info.starts[-1])
    graph = Graph(
        name=info.name,
        x=_features(path, info, size, ranks.device),
        adj=halo_matrix(crow, col, values, np.array(info.starts), ranks),
        y=y,
        train=(split == 1).nonzero()[:, 0],
        val=(split == 2).nonzero()[:, 0],
        test=(split == 3).nonzero()[:, 0],
        num_classes=info.num_classes,
    )
    return Shard(graph, nodes, info.starts[-1], info.train_count, info.val_count, info.test_count)


def _features(
    path: Path, info: ShardsInfo, size: int, device: torch.device
) -> SparseMatrix | Tensor:
    shape = (size, info.num_features)
    if info.sparse_features:
        crow, col, values = sparse_rows(path, "x_", size, info.num_features)
        return SparseMatrix.from_scipy(sp.csr_array((values, col, crow), shape=shape)).to(device)
    x = mapped(path / "x.npy")
    if x.shape != shape or x.dtype != np.float32 or not np.isfinite(x).all():
        raise InputError(f"{path} must hold finite features {shape}; got {x.dtype} {x.shape}")
    return torch.from_numpy(np.array(x)).to(device)


def sparse_rows(
    path: Path, prefix: str, rows: int, columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three arrays of a CSR matrix, checked: whoever multiplies by it trusts them."""
    crow, col = (vector(path / f"{prefix}{name}.npy", "iu") for name in ("crow", "col"))
    values = vector(path / f"{prefix}values.npy", "f")
    bounded = len(crow) == rows + 1 and int(crow[0]) == 0 and int(crow[-1]) == len(col)
    if not bounded or (np.diff(crow.astype(np.int64)) < 0).any() or len(col) != len(values):
        raise InputError(
            f"{path} must hold {rows} rows of entries that follow each other; got others in "
            f"{prefix}crow.npy"
        )
    if not np.isfinite(values).all():
        raise InputError(f"{path} must hold finite numbers; got others in {prefix}values.npy")
    return crow, within_bounds(col, 0, columns - 1, path / f"{prefix}col.npy"), values


def vector(path: Path, kinds: str) -> np.ndarray:
    """An array [n] of one of these kinds of numbers, in memory."""
    array = mapped(path)
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise InputError(f"{path} must be numbers [n]; got {array.dtype} {array.shape}")
    return np.array(array)


def within_bounds(array: np.ndarray, low: int, high: int, path: Path) -> np.ndarray:
    """``array``, if all of it lies there."""
    if len(array) and (int(array.min()) < low or int(array.max()) > high):
        raise InputError(f"{path} must lie in [{low}, {high}]; got others")
    return array
