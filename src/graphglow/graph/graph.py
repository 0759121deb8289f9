"""The immutable value that flows through training: a graph, checked, normalised and sparse.

The normalised adjacency is built where the edges are, in O(E) memory. Undirected edges are numbered
``low * N + high`` and sorted once. In row u of the result stand the neighbours below u, u itself,
and the neighbours above u. Edges sorted by (low, high) give the last part in order; a stable sort
by ``high`` gives the first; so every entry's place is known by counting, and the two directions of
an edge are the same number bit by bit.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph.check import check_graph
from graphglow.linalg.sparse import SparseMatrix

DENSE_ABOVE = 0.2
"""A matrix with a larger share of non-zeros is kept dense: it multiplies faster."""


@dataclass(frozen=True, eq=False)
class Graph:
    """What a model sees of a graph. Nothing in it is ever N x N dense.

    Shapes:
        x [N, D] row-normalised; adj [N, N] = D^-1/2 (A + I) D^-1/2; y [N];
        train, val, test: node indices
    """

    name: str
    x: SparseMatrix | Tensor
    adj: SparseMatrix
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int

    @property
    def num_nodes(self) -> int:
        return int(self.y.shape[0])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @cached_property
    def entries(self) -> tuple[Tensor, Tensor]:
        """Row and column of each entry of ``adj``, self-loops included: [E], [E]."""
        return _rows(self.adj), self.adj.col.long()

    @cached_property
    def neighbours(self) -> SparseMatrix:
        """The pattern of A: 1 for each neighbour, no self-loops, whatever the edges weigh."""
        here, there = self.entries
        apart = here != there
        crow = self.adj.crow - torch.arange(len(self.adj.crow), device=here.device)
        return _pattern(crow, there[apart], self.adj)

    @cached_property
    def neighbour_rows(self) -> SparseMatrix:
        """The rows of A as features: the pattern, each row scaled to unit length (L2)."""
        degree = self.neighbours.crow.diff().clamp_min(1).to(self.adj.values.dtype)  # [N]
        return self.neighbours.with_values(degree.rsqrt()[_rows(self.neighbours)])

    @cached_property
    def looped(self) -> SparseMatrix:
        """The pattern of A + I: 1 for each node itself and each neighbour."""
        return _pattern(self.adj.crow, self.adj.col, self.adj)

    @cached_property
    def neighbour_mean(self) -> SparseMatrix:
        """D^-1 A without self-loops: the mean over a node's neighbours, weighted as its edges."""
        here, there = self.entries
        apart = here != there
        # adj is w_uv / sqrt(d_u d_v) off the diagonal and 1 / d_v on it; d_u cancels in the mean
        share = self.adj.values[apart] * self.adj.values[~apart].rsqrt()[there[apart]]
        total = torch.zeros_like(self.adj.values[~apart]).index_add_(0, here[apart], share)
        return self.neighbours.with_values(share / total[here[apart]])

    @cached_property
    def hops(self) -> tuple[SparseMatrix, SparseMatrix]:
        """Nodes one step away, and exactly two, both as D^-1/2 (.) D^-1/2 of the pattern.

        In a social graph half of all nodes can be two steps away; that one is dense.
        """
        one = self.neighbours
        parts = (np.ones(len(one.col), np.int64), one.col.cpu().numpy(), one.crow.cpu().numpy())
        pattern = sp.csr_array(parts, shape=one.shape)
        nearer = pattern + sp.eye_array(self.num_nodes, dtype=np.int64, format="csr")
        two = sp.csr_array((pattern @ pattern > 0) > (nearer > 0))
        two.sort_indices()
        crow, col = (torch.from_numpy(a).to(one.col.device) for a in (two.indptr, two.indices))
        far = SparseMatrix.symmetric(crow, col, one.values.new_ones(two.nnz), self.num_nodes)
        two_steps = _symmetrically_normalised(far)
        crowded = two_steps.density > DENSE_ABOVE
        return _symmetrically_normalised(one), two_steps.with_dense() if crowded else two_steps

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Graph":
        return replace(
            self,
            x=self.x.to(device, dtype or torch.float32),
            adj=self.adj.to(device, dtype),
            y=self.y.to(device),
            train=self.train.to(device),
            val=self.val.to(device),
            test=self.test.to(device),
        )


def prepare(data: Data) -> Graph:
    """Check ``data`` and turn it into the :class:`Graph` that models train on."""
    return graph_of(check_graph(data))


def graph_of(data: Data) -> Graph:
    """Turn a graph that :func:`check_graph` has passed into what models train on.

    One rule more than for a graph that is only loaded: training nodes of at least two classes.
    """
    seen = data.y[data.train_mask].unique()
    if len(seen) < 2:
        names = data.get("class_names")
        only = names[int(seen[0])] if names else int(seen[0])
        raise InputError(f"training nodes must have at least two classes; got only {only}")
    return Graph(
        name=str(data.get("name", "graph")),
        x=normalised_features(data.x),
        adj=normalised_adjacency(data.edge_index, data.get("edge_weight"), data.x.shape[0]),
        y=data.y,
        train=data.train_mask.nonzero()[:, 0],
        val=data.val_mask.nonzero()[:, 0],
        test=data.test_mask.nonzero()[:, 0],
        num_classes=int(data.y.max()) + 1,
    )


def normalised_features(x: Tensor) -> SparseMatrix | Tensor:
    """Scale each row to unit length (L2) (zero rows stay zero); sparse where that pays."""
    x = _within_range(x)
    scale = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1e-12)  # [N, 1]
    if int(torch.count_nonzero(x)) > DENSE_ABOVE * x.numel():
        dense: Tensor = x / scale
        return dense
    row, col = x.nonzero(as_tuple=True)
    values = x[row, col] / scale[row, 0]
    shape = (x.shape[0], x.shape[1])
    coo = sp.coo_array((values.numpy(), (row.numpy(), col.numpy())), shape=shape)
    return SparseMatrix.from_scipy(coo)


def _within_range(x: Tensor) -> Tensor:
    """Bring rows whose squares would leave float32 to a largest entry of 1; others stay."""
    largest = x.abs().amax(dim=1, keepdim=True)  # [N, 1]
    extreme = (largest > 0) & ((largest > 1e15) | (largest < 1e-10))
    return torch.where(extreme, x / largest, x) if bool(extreme.any()) else x


def _rows(matrix: SparseMatrix) -> Tensor:
    """The row of each entry: [E]."""
    rows = torch.arange(matrix.shape[0], device=matrix.crow.device)
    return rows.repeat_interleave(matrix.crow.diff().long())


def _pattern(crow: Tensor, col: Tensor, like: SparseMatrix) -> SparseMatrix:
    """A symmetric pattern of ones; the values that replace them need not be symmetric."""
    values = like.values.new_ones(len(col))
    pattern = SparseMatrix.symmetric(crow, col, values, like.shape[0])
    return replace(pattern, order=pattern.col.argsort(stable=True).to(pattern.col.dtype))


def _symmetrically_normalised(pattern: SparseMatrix) -> SparseMatrix:
    """D^-1/2 S D^-1/2 of a symmetric pattern S of ones."""
    scale = pattern.crow.diff().clamp_min(1).to(pattern.values.dtype).rsqrt()  # [N]
    values = scale[_rows(pattern)] * scale[pattern.col.long()]
    return SparseMatrix.symmetric(pattern.crow, pattern.col, values, pattern.shape[0])


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
    return adjacency_of(*undirected_edges(edge_index, edge_weight, num_nodes), num_nodes)


def adjacency_of(low: Tensor, high: Tensor, weight: Tensor | None, num_nodes: int) -> SparseMatrix:
    """The same from edges that are listed once, as ``low < high``, sorted: [M], [M], [M]."""
    node = torch.arange(num_nodes + 1, dtype=low.dtype, device=low.device)
    order = high.argsort(stable=True)
    above = torch.searchsorted(low, node)  # [N + 1] where edges begin that lead above a node
    below = torch.searchsorted(high[order], node)
    crow = above + below + node
    if weight is None:
        degree = crow.diff().double()
    else:
        heavy = weight.double()
        degree = torch.bincount(low, heavy, num_nodes) + torch.bincount(high, heavy, num_nodes)
        degree += 1
        del heavy
    scale = degree.rsqrt()
    value = scale[low].mul_(scale[high])  # [M]
    value = (value if weight is None else value.mul_(weight)).float()

    diagonal = crow[:-1] + below.diff()  # [N] place of (u, u)
    col = low.new_empty(num_nodes + 2 * len(low))
    values = value.new_empty(len(col))
    col[diagonal] = node[:-1]
    values[diagonal] = degree.reciprocal().float()
    place = (diagonal + 1 - above[:-1])[low].add_(_positions(low))
    col[place] = high
    values[place] = value
    place = (crow - below)[high[order]].add_(_positions(high))
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
        weight.scatter_reduce_(0, edge, edge_weight.double().flatten(), "amax")
    low = key.div(num_nodes, rounding_mode="floor")
    high = key.sub_(low * num_nodes)
    keep = low != high
    if weight is not None:
        keep &= weight > 0
        weight = weight[keep]
    width = torch.int32 if num_nodes < 2**31 else torch.int64
    return low[keep].to(width), high[keep].to(width), weight


def _positions(like: Tensor) -> Tensor:
    return torch.arange(len(like), device=like.device)
