"""How good class probabilities are: measures, leave-one-out accuracy, and sets of classes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.errors import warn
from graphglow.graph.graph import undirected_edges

BINS = 10


@dataclass(frozen=True)
class Accuracy:
    """Share of labelled nodes that are right without their own label; the 95 % interval."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        if self.count == 0:
            return "unknown (leave-one-out needs a class with two labels)"
        low, high = f"{100 * self.low:.1f}", f"{100 * self.high:.1f}"
        over = f"leave-one-out over {self.count:,} labels"
        return f"{100 * self.value:.1f} % ({low} to {high} %, {over})"


class Scores(NamedTuple):
    """How good predictions are on some nodes; None where a measure is not defined."""

    nodes: int
    accuracy: float
    majority: float
    """Share of the most frequent class: what a constant answer would get."""
    balanced_accuracy: float
    f1_macro: float
    log_loss: float
    auroc: float | None
    """Of two classes; of more, the mean over each class against the others."""
    average_precision: float | None
    """Of two classes, for the one with fewer labels."""
    calibration_error: float
    """Mean gap between the probability of the predicted class and how often it is right."""

    @property
    def skewed(self) -> bool:
        """Whether there are two classes, or one has most nodes: accuracy alone says little."""
        return self.average_precision is not None or self.majority > 0.5

    def ranking(self) -> str:
        """AUROC and, of two classes, average precision, beside those of a constant answer."""
        precise = self.average_precision
        ours = "" if precise is None else f", average precision {precise:.3f}"
        theirs = "" if precise is None else f", {1 - self.majority:.3f}"
        auroc = "unknown" if self.auroc is None else f"{self.auroc:.3f}"
        return f"AUROC {auroc}{ours}; always the majority: 0.500{theirs}, {self.majority:.1%} right"


def fair_tests(y: Tensor, labelled: Tensor) -> Tensor:
    """Mark labelled nodes whose class has another label: [N], [N] -> [N] of bool."""
    counts = torch.bincount(y[labelled], minlength=int(y.max()) + 1)
    return labelled & (counts[y.clamp_min(0)] >= 2)


def weighted_accuracy(right: Tensor, weight: Tensor) -> Accuracy:
    """Estimate an accuracy from weighted tests, with the interval of E. B. Wilson (1927).

    The weights count as ``sum(w)^2 / sum(w^2)`` tests, which is their number if all are equal.

    Shapes:
        right [L] of bool, weight [L]
    """
    if len(right) == 0:
        return Accuracy(math.nan, 0.0, 1.0, 0)
    weight = weight.double()
    share = float((weight * right).sum() / weight.sum())
    tests, z = float(weight.sum() ** 2 / weight.square().sum()), 1.959964
    centre = (share + z**2 / (2 * tests)) / (1 + z**2 / tests)
    half = z / (1 + z**2 / tests) * math.sqrt(share * (1 - share) / tests + (z / tests / 2) ** 2)
    return Accuracy(share, max(0.0, centre - half), min(1.0, centre + half), len(right))


def conformal_sets(p: Tensor, tested: Tensor, y: Tensor, weight: Tensor, coverage: float) -> Tensor:
    """Classes at least as probable as the true class of a share ``coverage`` of tested nodes.

    Split conformal prediction (Sadinle, Lei and Wasserman, 2019) over leave-one-out probabilities,
    weighted by the classes' shares (Tibshirani et al., 2019). The predicted class is always in the
    set; with too few labels every class is.

    Shapes:
        p [N, C], tested [L, C], y [L], weight [L] -> [N, C] of bool
    """
    own, order = tested.gather(1, y[:, None])[:, 0].sort(descending=True)
    weight = weight.double() / weight.double().mean().clamp_min(1e-9)
    reached = weight[order].cumsum(0) >= (len(y) + 1) * coverage - 1e-9
    if not bool(reached.any()):
        needed = math.ceil(coverage / (1 - coverage) - 1e-9)
        warn(
            f"coverage {coverage:g} needs at least {needed} labels whose class has another one; "
            f"got {len(y)}, so that every set holds all classes"
        )
        return torch.ones_like(p, dtype=torch.bool)
    least = own[int(reached.int().argmax())]
    sets: Tensor = (p >= least).scatter(1, p.argmax(1, keepdim=True), True)
    return sets


def scores_of(y: Tensor, p: Tensor, given: Tensor | None = None) -> Scores:
    """Measure class probabilities p [M, C] on labelled nodes y [M].

    ``given`` [C] are the numbers of labels that the predictor had; by default those of ``y``.
    """
    from sklearn import metrics

    y, p = y.cpu(), p.cpu()
    given = torch.bincount(y) if given is None else given
    width = max(p.shape[1], int(y.max()) + 1)
    whole = F.pad(p.double(), (0, width - p.shape[1]))
    truth, predicted = y.numpy(), whole.argmax(1).numpy()
    chances = (whole / whole.sum(1, keepdim=True)).numpy()
    seen = given.nonzero()[:, 0].tolist()
    tested = [c for c in seen if 0 < (truth == c).sum() < len(truth)]
    areas = [metrics.roc_auc_score(truth == c, chances[:, c]) for c in tested]
    rarer, precision = min(reversed(seen), key=lambda c: int(given[c])), None
    if len(seen) == 2 and rarer in tested:
        precision = metrics.average_precision_score(truth == rarer, chances[:, rarer])
    confidence, right = chances.max(1), truth == predicted
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, confidence - right, BINS)
    macro: dict[str, Any] = {"average": "macro", "zero_division": 0}
    return Scores(
        nodes=len(truth),
        accuracy=float(right.mean()),
        majority=float(y.bincount().max()) / len(y),
        balanced_accuracy=metrics.recall_score(
            truth, predicted, labels=sorted(set(truth.tolist())), **macro
        ),
        f1_macro=metrics.f1_score(truth, predicted, **macro),
        log_loss=metrics.log_loss(truth, chances, labels=range(width)),
        auroc=sum(areas) / len(areas) if areas else None,
        average_precision=precision,
        # sum_b |mean confidence - mean right| n_b / M over ten bins of confidence
        calibration_error=float(np.abs(gaps).sum() / len(truth)),
    )


# Whether a refined graph, or what was trained over it, is better than the input

STANDARD_ERRORS, SIGNIFICANT = 2.0, 0.05
"""Smaller differences between shares of edges, and larger p-values, may be chance."""
NO_PAIRS = "no labelled pairs among the edges"


class Change(NamedTuple):
    """A share before and after, in words too."""

    before: float
    after: float
    sign: int
    """1 if it rose, -1 if it fell, 0 if the difference may be chance."""
    sentence: str


def verdict_of(comparisons: Iterable[Change | None], unknown: str) -> str:
    """Give each comparison a line, the decisive one first; ``unknown`` says why there is none."""
    parts = [one for one in comparisons if one is not None]
    if not parts:
        return f"cannot tell: {unknown}"
    signs = {one.sign for one in parts}
    word = "better" if 1 in signs else "worse" if -1 in signs else "no clear difference"
    if {1, -1} <= signs:
        word = "better in one way and worse in another"
    parts.sort(key=lambda one: one.sign, reverse=1 in signs)
    lines = "\n".join(one.sentence for one in parts)
    return f"{word}: {lines}"


def compare_accuracies(before: Tensor, after: Tensor, whose: str) -> Change:
    """Compare which nodes two predictors get right, by McNemar's exact test: [M] of bool each.

    ``whose`` says whose accuracies they are, after and before, as ``"new {} against {} of old"``.
    """
    from scipy.stats import binomtest

    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    chance = gained == lost or binomtest(gained, gained + lost).pvalue >= SIGNIFICANT
    shares = float(before.double().mean()), float(after.double().mean())
    sentence = whose.format(f"{shares[1]:.1%}", f"{shares[0]:.1%}")
    return Change(*shares, 0 if chance else 1 if gained > lost else -1, sentence)


def compare_edges(data: Data, edge_index: Tensor) -> Change | None:
    """Compare the edges of ``data`` with others [2, E], by training and validation labels.

    Where both graphs have edges with a validation node, only these count: the learner has not read
    their labels. None where one of the graphs has no edge with two known labels.
    """
    y, train, val = (data.get(name) for name in ("y", "train_mask", "val_mask"))
    if y is None or data.get("edge_index") is None:
        return None
    known = y >= 0
    if train is not None:
        known = known & (train if val is None else train | val)
    pairs = []
    given = data.edge_index, data.get("edge_weight")
    for edges, weight in (given, (edge_index.to(y.device), None)):
        low, high, _ = undirected_edges(edges, weight, len(y))
        both = known[low] & known[high]
        pairs.append(torch.stack([low[both], high[both]]).long())
    if train is not None and val is not None:
        unread = [edges[:, val[edges].any(0)] for edges in pairs]
        pairs = unread if all(edges.shape[1] for edges in unread) else pairs
    if not all(edges.shape[1] for edges in pairs):
        return None
    same = [(y[low] == y[high]).double() for low, high in pairs]
    before, after = (float(each.mean()) for each in same)
    sentence = (
        f"{after:.1%} of {len(same[1]):,} labelled edges join one class, against {before:.1%} of "
        f"{len(same[0]):,} of the input"
    )
    sign = _sign_of_change(pairs, same, len(y), int(known.sum()))
    return Change(before, after, sign, sentence)


def _sign_of_change(pairs: list[Tensor], same: list[Tensor], nodes: int, labels: int) -> int:
    """Test the difference of two shares whose sets of edges overlap: 1, -1, or 0.

    The difference is a sum over three disjoint sets: kept edges, which count in both shares, added
    ones and dropped ones. Edges share nodes, so no set counts for more cases than there are labels.
    """
    keys = [low * nodes + high for low, high in pairs]
    kept_before, kept_after = torch.isin(keys[0], keys[1]), torch.isin(keys[1], keys[0])
    kept, before, after = int(kept_before.sum()), len(keys[0]), len(keys[1])
    sets = [
        (same[0][kept_before], kept / after - kept / before),
        (same[1][~kept_after], (after - kept) / after),
        (same[0][~kept_before], -(before - kept) / before),
    ]
    sets = [(edges, coefficient) for edges, coefficient in sets if len(edges)]
    change = sum(coefficient * float(edges.mean()) for edges, coefficient in sets)
    p = min(max(float(torch.cat([edges for edges, _ in sets]).mean()), 0.05), 0.95)
    cases = sum(coefficient**2 / min(len(edges), labels) for edges, coefficient in sets)
    if abs(change) <= STANDARD_ERRORS * math.sqrt(p * (1 - p) * cases):
        return 0
    return 1 if change > 0 else -1
