"""Reference tables: what each feature of a pair means on this graph, judged by its own edges.

For every value, how much more often edges have it than random pairs, and than pairs drawn by
degree: a log-ratio, which means the same on any graph. Logistic regressions of edges against each
kind of pairs sum the log-ratios up. Tables and regressions leave out the fold of the pair that they
are applied to.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.auditing.pair_features import FOLDS, RAW, PairInputs, pair_fold, raw_features
from graphglow.graph.graph import Graph
from graphglow.linalg.sparse import is_edge

EVIDENCE = (
    *RAW,
    *(f"{name}_uniform" for name in RAW),
    *(f"{name}_degree" for name in RAW),
    "fit_uniform", "fit_degree",
)  # fmt: skip
CONTEXT = (
    "size", "degree", "unevenness", "has_features", "has_labels", "false_edge_mix", "share",
)  # fmt: skip
"""Facts of a graph: edges, degrees, what is given; log-odds of by degree against uniform among
false edges, and of false among all edges."""

BINS = 24
SAMPLE = 10_000
"""Edges that tables and regressions learn from, at most."""
PAIRS = 5_000
"""Pairs without an edge that they learn from, of each kind."""
WEAK = 8.0  # pseudo-counts of each table
RIDGE = 50.0  # of the regressions
LOW = 0.5  # quantile of pairs below which edges are taken for false ones


class ReferenceTables:
    """A graph's pair features, and what they mean on it, learned from its own edges.

    Where there are two of a kind, the first is over uniform pairs, the second by degree.

    Shapes:
        centre, scale [J] of random pairs; cuts [J, BINS - 1], log_ratios [2, FOLDS, J, BINS];
        weights [2, FOLDS, 1 + 3J] of the regressions; samples [.., F], evidence of edges and of
        both kinds of pairs; context [G]
    """

    def __init__(self, inputs: PairInputs, generator: torch.Generator) -> None:
        self.inputs, graph = inputs, inputs.graph
        some = torch.randperm(len(graph.low), generator=generator)[:SAMPLE].to(graph.device)
        edges = torch.stack([graph.low.long()[some], graph.high.long()[some]])
        groups = [edges, *pairs_without_edge(graph, PAIRS, generator)]
        raw = [raw_features(inputs, pairs) for pairs in groups]
        folds = [pair_fold(pairs[0], pairs[1]) for pairs in groups]
        self.centre, self.scale = raw[1].mean(0), raw[1].std(0).clamp_min(1e-3)
        self.cuts, self.log_ratios = _log_ratios(raw, folds)
        known = [self._looked_up(r, fold) for r, fold in zip(raw, folds, strict=True)]
        self.weights = torch.stack(
            [_regression([known[0], known[kind]], [folds[0], folds[kind]]) for kind in (1, 2)]
        )
        fits = [_fits(self.weights, k, fold) for k, fold in zip(known, folds, strict=True)]
        self.samples = [self.with_fits(k, fold) for k, fold in zip(known, folds, strict=True)]
        self.context = torch.cat([_facts(inputs), *estimate_false_edge_mix(*fits)]).clamp(-4, 4)

    def evidence(self, pairs: Tensor) -> Tensor:
        """Compute :data:`EVIDENCE` for pairs ``u < v``: [2, M] -> [M, F]."""
        fold = pair_fold(pairs[0], pairs[1])
        return self.with_fits(self._looked_up(raw_features(self.inputs, pairs), fold), fold)

    def with_fits(self, known: Tensor, fold: Tensor) -> Tensor:
        """Append what the regressions make of deviations and log-ratios: [M, 3J], [M] -> [M, F]."""
        return torch.cat([known, _fits(self.weights, known, fold) / 4], 1)

    def _looked_up(self, raw: Tensor, fold: Tensor) -> Tensor:
        """Deviations from random pairs (-4 .. 12, over 4), both log-ratios: [M, J] -> [M, 3J]."""
        away = ((raw - self.centre) / self.scale).clamp(-4, 12) / 4
        bins, column = _bins(self.cuts, raw), torch.arange(raw.shape[1], device=raw.device)
        ratios = [table[fold[:, None], column, bins] for table in self.log_ratios]
        return torch.cat([away, *ratios], 1)


def pairs_without_edge(
    graph: Graph, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw pairs ``u < v`` that are not joined: uniformly, and by degree: [2, <= count] each.

    Where all nodes with edges are joined to each other, uniform pairs stand for both.
    """
    ends, nodes, device = graph.links.col.long(), graph.num_nodes, graph.device
    uniform = torch.randint(nodes, (2, 2 * count), generator=generator).to(device)
    place = torch.randint(max(1, len(ends)), (2, 2 * count), generator=generator).to(device)
    free = []
    for pairs in (uniform, ends[place] if len(ends) else uniform):
        pairs = pairs.sort(0).values
        kept = (pairs[0] != pairs[1]) & ~is_edge(graph.links, pairs)
        free.append(pairs[:, kept][:, :count])
    return free[0], free[1] if free[1].shape[1] else free[0]


def _bins(cuts: Tensor, raw: Tensor) -> Tensor:
    return torch.searchsorted(cuts, raw.T.contiguous()).T


def _log_ratios(raw: list[Tensor], folds: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Cuts at common quantiles [J, BINS - 1], and log-ratios [2, FOLDS, J, BINS]."""
    width, device = raw[0].shape[1], raw[0].device
    level = torch.linspace(0, 1, BINS + 1, device=device)[1:-1]
    evenly = [r[torch.linspace(0, len(r) - 1, min(len(r), PAIRS)).long().to(device)] for r in raw]
    cuts = torch.quantile(torch.cat(evenly), level, dim=0).T.contiguous()
    column = torch.arange(width, device=device) * BINS
    smooth = []  # counts of edges, uniform and degree-drawn pairs: [FOLDS, J, BINS]
    for r, fold in zip(raw, folds, strict=True):
        place = (fold[:, None] * width * BINS + column + _bins(cuts, r)).flatten()
        count = torch.bincount(place, minlength=FOLDS * width * BINS).float()
        count = count.view(FOLDS, width, BINS)
        padded = F.pad(count.sum(0) - count, (1, 1), mode="replicate")  # of all other folds
        smooth.append((padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]) / 4)
    edges, *pairs = smooth
    pooled = (edges / edges.sum(2, keepdim=True).clamp_min(1) + sum(
        p / p.sum(2, keepdim=True).clamp_min(1) for p in pairs)) / 3  # fmt: skip

    def share_of(c: Tensor) -> Tensor:
        return (c + WEAK * pooled + 1e-3) / (c.sum(2, keepdim=True) + WEAK)

    return cuts, torch.stack([(share_of(edges) / share_of(p)).log().clamp(-5, 5) for p in pairs])


def _regression(known: list[Tensor], folds: list[Tensor]) -> Tensor:
    """Fit ridge logistic regressions of the first group of pairs against the second.

    One without each fold, by Newton's method; both sides weigh the same.

    Shapes:
        known [M, 3J], folds [M] each -> [FOLDS, 1 + 3J]
    """
    every, fold = torch.cat(known), torch.cat(folds)
    rows = torch.cat([every.new_ones(len(every), 1), every], 1)
    truth = (torch.arange(len(rows), device=rows.device) < len(known[0])).float()
    penalty = torch.full((rows.shape[1],), RIDGE, device=rows.device)
    penalty[0] = 1e-2
    fitted: list[Tensor] = []
    for k in range(FOLDS):
        x, y = rows[fold != k], truth[fold != k]
        mean = y.mean().clamp(1e-6, 1 - 1e-6)
        share = torch.where(y > 0, 0.5 / mean, 0.5 / (1 - mean))
        weight = fitted[-1] if fitted else x.new_zeros(x.shape[1])
        for _ in range(3 if fitted else 6):
            p = (x @ weight).sigmoid()
            slope = x.T @ (share * (p - y)) + penalty * weight
            curve = (x * (share * (p * (1 - p)).clamp_min(1e-4))[:, None]).T @ x
            curve.diagonal().add_(penalty)
            weight = weight - torch.linalg.solve(curve, slope)
        fitted.append(weight)
    return torch.stack(fitted)


def estimate_false_edge_mix(
    edges: Tensor, uniform: Tensor, by_degree: Tensor
) -> tuple[Tensor, Tensor]:
    """Estimate log-odds of by degree against uniform among false edges, and of being false.

    Low edges, hardly any of them real, are a mixture of low pairs of both kinds, whose ratio of
    densities is known: ``r_1 - r_2``. Expectation maximisation finds the mixture; then there are as
    many false edges as explain the low ones.

    Shapes:
        log-odds of the regressions [M, 2] each -> [1], [1]
    """
    cut = torch.quantile(torch.cat([uniform.sum(1), by_degree.sum(1)]), LOW)
    low, one, two = ((r.sum(1) <= cut).float().mean() for r in (edges, uniform, by_degree))
    some = edges[edges.sum(1) <= cut]
    ratio = (some[:, 0] - some[:, 1]).clamp(-8, 8).exp() * one / two.clamp_min(1e-3)
    mix = torch.full_like(low, 0.5)
    for _ in range(30):
        mix = ((mix * ratio / (mix * ratio + 1 - mix)).sum() + 0.5) / (len(some) + 1)
    share = (low / ((1 - mix) * one + mix * two).clamp_min(1e-3)).clamp(0.01, 0.9)
    return (0.1 + 0.8 * mix).logit()[None], share.logit()[None]  # some may be neither


def _fits(weights: Tensor, known: Tensor, fold: Tensor) -> Tensor:
    """Log-odds by the regressions without each pair's fold: [K, FOLDS, 1 + 3J] -> [M, K]."""
    every = weights[:, :, 0, None] + weights[:, :, 1:] @ known.T  # [K, FOLDS, M]
    place = fold[None, None].expand(len(weights), 1, -1)
    return every.gather(1, place)[:, 0].T.clamp(-12, 12)


def _facts(inputs: PairInputs) -> Tensor:
    """The first five of :data:`CONTEXT`."""
    degree = inputs.graph.degree
    mean = degree.mean().clamp_min(1e-3)
    facts = [
        math.log(min(len(inputs.graph.low), 100_000)) / 3 - 3,
        float(mean.log1p()) / 4,
        float((degree.square().mean() / mean.square()).log1p()) / 3,
        float(inputs.x.shape[1] > 0),
        float(len(inputs.graph.seen) > 1),
    ]
    return torch.tensor(facts, device=degree.device)
