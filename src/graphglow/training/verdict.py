"""Whether what was made of a graph is better than the graph was, in one line.

Two things are compared: how many edges join nodes of one class, and how often the classes are
predicted right, on the same nodes. Edges are judged by training and validation labels; where edges
have validation nodes at an end, by those alone, whose labels the learner has not read. Test labels
are not read.
"""

import math
from typing import NamedTuple

from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import warn
from graphglow.graph.graph import undirected_edges

STANDARD_ERRORS = 2.0
"""A smaller difference between the shares of two sets of edges is none."""
SIGNIFICANT = 0.05
NO_PAIRS = "no labelled pairs among the edges"


class Share(NamedTuple):
    """The share of edges within a class, before and after."""

    before: float
    after: float
    cases: int
    """Independent cases that the smaller of the two sets of edges stands for."""
    pairs: tuple[int, int] = (0, 0)
    """How many edges each share is of."""

    @property
    def sign(self) -> int:
        """1 if it rose, -1 if it fell, 0 if that may be chance."""
        p = min(max(self.before, 0.05), 0.95)
        change = self.after - self.before
        if abs(change) <= STANDARD_ERRORS * math.sqrt(p * (1 - p) / self.cases):
            return 0
        return 1 if change > 0 else -1


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
        """An :class:`InputWarning` if it is."""
        if self.worse:
            warn(self.sentence)


def homophily(data: Data, edge_index: Tensor) -> Share | None:
    """The share of edges within a class, of ``data`` and among ``edge_index`` [2, E].

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
        pairs.append((low.long(), high.long()))
    both = [known[low] & known[high] for low, high in pairs]
    if train is not None and val is not None:
        unread = [b & (val[low] | val[high]) for b, (low, high) in zip(both, pairs, strict=True)]
        both = unread if all(bool(u.any()) for u in unread) else both
    if not all(bool(b.any()) for b in both):
        return None
    same = [
        float((y[low] == y[high])[b].double().mean())
        for b, (low, high) in zip(both, pairs, strict=True)
    ]
    counts = int(both[0].sum()), int(both[1].sum())
    return Share(same[0], same[1], min(*counts, int(known.sum())), counts)  # pairs share nodes


def verdict_of(
    edges: Share | None, right: Accuracies | None, *, whose: str = "", unknown: str
) -> Verdict:
    """Put the two in one line; what decided comes first.

    Args:
        edges: Homophily.
        right: Accuracies on the same nodes.
        whose: What has the accuracies, after and before, as ``"new {} against {} of the old"``.
        unknown: Why there is neither.
    """
    said = []
    if right is not None:
        said.append((right.sign, whose.format(f"{right.after:.1%}", f"{right.before:.1%}")))
    if edges is not None:
        before, after = edges.pairs
        sentence = (
            f"{edges.after:.1%} of {after:,} labelled pairs among the refined edges are of one "
            f"class, against {edges.before:.1%} of {before:,} of the input's"
        )
        said.append((edges.sign, sentence))
    if not said:
        return Verdict(f"cannot tell: {unknown}", False)
    signs = {sign for sign, _ in said}
    word = "better" if 1 in signs else "worse" if -1 in signs else "no clear difference"
    if {1, -1} <= signs:
        word = "better in one way and worse in another"
    said.sort(key=lambda one: one[0], reverse=1 in signs)
    return Verdict(f"{word}: {'; '.join(words for _, words in said)}", word == "worse")
