"""Reference tables: what each value of the evidence means on this graph, by its own edges.

Of every number, how much more often edges have such a value than random pairs have it, and than
pairs drawn by degree: a log-ratio that means the same on any graph. Logistic regressions sum it up:
of edges against each kind of pairs, and of edges against the kinds that false edges here seem to
be, the doubtful edges among them. Tables and regressions leave out the fold of the pair.
"""

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from graphglow.auditing.pair_features import RAW, raw_evidence
from graphglow.auditing.pair_inputs import FOLDS, PairInputs, fold_of
from graphglow.linalg.pairs import is_edge

EVIDENCE = (
    *RAW,
    *(f"{name}_uniform" for name in RAW),
    *(f"{name}_degree" for name in RAW),
    "fit_uniform", "fit_degree", "fit_own", "fits_uniform", "fits_degree",
)  # fmt: skip
QUANTILES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
CONTEXT = (
    "size", "degree", "unevenness", "has_features", "has_labels", "told_uniform", "told_degree",
    "false_edge_mix", "share",
    *(f"below_{q}_{kind}" for kind in ("uniform", "degree") for q in QUANTILES),
)  # fmt: skip
"""Of the graph: edges, degrees, what there is; how much the summed-up evidence tells edges from
pairs; log-odds of by degree against uniform among false edges, and of false ones among edges; the
share of edges among the lowest pairs, over that of the pairs themselves."""

BINS = 24
SAMPLE = 10_000
"""Edges that tables and regression learn from, at most."""
PAIRS = 5_000
"""Of each kind of pairs without an edge."""
WEAK = 8.0  # pseudo-counts of each table
RIDGE = 50.0  # of the regressions
LOW = 0.5  # quantile of pairs below which edges are taken for false ones


@dataclass(frozen=True, eq=False)
class ReferenceTables:
    """Tables of one graph; of two, the first is over uniform pairs, the second by degree.

    Shapes:
        centre, scale [J] of random pairs; cuts [J, BINS - 1], log_ratios [2, FOLDS, J, BINS];
        weights [3, FOLDS, 1 + 3J] of the regressions, fit_cuts [2, BINS - 1] and fit_tables
        [2, FOLDS, BINS] of what the first two say; context [G]
    """

    centre: Tensor
    scale: Tensor
    cuts: Tensor
    log_ratios: Tensor
    weights: Tensor
    fit_cuts: Tensor
    fit_tables: Tensor
    context: Tensor


def build_reference_tables(inputs: PairInputs, generator: torch.Generator) -> ReferenceTables:
    """Learn the tables from a graph's own edges and from pairs without an edge."""
    graph = inputs.graph
    some = torch.randperm(len(graph.low), generator=generator)[:SAMPLE].to(graph.device)
    edges = torch.stack([graph.low.long()[some], graph.high.long()[some]])
    groups = [edges, *pairs_without_edge(inputs, PAIRS, generator)]
    raw = [raw_evidence(inputs, g) for g in groups]
    folds = [fold_of(g[0], g[1]) for g in groups]
    centre, scale = raw[1].mean(0), raw[1].std(0).clamp_min(1e-3)
    cuts, tables = _tables(raw, folds)
    nothing = raw[0].new_zeros(0)
    made = ReferenceTables(centre, scale, cuts, tables, nothing, nothing, nothing, nothing)
    known = [_looked_up(made, r, f) for r, f in zip(raw, folds, strict=True)]
    ones = [k.new_ones(len(k)) for k in known]
    parts = list(zip(known, folds, ones, strict=True))
    weights = torch.stack([_regression(parts[:1], [parts[kind]]) for kind in (1, 2)])
    fits = [_fits(weights, k, f) for k, f in zip(known, folds, strict=True)]
    mix, share = estimate_false_edge_mix(*fits)
    own = _own_regression(parts, fits[0], mix, share)
    fit_cuts, fit_tables = _tables(fits, folds)
    fit_tables = torch.stack([fit_tables[kind, :, kind] for kind in (0, 1)])
    weights = torch.cat([weights, own[None]])
    made = replace(made, weights=weights, fit_cuts=fit_cuts, fit_tables=fit_tables)
    evidence = [_evidence(made, r, f) for r, f in zip(raw, folds, strict=True)]
    return replace(made, context=_context(inputs, evidence, torch.stack([mix, share])))


def evidence_of(inputs: PairInputs, tables: ReferenceTables, pairs: Tensor) -> Tensor:
    """:data:`EVIDENCE` of each pair ``u < v``: [2, M] -> [M, F]."""
    return _evidence(tables, raw_evidence(inputs, pairs), fold_of(pairs[0], pairs[1]))


def pairs_without_edge(
    inputs: PairInputs, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Pairs ``u < v`` that are not joined: uniform, and each end drawn by degree: [2, <= count].

    Where the nodes that have edges are all joined, uniform ones stand for both.
    """
    nodes, device = inputs.num_nodes, inputs.x.device
    ends = inputs.links.col.long()
    drawn = torch.randint(nodes, (2, 2 * count), generator=generator).to(device)
    place = torch.randint(max(1, len(ends)), (2, 2 * count), generator=generator).to(device)
    by_degree = ends[place] if len(ends) else drawn
    found = []
    for pairs in (drawn, by_degree):
        pairs = pairs.sort(0).values
        free = (pairs[0] != pairs[1]) & ~is_edge(inputs.links, pairs)
        found.append(pairs[:, free][:, :count])
    return found[0], found[1] if found[1].shape[1] else found[0]


def _evidence(tables: ReferenceTables, raw: Tensor, fold: Tensor) -> Tensor:
    return completed(tables, _looked_up(tables, raw, fold), fold)


def completed(tables: ReferenceTables, known: Tensor, fold: Tensor) -> Tensor:
    """Add what the regressions make of deviations and log-ratios: [M, 3J], [M] -> [M, F]."""
    fits = _fits(tables.weights, known, fold)  # [M, 3]
    bins = _bins(tables.fit_cuts, fits[:, :2])
    over = [tables.fit_tables[kind, fold, bins[:, kind]] for kind in (0, 1)]
    return torch.cat([known, fits / 4, torch.stack(over, 1)], 1)


def _looked_up(tables: ReferenceTables, raw: Tensor, fold: Tensor) -> Tensor:
    """Deviations from random pairs (-4 .. 12, over 4) and both log-ratios: [M, J] -> [M, 3J]."""
    away = ((raw - tables.centre) / tables.scale).clamp(-4, 12) / 4
    width = raw.shape[1]
    bins = _bins(tables.cuts[:width], raw)
    column = torch.arange(width, device=raw.device)
    over = [table[fold[:, None], column, bins] for table in tables.log_ratios]
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


Part: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Of some pairs: what is known [M, 3J], folds [M], weights [M]."""


def _regression(real: list[Part], false: list[Part]) -> Tensor:
    """Ridge logistic regression of some pairs against others, both weighing the same, one without
    each fold, by Newton's method: [FOLDS, 1 + 3J].
    """
    known, fold, weights = (torch.cat(part) for part in zip(*real, *false, strict=True))
    rows = torch.cat([known.new_ones(len(known), 1), known], 1)
    truth = (torch.arange(len(rows), device=rows.device) < sum(len(p[1]) for p in real)).float()
    penalty = torch.full((rows.shape[1],), RIDGE, device=rows.device)
    penalty[0] = 1e-2
    found: list[Tensor] = []
    for k in range(FOLDS):
        x, y, share = (part[fold != k] for part in (rows, truth, weights))
        for side in (y > 0, y == 0):
            share = torch.where(side, share / share[side].sum().clamp_min(1) * len(y) / 2, share)
        weight = found[-1] if found else x.new_zeros(x.shape[1])
        for _ in range(3 if found else 6):
            p = (x @ weight).sigmoid()
            slope = x.T @ (share * (p - y)) + penalty * weight
            curve = (x * (share * (p * (1 - p)).clamp_min(1e-4))[:, None]).T @ x
            curve.diagonal().add_(penalty)
            weight = weight - torch.linalg.solve(curve, slope)
        found.append(weight)
    return torch.stack(found)


def estimate_false_edge_mix(
    edges: Tensor, uniform: Tensor, by_degree: Tensor
) -> tuple[Tensor, Tensor]:
    """What false edges are: log-odds of by degree against uniform, and of being an edge at all.

    Low edges, where hardly any is real, are a mixture of low pairs of both kinds, of which the
    ratio of densities is known: ``r_1 - r_2``. The mixture's share is found by expectation
    maximisation; then there are as many false edges as low ones call for.

    Shapes:
        log-odds of the regressions [M, 2] of each -> [], []
    """
    cut = torch.quantile(torch.cat([uniform.sum(1), by_degree.sum(1)]), LOW)
    low, one, two = ((r.sum(1) <= cut).float().mean() for r in (edges, uniform, by_degree))
    some = edges[edges.sum(1) <= cut]
    ratio = (some[:, 0] - some[:, 1]).clamp(-8, 8).exp() * one / two.clamp_min(1e-3)
    mix = torch.full_like(low, 0.5)
    for _ in range(30):
        mix = ((mix * ratio / (mix * ratio + 1 - mix)).sum() + 0.5) / (len(some) + 1)
    share = (low / ((1 - mix) * one + mix * two).clamp_min(1e-3)).clamp(0.01, 0.9)
    return (0.1 + 0.8 * mix).logit(), share.logit()  # there may be kinds that are neither


def _own_regression(parts: list[Part], fits: Tensor, mix: Tensor, share: Tensor) -> Tensor:
    """Edges, as far as they seem real, against pairs of both kinds as far as false edges seem to
    be such, and against edges that seem false: [FOLDS, 1 + 3J].
    """
    (known, fold, ones), uniform, by_degree = parts
    mixed = torch.stack([1 - mix.sigmoid(), mix.sigmoid()])
    false = (share.sigmoid() * (mixed * (-fits).exp()).sum(1)).clamp_max(0.98)
    count = share.sigmoid() * len(ones)
    free = [(k, f, w * count * m / len(w)) for (k, f, w), m in
            zip((uniform, by_degree), mixed, strict=True)]  # fmt: skip
    weights = known.new_zeros(0)
    for _ in range(2):
        weights = _regression([(known, fold, 1 - false)], [(known, fold, false), *free])
        odds = _fits(weights[None], known, fold)[:, 0] - share
        false = (-odds).sigmoid().clamp_max(0.98)
    return weights


def _fits(weights: Tensor, known: Tensor, fold: Tensor) -> Tensor:
    """Log-odds of regressions without each pair's fold: [K, FOLDS, 1 + 3J], [M, 3J] -> [M, K]."""
    every = weights[:, :, 0, None] + weights[:, :, 1:] @ known.T  # [K, FOLDS, M]
    place = fold[None, None].expand(len(weights), 1, -1)
    return every.gather(1, place)[:, 0].T.clamp(-12, 12)


def _context(inputs: PairInputs, evidence: list[Tensor], false: Tensor) -> Tensor:
    edges, uniform, by_degree = evidence
    mean = inputs.degree.mean().clamp_min(1e-3)
    facts = [
        math.log(min(len(inputs.graph.low), 100_000)) / 3 - 3,
        float(mean.log1p()) / 4,
        float((inputs.degree.square().mean() / mean.square()).log1p()) / 3,
        float(inputs.x.shape[1] > 0),
        float(len(inputs.graph.seen) > 1),
    ]
    level = torch.tensor(QUANTILES, device=edges.device)
    told, below = [], []
    for pairs, kind in ((uniform, "uniform"), (by_degree, "degree")):
        told.append(edges[:, EVIDENCE.index(f"fits_{kind}")].mean()[None])
        place = EVIDENCE.index(f"fit_{kind}")
        cut = torch.quantile(pairs[:, place], level)
        below.append((edges[:, place, None] <= cut).float().mean(0) / level)
    return torch.cat([torch.tensor(facts, device=edges.device), *told, false, *below]).clamp(-4, 4)
