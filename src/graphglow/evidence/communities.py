"""Communities: groups of nodes with more edges inside than chance would put there.

The modularity of communities c at resolution r, with weighted degrees k and K_c their sums::

    Q = 1 / 2m  sum_uv (w_uv - r k_u k_v / 2m) [c_u = c_v]

is raised as by Blondel et al. (2008, https://arxiv.org/abs/0803.0476): nodes move to the
neighbouring community of the largest gain, then each community becomes one node, and so on.
Differs from the paper: a random part of the nodes moves at once, not one node after the other
(Lu et al. 2015, https://arxiv.org/abs/1410.1237), and a sweep that lowers Q is taken back; the
whole is repeated from the communities found, so that nodes put together early can still part.
"""

from collections.abc import Iterator
from typing import NamedTuple

import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.linalg.sparse import SparseMatrix

ROUNDS, SWEEPS = 3, 20  # at most: times from the nodes up, sweeps of one level
FEWEST, WORK = 6, 2**25  # sweeps of a large level: as many as look at so many edges, or the fewest
SHARE = 0.5  # of the nodes that move at once
ENOUGH = 1e-5  # a smaller gain of Q ends a level, or the rounds
FEW = 2**15  # nodes up to which a CPU is quicker than a GPU: steps are many and small
AT_ONCE = 2**20  # edges looked at in one block
EXACT = 2.0**50  # what weights add up to: sums of whole numbers up to 2^53 have no rounding


class _Level(NamedTuple):
    """A weighted graph, edges listed from both ends by row; self-loops count in the degrees only.

    Weights are whole numbers, so sums do not depend on their order: a GPU gives the same twice.

    Shapes:
        row [E], col [E], weight [E], degree [N]
    """

    row: Tensor
    col: Tensor
    weight: Tensor
    degree: Tensor


def communities(matrix: SparseMatrix, *, resolution: float = 1.0, seed: int = 0) -> Tensor:
    """Community of each node by modularity: numbered from 0, the largest first.

    The entries of a symmetric matrix are the weights of the edges; its diagonal does not count. A
    node without edges is a community of its own. Above a ``resolution`` of 1 communities are
    smaller and more. ``seed`` fixes the order in which nodes move.

    Shapes:
        matrix [N, N] -> [N] int64
    """
    nodes, device = matrix.shape[0], matrix.col.device
    if nodes <= FEW:
        matrix = matrix.to("cpu")
    generator = torch.Generator().manual_seed(seed)  # of the CPU: the same draws on each device
    node = torch.arange(nodes, dtype=torch.int32, device=matrix.col.device)
    row = node.repeat_interleave(matrix.crow.diff())
    apart = row != matrix.col
    row, col, values = row[apart], matrix.col[apart], matrix.values[apart].double()
    if bool((values != 1).any()):
        values.mul_(EXACT / values.sum().clamp_min(1e-30)).round_()
    graph = _Level(row, col, values, values.new_zeros(nodes).index_add_(0, row, values))
    # ties go to the smaller number, so communities are numbered at random
    label = torch.randperm(nodes, generator=generator).to(row.device)
    reached = _modularity(graph, label, resolution)
    for _ in range(ROUNDS if bool(graph.degree.any()) else 0):
        before = reached
        label, reached = _bottom_up(graph, label, resolution, generator)
        if reached < before + ENOUGH:
            break
    _, label, size = torch.unique(label, return_inverse=True, return_counts=True)
    rank: Tensor = size.argsort(descending=True, stable=True).argsort()
    return rank[label].to(device)


def _bottom_up(
    graph: _Level, label: Tensor, resolution: float, generator: torch.Generator
) -> tuple[Tensor, float]:
    """Move nodes, then communities, then communities of these, until nothing moves: [N], Q."""
    found = torch.arange(len(label), device=label.device)
    while True:
        label, reached = _moved(graph, label, resolution, generator)
        label = torch.unique(label, return_inverse=True)[1]
        found, size = label[found], len(label)  # [N] of the nodes at the bottom
        count = int(label.max()) + 1
        edges, narrow = [], label.int()
        for row, col, weight in _blocks(graph):
            row, col = narrow.index_select(0, row), narrow.index_select(0, col)
            apart = row != col
            edges.append(_summed(row[apart], col[apart], weight[apart], count))
        degree = graph.degree.new_zeros(count).index_add_(0, label, graph.degree)
        while len(edges) > 1:
            row, col, weight = (
                torch.cat(two) for two in zip(edges.pop(0), edges.pop(0), strict=True)
            )
            edges.append(_summed(row, col, weight, count))
        graph = _Level(*edges[0], degree)
        if count == size:
            return found, reached
        label = torch.randperm(count, generator=generator).to(label.device)


def _moved(
    graph: _Level, label: Tensor, resolution: float, generator: torch.Generator
) -> tuple[Tensor, float]:
    """Sweeps over the nodes, a random part at a time, from ``label`` on: [N], Q."""
    reached, share = _modularity(graph, label, resolution), SHARE
    waiting = torch.ones_like(label, dtype=torch.bool)  # [N] nodes that something changed for
    for _ in range(min(SWEEPS, max(FEWEST, WORK // max(1, len(graph.row) // 2)))):
        drawn = torch.rand(len(label), generator=generator).to(label.device) < share
        movers = waiting & drawn
        target = _targets(graph, label, movers, resolution)
        moves = target != label
        if bool(moves.any()):
            score = _modularity(graph, target, resolution)
            if score <= reached:
                share /= 2
                continue
            gain, reached, label = score - reached, score, target
            if gain < ENOUGH:
                break
        waiting &= ~movers
        waiting[graph.row[moves.index_select(0, graph.col)]] = True
        if not bool(waiting.any()):
            break
    return label, reached


def _targets(graph: _Level, label: Tensor, movers: Tensor, resolution: float) -> Tensor:
    """The community of the largest gain for each node that may move, its own for others: [N]."""
    n, degree = len(label), graph.degree
    size = torch.zeros_like(degree).index_add_(0, label, degree)  # [N] K_c
    scale = degree * (resolution / degree.sum())  # [N] r k_u / 2m
    alone = torch.bincount(label, minlength=n) == 1  # [N] communities of one node
    bound = torch.where(alone[label], label, n)  # [N]
    stay = -scale * (size[label] - degree)  # [N] without the node itself
    target = torch.full_like(label, n)
    for row, col, weight in _blocks(graph):
        edge = movers.index_select(0, row).nonzero()[:, 0]
        node, there, within = _summed(row[edge], label[col[edge]], weight[edge], n)
        node, there = node.long(), there.long()
        own = there == label[node]  # [P] of a node and a community next to it
        stay[node[own]] += within[own]
        score = within - scale[node] * size[there]
        # two nodes that are alone would swap: only the one with the larger number may move
        score[own | (alone[there] & (there > bound[node]))] = -torch.inf
        best = stay.scatter_reduce(0, node, score, "amax")
        chosen = (score == torch.where(best > stay, best, torch.nan)[node]).nonzero()[:, 0]
        target.scatter_reduce_(0, node[chosen], there[chosen], "amin")
    return torch.where(target < n, target, label)


def _modularity(graph: _Level, label: Tensor, resolution: float) -> float:
    total = graph.degree.sum()  # 2m
    apart = torch.zeros_like(total)
    for row, col, weight in _blocks(graph):
        apart += (label.index_select(0, row) != label.index_select(0, col)).to(weight) @ weight
    size = torch.zeros_like(graph.degree).index_add_(0, label, graph.degree) / total.clamp_min(1)
    return float((total - apart) / total.clamp_min(1) - resolution * size.square().sum())


def _blocks(graph: _Level) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Edges in blocks that hold all edges of a node: row, col and weight."""
    count = -(-len(graph.row) // AT_ONCE)
    bounds = torch.linspace(0, len(graph.degree), max(2, count + 1)).to(graph.row)
    bounds[-1] = len(graph.degree)
    sizes = torch.searchsorted(graph.row, bounds).diff().tolist()
    return zip(*(torch.split(part, sizes) for part in graph[:3]), strict=True)


def _summed(row: Tensor, col: Tensor, value: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each place once, in order, and the sum of its values: [E] -> [P]."""
    if not value.is_cuda:  # five times as fast there as a sort
        parts = value.numpy(), (row.numpy(), col.numpy())
        once = sp.coo_array(parts, shape=(size, size)).tocsr().tocoo()
        rows, cols, total = (torch.from_numpy(part) for part in (once.row, once.col, once.data))
        return rows.int(), cols.int(), total
    key, order = (row.long() * size + col).sort()
    key, place = torch.unique_consecutive(key, return_inverse=True)
    total = value.new_zeros(len(key)).index_add_(0, place, value[order])
    return (key // size).int(), (key % size).int(), total
