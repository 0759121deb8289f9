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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"a folder of shards must have a readable {META}; got {folder} ({error!r})"
        ) from error
    if info.parts < 1 or info.starts[0] != 0 or list(info.starts) != sorted(set(info.starts)):
        raise InputError(f"starts in {path} must ascend from 0; got {list(info.starts)}")
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

    def tensor(name: str) -> Tensor:
        return torch.from_numpy(np.array(mapped(path / f"{name}.npy"))).to(ranks.device)

    nodes, split, y = tensor("nodes"), tensor("split"), tensor("y")
    crow, col, values = (mapped(path / f"{name}.npy") for name in ("crow", "col", "values"))
    if not (len(nodes) == len(split) == len(y) == len(crow) - 1 == size):
        raise InputError(f"{path} must hold {size} nodes, as {META} says; got {len(nodes)}")
    if int(crow[-1]) != len(col) or len(col) != len(values):
        raise InputError(f"{path} must hold {int(crow[-1])} entries; got {len(col)} columns")
    if int(col.min()) < 0 or int(col.max()) >= info.starts[-1]:
        raise InputError(f"columns in {path} must lie in [0, {info.starts[-1] - 1}]; got others")
    graph = Graph(
        name=info.name,
        x=_features(path, info, size, ranks.device),
        adj=halo_matrix(
            np.array(crow), np.array(col), np.array(values), np.array(info.starts), ranks
        ),
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
        crow, col, values = (
            np.array(mapped(path / f"x_{name}.npy")) for name in ("crow", "col", "values")
        )
        try:
            matrix = sp.csr_array((values, col, crow), shape=shape)
        except ValueError as error:
            raise InputError(f"{path} must hold features {shape}; got others ({error})") from error
        return SparseMatrix.from_scipy(matrix).to(device)
    x = mapped(path / "x.npy")
    if x.shape != shape:
        raise InputError(f"{path} must hold features {shape}; got {x.shape}")
    return torch.from_numpy(np.array(x)).to(device)
