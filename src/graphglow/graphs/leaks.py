"""Columns that give the label away: what is known only once the label is, under another name."""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.graphs.features import width
from graphglow.graphs.files import note

FEWEST, MOST = 30, 5000
"""Training nodes: of fewer nothing can be said, more are not looked at."""
ACCURACY = 0.98
ERRORS_LEFT = 0.2
"""At most this share of the errors that the majority class makes."""


def say_leaks(data: Data) -> None:
    """Warn of columns of a nodes table that alone all but determine the training labels."""
    nodes = data.train_mask.nonzero()[:, 0][:MOST]
    y = data.y[nodes]
    counts = torch.bincount(y)
    if len(nodes) < FEWEST or int((counts > 0).sum()) < 2:
        return
    needed = max(ACCURACY, 1 - ERRORS_LEFT * (1 - float(counts.max()) / len(y)))
    start, found = 0, []
    for facts in data.feature_columns["columns"]:
        part = data.x[nodes, start : start + width(facts)]
        start += width(facts)
        accuracy = (_by_category if "categories" in facts else _by_number)(part, y)
        if accuracy >= needed:
            found.append(f"{facts['name']!r} ({accuracy:.1%})")
    if found:
        note(
            f"{'columns' if len(found) > 1 else 'column'} {', '.join(found)} of {data.name} alone "
            "say the label of so many training nodes; what is not known before the label is can be "
            "left out: columns leave_out=NAME"
        )


def _by_category(one_hot: Tensor, y: Tensor) -> float:
    """Accuracy of the most common class among the others of a node's category: [n, K], [n]."""
    classes = torch.nn.functional.one_hot(y).to(one_hot)  # [n, C]
    others = one_hot @ (one_hot.T @ classes) - classes * one_hot.sum(1, keepdim=True)
    best, predicted = others.max(1)
    return float(((predicted == y) & (best > 0)).double().mean())


def _by_number(values: Tensor, y: Tensor) -> float:
    """Accuracy of as many intervals as there are classes: [n, 1], [n]."""
    from sklearn.tree import DecisionTreeClassifier

    known = np.unique(y.numpy())
    tree = DecisionTreeClassifier(max_leaf_nodes=len(known), random_state=0)
    return float(tree.fit(values.numpy(), y.numpy()).score(values.numpy(), y.numpy()))
