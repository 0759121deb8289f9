"""A SciPy sparse adjacency matrix with node features and labels beside it."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.labels import encode_labels
from graphglow.graphs.node_features import encode_features
from graphglow.graphs.table_file import is_frame


def from_scipy(adjacency: Any, *, x: Any, y: Any, name: str) -> Data:
    """Make a graph, not yet checked; entries other than 1 are weights, zeros are no edges.

    Args:
        adjacency: Any sparse format.
        x: An array, a SciPy sparse matrix, a tensor, or a DataFrame, whose columns are encoded as
            those of a nodes table.
        y: Integers (-1 for unlabelled) or text, as an array, a list, a tensor or a Series.
        name: Names the graph in errors.

    Shapes:
        adjacency [N, N], x [N, D], y [N]
    """
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise InputError(
            f"an adjacency matrix must be square [N, N]; got shape {adjacency.shape} in {name}"
        )
    if adjacency.dtype.kind not in "biuf":
        raise InputError(f"an adjacency matrix must hold numbers; got {adjacency.dtype}")
    if x is None:
        raise InputError(
            "an adjacency matrix must come with node features: load_graph(adjacency, x=x, y=y); "
            "got no x"
        )
    data = Data(x=features_of(x, name), num_nodes=adjacency.shape[0])
    entries = adjacency.tocoo()
    there = entries.data != 0  # NaN is, and is refused by the check
    ends = np.stack([entries.row[there], entries.col[there]]).astype(np.int64)
    data.edge_index = torch.from_numpy(ends)
    weight = entries.data[there]
    if weight.dtype != np.bool_ and not (weight == 1).all():
        data.edge_weight = torch.from_numpy(weight.astype(np.float64))
    if y is not None:
        add_labels(data, y, name)
    return data


def features_of(x: Any, name: str) -> Tensor:
    """Features in any of the forms that people keep them in, as a tensor [N, D]."""
    if isinstance(x, Tensor):
        return x
    if is_frame(x):
        return encode_features(x, f"x of {name}")
    array = np.asarray(x.toarray() if hasattr(x, "toarray") else x)
    if array.dtype.kind not in "biuf":
        raise InputError(f"x of {name} must hold numbers; got {array.dtype}")
    return torch.from_numpy(array.astype(np.float32))


def add_labels(data: Data, y: Any, name: str) -> None:
    """Set ``y`` and, where the labels are names, ``class_names``."""
    if isinstance(y, Tensor):
        data.y = y
        return
    array = np.asarray(y)
    if array.dtype.kind in "biu":
        data.y = torch.from_numpy(array.astype(np.int64))
        return
    if array.ndim != 1:
        raise InputError(f"y of {name} must have one label per node; got shape {array.shape}")
    data.y, data.class_names = encode_labels(array, f"y of {name}")
