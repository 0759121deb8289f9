"""Raw evidence about pairs: each number is what it would be without an edge between the two."""

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.auditing.ground import CHOSEN, Ground, fold_of

RAW = (
    "own", "cross_low", "cross_high", "one_hop", "two_hop", "taste", "taste_around",
    "spectrum", "rebuilt", "rebuilt_count", "common", "jaccard", "adamic", "allocation",
    "surprise", "between", "degree_low", "degree_high", "agree_own", "agree_around", "affinity",
)  # fmt: skip

GROUPS: dict[str, tuple[str, ...]] = {
    "own features": ("own", "taste"),
    "features around": ("cross_low", "cross_high", "one_hop", "two_hop", "taste_around"),
    "neighbours in common": ("common", "jaccard", "adamic", "allocation", "surprise"),
    "longer ways": ("spectrum", "rebuilt", "rebuilt_count", "between"),
    "degrees": ("degree_low", "degree_high"),
    "classes": ("agree_own", "agree_around", "affinity"),
}
"""Named kinds of evidence, for explanations; every number is in one of them."""

BLOCK = 2**16  # pairs at once
LOOKUPS = 2**23  # neighbours looked up at once


def raw_evidence(ground: Ground, pairs: Tensor) -> Tensor:
    """:data:`RAW` of each pair ``u < v``: [2, M] -> [M, J]."""
    blocks = [_block(ground, block) for block in torch.split(pairs, BLOCK, dim=1)]
    return torch.cat(blocks) if blocks else ground.x.new_zeros(0, len(RAW))


def is_edge(ground: Ground, low: Tensor, high: Tensor) -> Tensor:
    """Whether each pair is joined: [..], [..] -> [..] of bool."""
    wanted = low * ground.num_nodes + high
    if len(ground.key) == 0:
        return torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(ground.key, wanted).clamp_max(len(ground.key) - 1)
    return ground.key[place] == wanted


def _block(ground: Ground, pairs: Tensor) -> Tensor:
    edge = is_edge(ground, pairs[0], pairs[1])
    fold = fold_of(pairs[0], pairs[1])
    degree = ground.degree[pairs] - edge.float()  # [2, M]
    return torch.cat(
        [
            _features(ground, pairs, edge, fold),
            _spectrum(ground, pairs, degree, fold),
            _common(ground, pairs, edge),
            _between(ground, pairs, edge)[:, None],
            degree.sort(0).values.T.log1p(),
            _classes(ground, pairs, edge, fold),
        ],
        1,
    )


def _features(ground: Ground, pairs: Tensor, edge: Tensor, fold: Tensor) -> Tensor:
    """Cosines of x, of x and the other's neighbours, of one- and two-hop means; tastes: [M, 7]."""
    if ground.x.shape[1] == 0:
        return torch.zeros(pairs.shape[1], 7, device=pairs.device)
    u, v = pairs
    e = edge[:, None].float()
    x = ground.x[u], ground.x[v]
    others = ground.ax[u] - e * x[1], ground.ax[v] - e * x[0]
    degree = ground.degree[pairs] - edge.float() + 1
    mean = tuple((x[i] + others[i]) / degree[i][:, None] for i in (0, 1))
    wide = tuple(
        ground.around[a] - e * ground.mean[b] - ground.mean[a] + mean[i]
        for i, (a, b) in enumerate(((u, v), (v, u)))
    )
    cross = torch.stack([_cosine(x[0], others[1]), _cosine(x[1], others[0])])
    low, high = cross.sort(0).values
    return torch.stack(
        [
            (x[0] * x[1]).sum(1),
            low,
            high,
            _cosine(*mean),
            _cosine(*wide),
            _taste(ground, x, fold),
            _taste(ground, mean, fold),
        ],
        1,
    )


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return F.cosine_similarity(a, b, dim=1, eps=1e-6)


def _taste(ground: Ground, rows: tuple[Tensor, ...], fold: Tensor) -> Tensor:
    """``a W b`` in whitened columns, W by the edges of other folds: [M]."""
    a, b = ((r - ground.centre) @ ground.white for r in rows)
    return _bilinear(a, ground.taste, b, fold)


def _bilinear(a: Tensor, by_fold: Tensor, b: Tensor, fold: Tensor) -> Tensor:
    out = a.new_zeros(len(a))
    for k in range(len(by_fold)):
        here = (fold == k).nonzero()[:, 0]
        out[here] = ((a[here] @ by_fold[k]) * b[here]).sum(1)
    return out


def _spectrum(ground: Ground, pairs: Tensor, degree: Tensor, fold: Tensor) -> Tensor:
    """Cosine of eigenvector rows, and the low-rank adjacency, normalised and not: [M, 3]."""
    a, b = ground.spectrum[fold, pairs[0]], ground.spectrum[fold, pairs[1]]
    rebuilt = (a * b * ground.signs[fold]).sum(1)
    count = rebuilt * (degree + 1).prod(0).sqrt()
    return torch.stack([_cosine(a, b), rebuilt, count], 1)


def _common(ground: Ground, pairs: Tensor, edge: Tensor) -> Tensor:
    """log(1 + common), Jaccard, Adamic-Adar, resource allocation, common over chance: [M, 5].

    The neighbours of the end that has fewer are looked up among those of the other.
    """
    whole = ground.degree.long()
    fewer = whole[pairs[0]] <= whole[pairs[1]]
    here = torch.where(fewer, pairs[0], pairs[1])
    there = torch.where(fewer, pairs[1], pairs[0])
    counts = whole[here]
    ends = counts.cumsum(0)
    worth = torch.stack(
        [
            torch.ones_like(ground.degree),
            (ground.degree + 1).log().clamp_min(0.5).reciprocal(),
            ground.degree.clamp_min(1).reciprocal(),
        ],
        1,
    )
    found = torch.zeros(pairs.shape[1], 3, device=pairs.device)
    start = 0
    while start < len(counts) and len(ground.key):
        before = int(ends[start]) - int(counts[start])
        stop = max(start + 1, int(torch.searchsorted(ends, before + LOOKUPS, right=True)))
        some = torch.arange(start, stop, device=pairs.device)
        pair = some.repeat_interleave(counts[some])
        offset = torch.arange(len(pair), device=pairs.device) + before - (ends - counts)[pair]
        neighbour = ground.neighbour[ground.crow[here[pair]] + offset]
        hit = is_edge(ground, there[pair], neighbour)
        found.index_add_(0, pair[hit], worth[neighbour[hit]])
        start = stop
    degree = ground.degree[pairs] - edge.float()
    both, count = degree.sum(0), found[:, 0]
    total = (ground.degree.sum() - 2 * edge.float()).clamp_min(1)
    ways = (ground.degree * (ground.degree - 1)).sum() - 2 * edge * both
    expected = degree.prod(0) * ways / total.square()
    return torch.stack(
        [
            count.log1p(),
            count / (both - count).clamp_min(1),
            found[:, 1].log1p(),
            (found[:, 2] + 1e-3).log(),
            ((count + 0.5) / (expected + 0.5)).log(),
        ],
        1,
    )


def _between(ground: Ground, pairs: Tensor, edge: Tensor) -> Tensor:
    """Edges between up to CHOSEN other neighbours of each end, over what degrees expect: [M]."""
    if len(ground.key) == 0:
        return torch.zeros(pairs.shape[1], device=pairs.device)
    ends = []
    for this, other in ((pairs[0], pairs[1]), (pairs[1], pairs[0])):
        some = ground.chosen[this]  # [M, CHOSEN + 1]
        usable = (some >= 0) & (some != other[:, None])
        usable &= usable.cumsum(1) <= CHOSEN
        ends.append((some.clamp_min(0), usable))
    (a, a_usable), (b, b_usable) = ends
    usable = a_usable[:, :, None] & b_usable[:, None, :] & (a[:, :, None] != b[:, None, :])
    hit = torch.zeros_like(usable)
    place = usable.nonzero()
    first, second = a[place[:, 0], place[:, 1]], b[place[:, 0], place[:, 2]]
    hit[usable] = is_edge(ground, first, second)
    total = (len(ground.key) - 2 * edge[place[:, 0]].float()).clamp_min(1)
    likely = (ground.degree[first] * ground.degree[second] / total).clamp_max(1)
    expected = torch.zeros(pairs.shape[1], device=pairs.device).index_add_(0, place[:, 0], likely)
    return ((hit.sum((1, 2)) + 0.1) / (expected + 0.1)).log()


def _classes(ground: Ground, pairs: Tensor, edge: Tensor, fold: Tensor) -> Tensor:
    """Log-odds over chance of one class, by both's own and by what surrounds them, and how often
    edges join such classes: [M, 3].
    """
    if ground.beliefs.shape[1] == 0:
        return torch.zeros(pairs.shape[1], 3, device=pairs.device)
    own = ground.beliefs[pairs[0]], ground.beliefs[pairs[1]]
    e = edge[:, None].float()
    degree = ground.degree[pairs] - edge.float()
    near = tuple(
        (own[i] + ground.abeliefs[pairs[i]] - e * own[1 - i]) / (degree[i] + 1)[:, None]
        for i in (0, 1)
    )
    mixed = tuple((own[i] + near[i]) / 2 for i in (0, 1))
    chance = torch.tensor(ground.problem.chance, device=pairs.device).logit()
    over = [(a * b).sum(1).clamp(1e-4, 1 - 1e-4).logit() - chance for a, b in (own, near)]
    joined = _bilinear(mixed[0], ground.affinity, mixed[1], fold).clamp_min(1e-4).log()
    return torch.stack([*over, joined], 1)
