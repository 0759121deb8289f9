"""A constant sparse matrix that is fast to multiply with, forwards and backwards."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F

WIDE = 64
"""Columns from which on PyTorch's own product is ahead of the library's on a CPU."""


@dataclass(frozen=True, eq=False)  # tensors have no single truth value to compare by
class SparseMatrix:
    """A sparse ``[N, M]`` matrix in CSR, kept beside its transpose.

    The gradient of ``S @ v`` is ``S^T @ g``. PyTorch would build the transpose anew in every
    backward pass; here both are laid out once, and ``order`` maps the stored values to those of the
    transpose, so that values can change (dropout) while the pattern stays. A symmetric matrix is
    its own transpose: nothing is stored twice and ``order`` is None. A batch of B runs shares the
    pattern; the values may differ between them.

    Shapes:
        crow [N+1], col [E], values [E] or [B, E]; crow_t [M+1], col_t [E], order [E] or None
    """

    crow: Tensor
    col: Tensor
    values: Tensor
    crow_t: Tensor
    col_t: Tensor
    order: Tensor | None
    shape: tuple[int, int]

    @classmethod
    def symmetric(cls, crow: Tensor, col: Tensor, values: Tensor, num_nodes: int) -> "SparseMatrix":
        """A symmetric ``[num_nodes, num_nodes]`` matrix from its CSR parts, columns sorted."""
        crow, col = crow.int(), col.int()
        return cls(crow, col, values, crow, col, None, (num_nodes, num_nodes))

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "SparseMatrix":
        crow, col = self.crow.to(device), self.col.to(device)
        values = self.values.to(device, dtype or self.values.dtype)
        if self.order is None:
            return SparseMatrix.symmetric(crow, col, values, self.shape[0])
        crow_t, col_t, order = (t.to(device) for t in (self.crow_t, self.col_t, self.order))
        return SparseMatrix(crow, col, values, crow_t, col_t, order, self.shape)

    def with_values(self, values: Tensor) -> "SparseMatrix":
        """The same pattern with other values: [E], or [B, E] for a batch of matrices."""
        return replace(self, values=values)

    def general(self) -> "SparseMatrix":
        """A symmetric pattern, laid out so that its values need not be symmetric."""
        return replace(self, order=self.col.argsort(stable=True).to(self.col.dtype))

    def __matmul__(self, dense: Tensor) -> Tensor:
        """``S @ dense``: [.., M, F] -> [.., N, F]; differentiable in ``dense`` only."""
        return cast(Tensor, _Matmul.apply(self, dense))  # type: ignore[no-untyped-call]

    @property
    def row(self) -> Tensor:
        """Row of each entry: [E]."""
        node = torch.arange(self.shape[0], device=self.crow.device)
        return node.repeat_interleave(self.crow.diff().long(), output_size=self.col.numel())

    @cached_property
    def keys(self) -> Tensor:
        """``row * M + col`` of each entry, sorted where columns are: [E]."""
        return self.row * self.shape[1] + self.col

    @property
    def density(self) -> float:
        return self.col.numel() / max(1, self.shape[0] * self.shape[1])

    def to_dense(self) -> Tensor:
        """For small matrices and tests."""
        return csr_tensor(self.crow, self.col, self.values, self.shape).to_dense()

    def to_scipy(self) -> sp.csr_array:
        """A copy for SciPy."""
        parts = (part.cpu().numpy() for part in (self.values, self.col, self.crow))
        return sp.csr_array(tuple(parts), shape=self.shape, copy=True)


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _product(matrix.crow, matrix.col, matrix.values, matrix.shape, dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        m: SparseMatrix = ctx.matrix
        values = m.values if m.order is None else m.values.index_select(-1, m.order)
        return None, _product(m.crow_t, m.col_t, values, (m.shape[1], m.shape[0]), grads[0])


def _product(
    crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], dense: Tensor
) -> Tensor:
    """[.., M, F] -> [.., N, F]; a batch may share the values [E] or have its own [B, E]."""
    assert values.ndim == 1 or dense.ndim == 3  # a batch of matrices meets a batch of vectors
    if values.ndim > 1:
        runs = zip(values, dense, strict=True)
        return torch.stack([csr_tensor(crow, col, own, shape) @ part for own, part in runs])
    if dense.ndim == 2:
        matrix = csr_tensor(crow, col, values, shape)
        if dense.is_cuda or dense.shape[1] < WIDE:
            return matrix @ dense
        wide: Tensor = torch.sparse.mm(matrix, dense, "sum")
        return wide
    beside = dense.movedim(-2, 0)  # [M, .., F]: one product for the batch, its runs side by side
    product = csr_tensor(crow, col, values, shape) @ beside.flatten(1)
    return product.view(-1, *beside.shape[1:]).movedim(0, -2)


def csr_tensor(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """PyTorch's own form of a sparse matrix: [N, M]."""
    with warnings.catch_warnings():  # "CSR support is in beta state", once per process
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)


GATHERED = 2**18  # pairs at once on a GPU
LOOKUPS = {"cpu": 2**18, "cuda": 2**24}  # nodes looked up at once, by device
LIGHT = 128  # degrees up to which SciPy merges two rows of neighbours
SHORTEST = 1e-6  # lengths below count as this in a cosine


def dots(rows: Tensor, pairs: Tensor) -> Tensor:
    """Return the inner product of the rows of each pair: [N, D], [2, M] -> [M].

    On a CPU nothing is gathered but one row per run of pairs that begin at the same node.
    """
    if rows.shape[1] == 0 or pairs.shape[1] == 0:
        return rows.new_zeros(pairs.shape[1])
    if rows.is_cuda:
        blocks = torch.split(pairs, GATHERED, dim=1)
        return torch.cat([(rows[b[0]] * rows[b[1]]).sum(1) for b in blocks])
    here, counts = torch.unique_consecutive(pairs[0], return_counts=True)
    crow = F.pad(counts.cumsum(0), (1, 0))
    shape = (len(here), len(rows))
    pattern = csr_tensor(crow, pairs[1].long(), rows.new_zeros(pairs.shape[1]), shape)
    products: Tensor = torch.sparse.sampled_addmm(pattern, rows[here], rows.T, beta=0.0).values()
    return products


def is_edge(links: SparseMatrix, pairs: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """Return whether the two are joined: [2, M] -> [M] of bool."""
    keys, (a, b) = links.keys, pairs
    if len(keys) == 0:
        return torch.zeros_like(a, dtype=torch.bool)
    wanted = a.long() * links.shape[1] + b
    place = torch.searchsorted(keys, wanted).clamp_max_(len(keys) - 1)
    return keys[place] == wanted


def common(links: SparseMatrix, weights: Tensor, pairs: Tensor) -> Tensor:
    """Return the sum of weights of the neighbours that both have: [N, K], [2, M] -> [M, K].

    On a CPU SciPy merges two short rows of neighbours.
    """
    if pairs.is_cuda:
        return _looked_up(links, weights, pairs)
    light = links.crow.diff()[pairs.long()].amax(0) <= LIGHT
    parts = (links.values.numpy(), links.col.numpy(), links.crow.numpy())
    matrix = sp.csr_array(parts, shape=links.shape)
    u, v = pairs[:, light].numpy()
    found = weights.new_empty(pairs.shape[1], weights.shape[1])
    found[light] = torch.from_numpy(matrix[u].multiply(matrix[v]).tocsr() @ weights.numpy())
    found[~light] = _looked_up(links, weights, pairs[:, ~light])
    return found


def _looked_up(links: SparseMatrix, weights: Tensor, pairs: Tensor) -> Tensor:
    """Look up the neighbours of the end that has fewer among the other's, some pairs at a time."""
    counts = links.crow.diff().long()[pairs.long()]
    here, there = torch.where(counts[0] <= counts[1], pairs, pairs.flip(0))
    counts = counts.amin(0)
    found = weights.new_zeros(len(counts), weights.shape[1])
    ends, start, before = counts.cumsum(0), 0, 0
    while start < len(counts):
        most = before + LOOKUPS[pairs.device.type]
        stop = max(start + 1, int(torch.searchsorted(ends, most, right=True)))
        pair = torch.arange(start, stop, device=pairs.device)
        pair = pair.repeat_interleave(counts[start:stop])
        entry = torch.arange(before, before + len(pair), device=pairs.device)
        entry += (links.crow[here] - (ends - counts))[pair]
        neighbour = links.col[entry]
        hit = is_edge(links, (there[pair], neighbour)).nonzero()[:, 0]
        found.index_add_(0, pair[hit], weights[neighbour[hit]])
        start, before = stop, before + len(pair)
    return found


def between(links: SparseMatrix, chosen: Tensor, pairs: Tensor, total: Tensor) -> Tensor:
    """Count edges between a few neighbours of one end and of the other, and those expected.

    They are the first C of ``chosen`` without the other end itself. Expected are
    ``min(1, d d' / total)`` each.

    Shapes:
        chosen [N, C + 1], -1 behind the last; total [M] -> [M, 2]
    """
    step = max(1, LOOKUPS[pairs.device.type] // chosen.shape[1] ** 2)
    degree, found = links.crow.diff().float(), [total.new_zeros(0, 2)]
    for some, expected in zip(torch.split(pairs, step, 1), torch.split(total, step), strict=True):
        ends = []
        for this, other in (some, some.flip(0)):
            near = chosen[this]  # [M, C + 1]
            usable = (near >= 0) & (near != other[:, None])
            ends.append((near, usable & (usable.cumsum(1) < chosen.shape[1])))
        (a, a_usable), (b, b_usable) = ends
        a, b = a[:, :, None], b[:, None, :]
        usable = a_usable[:, :, None] & b_usable[:, None, :] & (a != b)  # [M, C + 1, C + 1]
        hits = is_edge(links, (a.expand_as(usable).flatten(), b.expand_as(usable).flatten()))
        likely = (degree[a] * degree[b] / expected[:, None, None]).clamp_max(1)
        both = torch.stack([hits.view_as(usable).float(), likely], -1) * usable[..., None]
        # one after another: where a value stands in a table of quantiles hangs on its last bit
        found.append(sum(both.flatten(1, 2).unbind(1), expected.new_zeros(len(expected), 2)))
    return torch.cat(found)


def hop_cosines(
    x: Tensor, ax: Tensor, around: Tensor, degree: Tensor, pairs: Tensor, edge: Tensor
) -> Tensor:
    """Return cosines of features as they are without an edge between the two: [M, 5].

    Of x; of x and the sum over the other's neighbours, the lower first; of one- and two-hop means.
    With ``e = edge``: ``m = (x + ax) / (d + 1)``, ``m'_u = (x_u + ax_u - e x_v) / (d_u + 1 - e)``
    and ``t'_u = around_u - e m_v - m_u + m'_u``, where ``around = m + A m``.

    Shapes:
        x, ax, around [N, q], x of unit rows; degree [N]; pairs [2, M], edge [M] of 0 and 1
    """
    if x.shape[1] == 0 or pairs.shape[1] == 0:
        return x.new_zeros(pairs.shape[1], 5)
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
