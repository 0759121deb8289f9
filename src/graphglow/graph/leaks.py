"""Columns that give the label away, or may be the label, under another name."""

import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.graph.features import FEW_CATEGORIES, width
from graphglow.graph.files import note
from graphglow.graph.tables import HOW_TO_LEAVE_OUT

FEWEST, MOST = 30, 5000
"""Training nodes: of fewer nothing can be said, more are not looked at."""
ENTRIES = 500_000
"""Of x that are looked at, of columns without names."""
NEAREST = 10
"""Columns without names that are looked at closely."""
ACCURACY = 0.98
ERRORS_LEFT = 0.2
"""At most this share of the errors that the majority class makes."""
LABEL_NAMES = {"y", "label", "labels", "class", "classes", "category", "target", "outcome"}


def say_leaks(data: Data) -> None:
    """Warn of columns that alone all but determine the training labels.

    Of a table or of attributes they have names, and categories are known; of a bare ``x`` each
    column is taken as numbers. Nothing is said of a graph that the check would refuse.
    """
    x, y, train = data.get("x"), data.get("y"), data.get("train_mask")
    if not all(isinstance(part, Tensor) for part in (x, y)) or y.ndim != 1 or x.ndim != 2:
        return
    if len(x) != len(y) or y.is_floating_point() or y.dtype == torch.bool or x.is_complex():
        return
    if len(y) == 0 or int(y.max()) >= len(y):
        return
    if isinstance(train, Tensor) and train.dtype != torch.bool:
        return
    known = y >= 0 if not isinstance(train, Tensor) or train.shape != y.shape else train & (y >= 0)
    told = data.get("feature_columns")
    most = MOST if told else min(MOST, max(FEWEST, ENTRIES // max(1, x.shape[1])))
    nodes = known.nonzero()[:, 0]
    nodes = nodes[:: max(1, -(-len(nodes) // most))]
    x = x.detach() if x.layout == torch.strided else x.detach().to_sparse()
    x, y = x.index_select(0, nodes.to(x.device)).to_dense().float().cpu(), y[nodes].cpu().long()
    counts = torch.bincount(y) if len(y) else torch.zeros(0)
    if len(nodes) < FEWEST or int((counts > 0).sum()) < 2 or not bool(x.isfinite().all()):
        return
    needed = max(ACCURACY, 1 - ERRORS_LEFT * (1 - float(counts.max()) / len(y)))
    start, found = 0, []
    for facts in told["columns"] if told else ():
        part = x[:, start : start + width(facts)]
        start += width(facts)
        accuracy = (_by_category if "categories" in facts else _by_number)(part, y)
        found += [f"{facts['name']!r} ({accuracy:.1%})"] if accuracy >= needed else []
    for column in [] if told else _telling(x, y):
        accuracy = _by_number(x[:, column, None], y)
        found += [f"{column} of x ({accuracy:.1%})"] if accuracy >= needed else []
    if found:
        how = f"can be left out: {HOW_TO_LEAVE_OUT}" if told else "is better removed from x"
        what, say = ("columns", "each say") if len(found) > 1 else ("column", "says")
        note(
            f"{what} {', '.join(found)} of {data.get('name') or 'the graph'} alone {say} the label "
            f"of so many training nodes; what is not known before the label is {how}"
        )


def label_like_columns(data: Data) -> list[str]:
    """Features that may be the label of a graph without one: by their names, or as few texts."""
    if data.get("y") is not None and bool((data.y >= 0).any()):
        return []
    return [
        facts["name"]
        for facts in data.get("feature_columns", {}).get("columns", ())
        if facts["name"].lower() in LABEL_NAMES
        or 2 <= len(facts.get("categories", ())) <= FEW_CATEGORIES
    ]


def say_label_like(data: Data) -> None:
    """Say which of these are used as features."""
    if found := label_like_columns(data):
        note(
            f"{data.get('name') or 'the graph'} has no labels, but features that look like them: "
            f"{', '.join(map(repr, found))} (--columns label=NAME names the label, "
            "leave_out=NAME leaves a column out; in Python columns={...})"
        )


def _telling(x: Tensor, y: Tensor) -> list[int]:
    """Columns whose ranks differ most between classes: [n, F], [n]."""
    across = x.T.contiguous()  # [F, n]
    ordered = across.sort(1).values
    below, upto = (torch.searchsorted(ordered, across, right=right) for right in (False, True))
    rank = (below + upto - len(y)).float()  # twice, about its mean
    classes = F.one_hot(y).float()  # [n, C]
    between = (rank @ classes).square() @ (1 / classes.sum(0).clamp_min(1))
    share = between / rank.square().sum(1).clamp_min(1)
    found: list[int] = share.topk(min(NEAREST, len(share))).indices.tolist()
    return sorted(found)


def _by_category(one_hot: Tensor, y: Tensor) -> float:
    """Accuracy of the most common class among the others of a node's category: [n, K], [n].

    Blank is a category too: what is filled in for one class alone gives it away.
    """
    one_hot = torch.cat([one_hot, 1 - one_hot.sum(1, keepdim=True)], 1)  # [n, K + 1]
    classes = F.one_hot(y).to(one_hot)  # [n, C]
    others = one_hot @ (one_hot.T @ classes) - classes
    best, predicted = others.max(1)
    return float(((predicted == y) & (best > 0)).double().mean())


def _by_number(values: Tensor, y: Tensor) -> float:
    """Accuracy of as many intervals, or blanks (0, the mean), as there are classes: [n, 1], [n]."""
    from sklearn.tree import DecisionTreeClassifier

    seen, known = torch.cat([values, values == 0], 1).numpy(), y.numpy()
    tree = DecisionTreeClassifier(max_leaf_nodes=len(np.unique(known)), random_state=0)
    with warnings.catch_warnings():  # of classes that few nodes have
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return float(tree.fit(seen, known).score(seen, known))
