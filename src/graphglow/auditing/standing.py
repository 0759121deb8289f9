"""Standing: what each value of the evidence means on this graph, by its own edges.

Of every number, how much more often edges have such a value than random pairs have it, and than
pairs drawn by degree: a log-ratio that means the same on any graph. A logistic regression of edges
against both kinds of pairs sums it up. Tables and regression leave out the fold of the pair.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphglow.auditing.ground import FOLDS, Ground, fold_of
from graphglow.auditing.pairs import RAW, is_edge, raw_evidence

EVIDENCE = (
    *RAW,
    *(f"{name}_uniform" for name in RAW),
    *(f"{name}_degree" for name in RAW),
    "fit_uniform", "fit_degree", "fits_uniform", "fits_degree",
)  # fmt: skip
QUANTILES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
CONTEXT = (
    "degree", "unevenness", "has_features", "has_labels", "told_uniform", "told_degree",
    *(f"below_{q}_{kind}" for kind in ("uniform", "degree") for q in QUANTILES),
)  # fmt: skip
"""Of the graph: degrees, what there is, how much the summed-up evidence tells edges from pairs, and
the share of edges among the lowest pairs, over that of the pairs themselves."""

BINS = 24
SAMPLE = 10_000
"""Edges that tables and regression learn from, at most."""
PAIRS = 5_000
"""Of each kind of pairs without an edge."""
WEAK = 8.0  # pseudo-counts of each table and of the regression


@dataclass(frozen=True, eq=False)
class Standing:
    """Tables of one graph; of two, the first is over uniform pairs, the second by degree.

    Shapes:
        centre, scale [J] of random pairs; cuts [J, BINS - 1], tables [2, FOLDS, J, BINS];
        weights [2, FOLDS, 1 + 2J] of the regressions, fit_cuts [2, BINS - 1] and fit_tables
        [2, FOLDS, BINS] of what they say; context [G]
    """

    centre: Tensor
    scale: Tensor
    cuts: Tensor
    tables: Tensor
    weights: Tensor
    fit_cuts: Tensor
    fit_tables: Tensor
    context: Tensor


def standing_of(ground: Ground, generator: torch.Generator) -> Standing:
    """Learn the tables from a graph's own edges and from pairs without an edge."""
    problem = ground.problem
    some = torch.randperm(len(problem.low), generator=generator)[:SAMPLE].to(problem.device)
    edges = torch.stack([problem.low.long()[some], problem.high.long()[some]])
    groups = [edges, *pairs_without_edge(ground, PAIRS, generator)]
    raw = [raw_evidence(ground, g) for g in groups]
    folds = [fold_of(g[0], g[1]) for g in groups]
    centre, scale = raw[1].mean(0), raw[1].std(0).clamp_min(1e-3)
    cuts, tables = _tables(raw, folds)
    nothing = raw[0].new_zeros(0)
    made = Standing(centre, scale, cuts, tables, nothing, nothing, nothing, nothing)
    known = [_looked_up(made, r, f) for r, f in zip(raw, folds, strict=True)]
    weights = torch.stack([_regression(known, folds, kind) for kind in (0, 1)])
    fits = [_fits(weights, k, f) for k, f in zip(known, folds, strict=True)]
    fit_cuts, fit_tables = _tables(fits, folds)
    fit_tables = torch.stack([fit_tables[kind, :, kind] for kind in (0, 1)])
    made = replace(made, weights=weights, fit_cuts=fit_cuts, fit_tables=fit_tables)
    evidence = [_evidence(made, r, f) for r, f in zip(raw, folds, strict=True)]
    return replace(made, context=_context(ground, *evidence))


def evidence_of(ground: Ground, standing: Standing, pairs: Tensor) -> Tensor:
    """:data:`EVIDENCE` of each pair ``u < v``: [2, M] -> [M, F]."""
    return _evidence(standing, raw_evidence(ground, pairs), fold_of(pairs[0], pairs[1]))


def pairs_without_edge(
    ground: Ground, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Pairs ``u < v`` that are not joined: uniform, and each end drawn by degree: [2, <= count].

    Where the nodes that have edges are all joined, uniform ones stand for both.
    """
    nodes, device = ground.num_nodes, ground.x.device
    ends = ground.neighbour
    drawn = torch.randint(nodes, (2, 2 * count), generator=generator).to(device)
    place = torch.randint(max(1, len(ends)), (2, 2 * count), generator=generator).to(device)
    by_degree = ends[place] if len(ends) else drawn
    found = []
    for pairs in (drawn, by_degree):
        low, high = pairs.amin(0), pairs.amax(0)
        free = (low != high) & ~is_edge(ground, low, high)
        found.append(torch.stack([low, high])[:, free][:, :count])
    return found[0], found[1] if found[1].shape[1] else found[0]


def _evidence(standing: Standing, raw: Tensor, fold: Tensor) -> Tensor:
    return completed(standing, _looked_up(standing, raw, fold), fold)


def completed(standing: Standing, known: Tensor, fold: Tensor) -> Tensor:
    """Add what the regressions make of deviations and log-ratios: [M, 3J], [M] -> [M, F]."""
    fits = _fits(standing.weights, known, fold)  # [M, 2]
    bins = _bins(standing.fit_cuts, fits)
    over = [standing.fit_tables[kind, fold, bins[:, kind]] for kind in (0, 1)]
    return torch.cat([known, fits / 4, torch.stack(over, 1)], 1)


def _looked_up(standing: Standing, raw: Tensor, fold: Tensor) -> Tensor:
    """Deviations from random pairs (-4 .. 12, over 4) and both log-ratios: [M, J] -> [M, 3J]."""
    away = ((raw - standing.centre) / standing.scale).clamp(-4, 12) / 4
    width = raw.shape[1]
    bins = _bins(standing.cuts[:width], raw)
    column = torch.arange(width, device=raw.device)
    over = [table[fold[:, None], column, bins] for table in standing.tables]
    return torch.cat([away, *over], 1)


def _bins(cuts: Tensor, raw: Tensor) -> Tensor:
    return torch.searchsorted(cuts, raw.T.contiguous()).T


def _tables(raw: list[Tensor], folds: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Cuts at quantiles of all [J, BINS - 1], and log-ratios [2, FOLDS, J, BINS]."""
    width, device = raw[0].shape[1], raw[0].device
    share = torch.linspace(0, 1, BINS + 1, device=device)[1:-1]
    several = [r[torch.linspace(0, len(r) - 1, min(len(r), PAIRS)).long().to(device)] for r in raw]
    cuts = torch.quantile(torch.cat(several), share, dim=0).T.contiguous()
    column = torch.arange(width, device=device) * BINS
    counts = []  # of edges, uniform and degree-drawn pairs, by fold: [FOLDS, J, BINS]
    for r, fold in zip(raw, folds, strict=True):
        place = (fold[:, None] * width * BINS + column + _bins(cuts, r)).flatten()
        made = torch.bincount(place, minlength=FOLDS * width * BINS).float()
        made = made.view(FOLDS, width, BINS)
        counts.append(made.sum(0) - made)  # of all other folds
    edges, *pairs = (_smooth(c) for c in counts)
    pooled = (edges / edges.sum(2, keepdim=True).clamp_min(1) + sum(
        p / p.sum(2, keepdim=True).clamp_min(1) for p in pairs)) / 3  # fmt: skip

    def share_of(c: Tensor) -> Tensor:
        return (c + WEAK * pooled + 1e-3) / (c.sum(2, keepdim=True) + WEAK)

    return cuts, torch.stack([(share_of(edges) / share_of(p)).log().clamp(-5, 5) for p in pairs])


def _smooth(counts: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(counts, (1, 1), mode="replicate")
    return (padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]) / 4


def _regression(known: list[Tensor], folds: list[Tensor], kind: int) -> Tensor:
    """Ridge logistic regression of edges against one kind of pairs, both weighing the same, one
    without each fold, by Newton's method: [FOLDS, 1 + 2J].
    """
    parts = [_inputs(known[i], kind) for i in (0, 1 + kind)]
    rows = torch.cat(parts)
    fold = torch.cat([folds[0], folds[1 + kind]])
    truth = torch.arange(len(rows), device=rows.device) < len(parts[0])
    penalty = torch.full((rows.shape[1],), WEAK, device=rows.device)
    penalty[0] = 1e-2
    found = []
    for k in range(FOLDS):
        x, y = rows[fold != k], truth[fold != k].float()
        half = len(y) / 2
        share = torch.where(y > 0, half / y.sum().clamp_min(1), half / (1 - y).sum().clamp_min(1))
        weight = x.new_zeros(x.shape[1])
        for _ in range(6):
            p = (x @ weight).sigmoid()
            slope = x.T @ (share * (p - y)) + penalty * weight
            curve = (x * (share * (p * (1 - p)).clamp_min(1e-4))[:, None]).T @ x
            curve.diagonal().add_(penalty)
            weight = weight - torch.linalg.solve(curve, slope)
        found.append(weight)
    return torch.stack(found)


def _inputs(known: Tensor, kind: int) -> Tensor:
    """A constant, deviations, and the log-ratios over one kind of pairs: [M, 3J] -> [M, 1 + 2J]."""
    width = known.shape[1] // 3
    start = (1 + kind) * width
    return torch.cat([known.new_ones(len(known), 1), known[:, :width],
                      known[:, start : start + width]], 1)  # fmt: skip


def _fits(weights: Tensor, known: Tensor, fold: Tensor) -> Tensor:
    """Log-odds of the two regressions without each pair's fold: [M, 2]."""
    out = known.new_zeros(len(known), 2)
    for kind in (0, 1):
        every = _inputs(known, kind) @ weights[kind].T  # [M, FOLDS]
        out[:, kind] = every.gather(1, fold[:, None])[:, 0]
    return out.clamp(-12, 12)


def _context(ground: Ground, edges: Tensor, uniform: Tensor, by_degree: Tensor) -> Tensor:
    mean = ground.degree.mean().clamp_min(1e-3)
    facts = [
        float(mean.log1p()) / 4,
        float((ground.degree.square().mean() / mean.square()).log1p()) / 3,
        float(ground.x.shape[1] > 0),
        float(len(ground.problem.seen) > 1),
    ]
    level = torch.tensor(QUANTILES, device=edges.device)
    told, below = [], []
    for pairs, kind in ((uniform, "uniform"), (by_degree, "degree")):
        told.append(edges[:, EVIDENCE.index(f"fits_{kind}")].mean()[None])
        place = EVIDENCE.index(f"fit_{kind}")
        cut = torch.quantile(pairs[:, place], level)
        below.append((edges[:, place, None] <= cut).float().mean(0) / level)
    return torch.cat([torch.tensor(facts, device=edges.device), *told, *below]).clamp(-4, 4)
