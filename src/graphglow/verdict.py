"""Whether a refined graph, or what was trained over it, is better than the input, in one line.

Two things are compared: the share of edges that join nodes of one class, and how often the classes
of the same nodes are predicted right. Labels of test nodes are never read.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import warn
from graphglow.graph.graph import undirected_edges

STANDARD_ERRORS = 2.0
"""A smaller difference between two shares of edges may be chance."""
SIGNIFICANT = 0.05
NO_PAIRS = "no labelled pairs among the edges"


class EdgeShares(NamedTuple):
    """The share of labelled edges that join one class, before and after."""

    before: float
    after: float
    pairs: tuple[int, int]
    """Number of labelled edges, before and after."""
    sign: int
    """1 if the share rose, -1 if it fell, 0 if the difference may be chance."""


class Accuracies(NamedTuple):
    """The accuracies of two predictors on the same nodes."""

    before: float
    after: float
    gained: int
    """Nodes that only the second gets right."""
    lost: int
    """Nodes that only the first gets right."""
    nodes: int

    @classmethod
    def of(cls, before: Tensor, after: Tensor) -> "Accuracies":
        """Compare which nodes the first and the second predictor get right: [M] of bool each."""
        gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
        means = float(before.double().mean()), float(after.double().mean())
        return cls(*means, gained=gained, lost=lost, nodes=len(before))

    @property
    def sign(self) -> int:
        """1 if the second is better, -1 if it is worse, 0 if not significant (McNemar's test)."""
        from scipy.stats import binomtest

        differing = self.gained + self.lost
        if differing == 0 or binomtest(self.gained, differing).pvalue >= SIGNIFICANT:
            return 0
        return 1 if self.gained > self.lost else -1


class Verdict(NamedTuple):
    """A sentence, and whether it is bad news."""

    sentence: str
    worse: bool

    def warn(self) -> None:
        """Give an :class:`InputWarning` if it is."""
        if self.worse:
            warn(self.sentence)


def edge_shares(data: Data, edge_index: Tensor) -> EdgeShares | None:
    """Compare the edges of ``data`` with others [2, E] by training and validation labels.

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
    sign = _sign_of_change(pairs, same, len(y), int(known.sum()))
    return EdgeShares(before, after, (len(same[0]), len(same[1])), sign)


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


def verdict_of(
    edges: EdgeShares | None, right: Accuracies | None, *, whose: str = "", unknown: str
) -> Verdict:
    """Put both comparisons in one line, the decisive one first.

    Args:
        edges: Shares of edges.
        right: Accuracies on the same nodes.
        whose: Says what the accuracies are, as ``"new {} against {} of the old"``.
        unknown: Why there is neither.
    """
    parts = []
    if right is not None:
        parts.append((right.sign, whose.format(f"{right.after:.1%}", f"{right.before:.1%}")))
    if edges is not None:
        before, after = edges.pairs
        sentence = (
            f"{edges.after:.1%} of {after:,} labelled pairs among the refined edges are of one "
            f"class, against {edges.before:.1%} of {before:,} of the input's"
        )
        parts.append((edges.sign, sentence))
    if not parts:
        return Verdict(f"cannot tell: {unknown}", False)
    signs = {sign for sign, _ in parts}
    word = "better" if 1 in signs else "worse" if -1 in signs else "no clear difference"
    if {1, -1} <= signs:
        word = "better in one way and worse in another"
    parts.sort(key=lambda part: part[0], reverse=1 in signs)
    return Verdict(f"{word}: {'; '.join(words for _, words in parts)}", word == "worse")
