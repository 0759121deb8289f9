"""Train, validation and test nodes: seeded splits and split files."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.npz import read_npz_arrays


def random_split(y: Tensor, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the labelled nodes at random into 50 / 25 / 25 % (Appendix B of the paper).

    Shapes:
        y [N], -1 for unlabelled  ->  train, val, test: sorted node indices
    """
    labelled = (y >= 0).nonzero()[:, 0]
    order = labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))]
    n_train, n_val = max(1, len(order) // 2), max(1, len(order) // 4)
    train, val, test = torch.tensor_split(order, [n_train, n_train + n_val])
    return train.sort()[0], val.sort()[0], test.sort()[0]


def few_label_split(y: Tensor, *, per_class: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the labelled nodes into a few of each class, a quarter of the rest, and the rest.

    Shapes:
        y [N], -1 for unlabelled  ->  train, val, test: sorted node indices
    """
    if per_class < 1:
        raise InputError(f"per_class must be >= 1; got {per_class}")
    labelled = (y >= 0).nonzero()[:, 0]
    order = labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))]
    classes = torch.nn.functional.one_hot(y[order])  # [n, C]
    rank = classes.cumsum(0)[torch.arange(len(order)), y[order]]  # 1, 2, .. within each class
    train, rest = order[rank <= per_class], order[rank > per_class]
    val, test = torch.tensor_split(rest, [len(rest) // 4])
    return train.sort()[0], val.sort()[0], test.sort()[0]


def apply_split_file(data: Data, path: str | Path) -> Data:
    """Return a copy of ``data`` with the masks of a split file.

    A split file is ``.npz`` with index arrays ``train``, ``val`` and ``test``.
    """
    arrays = read_npz_arrays(path, "the split file")
    data = data.clone()
    for name in ("train", "val", "test"):
        if name not in arrays:
            raise InputError(
                f"{path} must hold the arrays train, val and test; "
                f"got {', '.join(sorted(arrays)) or 'nothing'}"
            )
        data[f"{name}_mask"] = mask_from(arrays[name], int(data.num_nodes), f"{name} of {path}")
    return data


def mask_from(array: np.ndarray, num_nodes: int, what: str) -> Tensor:
    """Turn node indices or a boolean mask into a boolean mask [N]; ``what`` names it in errors."""
    if array.ndim != 1:
        raise InputError(f"{what} must be one-dimensional; got shape {array.shape}")
    if array.dtype == np.bool_:
        if len(array) != num_nodes:
            raise InputError(f"{what} must have one entry per node ({num_nodes}); got {len(array)}")
        return torch.from_numpy(array.copy())
    if not np.issubdtype(array.dtype, np.integer) and len(array):
        raise InputError(f"{what} must hold node indices or booleans; got {array.dtype}")
    if len(array) == num_nodes > 2 and set(np.unique(array)) <= {0, 1}:
        raise InputError(f"{what} must hold node indices or booleans; got a mask of 0 and 1")
    index = torch.from_numpy(array.astype(np.int64))
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= num_nodes):
        worst = int(index.min()) if int(index.min()) < 0 else int(index.max())
        raise InputError(f"{what} must lie in [0, {num_nodes - 1}]; got {worst}")
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[index] = True
    return mask
