"""Whether what was made of a graph is better than the graph was, in one line.

Two things are compared: how many edges join nodes of one class, and how often the classes are
predicted right, on the same nodes. Edges are judged by training and validation labels; where edges
have validation nodes at an end, by those alone, whose labels the learner has not read. Test labels
are not read.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import warn
from graphglow.graph.graph import undirected_edges

STANDARD_ERRORS = 2.0
"""A smaller difference between the shares of two sets of edges is none."""
SIGNIFICANT = 0.05
NO_PAIRS = "no labelled pairs among the edges"


class Homophily(NamedTuple):
    """The share of edges within a class, before and after."""

    before: float
    after: float
    pairs: tuple[int, int]
    """How many labelled pairs each share is of."""
    sign: int
    """1 if it rose, -1 if it fell, 0 if that may be chance."""


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
        return cls(
            before=float(before.double().mean()),
            after=float(after.double().mean()),
            gained=int((after & ~before).sum()),
            lost=int((before & ~after).sum()),
            nodes=len(before),
        )

    @property
    def sign(self) -> int:
        """1 if the second is better, -1 if it is worse, 0 if that may be chance.

        By McNemar's exact test: only nodes that one of the two gets right can tell them apart.
        """
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


def homophily(data: Data, edge_index: Tensor) -> Homophily | None:
    """Compare the share of edges within a class, of ``data`` and among ``edge_index`` [2, E].

    None where one of them has no edge with two known labels.
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
        unread = [some[:, val[some].any(0)] for some in pairs]
        pairs = unread if all(some.shape[1] for some in unread) else pairs
    if not all(some.shape[1] for some in pairs):
        return None
    same = [(y[low] == y[high]).double() for low, high in pairs]
    counts = len(same[0]), len(same[1])
    before, after = (float(one.mean()) for one in same)
    return Homophily(before, after, counts, _sign_of_change(pairs, same, len(y), int(known.sum())))


def _sign_of_change(pairs: list[Tensor], same: list[Tensor], nodes: int, labels: int) -> int:
    """Test the difference of two shares, of sets that have edges in common: 1, -1, or 0.

    The difference is a sum over three sets that do not overlap: kept edges, which count in both
    shares, added ones and dropped ones. Edges share nodes, so that no set stands for more
    independent cases than there are labels.
    """
    keys = [low * nodes + high for low, high in pairs]
    kept_before, kept_after = torch.isin(keys[0], keys[1]), torch.isin(keys[1], keys[0])
    kept, before, after = int(kept_before.sum()), len(keys[0]), len(keys[1])
    sets = [
        (same[0][kept_before], kept / after - kept / before),
        (same[1][~kept_after], (after - kept) / after),
        (same[0][~kept_before], -(before - kept) / before),
    ]
    sets = [(found, coefficient) for found, coefficient in sets if len(found)]
    change = sum(coefficient * float(found.mean()) for found, coefficient in sets)
    p = min(max(float(torch.cat([found for found, _ in sets]).mean()), 0.05), 0.95)
    cases = sum(coefficient**2 / min(len(found), labels) for found, coefficient in sets)
    if abs(change) <= STANDARD_ERRORS * math.sqrt(p * (1 - p) * cases):
        return 0
    return 1 if change > 0 else -1


def verdict_of(
    edges: Homophily | None, right: Accuracies | None, *, whose: str = "", unknown: str
) -> Verdict:
    """Put the two in one line; the one that decides comes first.

    Args:
        edges: Homophily.
        right: Accuracies on the same nodes.
        whose: Whose accuracies, after and before, as ``"new {} against {} of the old"``.
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
