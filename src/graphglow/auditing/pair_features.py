"""Raw evidence about pairs: each number is what it would be without an edge between the two."""

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.auditing.pair_inputs import FOLDS, Ground, fold_of
from graphglow.linalg.pairs import between, common, hop_cosines, is_edge

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

BLOCK = {"cpu": 2**16, "cuda": 2**20}  # pairs at once, by device


def raw_evidence(ground: Ground, pairs: Tensor) -> Tensor:
    """:data:`RAW` of each pair ``u < v``: [2, M] -> [M, J]."""
    blocks = torch.split(pairs, BLOCK[pairs.device.type], dim=1)
    return torch.cat([ground.x.new_zeros(0, len(RAW)), *(_block(ground, some) for some in blocks)])


def _block(ground: Ground, pairs: Tensor) -> Tensor:
    edge = is_edge(ground.links, pairs).float()
    degree = ground.degree[pairs] - edge  # [2, M]
    fold = fold_of(pairs[0], pairs[1])
    folds = [(fold == k).nonzero()[:, 0] for k in range(FOLDS)]
    return torch.cat(
        [
            hop_cosines(ground.x, ground.ax, ground.around, ground.degree, pairs, edge),
            _tastes(ground, pairs, edge, degree, folds),
            _spectrum(ground, pairs, degree, fold),
            _common(ground, pairs, edge, degree),
            _between(ground, pairs, edge)[:, None],
            degree.sort(0).values.T.log1p(),
            _classes(ground, pairs, edge, degree, folds),
        ],
        1,
    )


def _near(
    own: list[Tensor], sums: Tensor, pairs: Tensor, edge: Tensor, degree: Tensor
) -> list[Tensor]:
    """One-hop means without the edge, from both's own rows and A times all rows: [M, ..] twice."""
    near = [sums[end] for end in pairs]
    for i in (0, 1):
        near[i].add_(own[i]).addcmul_(edge[:, None], own[1 - i], value=-1)
        near[i].div_((degree[i] + 1)[:, None])
    return near


def _tastes(
    ground: Ground, pairs: Tensor, edge: Tensor, degree: Tensor, folds: list[Tensor]
) -> Tensor:
    """``a W b`` in whitened columns, W by the edges of other folds; of own ones and means: [M, 2].

    The mean of x being linear, it is whitened once per node.
    """
    own = [ground.z[end] for end in pairs]
    near = _near(own, ground.az, pairs, edge, degree)
    return torch.stack([_bilinear(a, b, ground.taste, folds) for a, b in (own, near)], 1)


def _bilinear(a: Tensor, b: Tensor, by_fold: Tensor, folds: list[Tensor]) -> Tensor:
    """``a W b``, with the W of the fold that a pair is in: [M, p], [M, p], [K, p, p] -> [M]."""
    out = a.new_empty(len(a))
    for weight, here in zip(by_fold, folds, strict=True):
        out[here] = ((a[here] @ weight) * b[here]).sum(1)
    return out


def _spectrum(ground: Ground, pairs: Tensor, degree: Tensor, fold: Tensor) -> Tensor:
    """Cosine of eigenvector rows, and the low-rank adjacency, normalised and not: [M, 3]."""
    a, b = ground.spectrum[fold, pairs[0]], ground.spectrum[fold, pairs[1]]
    rebuilt = (a * b * ground.signs[fold]).sum(1)
    count = rebuilt * (degree + 1).prod(0).sqrt()
    return torch.stack([F.cosine_similarity(a, b, dim=1, eps=1e-6), rebuilt, count], 1)


def _common(ground: Ground, pairs: Tensor, edge: Tensor, degree: Tensor) -> Tensor:
    """log(1 + common), Jaccard, Adamic-Adar, resource allocation, common over chance: [M, 5]."""
    count, adamic, allocation = common(ground.links, ground.worth, pairs).unbind(1)
    both = degree.sum(0)
    total = (len(ground.links.col) - 2 * edge).clamp_min(1)
    ways = ground.ways - 2 * edge * both
    expected = degree.prod(0) * ways / total.square()
    return torch.stack(
        [
            count.log1p(),
            count / (both - count).clamp_min(1),
            adamic.log1p(),
            (allocation + 1e-3).log(),
            ((count + 0.5) / (expected + 0.5)).log(),
        ],
        1,
    )


def _between(ground: Ground, pairs: Tensor, edge: Tensor) -> Tensor:
    """Edges between up to CHOSEN other neighbours of each end, over what degrees expect: [M]."""
    total = (len(ground.links.col) - 2 * edge).clamp_min(1)
    hits, expected = between(ground.links, ground.chosen, pairs, total).unbind(1)
    return ((hits + 0.1) / (expected + 0.1)).log()


def _classes(
    ground: Ground, pairs: Tensor, edge: Tensor, degree: Tensor, folds: list[Tensor]
) -> Tensor:
    """Log-odds over chance of one class, by both's own and by what surrounds them, and how often
    edges join such classes: [M, 3].
    """
    if ground.beliefs.shape[1] == 0:
        return torch.zeros(pairs.shape[1], 3, device=pairs.device)
    own = [ground.beliefs[end] for end in pairs]
    near = _near(own, ground.abeliefs, pairs, edge, degree)
    mixed = [(a + b) / 2 for a, b in zip(own, near, strict=True)]
    chance = torch.tensor(ground.problem.chance, device=pairs.device).logit()
    over = [(a * b).sum(1).clamp(1e-4, 1 - 1e-4).logit() - chance for a, b in (own, near)]
    joined = _bilinear(mixed[0], mixed[1], ground.affinity, folds).clamp_min(1e-4).log()
    return torch.stack([*over, joined], 1)
