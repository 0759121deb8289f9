"""What the evidence about pairs of a graph is computed from, ready to leave an edge out.

An edge must not count as evidence for itself. One and two hops of means, degrees and neighbours in
common are corrected in closed form. What has no closed form (the spectrum of the adjacency, which
features are linked to which) is computed once per *fold* of the edges, without them: the fold of a
pair follows from its two nodes alone, be there an edge or not.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.evidence.channels import ridge_channel
from graphglow.evidence.views import WIDTH
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import drawn, entries, low_rank, sparse_rows, times, unit
from graphglow.linalg.sparse import SparseMatrix

FOLDS = 5
RANK = 64
"""Eigenvectors of the adjacency, and columns of the features that links are explained by."""
CHOSEN = 6
"""Neighbours of each end between which edges are looked for."""


@dataclass(frozen=True, eq=False)
class PairInputs:
    """What a graph's pairs are compared by; A is unweighted, d its degrees.

    Shapes:
        x [N, q] unit rows, ax = A x, mean = (x + ax) / (d + 1), around = mean + A mean;
        z [N, p] whitened columns of x, az = A z, feature_affinity [K, p, p]; spectrum [K, N, r],
        signs [K, r]; chosen [N, CHOSEN + 1];
        beliefs [N, C], abeliefs = A beliefs; class_affinity [K, C, C]
    """

    graph: Graph
    degree: Tensor
    x: Tensor
    ax: Tensor
    mean: Tensor
    around: Tensor
    z: Tensor
    az: Tensor
    feature_affinity: Tensor
    spectrum: Tensor
    signs: Tensor
    chosen: Tensor
    beliefs: Tensor
    abeliefs: Tensor
    class_affinity: Tensor

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def links(self) -> SparseMatrix:
        return self.graph.links

    @cached_property
    def common_neighbour_weights(self) -> Tensor:
        """1, and the weights of Adamic-Adar and of resource allocation: [N, 3]."""
        share = self.degree.clamp_min(1).reciprocal()
        return torch.cat([self.graph.common_neighbour_weights, share[:, None]], 1)

    @cached_property
    def num_two_paths(self) -> Tensor:
        """Paths of two edges between different nodes, in both directions: []."""
        return (self.degree * (self.degree - 1)).sum()


def build_pair_inputs(graph: Graph, generator: torch.Generator) -> PairInputs:
    """Prepare a graph; time and memory grow like nodes and edges."""
    beliefs = _beliefs(graph)
    low, high = graph.low.long(), graph.high.long()
    links, degree = graph.links, graph.degree
    edge_fold = fold_of(low, high)
    x = torch.zeros(graph.num_nodes, 0, device=graph.device)
    if graph.features is not None:
        x = unit(low_rank(graph.features, WIDTH, generator))
    ax = times(links, x)
    mean = (x + ax) / (degree + 1)[:, None]
    z = _whitened(x)
    return PairInputs(
        graph=graph,
        degree=degree,
        x=x,
        ax=ax,
        mean=mean,
        around=mean + times(links, mean),
        z=z,
        az=times(links, z),
        feature_affinity=_by_fold(z, low, high, edge_fold),
        **_spectra(graph, edge_fold, generator),
        chosen=_chosen(links),
        beliefs=beliefs,
        abeliefs=times(links, beliefs),
        class_affinity=_class_affinity(beliefs, low, high, edge_fold),
    )


def fold_of(low: Tensor, high: Tensor) -> Tensor:
    """The fold of each pair ``low < high``, by a hash of the two: 0 .. FOLDS - 1."""
    return _hash(low * 2_654_435_761 + _hash(high)) % FOLDS


def _hash(value: Tensor) -> Tensor:
    """Integers that look random, 0 .. 2^31 - 1 (xorshift and multiply)."""
    value = (value ^ (value >> 16)) * 73_244_475 & 0xFFFFFFFF
    value = (value ^ (value >> 16)) * 73_244_475 & 0xFFFFFFFF
    return (value ^ (value >> 16)) & 0x7FFFFFFF


def _whitened(x: Tensor) -> Tensor:
    """RANK leading columns, of unit covariance and no mean: [N, q] -> [N, p]."""
    if x.shape[1] == 0:
        return x
    x = x - x.mean(0)
    double = x.double()
    values, vectors = torch.linalg.eigh((double.T @ double / len(x)).cpu())
    values, vectors = values.flip(0)[:RANK], vectors.flip(1)[:, :RANK]
    ridge = 0.02 * values.mean().clamp_min(1e-9)
    white: Tensor = (vectors / (values + ridge).sqrt()).to(x)
    return x @ white


def _linked(rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``Z^T A Z``, in blocks of edges: [N, p] -> [p, p]."""
    product = rows.new_zeros(rows.shape[1], rows.shape[1])
    for a, b in zip(torch.split(low, 2**18), torch.split(high, 2**18), strict=True):
        product += rows[a].T @ rows[b]
    return product + product.T


def _by_fold(rows: Tensor, low: Tensor, high: Tensor, fold: Tensor) -> Tensor:
    """``Z^T (A - d d^T / 2M) Z / 2M`` without the edges of each fold: [N, p] -> [K, p, p]."""
    parts = []
    for k in range(FOLDS):
        some, other = low[fold != k], high[fold != k]
        count = 2 * max(1, len(some))
        ends = torch.bincount(torch.cat([some, other]), minlength=len(rows)).to(rows)
        pull = (ends @ rows) / count
        parts.append(_linked(rows, some, other) / count - torch.outer(pull, pull))
    return torch.stack(parts)


def _spectra(graph: Graph, fold: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Leading eigenvectors of ``(D + tau)^-1/2 A (D + tau)^-1/2`` without each fold's edges.

    Columns are scaled by the root of the eigenvalue's size, so that the signed product of two rows
    is the low-rank adjacency.
    """
    nodes = graph.num_nodes
    rank = min(RANK, nodes)
    low, high = graph.low.long(), graph.high.long()
    spectrum, signs = torch.empty(FOLDS, nodes, rank, device=graph.device), []
    sketch = drawn((nodes, min(rank + 8, nodes)), generator, graph.device)
    for k in range(FOLDS):
        a, b = low[fold != k], high[fold != k]
        row, col = torch.cat([a, b]), torch.cat([b, a])
        degree = torch.bincount(row, minlength=nodes).float()
        scale = (degree + degree.mean().clamp_min(1e-3)).rsqrt()
        matrix = sparse_rows(row, col, scale[row] * scale[col], (nodes, nodes))
        q = torch.linalg.qr(times(matrix, sketch))[0]
        for _ in range(3):
            q = torch.linalg.qr(times(matrix, q))[0]
        small = q.T @ times(matrix, q)
        values, vectors = torch.linalg.eigh(((small + small.T) / 2).double().cpu())
        keep = values.abs().argsort(descending=True)[:rank]
        values, vectors = values[keep], vectors[:, keep]
        spectrum[k] = q @ (vectors * values.abs().sqrt()).to(q)
        signs.append(values.sign().to(q))
    return {"spectrum": spectrum, "signs": torch.stack(signs)}


def _chosen(links: SparseMatrix) -> Tensor:
    """The CHOSEN + 1 neighbours of each node whose edge has the least hash, -1 where there are
    fewer: leaving one edge out, the first CHOSEN of the others are the same, be it there or not.
    """
    row, col, _ = entries(links)
    order = _hash(row * 2_654_435_761 + _hash(col)).argsort()
    order = order[row[order].argsort(stable=True)]
    place = torch.arange(len(row), device=row.device) - links.crow[row]
    first = place <= CHOSEN
    chosen = links.col.new_full((links.shape[0], CHOSEN + 1), -1)
    chosen[row[first], place[first]] = links.col[order][first]
    return chosen


def _beliefs(graph: Graph) -> Tensor:
    """Classes by labels, and where there are none by features alone: [N, C]; C = 0 without."""
    if len(graph.seen) < 2:
        return torch.zeros(graph.num_nodes, 0, device=graph.device)
    beliefs = ridge_channel(graph, graph.features).probabilities.clone()
    beliefs[graph.labelled] = F.one_hot(graph.classes, len(graph.seen)).float()
    return beliefs


def _class_affinity(beliefs: Tensor, low: Tensor, high: Tensor, fold: Tensor) -> Tensor:
    """How often edges join two classes, over chance, without each fold's edges: [K, C, C]."""
    weak = 5 / max(1, beliefs.shape[1])
    found = []
    for k in range(FOLDS):
        joint = _linked(beliefs, low[fold != k], high[fold != k])
        ends = joint.sum(0)
        expected = torch.outer(ends, ends) / ends.sum().clamp_min(1e-9)
        found.append((joint + weak) / (expected + weak))
    return torch.stack(found)
