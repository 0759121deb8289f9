"""Nodes in an order of their content: what is drawn at random then hangs on the graph alone.

Folds, sketches and pairs are drawn by a node's number. Who lists the same nodes in another order
must not get another answer, so a graph is looked at in an order that follows from features,
training labels and neighbours (the colours of Weisfeiler and Leman, 1968, as 64-bit hashes).
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.evidence.problem import Problem, problem_of

MOST = 2**17
"""Nodes up to which it is done; what is drawn matters little on larger graphs."""
ROUNDS = 4
ENTRIES = 2**22  # of the features at once
FIRST, SECOND = -7_046_029_254_386_353_131, -4_658_895_280_553_007_687  # odd


def by_content(data: Data, problem: Problem | None = None) -> Tensor:
    """The nodes of a graph, sorted by content; ties stay as they were: [N].

    Args:
        data: The graph.
        problem: Made of it, where that is at hand.
    """
    nodes = int(data.num_nodes or 0)
    if nodes > MOST:
        return torch.arange(nodes)
    problem = problem or problem_of(data)
    low, high, labelled = (t.long().cpu() for t in (problem.low, problem.high, problem.labelled))
    name = _features(data.x, nodes)
    name[labelled] += _mixed(problem.seen[problem.classes].cpu() + 1)
    for _ in range(ROUNDS):
        name = _mixed(name)
        around = torch.zeros_like(name)
        around.index_add_(0, low, name[high]).index_add_(0, high, name[low])
        name = FIRST * name + _mixed(around)
    return name.argsort(stable=True)


def reordered(data: Data, order: Tensor) -> Data:
    """What an evidence learner or an auditor reads of a graph: node i is ``order[i]`` of it."""
    if len(order) > MOST:
        return data
    found = Data(num_nodes=len(order))
    for name in ("x", "y", "train_mask"):
        values = data.get(name)
        if values is not None:
            found[name] = values.index_select(0, order.to(values.device))
    for name in ("edge_weight", "class_names", "name"):
        if data.get(name) is not None:
            found[name] = data[name]
    if data.edge_index is not None:
        found.edge_index = order.argsort().to(data.edge_index.device)[data.edge_index.long()]
    return found


def _features(x: Tensor | None, nodes: int) -> Tensor:
    """A number of each row, by the bits of its entries and their columns; zeros count 0: [N]."""
    name = torch.zeros(nodes, dtype=torch.int64)
    if x is None or x.numel() == 0:
        return name
    column = _mixed(torch.arange(1, x.shape[1] + 1))
    if x.layout != torch.strided:
        entries = x.cpu().to_sparse().coalesce()
        row, col = entries.indices()
        return name.index_add_(0, row, _bits(entries.values()) * column[col])
    blocks = torch.split(x.cpu(), max(1, ENTRIES // x.shape[1]))
    return torch.cat([(_bits(block) * column).sum(1) for block in blocks])


def _bits(values: Tensor) -> Tensor:
    return values.float().contiguous().view(torch.int32).long()


def _mixed(value: Tensor) -> Tensor:
    """Integers that look random (multiply and xorshift, modulo 2^64)."""
    value = (value ^ (value >> 31)) * FIRST
    value = (value ^ (value >> 29)) * SECOND
    return value ^ (value >> 32)
