"""Features of pairs of nodes, each computed as if there were no edge between the two.

An edge must not be evidence for itself. One- and two-hop means, degrees and common neighbours are
corrected in closed form. What has no closed form (the spectrum of the adjacency, which features
are linked to which) is computed once per *fold* of the edges, without the edges of that fold. The
fold of a pair is a hash of its two nodes, so it is the same whether or not they are joined.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.evidence.channels import ridge_channel
from graphglow.evidence.views import WIDTH
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import drawn, entries, low_rank, sparse_rows, times, unit
from graphglow.linalg.sparse import SparseMatrix, between, common, hop_cosines, is_edge

RAW = (
    "own", "cross_low", "cross_high", "one_hop", "two_hop", "feature_affinity",
    "feature_affinity_around", "spectrum", "rebuilt", "rebuilt_count", "common", "jaccard",
    "adamic", "allocation", "surprise", "between", "degree_low", "degree_high", "agree_own",
    "agree_around", "class_affinity",
)  # fmt: skip
GROUPS: dict[str, tuple[str, ...]] = {
    "own features": ("own", "feature_affinity"),
    "features around": ("cross_low", "cross_high", "one_hop", "two_hop", "feature_affinity_around"),
    "neighbours in common": ("common", "jaccard", "adamic", "allocation", "surprise"),
    "longer paths": ("spectrum", "rebuilt", "rebuilt_count", "between"),
    "degrees": ("degree_low", "degree_high"),
    "classes": ("agree_own", "agree_around", "class_affinity"),
}
"""The features by kind, for explanations."""
FOLDS = 5
PRIME = 2_654_435_761  # of hashes
RANK = 64
"""Eigenvectors of the adjacency, and columns of the features that links are explained by."""
CHOSEN = 6
"""Neighbours of each end between which edges are counted."""
BLOCK = {"cpu": 2**16, "cuda": 2**20}  # pairs at once, by device


class PairInputs:
    """What the features of pairs are computed from. A is unweighted, d are its degrees.

    Shapes:
        x [N, q] unit rows, ax = A x, mean = (x + ax) / (d + 1), around = mean + A mean;
        z [N, p] whitened columns of x, az = A z, feature_affinity [K, p, p]; spectrum [K, N, r],
        signs [K, r]; chosen [N, CHOSEN + 1];
        beliefs [N, C], abeliefs = A beliefs; class_affinity [K, C, C];
        common_neighbour_weights [N, 3]: 1, of Adamic-Adar, of resource allocation
    """

    def __init__(
        self, graph: Graph, x: Tensor, z: Tensor, beliefs: Tensor, generator: torch.Generator
    ) -> None:
        low, high, links = graph.low.long(), graph.high.long(), graph.links
        fold = pair_fold(low, high)
        without = [(low[fold != k], high[fold != k]) for k in range(FOLDS)]
        self.graph, self.x, self.z, self.beliefs = graph, x, z, beliefs
        self.ax, self.az, self.abeliefs = (times(links, rows) for rows in (x, z, beliefs))
        self.mean = (x + self.ax) / (graph.degree + 1)[:, None]
        self.around = self.mean + times(links, self.mean)
        self.spectrum, self.signs = _spectra(graph, without, generator)
        self.feature_affinity = torch.stack([_feature_affinity(z, *edges) for edges in without])
        self.class_affinity = torch.stack([_class_affinity(beliefs, *edges) for edges in without])
        self.chosen = _chosen(links)
        share = graph.degree.clamp_min(1).reciprocal()
        self.common_neighbour_weights = torch.cat(
            [graph.common_neighbour_weights, share[:, None]], 1
        )

    def without_edges(self, kept: Tensor, generator: torch.Generator) -> "PairInputs":
        """Prepare the graph with some of its edges alone: kept [K], sorted places."""
        graph = self.graph
        graph = replace(graph, low=graph.low[kept], high=graph.high[kept], weight=None)
        return PairInputs(graph, self.x, self.z, self.beliefs, generator)


def build_pair_inputs(graph: Graph, generator: torch.Generator) -> PairInputs:
    """Prepare a graph, in time and memory linear in its nodes and edges."""
    x = torch.zeros(graph.num_nodes, 0, device=graph.device)
    if graph.features is not None:
        x = unit(low_rank(graph.features, WIDTH, generator))
    beliefs = x[:, :0]
    if len(graph.seen) > 1:
        beliefs = ridge_channel(graph, graph.features).probabilities.clone()
        beliefs[graph.labelled] = F.one_hot(graph.classes, len(graph.seen)).float()
    return PairInputs(graph, x, _whitened(x), beliefs, generator)


def pair_fold(low: Tensor, high: Tensor) -> Tensor:
    """Hash each pair ``low < high`` to its fold, 0 .. FOLDS - 1."""
    return _hash(low * PRIME + _hash(high)) % FOLDS


def _hash(value: Tensor) -> Tensor:
    """Pseudo-random integers in 0 .. 2^31 - 1 (xorshift and multiply)."""
    for _ in range(2):
        value = (value ^ (value >> 16)) * 73_244_475 & 0xFFFFFFFF
    return (value ^ (value >> 16)) & 0x7FFFFFFF


def _whitened(x: Tensor) -> Tensor:
    """The RANK leading principal components, scaled to unit variance: [N, q] -> [N, p]."""
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


def _feature_affinity(z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``Z^T (A - d d^T / 2M) Z / 2M``, over the given edges: [N, p] -> [p, p]."""
    count = 2 * max(1, len(low))
    ends = torch.bincount(torch.cat([low, high]), minlength=len(z)).to(z)
    pull = (ends @ z) / count
    return _linked(z, low, high) / count - torch.outer(pull, pull)


def _class_affinity(beliefs: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """How often edges join two classes, over chance: [N, C] -> [C, C]."""
    weak = 5 / max(1, beliefs.shape[1])
    joint = _linked(beliefs, low, high)
    ends = joint.sum(0)
    expected = torch.outer(ends, ends) / ends.sum().clamp_min(1e-9)
    return (joint + weak) / (expected + weak)


def _spectra(
    graph: Graph, without: list[tuple[Tensor, Tensor]], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Leading eigenvectors of ``(D + tau)^-1/2 A (D + tau)^-1/2`` without each fold's edges.

    Columns are scaled by the square root of the absolute eigenvalue, so that the product of two
    rows, with the signs of the eigenvalues, is the low-rank adjacency.

    Shapes:
        -> spectrum [K, N, r], signs [K, r]
    """
    nodes = graph.num_nodes
    rank = min(RANK, nodes)
    spectrum, signs = torch.empty(FOLDS, nodes, rank, device=graph.device), []
    sketch = drawn((nodes, min(rank + 8, nodes)), generator, graph.device)
    for k, (low, high) in enumerate(without):
        row, col = torch.cat([low, high]), torch.cat([high, low])
        degree = torch.bincount(row, minlength=nodes).float()
        scale = (degree + degree.mean().clamp_min(1e-3)).rsqrt()
        matrix = sparse_rows(row, col, scale[row] * scale[col], (nodes, nodes))
        q = sketch
        for _ in range(4):
            q = torch.linalg.qr(times(matrix, q))[0]
        small = q.T @ times(matrix, q)
        values, vectors = torch.linalg.eigh(((small + small.T) / 2).double().cpu())
        keep = values.abs().argsort(descending=True)[:rank]
        values, vectors = values[keep], vectors[:, keep]
        spectrum[k] = q @ (vectors * values.abs().sqrt()).to(q)
        signs.append(values.sign().to(q))
    return spectrum, torch.stack(signs)


def _chosen(links: SparseMatrix) -> Tensor:
    """The CHOSEN + 1 neighbours of each node whose edges have the smallest hashes, padded with -1.

    The first CHOSEN neighbours other than v are thus the same with and without an edge to v.
    """
    row, col, _ = entries(links)
    order = _hash(row * PRIME + _hash(col)).argsort()
    order = order[row[order].argsort(stable=True)]
    place = torch.arange(len(row), device=row.device) - links.crow[row]
    first = place <= CHOSEN
    chosen = links.col.new_full((links.shape[0], CHOSEN + 1), -1)
    chosen[row[first], place[first]] = links.col[order][first]
    return chosen


def raw_features(inputs: PairInputs, pairs: Tensor) -> Tensor:
    """Compute :data:`RAW` for pairs ``u < v``: [2, M] -> [M, J]."""
    blocks = [inputs.x.new_zeros(0, len(RAW))]
    for some in torch.split(pairs, BLOCK[pairs.device.type], dim=1):
        edge = is_edge(inputs.graph.links, some).float()
        degree = inputs.graph.degree[some] - edge  # [2, M]
        fold = pair_fold(some[0], some[1])
        folds = [(fold == k).nonzero()[:, 0] for k in range(FOLDS)]
        z = [inputs.z[end] for end in some]  # whitening is linear: means are whitened means
        means = _one_hop_means(z, inputs.az, some, edge, degree)
        a, b = inputs.spectrum[fold, some[0]], inputs.spectrum[fold, some[1]]
        rebuilt = (a * b * inputs.signs[fold]).sum(1)  # the low-rank adjacency, normalised
        x, ax, around = inputs.x, inputs.ax, inputs.around
        columns = [
            *hop_cosines(x, ax, around, inputs.graph.degree, some, edge).T,
            _bilinear(z[0], z[1], inputs.feature_affinity, folds),
            _bilinear(means[0], means[1], inputs.feature_affinity, folds),
            F.cosine_similarity(a, b, dim=1, eps=1e-6),
            rebuilt,
            rebuilt * (degree + 1).prod(0).sqrt(),
            *_neighbour_features(inputs, some, edge, degree),
            *degree.sort(0).values.log1p(),
            *_class_features(inputs, some, edge, degree, folds),
        ]
        blocks.append(torch.stack(columns, 1))
    return torch.cat(blocks)


def _one_hop_means(
    own: list[Tensor], sums: Tensor, pairs: Tensor, edge: Tensor, degree: Tensor
) -> list[Tensor]:
    """One-hop means of both ends without the edge, from their own rows and A times all rows."""
    means = [sums[end] for end in pairs]
    for i in (0, 1):
        means[i].add_(own[i]).addcmul_(edge[:, None], own[1 - i], value=-1)
        means[i].div_((degree[i] + 1)[:, None])
    return means


def _bilinear(a: Tensor, b: Tensor, by_fold: Tensor, folds: list[Tensor]) -> Tensor:
    """``a W b``, W being that of the pair's fold: [M, p], [M, p], [K, p, p] -> [M]."""
    product = a.new_empty(len(a))
    for weight, rows in zip(by_fold, folds, strict=True):
        product[rows] = ((a[rows] @ weight) * b[rows]).sum(1)
    return product


def _neighbour_features(
    inputs: PairInputs, pairs: Tensor, edge: Tensor, degree: Tensor
) -> list[Tensor]:
    """Common neighbours in five ways, and edges between neighbours: [M] each.

    log(1 + common), Jaccard, Adamic-Adar, resource allocation, common over what chance expects;
    edges between up to CHOSEN other neighbours of each end, over what the degrees expect.
    """
    links, degrees = inputs.graph.links, inputs.graph.degree
    count, adamic, allocation = common(links, inputs.common_neighbour_weights, pairs).T
    ends = degree.sum(0)
    total = (len(links.col) - 2 * edge).clamp_min(1)
    two_paths = (degrees * (degrees - 1)).sum() - 2 * edge * ends
    expected = degree.prod(0) * two_paths / total.square()
    hits, likely = between(links, inputs.chosen, pairs, total).T
    return [
        count.log1p(),
        count / (ends - count).clamp_min(1),
        adamic.log1p(),
        (allocation + 1e-3).log(),
        ((count + 0.5) / (expected + 0.5)).log(),
        ((hits + 0.1) / (likely + 0.1)).log(),
    ]


def _class_features(
    inputs: PairInputs, pairs: Tensor, edge: Tensor, degree: Tensor, folds: list[Tensor]
) -> list[Tensor]:
    """Log-odds over chance of one class, by the nodes and by their neighbourhoods, and how often
    edges join such classes: [M] each.
    """
    if inputs.beliefs.shape[1] == 0:
        return [torch.zeros_like(edge)] * 3
    own = [inputs.beliefs[end] for end in pairs]
    means = _one_hop_means(own, inputs.abeliefs, pairs, edge, degree)
    mixed = [(a + b) / 2 for a, b in zip(own, means, strict=True)]
    chance = torch.tensor(inputs.graph.chance, device=pairs.device).logit()
    over = [(a * b).sum(1).clamp(1e-4, 1 - 1e-4).logit() - chance for a, b in (own, means)]
    joined = _bilinear(mixed[0], mixed[1], inputs.class_affinity, folds).clamp_min(1e-4).log()
    return [*over, joined]
