"""The symmetric normalised adjacency, built where the edges are, in O(E) memory.

Undirected edges are numbered ``low * N + high`` and sorted once. In row u of the result stand the
neighbours below u, u itself, and the neighbours above u. Edges sorted by (low, high) give the last
part in order; a stable sort by ``high`` gives the first; so every entry's place is known by
counting, and the two directions of an edge are the same number bit by bit.
"""

import torch
from torch import Tensor

from graphglow.ops.sparse import SparseMatrix


def normalised_adjacency(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> SparseMatrix:
    """Build ``D^-1/2 (A + I) D^-1/2`` of the undirected graph, on the device of ``edge_index``.

    Both directions of an edge count as one, duplicates too (the largest weight holds), and
    self-loops of the input are replaced by those of ``I``.

    Args:
        edge_index: Edges in any order and direction.
        edge_weight: Non-negative; an edge of weight 0 is none.
        num_nodes: N.

    Shapes:
        edge_index [2, E], edge_weight [E] or None -> [N, N] with N + 2 M entries, M <= E
    """
    low, high, weight = undirected_edges(edge_index, edge_weight, num_nodes)  # [M]
    above = torch.bincount(low, minlength=num_nodes)  # [N] neighbours above each node
    below = torch.bincount(high, minlength=num_nodes)
    crow = above.new_zeros(num_nodes + 1)
    torch.cumsum(above + below + 1, 0, out=crow[1:])
    if weight is None:
        degree = (above + below + 1).double()
    else:
        degree = torch.bincount(low, weight, num_nodes) + torch.bincount(high, weight, num_nodes)
        degree += 1
    scale = degree.rsqrt()
    value = scale[low].mul_(scale[high])  # [M]
    value = (value if weight is None else value.mul_(weight)).float()

    diagonal = crow[:-1] + below  # [N] place of (u, u)
    col = low.new_empty(num_nodes + 2 * len(low))
    values = value.new_empty(len(col))
    col[diagonal] = torch.arange(num_nodes, dtype=col.dtype, device=col.device)
    values[diagonal] = degree.reciprocal().float()
    place = (diagonal + 1 - _starts(above))[low].add_(_positions(low))
    col[place] = high
    values[place] = value
    order = high.argsort(stable=True)
    high = high[order]
    place = (crow[:-1] - _starts(below))[high].add_(_positions(high))
    col[place] = low[order]
    values[place] = value[order]
    return SparseMatrix.symmetric(crow, col, values, num_nodes)


def undirected_edges(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Each edge once, as ``low < high``, sorted, with its largest weight (float64).

    Shapes:
        edge_index [2, E], edge_weight [E] or None -> low [M], high [M], weight [M] or None
    """
    row, col = edge_index[0], edge_index[1]
    key = torch.minimum(row, col).long()
    key.mul_(num_nodes).add_(torch.maximum(row, col))
    weight: Tensor | None = None
    if edge_weight is None:
        key = torch.unique(key)
    else:
        key, edge = torch.unique(key, return_inverse=True)  # key[edge[i]] is edge i's
        weight = edge_weight.new_zeros(len(key), dtype=torch.float64)
        weight.scatter_reduce_(0, edge, edge_weight.double(), "amax")
    low = key.div(num_nodes, rounding_mode="floor")
    high = key.sub_(low * num_nodes)
    keep = low != high
    if weight is not None:
        keep &= weight > 0
        weight = weight[keep]
    width = torch.int32 if num_nodes < 2**31 else torch.int64
    return low[keep].to(width), high[keep].to(width), weight


def _starts(counts: Tensor) -> Tensor:
    """Where each of consecutive groups begins: [N] -> [N]."""
    return counts.cumsum(0) - counts


def _positions(like: Tensor) -> Tensor:
    return torch.arange(len(like), device=like.device)
