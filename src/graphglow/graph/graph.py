"""The one internal graph: checked, on one device, its matrices computed when they are asked for."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph.check import (
    MASKS,
    check_graph,
    check_mask,
    checked_edges,
    checked_labels,
    finite_float,
    one_graph,
)
from graphglow.linalg.rows import Rows, entries, sparse_rows, unit_
from graphglow.linalg.sparse import SparseMatrix

DENSE_ABOVE = 0.2
"""A matrix with a larger share of non-zeros is kept dense: it multiplies faster."""
TINY = 1e-37  # an entry that is not 0
UNLABELLED_PRIOR = 0.25
"""Without labels: how likely two random nodes are taken to belong together."""


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """Which columns count and how they are scaled, fitted on a graph's features.

    Non-negative features of which most are zero are words: present or not, weighed by their inverse
    document frequency. Columns that fewer than two nodes have, or all, are left out: they say
    nothing about a pair. Other features are numbers, standardised; constant ones are left out.

    Shapes:
        kept [D] of F columns; table [1, D]: idf of words, or [3, D]: the largest magnitude, then
        mean and deviation over it, of numbers
    """

    words: bool
    width: int
    """F, the columns that were given."""
    kept: Tensor
    table: Tensor

    @classmethod
    def fit(
        cls, x: Tensor | None, num_nodes: int, device: torch.device | str = "cpu"
    ) -> tuple[Rows | None, "FeatureEncoder | None"]:
        """Unit rows of ``x`` [N, F], dense or sparse, and their encoder; None without features."""
        if x is None or x.numel() == 0:
            return None, None
        x = finite_float(x).to(device)
        width = x.shape[1]
        values = x if x.layout == torch.strided else x.values()
        if values.numel() == 0:
            return None, cls(True, width, *torch.zeros(2, 0, device=device).long())
        if bool((values >= 0).all()) and int(torch.count_nonzero(values)) < 0.5 * x.numel():
            present = _present(x)
            count = torch.bincount(present[1], minlength=width)
            kept = ((count >= 2) & (count < num_nodes)).nonzero()[:, 0]
            encoder = cls(True, width, kept, (num_nodes / count[kept].float()).log()[None])
            return encoder.word_rows(present, num_nodes), encoder
        dense = x if x.layout == torch.strided else x.to_dense()
        largest = dense.abs().amax(0).clamp_min(1e-30)
        dense = dense / largest
        mean = dense.mean(0)
        spread = dense.sub_(mean).square_().mean(0).sqrt()
        kept = (spread > 1e-6).nonzero()[:, 0]
        encoder = cls(False, width, kept, torch.stack([largest, mean, spread])[:, kept])
        return encoder.rows(x), encoder

    def rows(self, x: Tensor) -> Rows | None:
        """Unit rows of other nodes with the same columns; None if none counts: [M, F] -> [M, D]."""
        if len(self.kept) == 0:
            return None
        x = finite_float(x).to(self.kept.device)
        if self.words:
            return self.word_rows(_present(x), x.shape[0])
        largest, mean, spread = self.table
        dense = (x if x.layout == torch.strided else x.to_dense())[:, self.kept]
        return unit_((dense / largest).sub_(mean).div_(spread))

    def word_rows(self, present: Tensor, num_nodes: int) -> SparseMatrix | None:
        """Unit rows of nodes whose words are listed: [2, E] -> [M, D]."""
        if len(self.kept) == 0:
            return None
        place = self.kept.new_full((self.width,), -1)
        place[self.kept] = torch.arange(len(self.kept), device=self.kept.device)
        row, col = present[0], place[present[1]]
        row, col = row[col >= 0], col[col >= 0]
        values = self.table[0][col]
        total = torch.zeros(num_nodes, device=row.device).index_add_(0, row, values.square())
        return sparse_rows(row, col, values / total.sqrt()[row], (num_nodes, len(self.kept)))


def _present(x: Tensor) -> Tensor:
    """Row and column of each entry that is not zero, of a dense or coalesced x: [2, E]."""
    return x.nonzero().T if x.layout == torch.strided else x.indices()[:, x.values() != 0]


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph as GNNs, competitors and the evidence learner read it; nothing is N x N dense.

    Everything else follows from the fields, is computed at its first use and kept. GNNs read ``x``
    and ``adj``; evidence reads ``features``, ``links`` and the labels of ``train`` and no others.

    Shapes:
        raw_x [N, F] dense or sparse, on any device, or None; low, high [M]: each edge once,
        low < high, sorted; weight [M] or None; y [N], -1 for unlabelled; train, val, test: node
        indices
    """

    raw_x: Tensor | None
    low: Tensor
    high: Tensor
    weight: Tensor | None
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int
    """Those without a training node too."""
    name: str = "graph"

    @property
    def num_nodes(self) -> int:
        return int(self.y.shape[0])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def device(self) -> torch.device:
        return self.y.device

    @cached_property
    def x(self) -> SparseMatrix | Tensor:
        """Features with rows of unit length (L2), a column of ones where there are none: [N, F]."""
        raw = torch.ones(self.num_nodes, 1) if self.raw_x is None else self.raw_x.float()
        return normalised_features(raw).to(self.device)

    @cached_property
    def adj(self) -> SparseMatrix:
        """D^-1/2 (A + I) D^-1/2: [N, N]."""
        return adjacency_of(self.low, self.high, self.weight, self.num_nodes)

    @cached_property
    def encoded(self) -> tuple[Rows | None, FeatureEncoder | None]:
        return FeatureEncoder.fit(self.raw_x, self.num_nodes, self.device)

    @property
    def features(self) -> Rows | None:
        """Unit rows of words or standardised numbers: [N, D]; None where none can be compared."""
        return self.encoded[0]

    @property
    def encoder(self) -> FeatureEncoder | None:
        """Gives such rows to other nodes with the same columns; None without features."""
        return self.encoded[1]

    @property
    def labelled(self) -> Tensor:
        """Training nodes, whose label may be read: [L]."""
        return self.train

    @cached_property
    def seen(self) -> Tensor:
        """The classes that have a training node, in order: [C]."""
        seen: Tensor = torch.unique(self.y[self.train])
        return seen

    @cached_property
    def classes(self) -> Tensor:
        """Classes of the labelled nodes, numbered among ``seen``: [L]."""
        return torch.searchsorted(self.seen, self.y[self.train])

    @cached_property
    def counts(self) -> Tensor:
        """Labels of each class in ``seen``: [C]."""
        return torch.bincount(self.classes, minlength=len(self.seen)).float()

    @cached_property
    def prior(self) -> Tensor:
        """pi, the share of each class among the labels: [C]."""
        return self.counts / self.counts.sum().clamp_min(1)

    @cached_property
    def chance(self) -> float:
        """Sum pi^2: how likely two random nodes are of one class."""
        if len(self.seen) == 0:
            return UNLABELLED_PRIOR
        return float(self.prior.square().sum().clamp(0.01, 0.99))

    @cached_property
    def entries(self) -> tuple[Tensor, Tensor]:
        """Row and column of each entry of ``adj``, self-loops included: [E], [E]."""
        return entries(self.adj)[:2]

    @cached_property
    def links(self) -> SparseMatrix:
        """The pattern of A: 1 for each neighbour, no self-loops, whatever the edges weigh."""
        row, col = self.entries
        crow = self.adj.crow - torch.arange(self.num_nodes + 1, device=self.device)
        ones = self.adj.values.new_ones(2 * len(self.low))
        return SparseMatrix.symmetric(crow, col[row != col], ones, self.num_nodes)

    @cached_property
    def neighbours(self) -> SparseMatrix:
        """``links``, laid out so that values which are not symmetric can take the place of ones."""
        return self.links.general()

    @cached_property
    def degree(self) -> Tensor:
        """Neighbours of each node: [N]."""
        return self.links.crow.diff().float()

    @cached_property
    def common_neighbour_weights(self) -> Tensor:
        """What a neighbour in common counts: 1, and less if it has many itself: [N, 2]."""
        rarity = (self.degree + 1).log().clamp_min(0.5).reciprocal()
        return torch.stack([torch.ones_like(rarity), rarity], 1)

    @cached_property
    def neighbour_rows(self) -> SparseMatrix:
        """A without self-loops, each row scaled to unit length (L2): [N, N]."""
        return self._scaled(2)

    @cached_property
    def neighbour_mean(self) -> SparseMatrix:
        """D^-1 A without self-loops: the mean over a node's neighbours, weighted as its edges."""
        return self._scaled(1)

    def _scaled(self, norm: int) -> SparseMatrix:
        """A without self-loops, each row scaled to unit L1 or L2 norm: [N, N]."""
        row, _, values = entries(self.links)
        if self.weight is not None:
            low, high = self.low.long(), self.high.long()
            place = torch.cat([low * self.num_nodes + high, high * self.num_nodes + low]).argsort()
            values = self.weight.to(values.dtype).repeat(2)[place]
        total = values.new_zeros(self.num_nodes).index_add_(0, row, values.pow(norm))
        return self.neighbours.with_values(values / total.pow(1 / norm).clamp_min(1e-12)[row])

    @cached_property
    def hops(self) -> tuple[SparseMatrix, SparseMatrix | Tensor]:
        """Nodes one step away, and exactly two, both as D^-1/2 (.) D^-1/2 of the pattern."""
        one = self.links.to_scipy().astype(np.int64)
        two = sp.csr_array((one @ one > 0) > (one + sp.eye_array(self.num_nodes) > 0))
        two.sort_indices()
        found = []
        for pattern in (one, two):
            crow, col = (torch.from_numpy(part) for part in (pattern.indptr, pattern.indices))
            scale = crow.diff().clamp_min(1).to(self.adj.values.dtype).rsqrt()  # [N]
            row = torch.arange(self.num_nodes).repeat_interleave(crow.diff().long())
            values = scale[row] * scale[col.long()]
            matrix = SparseMatrix.symmetric(crow, col, values, self.num_nodes)
            found.append(matrix.to(self.device))
        near, far = found
        return near, far.to_dense() if far.density > DENSE_ABOVE else far  # as in social graphs

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Graph":
        """Move to ``device``, with ``x`` and ``adj``, these in ``dtype`` if it is given."""
        fields = {name: getattr(self, name) for name in MOVED}
        moved = replace(self, **{n: t.to(device) for n, t in fields.items() if t is not None})
        vars(moved)["x"] = self.x.to(device, dtype or torch.float32)
        vars(moved)["adj"] = self.adj.to(device, dtype)
        return moved

    def with_labels(self, **fields: Any) -> "Graph":
        """A copy with other labels, classes or split; matrices are not computed again."""
        changed = replace(self, **fields)
        vars(changed).update({n: v for n, v in vars(self).items() if n in CACHED})
        return changed

    def with_x(self, x: Tensor) -> "Graph":
        """A copy of which GNNs read other features than its own."""
        changed = self.with_labels()
        vars(changed)["x"] = x
        return changed


MOVED = ("low", "high", "weight", "y", "train", "val", "test")
CACHED = ("x", "adj", "encoded", "entries", "links", "neighbours", "degree", "hops")


def prepare(data: Data) -> Graph:
    """Check ``data`` and turn it into the :class:`Graph` that models train on."""
    return training_graph(check_graph(data))


def training_graph(data: Data) -> Graph:
    """Turn a checked graph into what models train on: training nodes have at least two classes."""
    graph = graph_of(data)
    if len(graph.seen) < 2:
        names = data.get("class_names")
        only = names[int(graph.seen[0])] if names else int(graph.seen[0])
        raise InputError(f"training nodes must have at least two classes; got only {only}")
    return graph


def graph_of(data: Data, device: torch.device | str = "cpu") -> Graph:
    """Turn a ``Data`` into a :class:`Graph`; ``x``, ``edge_index``, ``y`` and masks may be absent.

    Without a ``train_mask`` every node with a label is a training node.
    """
    parts = [one_graph(data).x, data.y, data.get("train_mask")]
    counts = [len(part) for part in parts if isinstance(part, Tensor)] + [data.get("num_nodes")]
    if not counts[0]:
        raise InputError("a graph must have nodes: give x, y or num_nodes; got none")
    num_nodes, names = int(counts[0]), data.get("class_names")
    edges, weight = checked_edges(data.edge_index, data.get("edge_weight"), num_nodes)
    weight = None if weight is None else weight.to(device)
    low, high, weight = undirected_edges(edges.to(device), weight, num_nodes)
    y, nodes = torch.full((num_nodes,), -1), {}
    y = y if data.y is None else checked_labels(data.y, num_nodes, None)
    for name in MASKS:
        if (mask := data.get(name)) is None:
            mask = torch.full_like(y, name == "train_mask", dtype=torch.bool)
        check_mask(name, mask, num_nodes)
        nodes[name.removesuffix("_mask")] = (mask.cpu() & (y >= 0)).nonzero()[:, 0].to(device)
    return Graph(
        raw_x=data.x,
        low=low,
        high=high,
        weight=weight,
        y=y.to(device),
        **nodes,
        num_classes=max(int(y.max()) + 1, len(names or ())),
        name=str(data.get("name", "graph")),
    )


def known_graph(data: Data, device: torch.device | str = "cpu") -> Graph:
    """Return :func:`graph_of` with labels outside of the training nodes hidden."""
    graph = graph_of(data, device)
    y, nothing = torch.full_like(graph.y, -1), graph.train[:0]
    y[graph.train] = graph.y[graph.train]
    classes = max(int(y.max()) + 1, len(data.get("class_names") or ()))
    return graph.with_labels(y=y, val=nothing, test=nothing, num_classes=classes)


def normalised_features(x: Tensor) -> SparseMatrix | Tensor:
    """Scale each row to unit length (L2) (zero rows stay zero); sparse where that pays."""
    x = x if x.layout == torch.strided else x.to_dense()
    largest = x.abs().amax(dim=1, keepdim=True)  # [N, 1]
    extreme = (largest > 0) & ((largest > 1e15) | (largest < 1e-10))  # squares leave float32
    x = torch.where(extreme, x / largest, x) if bool(extreme.any()) else x
    scale = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1e-12)  # [N, 1]
    if int(torch.count_nonzero(x)) > DENSE_ABOVE * x.numel():
        dense: Tensor = x / scale
        return dense
    row, col = x.nonzero(as_tuple=True)
    return sparse_rows(row, col, x[row, col] / scale[row, 0], (x.shape[0], x.shape[1]))


def normalised_adjacency(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> SparseMatrix:
    """Build ``D^-1/2 (A + I) D^-1/2`` of the undirected graph: [2, E], [E] or None -> [N, N].

    Self-loops of the input are replaced by those of ``I``.
    """
    return adjacency_of(*undirected_edges(edge_index, edge_weight, num_nodes), num_nodes)


def adjacency_of(low: Tensor, high: Tensor, weight: Tensor | None, num_nodes: int) -> SparseMatrix:
    """The same from edges that are listed once, as ``low < high``: [M], [M], [M].

    Both directions of an edge get the same number, so that the result is symmetric bit by bit.
    """
    node = torch.arange(num_nodes, device=low.device)
    heavy = None if weight is None else weight.double()
    degree = torch.bincount(low, heavy, num_nodes) + torch.bincount(high, heavy, num_nodes) + 1
    scale = degree.double().rsqrt()
    value = scale[low] * scale[high]  # [M]
    value = (value if weight is None else value * weight).float().clamp_min(TINY)
    loops = degree.double().reciprocal().float().clamp_min(TINY)
    if not low.is_cuda:  # without a sort, in half of the memory
        triples = value.numpy(), (low.numpy(), high.numpy())
        upper = sp.csr_array(triples, shape=(num_nodes, num_nodes))
        both = upper + upper.T + sp.diags_array(loops.numpy(), format="csr")
        parts = both.indptr, both.indices, both.data
        crow, col, values = (torch.from_numpy(part) for part in parts)
        return SparseMatrix.symmetric(crow, col, values, num_nodes)
    low, high = low.long(), high.long()
    key = torch.cat([low * num_nodes + high, high * num_nodes + low, node * (num_nodes + 1)])
    values = torch.cat([value, value, loops])
    key, order = key.sort()
    values = values[order]
    del order
    crow = torch.searchsorted(key, torch.arange(num_nodes + 1, device=key.device) * num_nodes)
    return SparseMatrix.symmetric(crow, key.remainder_(num_nodes), values, num_nodes)


def undirected_edges(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Each edge once, as ``low < high``, sorted, with its largest weight (float64); 0 is no edge.

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
