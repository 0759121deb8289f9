"""Of pairs of nodes: products of rows, edges, neighbours in common. By kernels where they can run.

The plain form is here, for any device. No gradients are taken of any of it by the kernels. Pairs
[2, M] may be of int32 or int64; ``links`` is a symmetric pattern of ones with sorted columns.
"""

from typing import cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.linalg.sparse import SparseMatrix, csr_tensor
from graphglow.linalg.triton_support import kernels_for, launching_on

GATHERED = 2**18  # pairs at once on a GPU
LOOKUPS = {"cpu": 2**18, "cuda": 2**23}  # nodes looked up at once, by device
LIGHT = 128  # degrees up to which two rows of neighbours are merged
SHORTEST = 1e-6  # lengths below count as this in a cosine


def dots(rows: Tensor, pairs: Tensor) -> Tensor:
    """The inner product of the rows of each pair: [N, D], [2, M] -> [M].

    On a CPU nothing is gathered but one row per run of pairs that begin at the same node.
    """
    if rows.shape[1] == 0 or pairs.shape[1] == 0:
        return rows.new_zeros(pairs.shape[1])
    if (kernels := kernels_for(rows, "triton_pairs")) is not None:
        with launching_on(rows):
            return cast(Tensor, kernels.dots(rows, pairs))
    if rows.is_cuda:
        blocks = torch.split(pairs, GATHERED, dim=1)
        return torch.cat([(rows[b[0]] * rows[b[1]]).sum(1) for b in blocks])
    here, counts = torch.unique_consecutive(pairs[0], return_counts=True)
    crow = F.pad(counts.cumsum(0), (1, 0))
    shape = (len(here), len(rows))
    pattern = csr_tensor(crow, pairs[1].long(), rows.new_zeros(pairs.shape[1]), shape)
    products: Tensor = torch.sparse.sampled_addmm(pattern, rows[here], rows.T, beta=0.0).values()
    return products


def is_edge(links: SparseMatrix, pairs: Tensor) -> Tensor:
    """Whether the two are joined: [2, M] -> [M] of bool."""
    if links.col.numel() == 0 or pairs.shape[1] == 0:
        return torch.zeros(pairs.shape[1], dtype=torch.bool, device=pairs.device)
    if (kernels := kernels_for(links.values, "triton_pairs")) is not None:
        with launching_on(links.values):
            return cast(Tensor, kernels.is_edge(links.crow, links.col, pairs))
    return _linked(links, pairs[0], pairs[1])


def common(links: SparseMatrix, worth: Tensor, pairs: Tensor) -> Tensor:
    """What the neighbours that both have are worth, in all: [N, K], [2, M] -> [M, K].

    On a CPU SciPy merges two rows, in a fifth of the time, where neither is long.
    """
    if links.col.numel() == 0 or pairs.shape[1] == 0:
        return worth.new_zeros(pairs.shape[1], worth.shape[1])
    if (kernels := kernels_for(worth, "triton_pairs")) is not None:
        with launching_on(worth):
            return cast(Tensor, kernels.common(links.crow, links.col, worth, pairs))
    if pairs.is_cuda:
        return _looked_up(links, worth, pairs)
    light = _degrees(links, pairs).amax(0) <= LIGHT
    found = worth.new_empty(pairs.shape[1], worth.shape[1])
    found[light] = _merged(links, worth, pairs[:, light])
    found[~light] = _looked_up(links, worth, pairs[:, ~light])
    return found


def between(links: SparseMatrix, chosen: Tensor, pairs: Tensor, total: Tensor) -> Tensor:
    """Edges between a few neighbours of one end and of the other, and how many degrees expect.

    They are the first C of ``chosen`` without the other end itself. Expected are
    ``min(1, d d' / total)`` each.

    Shapes:
        chosen [N, C + 1], -1 behind the last; total [M] -> [M, 2]
    """
    if links.col.numel() == 0 or pairs.shape[1] == 0:
        return total.new_zeros(len(total), 2)
    if (kernels := kernels_for(total, "triton_pairs")) is not None:
        with launching_on(total):
            return cast(Tensor, kernels.between(links.crow, links.col, chosen, pairs, total))
    ends = []
    for this, other in (pairs, pairs.flip(0)):
        some = chosen[this]  # [M, C + 1]
        usable = (some >= 0) & (some != other[:, None])
        usable &= usable.cumsum(1) < chosen.shape[1]
        ends.append((some, usable))
    (a, a_usable), (b, b_usable) = ends
    usable = a_usable[:, :, None] & b_usable[:, None, :] & (a[:, :, None] != b[:, None, :])
    pair, i, j = usable.nonzero().unbind(1)
    first, second = a[pair, i], b[pair, j]
    degree = _degrees(links, torch.stack([first, second])).float()
    likely = (degree.prod(0) / total[pair]).clamp_max(1)
    found = torch.stack([_linked(links, first, second).float(), likely], 1)
    return total.new_zeros(len(total), 2).index_add_(0, pair, found)


def hop_cosines(
    x: Tensor, ax: Tensor, around: Tensor, degree: Tensor, pairs: Tensor, edge: Tensor
) -> Tensor:
    """Cosines of features as they are without an edge between the two: [M, 5].

    Of x; of x and the sum over the other's neighbours, the lower first; of one- and two-hop means.
    With ``e = edge``: ``m = (x + ax) / (d + 1)``, ``m'_u = (x_u + ax_u - e x_v) / (d_u + 1 - e)``
    and ``t'_u = around_u - e m_v - m_u + m'_u``, where ``around = m + A m``.

    Shapes:
        x, ax, around [N, q], x of unit rows; degree [N]; pairs [2, M], edge [M] of 0 and 1
    """
    if x.shape[1] == 0 or pairs.shape[1] == 0:
        return x.new_zeros(pairs.shape[1], 5)
    if (kernels := kernels_for(x, "triton_pairs")) is not None:
        with launching_on(x):
            return cast(Tensor, kernels.hop_cosines(x, ax, around, degree, pairs, edge))
    e, count = edge[:, None], degree[pairs][:, :, None] + 1
    own, sums, wide = ([rows[end] for end in pairs] for rows in (x, ax, around))  # [M, q] twice
    before = [(own[i] + sums[i]).div_(count[i]) for i in (0, 1)]
    for i in (0, 1):
        sums[i].addcmul_(e, own[1 - i], value=-1)
        wide[i].addcmul_(e, before[1 - i], value=-1)
    mean = [(own[i] + sums[i]).div_(count[i] - e) for i in (0, 1)]
    for i in (0, 1):
        wide[i].sub_(before[i]).add_(mean[i])
    one, other = _cosine(own[0], sums[1]), _cosine(own[1], sums[0])
    cross = torch.minimum(one, other), torch.maximum(one, other)
    product = torch.linalg.vecdot(own[0], own[1])
    return torch.stack([product, *cross, _cosine(*mean), _cosine(*wide)], 1)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    one, other = (torch.linalg.vector_norm(rows, dim=1).clamp_min_(SHORTEST) for rows in (a, b))
    cosine: Tensor = torch.linalg.vecdot(a, b) / (one * other)
    return cosine


def _degrees(links: SparseMatrix, nodes: Tensor) -> Tensor:
    return links.crow[nodes + 1] - links.crow[nodes]


def _linked(links: SparseMatrix, a: Tensor, b: Tensor) -> Tensor:
    """Whether these are joined, looked up in the shorter row: [M], [M] -> [M] of bool.

    On a CPU SciPy scans a row that is not long, in a third of the time.
    """
    counts = _degrees(links, torch.stack([a, b]))
    first = counts[0] <= counts[1]
    node, wanted = torch.where(first, a, b), torch.where(first, b, a)
    if a.is_cuda:
        return _bisected(links, node, wanted)
    light = counts.amin(0) <= LIGHT
    found = torch.empty_like(light)
    if bool(light.any()):
        rows, columns = (np.array(nodes[light].numpy()) for nodes in (node, wanted))
        found[light] = torch.from_numpy(_in_scipy(links)[rows, columns] > 0)
    found[~light] = _bisected(links, node[~light], wanted[~light])
    return found


def _bisected(links: SparseMatrix, node: Tensor, wanted: Tensor) -> Tensor:
    if len(node) > (most := LOOKUPS[node.device.type]):
        parts = zip(torch.split(node, most), torch.split(wanted, most), strict=True)
        return torch.cat([_bisected(links, *part) for part in parts])
    if len(node) == 0:
        return torch.zeros_like(node, dtype=torch.bool)
    place, end = links.crow[node], links.crow[node + 1]
    last = len(links.col) - 1
    step = 1 << int((end - place).max()).bit_length()
    while step := step >> 1:
        further = place + step
        below = (links.col[(further - 1).clamp_max_(last)] < wanted) & (further <= end)
        place = torch.where(below, further, place)
    return (place < end) & (links.col[place.clamp_max(last)] == wanted)


def _in_scipy(links: SparseMatrix) -> sp.csr_array:
    parts = (links.values.numpy(), links.col.numpy(), links.crow.numpy())
    return sp.csr_array(parts, shape=links.shape)


def _merged(links: SparseMatrix, worth: Tensor, pairs: Tensor) -> Tensor:
    matrix = _in_scipy(links)
    both = matrix[pairs[0].numpy()].multiply(matrix[pairs[1].numpy()]).tocsr()
    return torch.from_numpy(both @ worth.numpy())


def _looked_up(links: SparseMatrix, worth: Tensor, pairs: Tensor) -> Tensor:
    """From the neighbours of the end that has fewer, looked up among the other's."""
    counts = _degrees(links, pairs)
    here, there = torch.where(counts[0] <= counts[1], pairs, pairs.flip(0))
    counts = counts.amin(0)
    ends = counts.cumsum(0)
    first = links.crow[here] - (ends - counts)
    found = worth.new_zeros(len(counts), worth.shape[1])
    start, before, most = 0, 0, LOOKUPS[pairs.device.type]
    while start < len(counts):
        stop = max(start + 1, int(torch.searchsorted(ends, before + most, right=True)))
        some = torch.arange(start, stop, device=pairs.device)
        pair = some.repeat_interleave(counts[some])
        offset = torch.arange(before, before + len(pair), device=pairs.device)
        neighbour = links.col[first[pair] + offset]
        hit = _linked(links, there[pair], neighbour).nonzero()[:, 0]
        found.index_add_(0, pair[hit], worth[neighbour[hit]])
        start, before = stop, before + len(pair)
    return found
