"""A graph as a search sees it: nothing in it tells how well a model does on the test nodes."""

import torch
from torch_geometric.data import Data

from graphglow.graphs import check_graph, graph_of
from graphglow.storage import checksum


def blinded(data: Data) -> Data:
    """Take test nodes, and all labels but those of training and validation, out of a graph.

    What is kept is named here, one by one: a label that hides in another attribute is not. The
    number of classes is that of the labels that are left.
    """
    data = check_graph(data)
    known = data.train_mask | data.val_mask
    blind = Data(
        x=data.x,
        edge_index=data.edge_index,
        y=torch.where(known, data.y, -1),
        train_mask=data.train_mask,
        val_mask=data.val_mask,
        test_mask=torch.zeros_like(known),
        name=str(data.get("name") or "graph"),
    )
    if data.get("edge_weight") is not None:
        blind.edge_weight = data.edge_weight
    graph_of(blind)  # what no trial could train on is refused here
    return blind


def fingerprint(graph: Data) -> str:
    """Of all that a trial sees."""
    return checksum({name: value for name, value in graph.items() if torch.is_tensor(value)})[:16]
