"""Columns that give the label away, or may be the label, under another name."""

import warnings

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import warn
from graphglow.graph.features import FEW_CATEGORIES, width

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


def warn_of_leaks(data: Data) -> None:
    """Warn of columns that alone all but determine the training labels.

    Columns of tables and attributes have names, and their categories are known; each column of a
    bare ``x`` is taken as numbers. Nothing is said of a graph that the check would refuse.
    """
    encoding = data.get("feature_columns")
    rows = _training_rows(data, MOST if encoding else None)
    if rows is None:
        return
    x, y = rows
    needed = needed_accuracy(y)
    start, leaks = 0, []
    for facts in encoding["columns"] if encoding else ():
        part = x[:, start : start + width(facts)]
        start += width(facts)
        accuracy = (_by_category if "categories" in facts else _by_number)(part, y)
        leaks += [f"{facts['name']!r} ({accuracy:.1%})"] if accuracy >= needed else []
    for column in [] if encoding else _most_related(x, y):
        accuracy = _by_number(x[:, [column]], y)
        leaks += [f"{column} of x ({accuracy:.1%})"] if accuracy >= needed else []
    if leaks:
        how = (
            'left out: --columns leave_out=NAME (in Python columns={"leave_out": ["NAME"]})'
            if encoding
            else "better removed from x"
        )
        what, say = ("columns", "each say") if len(leaks) > 1 else ("column", "says")
        warn(
            f"{what} {', '.join(leaks)} of {data.get('name') or 'the graph'} alone {say} the label "
            f"of so many training nodes; what is not known before the label is {how}"
        )


def needed_accuracy(y: np.ndarray) -> float:
    """The accuracy from which a column alone is a leak, given the training labels [n]."""
    majority = float(np.bincount(y).max()) / len(y)
    return max(ACCURACY, 1 - ERRORS_LEFT * (1 - majority))


def _training_rows(data: Data, most: int | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and labels of at most so many training nodes [n, F], [n], if they can be judged."""
    x, y, train = data.get("x"), data.get("y"), data.get("train_mask")
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or x.is_complex() or x.ndim != 2:
        return None
    if y.is_floating_point() or y.dtype == torch.bool or y.shape != x.shape[:1]:
        return None
    known = y >= 0
    if isinstance(train, Tensor) and train.shape == y.shape:
        known = known & train.bool()
    nodes = known.nonzero()[:, 0]
    most = most or min(MOST, max(FEWEST, ENTRIES // max(1, x.shape[1])))
    nodes = nodes[:: max(1, -(-len(nodes) // most))]
    x = x.detach() if x.layout == torch.strided else x.detach().to_sparse()
    rows = x.index_select(0, nodes.to(x.device)).to_dense().float().cpu().numpy()
    labels = np.unique(y[nodes].cpu().numpy(), return_inverse=True)[1]
    usable = len(labels) >= FEWEST and labels.max() > 0 and np.isfinite(rows).all()
    return (rows, labels) if usable else None


def warn_of_label_like_columns(data: Data) -> None:
    """Warn of features that may be the label of a graph without one: by name, or as few texts."""
    if data.get("y") is not None and bool((data.y >= 0).any()):
        return
    alike = [
        facts["name"]
        for facts in data.get("feature_columns", {}).get("columns", ())
        if facts["name"].lower() in LABEL_NAMES
        or 2 <= len(facts.get("categories", ())) <= FEW_CATEGORIES
    ]
    if alike:
        warn(
            f"{data.get('name') or 'the graph'} has no labels, but features that look like them: "
            f"{', '.join(map(repr, alike))} (--columns label=NAME names the label, "
            "leave_out=NAME leaves a column out; in Python columns={...})"
        )


def _most_related(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Columns whose ranks differ most between classes: [n, F], [n]."""
    from scipy.stats import rankdata
    from sklearn.feature_selection import f_classif

    with warnings.catch_warnings(), np.errstate(all="ignore"):  # of constant columns
        warnings.simplefilter("ignore")
        score = np.nan_to_num(f_classif(rankdata(x, axis=0), y)[0], posinf=np.inf)
    return sorted(np.argsort(-score, kind="stable")[:NEAREST].tolist())


def _by_category(one_hot: np.ndarray, y: np.ndarray) -> float:
    """Accuracy of the most common class among the others of a node's category: [n, K], [n].

    Blank is a category too: what is filled in for one class alone gives it away.
    """
    one_hot = np.concatenate([one_hot, 1 - one_hot.sum(1, keepdims=True)], 1)  # [n, K + 1]
    classes = np.eye(y.max() + 1)[y]  # [n, C]
    others = one_hot @ (one_hot.T @ classes) - classes
    return float(((others.argmax(1) == y) & (others.max(1) > 0)).mean())


def _by_number(values: np.ndarray, y: np.ndarray) -> float:
    """Accuracy of as many intervals, or blanks (0, the mean), as there are classes: [n, 1], [n]."""
    from sklearn.tree import DecisionTreeClassifier

    columns = np.concatenate([values, values == 0], 1)
    tree = DecisionTreeClassifier(max_leaf_nodes=int(y.max()) + 1, random_state=0)
    with warnings.catch_warnings():  # of classes that few nodes have
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return float(tree.fit(columns, y).score(columns, y))
