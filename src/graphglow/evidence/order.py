"""Nodes in an order of their content: what is drawn at random then hangs on the graph alone.

Folds, hidden layers, ties and communities are drawn by a node's number. Who lists the same nodes in
another order must not get another answer, so a graph is looked at in an order that follows from
features, training labels and neighbours (the colours of Weisfeiler and Leman, 1968, as hashes).
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.graph.graph import Graph, known_graph

MOST = 2**17
"""Nodes up to which it is done; what is drawn matters little on larger graphs."""
KEPT = ("x", "y", "train_mask", "edge_weight", "class_names", "name")
ROUNDS = 4
ENTRIES = 2**22  # of the features at once
FIRST, SECOND = -7_046_029_254_386_353_131, -4_658_895_280_553_007_687  # odd


def content_order(data: Data) -> Tensor:
    """Sort nodes by content; neither their numbers nor those of classes count: [N].

    A class counts by its first node in the order that features and edges make.
    """
    graph = known_graph(data)
    place = by_content(graph, graph.seen[:0]).argsort()[graph.labelled]
    first = torch.full((len(graph.seen),), graph.num_nodes)
    first.scatter_reduce_(0, graph.classes, place, "amin")
    return by_content(graph, first.argsort().argsort())


def by_content(graph: Graph, names: Tensor | None = None) -> Tensor:
    """Sort the nodes of a graph by content; ties stay as they were: [N].

    ``names`` [C] number the classes in ``seen``; without any, labels do not count.
    """
    nodes = graph.num_nodes
    if nodes > MOST:
        return torch.arange(nodes)
    low, high, labelled = (t.long().cpu() for t in (graph.low, graph.high, graph.labelled))
    names = graph.seen if names is None else names
    code, x = torch.zeros(nodes, dtype=torch.int64), graph.raw_x
    if x is not None and x.numel():  # each row by its entries' bits and columns; zeros count 0
        column = _mixed(torch.arange(1, x.shape[1] + 1))
        if x.layout == torch.strided:
            blocks = torch.split(x.cpu().float().contiguous(), max(1, ENTRIES // x.shape[1]))
            code = torch.cat([(block.view(torch.int32) * column).sum(1) for block in blocks])
        else:
            entries = x.cpu().to_sparse().coalesce().float()
            row, col = entries.indices()
            code.index_add_(0, row, entries.values().view(torch.int32) * column[col])
    if len(names):
        code[labelled] += _mixed(names[graph.classes].cpu() + 1)
    for _ in range(ROUNDS):
        code = _mixed(code)
        around = torch.zeros_like(code)
        around.index_add_(0, low, code[high]).index_add_(0, high, code[low])
        code = FIRST * code + _mixed(around)
    return code.argsort(stable=True)


def reordered(data: Data, order: Tensor) -> Data:
    """The parts of a graph that evidence is drawn from; node i is ``order[i]`` of it."""
    if len(order) > MOST:
        return data
    given = {name: data[name] for name in KEPT if data.get(name) is not None}
    for name in {"x", "y", "train_mask"} & given.keys():
        given[name] = given[name].index_select(0, order.to(given[name].device))
    if (edges := data.edge_index) is not None:
        given["edge_index"] = order.argsort().to(edges.device)[edges.long()]
    return Data(num_nodes=len(order), **given)


def _mixed(value: Tensor) -> Tensor:
    """Integers that look random (multiply and xorshift, modulo 2^64)."""
    value = (value ^ (value >> 31)) * FIRST
    value = (value ^ (value >> 29)) * SECOND
    return value ^ (value >> 32)
