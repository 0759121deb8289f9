"""DGL graphs, where DGL is installed; nothing here imports it."""

from typing import Any

import torch
from torch_geometric.data import Data

from graphglow.errors import InputError

FIELDS = {
    "x": ("feat", "x", "features"),
    "y": ("label", "y", "labels"),
    "train_mask": ("train_mask",),
    "val_mask": ("val_mask",),
    "test_mask": ("test_mask",),
}
"""Our name -> what DGL's data sets and users call it in ``ndata``."""
WEIGHTS = ("weight", "w", "edge_weight")


def is_dgl(source: object) -> bool:
    """Whether ``source`` is a graph of DGL, told by where its class comes from."""
    home = type(source).__module__.split(".")[0]
    return home == "dgl" and hasattr(source, "ndata") and hasattr(source, "edges")


def from_dgl(graph: Any) -> Data:
    """Turn a DGL graph of one kind of node and edge into a ``Data``, not yet checked."""
    if not getattr(graph, "is_homogeneous", True):
        raise InputError(
            "a DGL graph must have one kind of nodes and edges (see dgl.to_homogeneous); got "
            f"nodes {', '.join(graph.ntypes)} and edges {', '.join(graph.etypes)}"
        )
    source, target = graph.edges()
    data = Data(edge_index=torch.stack([source, target]).long(), num_nodes=int(graph.num_nodes()))
    for name, called in FIELDS.items():
        found = next((key for key in called if key in graph.ndata), None)
        if found is not None:
            data[name] = graph.ndata[found]
        elif name == "x":
            raise InputError(
                f"ndata of a DGL graph must have features, called {', '.join(called)}; got "
                f"{', '.join(map(str, graph.ndata)) or 'nothing'}"
            )
    for name in ("train_mask", "val_mask", "test_mask"):
        if name in data:  # DGL keeps some masks as 0 and 1
            data[name] = data[name].bool()
    weight = next((key for key in WEIGHTS if key in graph.edata), None)
    if weight is not None:
        data.edge_weight = graph.edata[weight]
    return data
