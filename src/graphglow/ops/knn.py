"""Nearest neighbours: of nodes by their features, and of pivots by similarity, block by block."""

import torch
from torch import Tensor
from torch.nn import functional

from graphglow.ops.chunked import BLOCK_ELEMENTS, row_blocks
from graphglow.ops.eager import similarity


def nearest(among: Tensor, k: int, x: Tensor | None = None) -> Tensor:
    """The ``k`` rows of ``among`` nearest to each of x by cosine distance: [M, D] -> [M, k].

    Without x, to each of ``among`` itself, which is not its own neighbour.
    """
    from sklearn.neighbors import NearestNeighbors  # a second to import, and rarely needed

    # Between unit vectors the Euclidean order is the cosine order, and tree search applies.
    index = NearestNeighbors(n_neighbors=k).fit(functional.normalize(among, dim=1).numpy())
    asked = None if x is None else functional.normalize(x, dim=1).numpy()
    return torch.from_numpy(index.kneighbors(asked, return_distance=False))


def knn_edges(x: Tensor, k: int = 10) -> Tensor:
    """Both directions of each node's ``k`` nearest others by cosine distance: [2, E], coalesced."""
    num_nodes = x.shape[0]
    k = min(k, num_nodes - 1)
    if k < 1:
        return torch.empty(2, 0, dtype=torch.int64)
    target = torch.arange(num_nodes).repeat_interleave(k)
    source = nearest(x, k).flatten()
    key = torch.unique(torch.cat([source * num_nodes + target, target * num_nodes + source]))
    return torch.stack([key // num_nodes, key % num_nodes])


@torch.no_grad()
def largest_entries(
    q: Tensor, k: Tensor, threshold: float | None, count: int, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """Columns (rising) and values of the ``count`` largest entries of each row of Gamma.

    [.., N, count] each; ``rows`` nodes at a time. Of equal entries the same ones come every time.
    """
    rows = rows or max(1, BLOCK_ELEMENTS // k.shape[:-1].numel())
    columns = torch.empty(*q.shape[:-1], count, dtype=torch.int64, device=q.device)
    values = q.new_empty(columns.shape)
    for block in row_blocks(q.shape[-2], rows):
        gamma = similarity(q[..., block, :], k, threshold=threshold)  # [.., rows, P]
        best = gamma.topk(count, dim=-1, sorted=False).indices.sort(dim=-1).values
        columns[..., block, :] = best
        values[..., block, :] = gamma.gather(-1, best)
    return columns, values


def entry_products(
    left: Tensor, right: Tensor, columns: Tensor, block_elements: int = BLOCK_ELEMENTS
) -> Tensor:
    """left_u . right_p for each entry (u, p) of a pattern: [M, W], [P, W], [M, K] -> [M, K]."""
    out = left.new_empty(columns.shape)
    shape = columns.shape[1], left.shape[1]
    for block in row_blocks(len(left), max(1, block_elements // (shape[0] * shape[1]))):
        there = right.index_select(0, columns[block].flatten()).view(-1, *shape)
        out[block] = there.mul_(left[block, None]).sum(-1)
    return out
