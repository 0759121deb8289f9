"""Whether a refined graph, or what was trained over it, is better than the input, in one line.

Two things are compared: the share of edges that join nodes of one class, and how often the classes
of the same nodes are predicted right. Labels of test nodes are never read.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import warn
from graphglow.graph.graph import undirected_edges

STANDARD_ERRORS, SIGNIFICANT = 2.0, 0.05
"""Smaller differences between shares of edges, and larger p-values, may be chance."""
NO_PAIRS = "no labelled pairs among the edges"


class Comparison(NamedTuple):
    """A share before and after, in words too."""

    before: float
    after: float
    sign: int
    """1 if it rose, -1 if it fell, 0 if the difference may be chance."""
    sentence: str


class Verdict(NamedTuple):
    """A sentence, and whether it is bad news."""

    sentence: str
    worse: bool

    def warn(self) -> None:
        """Give an :class:`InputWarning` if it is."""
        if self.worse:
            warn(self.sentence)


def verdict_of(comparisons: Iterable[Comparison | None], unknown: str) -> Verdict:
    """Put comparisons in one line, the decisive one first; ``unknown`` says why there is none."""
    parts = [one for one in comparisons if one is not None]
    if not parts:
        return Verdict(f"cannot tell: {unknown}", False)
    signs = {one.sign for one in parts}
    word = "better" if 1 in signs else "worse" if -1 in signs else "no clear difference"
    if {1, -1} <= signs:
        word = "better in one way and worse in another"
    parts.sort(key=lambda one: one.sign, reverse=1 in signs)
    return Verdict(f"{word}: {'; '.join(one.sentence for one in parts)}", word == "worse")


def compare_accuracies(before: Tensor, after: Tensor, whose: str) -> Comparison:
    """Compare which nodes two predictors get right, by McNemar's exact test: [M] of bool each.

    ``whose`` says whose accuracies they are, after and before, as ``"new {} against {} of old"``.
    """
    from scipy.stats import binomtest

    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    chance = gained == lost or binomtest(gained, gained + lost).pvalue >= SIGNIFICANT
    shares = float(before.double().mean()), float(after.double().mean())
    sentence = whose.format(f"{shares[1]:.1%}", f"{shares[0]:.1%}")
    return Comparison(*shares, 0 if chance else 1 if gained > lost else -1, sentence)


def compare_edges(data: Data, edge_index: Tensor) -> Comparison | None:
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
        f"{after:.1%} of {len(same[1]):,} labelled pairs among the refined edges are of one class, "
        f"against {before:.1%} of {len(same[0]):,} of the input's"
    )
    sign = _sign_of_change(pairs, same, len(y), int(known.sum()))
    return Comparison(before, after, sign, sentence)


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
