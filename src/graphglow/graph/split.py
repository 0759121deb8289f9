"""Train, validation and test nodes: seeded splits, and masks."""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from graphglow.checks import at_least
from graphglow.errors import InputError

SPLITS = ("train", "val", "test")
MASKS = ("train_mask", "val_mask", "test_mask")


def random_split(y: Tensor, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the labelled nodes at random into 50 / 25 / 25 % (Appendix B of the paper).

    Shapes:
        y [N], -1 for unlabelled  ->  train, val, test: sorted node indices
    """
    return split_in_parts(_shuffled(y, seed))


def stratified_split(y: Tensor, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the labelled nodes of each class at random into 50 / 25 / 25 %, as nearly as can be.

    Training has a node of every class if it has at least as many nodes as there are classes; a
    class of two has its other node in validation or test.
    """
    order = _shuffled(y, seed)
    rank, count = _rank_in_class(y[order])
    share = (rank + 0.5) / count  # below 1 / 2 for half of each class
    share[rank == 0] = 0  # one of each class comes first
    return split_in_parts(order[share.argsort(stable=True)])


def few_label_split(y: Tensor, *, per_class: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the labelled nodes into a few of each class, a quarter of the rest, and the rest."""
    at_least("per_class", per_class, 1)
    order = _shuffled(y, seed)
    rank, _ = _rank_in_class(y[order])
    train, rest = order[rank < per_class], order[rank >= per_class]
    val, test = torch.tensor_split(rest, [len(rest) // 4])
    return train.sort()[0], val.sort()[0], test.sort()[0]


def _shuffled(y: Tensor, seed: int) -> Tensor:
    """The labelled nodes, in random order."""
    labelled, seed = (y >= 0).nonzero()[:, 0], at_least("the seed of a split", seed, 0)
    return labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))]


def _rank_in_class(y: Tensor) -> tuple[Tensor, Tensor]:
    """0, 1, .. within each class, and the size of the class: [n], [n]."""
    _, code, count = torch.unique(y, return_inverse=True, return_counts=True)
    first = count.cumsum(0) - count  # where each class begins, sorted by class
    rank = torch.empty_like(code)
    rank[code.argsort(stable=True)] = torch.arange(len(y)) - first.repeat_interleave(count)
    return rank, count[code]


def split_in_parts(order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first half, the next quarter and the rest, each sorted."""
    n_train, n_val = max(1, len(order) // 2), max(1, len(order) // 4)
    train, val, test = torch.tensor_split(order, [n_train, n_train + n_val])
    return train.sort()[0], val.sort()[0], test.sort()[0]


def with_random_split(data: Data, seed: int, *, by_class: bool = False) -> Data:
    """Set the masks of a random split where there is no mask yet, and ``data.split``."""
    if not any(data.get(name) is not None for name in MASKS):
        draw = stratified_split if by_class else random_split
        for name, index in zip(MASKS, draw(data.y.cpu(), seed=seed), strict=True):
            data[name] = index_to_mask(index, len(data.y)).to(data.y.device)
        data.split = f"random seed {seed}"
    return data


def mask_from(array: np.ndarray, num_nodes: int, what: str) -> Tensor:
    """Turn node indices or a boolean mask into a boolean mask [N]; ``what`` names it in errors."""
    if array.ndim != 1:
        raise InputError(f"{what} must be one-dimensional; got shape {array.shape}")
    if array.dtype == np.bool_:
        if len(array) != num_nodes:
            raise InputError(f"{what} must have one entry per node ({num_nodes}); got {len(array)}")
        return torch.from_numpy(array.copy())
    mask_of_numbers = len(array) == num_nodes > 2 and np.isin(array, (0, 1)).all()
    if len(array) and (array.dtype.kind not in "iu" or mask_of_numbers):
        got = "a mask of 0 and 1" if mask_of_numbers else array.dtype
        raise InputError(f"{what} must hold node indices or booleans; got {got}")
    outside = array[(array < 0) | (array >= num_nodes)]
    if len(outside):
        raise InputError(f"{what} must lie in [0, {num_nodes - 1}]; got {outside[0]}")
    mask: Tensor = index_to_mask(torch.from_numpy(array.astype(np.int64)), num_nodes)
    return mask
