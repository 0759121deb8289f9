"""What is known of a graph: its features, its edges, and the labels of its training nodes."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.stages import stage
from graphglow.graph.check import checked_edges, checked_labels, one_graph
from graphglow.graph.graph import adjacency_of, undirected_edges
from graphglow.linalg.rows import Rows, entries, sparse_rows, unit_
from graphglow.linalg.sparse import SparseMatrix

UNLABELLED_PRIOR = 0.25
"""Without labels: how likely two random nodes are taken to belong together."""


@dataclass(frozen=True, eq=False)
class Columns:
    """What :func:`feature_rows` has found of the columns of features; gives rows of other nodes.

    Shapes:
        kept [D] of F columns; table [1, D]: idf of words, or [3, D]: the largest, and mean and
        deviation over it, of numbers
    """

    words: bool
    width: int
    """F, the columns that were given."""
    kept: Tensor
    table: Tensor

    def rows(self, x: Tensor) -> Rows | None:
        """Unit rows of other nodes with the same columns; None if none counts: [M, F] -> [M, D]."""
        if len(self.kept) == 0:
            return None
        x = _checked_x(x).to(self.kept.device)
        if self.words:
            return self.word_rows(*_present(x), x.shape[0])
        largest, mean, spread = self.table
        dense = (x if x.layout == torch.strided else x.to_dense())[:, self.kept]
        return unit_((dense / largest).sub_(mean).div_(spread))

    def word_rows(self, row: Tensor, col: Tensor, num_nodes: int) -> SparseMatrix | None:
        """Rows of the words that are there: [E], [E] -> [M, D]."""
        if len(self.kept) == 0:
            return None
        place = self.kept.new_full((self.width,), -1)
        place[self.kept] = torch.arange(len(self.kept), device=self.kept.device)
        row, col = row[place[col] >= 0], place[col]
        col = col[col >= 0]
        values = self.table[0][col]
        total = torch.zeros(num_nodes, device=row.device).index_add_(0, row, values.square())
        return sparse_rows(row, col, values / total.sqrt()[row], (num_nodes, len(self.kept)))


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph with the labels of its training nodes and no others.

    Classes are numbered among those that have a label; ``seen`` gives their own numbers. Every
    tensor is on one device.

    Shapes:
        features [N, D] unit rows or None; adj [N, N] = D^-1/2 (A + I) D^-1/2; low, high [M] the
        edges once; labelled [L] nodes, classes [L] theirs; seen [C]
    """

    features: Rows | None
    adj: SparseMatrix
    low: Tensor
    high: Tensor
    weight: Tensor | None
    labelled: Tensor
    classes: Tensor
    seen: Tensor
    num_classes: int
    """As the user counts: those without a label too."""
    columns: Columns | None = None
    """Of the features as they were given; None without features."""

    @property
    def num_nodes(self) -> int:
        return self.adj.shape[0]

    @property
    def device(self) -> torch.device:
        return self.adj.values.device

    @cached_property
    def counts(self) -> Tensor:
        """Labels of each class: [C]."""
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
    def degree(self) -> Tensor:
        """Neighbours of each node: [N]."""
        return self.links.crow.diff().float()

    @cached_property
    def worth(self) -> Tensor:
        """What a neighbour in common counts: 1, and by how many it has itself: [N, 2]."""
        rarity = (self.degree + 1).log().clamp_min(0.5).reciprocal()
        return torch.stack([torch.ones_like(rarity), rarity], 1)

    @cached_property
    def links(self) -> SparseMatrix:
        """The pattern of A, 1 for each neighbour, no self-loops: [N, N]."""
        row, col, _ = entries(self.adj)
        col = self.adj.col[row != col]
        crow = self.adj.crow - torch.arange(self.num_nodes + 1, device=self.device)
        return SparseMatrix.symmetric(crow, col, torch.ones_like(col).float(), self.num_nodes)

    @property
    def neighbours(self) -> SparseMatrix:
        """A without self-loops, rows of unit length: [N, N]."""
        row, col, values = entries(self.links)
        if self.weight is not None:
            here, there, scaled = entries(self.adj)
            scale = scaled[here == there].sqrt()  # adj is w_uv / sqrt(d_u d_v), 1 / d_u at (u, u)
            values = scaled[here != there] / (scale[row] * scale[col])
        total = torch.zeros(self.num_nodes, device=self.device)
        total.index_add_(0, row, values.square())
        values = values / total.sqrt().clamp_min(1e-12)[row]
        return replace(self.links, values=values, order=col.argsort(stable=True).int())


@stage("reading")
def problem_of(data: Data, device: torch.device | str = "cpu") -> Problem:
    """Take from a graph what may be known; labels outside of ``train_mask`` are not read.

    Without a ``train_mask`` every node with ``y >= 0`` counts as labelled. ``x``, ``edge_index``
    and ``y`` may each be absent.
    """
    num_nodes = _num_nodes(one_graph(data))
    if num_nodes < 1:
        raise InputError("a graph must have at least one node; got none")
    edge_index, weight = checked_edges(data.edge_index, data.get("edge_weight"), num_nodes)
    labelled, classes = _labels(data, num_nodes)
    names = data.get("class_names")
    largest = int(classes.max()) + 1 if len(classes) else 0
    seen, classes = torch.unique(classes, return_inverse=True)
    edge_index, labelled, classes = (t.to(device) for t in (edge_index, labelled, classes))
    weight = None if weight is None else weight.to(device)
    low, high, weights = undirected_edges(edge_index, weight, num_nodes)
    features, columns = fitted_rows(data.x, num_nodes, device)
    return Problem(
        features=features,
        adj=adjacency_of(low, high, weights, num_nodes),
        low=low,
        high=high,
        weight=weights,
        labelled=labelled,
        classes=classes,
        seen=seen.to(device),
        num_classes=max(largest, len(names) if names else 0),
        columns=columns,
    )


def feature_rows(x: Tensor | None, num_nodes: int, device: torch.device | str) -> Rows | None:
    """Unit rows that mean the same for words and for numbers; None where nothing can be compared.

    Non-negative features of which most are zero: present or not, weighed by idf; a column that
    fewer than two nodes have, or all, says nothing of a pair (the identity is such). Others:
    columns standardised, constant ones left out.

    Shapes:
        x [N, F] dense or sparse, or None -> [N, D], D <= F
    """
    return fitted_rows(x, num_nodes, device)[0]


def fitted_rows(
    x: Tensor | None, num_nodes: int, device: torch.device | str
) -> tuple[Rows | None, Columns | None]:
    """:func:`feature_rows`, and what it has found of the columns; None without features."""
    if x is not None and not isinstance(x, Tensor):
        raise InputError(f"x must be a tensor [N, F]; got {type(x).__name__}")
    if x is None or x.numel() == 0:
        return None, None
    if x.ndim != 2 or x.shape[0] != num_nodes:
        raise InputError(f"x must have one row per node ({num_nodes}); got {tuple(x.shape)}")
    x = _checked_x(x).to(device)
    width = x.shape[1]
    entries = x.to_sparse().coalesce() if x.layout != torch.strided else None
    values = x if entries is None else entries.values()
    if values.numel() == 0:
        return None, Columns(True, width, *torch.zeros(2, 0, device=device).long())
    if bool((values >= 0).all()) and int(torch.count_nonzero(values)) < 0.5 * x.numel():
        row, col = _present(x)
        count = torch.bincount(col, minlength=width)
        kept = ((count >= 2) & (count < num_nodes)).nonzero()[:, 0]
        columns = Columns(True, width, kept, (num_nodes / count[kept].float()).log()[None])
        return columns.word_rows(row, col, num_nodes), columns
    dense = x if entries is None else entries.to_dense()
    largest = dense.abs().amax(0).clamp_min(1e-30)
    dense = dense / largest
    mean = dense.mean(0)
    dense -= mean
    spread = dense.square().mean(0).sqrt()
    kept = (spread > 1e-6).nonzero()[:, 0]
    columns = Columns(False, width, kept, torch.stack([largest, mean, spread])[:, kept])
    if len(kept) < width:
        dense = dense[:, kept]
    return (unit_(dense.div_(spread[kept])) if len(kept) else None), columns


def _checked_x(x: Tensor) -> Tensor:
    """Finite real numbers, as float32; coalesced if they are sparse: [N, F]."""
    if x.is_complex():
        raise InputError(f"x must hold real numbers; got {x.dtype}")
    x = x.float() if x.layout == torch.strided else x.to_sparse().coalesce().float()
    values = x if x.layout == torch.strided else x.values()
    # NaN is passed on by the least and the greatest
    if values.numel() and not math.isfinite(sum(torch.stack(values.aminmax()).tolist())):
        raise InputError("x must be finite; got NaN or infinity")
    return x


def _present(x: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of each entry that is not zero: [E], [E]."""
    if x.layout == torch.strided:
        row, col = x.nonzero(as_tuple=True)
        return row, col
    x = x.to_sparse().coalesce()
    row, col = x.indices()[:, x.values() != 0]
    return row, col


def _num_nodes(data: Data) -> int:
    for values in (data.x, data.y, data.get("train_mask")):
        if isinstance(values, Tensor):
            return int(values.shape[0])
    count = data.get("num_nodes")
    if count is None:
        raise InputError("a graph must have x, y or num_nodes; got none of them")
    return int(count)


def _labels(data: Data, num_nodes: int) -> tuple[Tensor, Tensor]:
    """The labelled training nodes and their classes: [L], [L]."""
    y, mask = data.y, data.get("train_mask")
    if y is None:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    y = checked_labels(y, num_nodes, None, need_labels=False)
    known = torch.ones(num_nodes, dtype=torch.bool) if mask is None else mask.cpu().bool()
    if mask is not None and mask.dtype != torch.bool:
        raise InputError(f"train_mask must be boolean; got {mask.dtype}")
    if known.shape != y.shape:
        raise InputError(
            f"train_mask must have one value per node ({num_nodes}); got {tuple(known.shape)}"
        )
    labelled = known.nonzero()[:, 0]
    labelled = labelled[y[labelled] >= 0]
    return labelled, y[labelled]
