"""The one check at the border: every graph, from any door, passes here before anything trains."""

import copy
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import index_to_mask, is_undirected, to_undirected

from graphglow.errors import InputError, at_least, warn
from graphglow.linalg.neighbours import knn_edges

LARGEST_EDGE_WEIGHT = 1e30
"""Of an edge: sums of such weights are still finite."""
MADE = ("knn_graph", "knn_table")
"""Set where edges join nearest neighbours: for want of any, or in the package's own tables."""
OF_NODES = ("x", "y", "train_mask", "val_mask", "test_mask", "node_id", "class_names")
"""Attributes of nodes whatever their size: PyG takes a list of length E for one of edges."""
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SPLITS = ("train", "val", "test")
MASKS = ("train_mask", "val_mask", "test_mask")
PARTS = {"train_mask": "training", "val_mask": "validation", "test_mask": "test"}


def check_graph(
    data: Data, *, split_seed: int = 0, need_labels: bool = True, need_validation: bool = True
) -> Data:
    """Return a checked, completed copy of ``data``; raise :class:`InputError` if a rule is broken.

    Completed means: float32 features, one column of ones where there are none, int64 labels and
    edges, a kNN graph over the features where there are no edges, both directions of every edge, of
    which the larger weight holds, and, where no mask is given, a seeded 50/25/25 split of each
    class, named in ``split``. Edges given in one direction are kept in ``directed_edge_index``,
    ``directed_edge_weight`` and so on. Masks never include unlabelled nodes (``y == -1``). A
    checked graph stays as it is. Tensors that need no change are shared with ``data``, not copied.

    Args:
        data: The graph.
        split_seed: Seed of a split that is drawn.
        need_labels: Whether two classes must have a label, and training a node; else ``y`` may be
            absent.
        need_validation: Whether validation must have a node. The test mask may always be empty.

    Shapes:
        x [N, D], y [N], edge_index [2, E], edge_weight [E] or absent, masks [N]
    """
    data = copy.copy(one_graph(data))
    if data.x is None or data.x.shape[1] == 0:
        _add_column(data)
    data.x = _checked_features(data.x)
    num_nodes, names = data.x.shape[0], data.get("class_names")
    y = torch.full((num_nodes,), -1) if data.y is None and not need_labels else data.y
    data.y = checked_labels(y, num_nodes, names)
    data.edge_index, weight = checked_edges(data.edge_index, data.get("edge_weight"), num_nodes)
    if weight is not None:
        data.edge_weight = weight
    if data.edge_index.shape[1] == 0:
        data.edge_index = knn_edges(data.x)
        data.pop("edge_weight", None)
        data.knn_graph = True
    elif not is_undirected(data.edge_index, weight, num_nodes):
        _add_directions(data, num_nodes)
    _complete_masks(data, split_seed, need_validation)
    if need_labels:
        classes = data.y[data.y >= 0].unique().tolist()
        if len(classes) < 2:
            got = [f"only class {(names or range(num_nodes))[c]}" for c in classes]
            raise InputError(
                f"y must label at least two classes; got {got[0] if got else 'no label at all'} "
                "(refine and audit need none; load_graph takes need_labels=False)"
            )
        for name in ("train_mask", "val_mask") if need_validation else ("train_mask",):
            rule = f"a split must have at least one labelled node for {PARTS[name]} ({name})"
            _need(bool(data[name].any()), f"{rule}; got none")
    return data


def edges_were_made(data: Data) -> bool:
    """Whether the edges join nearest neighbours, and nobody gave them."""
    return any(data.get(name, False) for name in MADE)


def _need(holds: bool, sentence: str) -> None:
    if not holds:
        raise InputError(sentence)


def one_graph(data: object) -> Data:
    """Return ``data`` if it is a ``Data`` whose parts are of the right kinds."""
    if not isinstance(data, Data):
        how = " (data.to_homogeneous() may make a Data of it)" * isinstance(data, HeteroData)
        got = f"{type(data).__name__}{how}"
        raise InputError(
            f"a graph must have nodes of one kind, a torch_geometric Data; got a {got}"
        )
    if data.edge_index is None and data.get("adj_t") is not None:
        raise InputError("edges must be given as edge_index [2, E]; got adj_t only")
    x, stated = data.x, data.get("num_nodes")
    if stated is not None:
        at_least("num_nodes", stated, 0)
    if x is not None and (not isinstance(x, Tensor) or x.ndim != 2):
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x must be a tensor with a row per node [N, D]; got {got}")
    if x is not None and stated is not None and stated != len(x):
        raise InputError(f"x must have one row per node ({stated}); got {len(x)} rows")
    for name in MASKS:
        if not isinstance(mask := data.get(name), Tensor | None):
            raise InputError(f"{name} must be a boolean tensor [N]; got {type(mask).__name__}")
    for name in ("node_id", "class_names"):
        if (given := data.get(name)) is None:
            continue
        listed = given.tolist() if hasattr(given, "tolist") else given
        rule = f"{name} must be a list of text or numbers"
        _need(isinstance(listed, list | tuple), f"{rule}; got {given!r:.60}")
        plain = [one.item() if hasattr(one, "item") else one for one in listed]
        bad = [one for one in plain if not isinstance(one, str | int | float) or one != one]
        _need(not bad, f"{rule}; got {bad[:1]!r:.60}")
        count = data.num_nodes if name == "node_id" else len(plain)
        _need(len(plain) == count, f"{name} must have one id per node ({count}); got {len(plain)}")
        if len(set(map(str, plain))) < len(plain):
            twice = pd.Series(plain).astype(str).loc[lambda texts: texts.duplicated()].iloc[0]
            raise InputError(f"{name} must hold each name once; got {twice!r} twice")
    return data


def _add_column(data: Data) -> None:
    """Give nodes without features a column of ones: only their edges tell them apart."""
    if not isinstance(data.edge_index, Tensor) or data.edge_index.numel() == 0:
        raise InputError("a graph must have features x or edges; got neither")
    known = [len(part) for part in (data.x, data.y) if isinstance(part, Tensor)]
    known = [int(data.num_nodes)] if "num_nodes" in data else known
    data.x = torch.ones(known[0] if known else int(data.edge_index.max()) + 1, 1)
    name = data.get("name") or "the graph"
    warn(f"{name} has no features: its nodes are known by their edges alone")


def _checked_features(x: Tensor) -> Tensor:
    _need(len(x) > 0, f"x must have a row for each of at least one node; got {tuple(x.shape)}")
    x = finite_float(x if x.layout == torch.strided else x.to_dense()).cpu()
    _need(bool(x.any()), "x must have at least one non-zero entry; got all zeros")
    return x


def finite_float(x: Tensor) -> Tensor:
    """Return finite real numbers as float32; coalesced if they are sparse: [N, F]."""
    _need(not (x.is_complex() or x.is_quantized), f"x must hold real numbers; got {x.dtype}")
    dense = x.layout == torch.strided
    x = x.detach().float() if dense else x.detach().to_sparse().coalesce().float()
    values = x if dense else x.values()
    # the smallest and the largest entry are NaN if any is
    if values.numel() and not torch.stack(values.aminmax()).isfinite().all():
        bad = ~values.isfinite()
        row, column = (bad.nonzero()[0] if dense else x.indices()[:, bad][:, 0]).tolist()
        got = f"{values[bad][0].item()} at node {row}, column {column}"
        raise InputError(f"x must be finite; got {got}")
    return x


def checked_labels(y: object, num_nodes: int, class_names: list[str] | None) -> Tensor:
    """Return labels as int64 on the CPU, -1 for unlabelled: [N] or [N, 1] -> [N]."""
    if not isinstance(y, Tensor):
        raise InputError(f"a graph must have labels y [N]; got y of type {type(y).__name__}")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.shape != (num_nodes,):
        how = " (take labels one at a time, y[:, 0]; one-hot ones are y.argmax(1))" * (y.ndim == 2)
        got = f"got shape {tuple(y.shape)}{how}"
        raise InputError(f"y must have one label per node ({num_nodes}); {got}")
    if y.dtype not in INTEGERS:
        how = "y.long() of classes; a number is cut into classes, as pandas.qcut does"
        raise InputError(f"y must hold integer classes (-1 for unlabelled); got {y.dtype} ({how})")
    y = y.detach().cpu().to(torch.int64)
    low, high = int(y.min()), int(y.max())
    _need(low >= -1, f"y must be -1 (unlabelled) or a class from 0; got {low}")
    _need(high < num_nodes, f"y must hold classes below the node count {num_nodes}; got {high}")
    if class_names is not None and high >= len(class_names):
        raise InputError(f"class_names must name all {high + 1} classes of y; got {class_names}")
    return y


def checked_edges(edges: object, weight: object, num_nodes: int) -> tuple[Tensor, Tensor | None]:
    """Return edges as int64 [2, E] and weights as float32 [E], if there are any, on the CPU."""
    if edges is None:
        return torch.empty(2, 0, dtype=torch.int64), None
    edges = edges.as_tensor() if isinstance(edges, EdgeIndex) else edges
    if not isinstance(edges, Tensor):
        raise InputError(f"edge_index must be a tensor; got {type(edges).__name__}")
    shape = tuple(edges.shape)
    _need(len(shape) == 2 and shape[0] == 2, f"edge_index must have shape [2, E]; got {shape}")
    integers = edges.dtype in INTEGERS or edges.numel() == 0  # torch takes [] for floats
    _need(integers, f"edge_index must hold integers; got {edges.dtype}")
    edges = edges.detach().cpu().to(torch.int64)
    outside = edges[(edges < 0) | (edges >= num_nodes)]
    if len(outside):
        raise InputError(f"edge_index must lie in [0, {num_nodes - 1}]; got {int(outside[0])}")
    if weight is None:
        return edges, None
    if not isinstance(weight, Tensor) or weight.numel() != shape[1]:
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise InputError(f"edge_weight must have one value per edge ({shape[1]}); got {got}")
    _need(not weight.is_complex(), f"edge_weight must hold real numbers; got {weight.dtype}")
    weight = weight.detach().cpu().flatten()
    bad = weight[~((weight >= 0) & (weight <= LARGEST_EDGE_WEIGHT))]  # NaN is neither
    if len(bad):
        rule = f"edge_weight must be finite and non-negative, at most {LARGEST_EDGE_WEIGHT:g}"
        raise InputError(f"{rule}; got {bad[0].item():g}")
    return edges, weight.to(torch.float32)


def _add_directions(data: Data, num_nodes: int) -> None:
    """Give every edge both directions, with all values that the graph has for edges."""
    edges = data.edge_index
    names = copy.copy(data).edge_attrs()  # which PyG keeps in the graph that is asked
    known = {n: data[n] for n in names if isinstance(data[n], Tensor) and n != "edge_index"}
    numbers = [v.byte() if v.dtype == torch.bool else v for v in known.values()]
    data.edge_index, both = to_undirected(edges, numbers, num_nodes, reduce="max")
    for (name, before), after in zip(known.items(), both, strict=True):
        data[name] = after.to(before.dtype)
    for name, before in {"edge_index": edges, **known}.items():
        if name.startswith("edge_"):
            data[f"directed_{name}"] = before


def _complete_masks(data: Data, split_seed: int, need_validation: bool) -> None:
    """Check the masks of an otherwise checked graph, or split at random if it has none."""
    given = [name for name in MASKS if data.get(name) is not None]
    if not given:
        with_random_split(data, split_seed, by_class=True)
    elif "train_mask" not in given or ("val_mask" not in given and need_validation):
        raise InputError(
            "a split must have training and validation nodes, train_mask and val_mask (or no mask "
            f"at all: then one is drawn); got only {' and '.join(given)}"
        )
    if not isinstance(data.get("split"), str):
        data.split = "own"
    check_masks(data)
    known = data.y >= 0
    for name in MASKS:
        mask = data.get(name)
        data[name] = torch.zeros_like(known) if mask is None else mask.detach().cpu() & known


def check_mask(name: str, mask: Tensor, num_nodes: int) -> None:
    """Raise unless a mask is boolean [N]."""
    if mask.shape != (num_nodes,):
        raise InputError(
            f"{name} must have one entry per node ({num_nodes}); got {tuple(mask.shape)} (of "
            f"several splits choose one: data.{name} = data.{name}[:, 0])"
        )
    _need(mask.dtype == torch.bool, f"{name} must be boolean; got {mask.dtype}")


def check_masks(data: Data) -> None:
    """Raise unless masks are boolean [N], and each labelled node is in one of them at most."""
    given = {name: data[name] for name in MASKS if data.get(name) is not None}
    for name, mask in given.items():
        check_mask(name, mask, len(data.y))
    for a, b in combinations(given, 2):
        both = int((given[a] & given[b]).cpu()[data.y.cpu() >= 0].sum())
        rule = f"{PARTS[a]} and {PARTS[b]} nodes must not overlap"
        _need(both == 0, f"{rule}; got {both} nodes in both ({a}, {b})")


def without_edges(data: Data) -> Data:
    """Drop all values of edges, in place."""
    for name in list(data.keys()):
        of_edges = name.startswith("directed_edge_") or name in ("adj_t", *MADE)
        if of_edges or (name not in OF_NODES and data.is_edge_attr(name)):
            del data[name]
    return data


def random_split(y: Tensor, *, seed: int, by_class: bool = False) -> tuple[Tensor, ...]:
    """Split the labelled nodes at random into 50 / 25 / 25 % (Appendix B of the paper).

    With ``by_class`` each class is split so, as nearly as can be. Training has a node of every
    class if it has at least as many nodes as there are classes; a class of two has its other node
    in validation or test.

    Shapes:
        y [N], -1 for unlabelled  ->  train, val, test: sorted node indices
    """
    y = y.long()  # torch takes uint8 for a mask
    order, rank = _shuffled(y, seed)
    if by_class:
        classes = y[order]
        share = (rank + 0.5) / torch.bincount(classes)[classes]  # below 1 / 2 for half of each
        share[rank == 0] = 0  # one of each class comes first
        order = order[share.argsort(stable=True)]
    n_train, n_val = max(1, len(order) // 2), max(1, len(order) // 4)
    parts = torch.tensor_split(order, [n_train, n_train + n_val])
    return tuple(part.sort()[0] for part in parts)


def few_label_split(y: Tensor, *, per_class: int, seed: int) -> tuple[Tensor, ...]:
    """Split the labelled nodes into a few of each class, a quarter of the rest, and the rest."""
    order, rank = _shuffled(y, seed)
    few = rank < at_least("per_class", per_class, 1)
    val, test = torch.tensor_split(order[~few], [int((~few).sum()) // 4])
    return tuple(part.sort()[0] for part in (order[few], val, test))


def _shuffled(y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The labelled nodes in random order, and 0, 1, .. within each class: [n], [n]."""
    labelled, seed = (y >= 0).nonzero()[:, 0], at_least("the seed of a split", seed, 0)
    order = labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))]
    classes = pd.Series(y[order].numpy())
    return order, torch.tensor(classes.groupby(classes).cumcount().to_numpy())


def with_random_split(data: Data, seed: int, *, by_class: bool = False) -> Data:
    """Set the masks of a random split where there is no mask yet, and ``data.split``."""
    if not any(data.get(name) is not None for name in MASKS):
        parts = random_split(data.y.cpu(), seed=seed, by_class=by_class)
        for name, index in zip(MASKS, parts, strict=True):
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
