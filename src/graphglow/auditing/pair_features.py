"""Raw evidence about pairs: each number is what it would be without an edge between the two."""

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.auditing.pair_inputs import FOLDS, PairInputs, fold_of
from graphglow.linalg.pairs import between, common, hop_cosines, is_edge

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
    "longer ways": ("spectrum", "rebuilt", "rebuilt_count", "between"),
    "degrees": ("degree_low", "degree_high"),
    "classes": ("agree_own", "agree_around", "class_affinity"),
}
"""Named kinds of evidence, for explanations; every number is in one of them."""

BLOCK = {"cpu": 2**16, "cuda": 2**20}  # pairs at once, by device


def raw_evidence(inputs: PairInputs, pairs: Tensor) -> Tensor:
    """:data:`RAW` of each pair ``u < v``: [2, M] -> [M, J]."""
    blocks = torch.split(pairs, BLOCK[pairs.device.type], dim=1)
    return torch.cat([inputs.x.new_zeros(0, len(RAW)), *(_block(inputs, some) for some in blocks)])


def _block(inputs: PairInputs, pairs: Tensor) -> Tensor:
    edge = is_edge(inputs.links, pairs).float()
    degree = inputs.degree[pairs] - edge  # [2, M]
    fold = fold_of(pairs[0], pairs[1])
    folds = [(fold == k).nonzero()[:, 0] for k in range(FOLDS)]
    return torch.cat(
        [
            hop_cosines(inputs.x, inputs.ax, inputs.around, inputs.degree, pairs, edge),
            _feature_affinity(inputs, pairs, edge, degree, folds),
            _spectrum(inputs, pairs, degree, fold),
            _common(inputs, pairs, edge, degree),
            _between(inputs, pairs, edge)[:, None],
            degree.sort(0).values.T.log1p(),
            _classes(inputs, pairs, edge, degree, folds),
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


def _feature_affinity(
    inputs: PairInputs, pairs: Tensor, edge: Tensor, degree: Tensor, folds: list[Tensor]
) -> Tensor:
    """``a W b`` in whitened columns, W by the edges of other folds; of own ones and means: [M, 2].

    The mean of x being linear, it is whitened once per node.
    """
    own = [inputs.z[end] for end in pairs]
    near = _near(own, inputs.az, pairs, edge, degree)
    return torch.stack([_bilinear(a, b, inputs.feature_affinity, folds) for a, b in (own, near)], 1)


def _bilinear(a: Tensor, b: Tensor, by_fold: Tensor, folds: list[Tensor]) -> Tensor:
    """``a W b``, with the W of the fold that a pair is in: [M, p], [M, p], [K, p, p] -> [M]."""
    out = a.new_empty(len(a))
    for weight, here in zip(by_fold, folds, strict=True):
        out[here] = ((a[here] @ weight) * b[here]).sum(1)
    return out


def _spectrum(inputs: PairInputs, pairs: Tensor, degree: Tensor, fold: Tensor) -> Tensor:
    """Cosine of eigenvector rows, and the low-rank adjacency, normalised and not: [M, 3]."""
    a, b = inputs.spectrum[fold, pairs[0]], inputs.spectrum[fold, pairs[1]]
    rebuilt = (a * b * inputs.signs[fold]).sum(1)
    count = rebuilt * (degree + 1).prod(0).sqrt()
    return torch.stack([F.cosine_similarity(a, b, dim=1, eps=1e-6), rebuilt, count], 1)


def _common(inputs: PairInputs, pairs: Tensor, edge: Tensor, degree: Tensor) -> Tensor:
    """log(1 + common), Jaccard, Adamic-Adar, resource allocation, common over chance: [M, 5]."""
    count, adamic, allocation = common(inputs.links, inputs.common_neighbour_weights, pairs).unbind(
        1
    )
    both = degree.sum(0)
    total = (len(inputs.links.col) - 2 * edge).clamp_min(1)
    num_two_paths = inputs.num_two_paths - 2 * edge * both
    expected = degree.prod(0) * num_two_paths / total.square()
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


def _between(inputs: PairInputs, pairs: Tensor, edge: Tensor) -> Tensor:
    """Edges between up to CHOSEN other neighbours of each end, over what degrees expect: [M]."""
    total = (len(inputs.links.col) - 2 * edge).clamp_min(1)
    hits, expected = between(inputs.links, inputs.chosen, pairs, total).unbind(1)
    return ((hits + 0.1) / (expected + 0.1)).log()


def _classes(
    inputs: PairInputs, pairs: Tensor, edge: Tensor, degree: Tensor, folds: list[Tensor]
) -> Tensor:
    """Log-odds over chance of one class, by both's own and by what surrounds them, and how often
    edges join such classes: [M, 3].
    """
    if inputs.beliefs.shape[1] == 0:
        return torch.zeros(pairs.shape[1], 3, device=pairs.device)
    own = [inputs.beliefs[end] for end in pairs]
    near = _near(own, inputs.abeliefs, pairs, edge, degree)
    mixed = [(a + b) / 2 for a, b in zip(own, near, strict=True)]
    chance = torch.tensor(inputs.graph.chance, device=pairs.device).logit()
    over = [(a * b).sum(1).clamp(1e-4, 1 - 1e-4).logit() - chance for a, b in (own, near)]
    joined = _bilinear(mixed[0], mixed[1], inputs.class_affinity, folds).clamp_min(1e-4).log()
    return torch.stack([*over, joined], 1)
