"""Nodes by index and labels of any kind, as scikit-learn passes them, made a graph to train on."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import number
from graphglow.errors import InputError
from graphglow.graphs import load_graph
from graphglow.graphs.check import MASKS


def node_index(nodes: Any, num_nodes: int, *, at_least: int = 0) -> NDArray[np.int64]:
    """Check node indices [n] or [n, 1] and return them as [n]."""
    try:
        array = check_array(
            nodes, dtype=None, ensure_2d=False, ensure_min_samples=at_least, input_name="X"
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"nodes must be a list of indices; {_sentence(error)}") from error
    column = array.ndim == 2 and array.shape[1] == 1
    index: NDArray[Any] = array[:, 0] if column else array
    if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
        raise InputError(
            f"nodes must be a list of indices, [n] or [n, 1]; got {array.dtype} {array.shape}"
        )
    if len(index) and not 0 <= index.min() <= index.max() < num_nodes:
        raise InputError(
            f"nodes must lie in [0, {num_nodes - 1}]; got {index.min()}..{index.max()}"
        )
    return index.astype(np.int64)


def class_labels(y: Any) -> NDArray[Any]:
    """Check that ``y`` holds class labels, all of them known, and return it as [n]."""
    if y is None:
        raise InputError(
            "GlowClassifier requires y to be passed, but the target y is None: fit(nodes, labels), "
            "or fit(data) with a graph that has labels and a split"
        )
    try:
        labels: NDArray[Any] = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
    except (TypeError, ValueError) as error:
        raise InputError(f"y must hold class labels; {_sentence(error)}") from error
    if np.issubdtype(labels.dtype, np.number) and (labels == -1).any():
        raise InputError(
            "y must not hold -1, which means unlabelled here: pass labelled nodes only; "
            f"got {int((labels == -1).sum())} of {len(labels)}"
        )
    return labels


def several_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """Return ``labels`` if they are of one kind and of at least two classes."""
    try:
        classes = np.unique(labels)
    except TypeError as error:  # text and numbers
        raise InputError("y must hold labels of one kind; got a mixture") from error
    if len(classes) < 2:
        raise InputError(
            f"y must hold at least two classes; got {len(classes)} class: {classes.tolist()}"
        )
    return labels


def same_length(nodes: NDArray[np.int64], labels: NDArray[Any]) -> None:
    """Raise unless there is one label per node."""
    if len(nodes) != len(labels):
        raise InputError(
            f"y must have one label per node; got inconsistent numbers of samples: {len(labels)} "
            f"labels for {len(nodes)} nodes"
        )


def graph_given(graph: Any) -> Data:
    """The graph that the node indices speak of: a Data as it is, anything else by the loader."""
    if graph is None:
        raise InputError(
            "fit(nodes, labels) needs the graph of these nodes: GlowClassifier(graph=data); "
            "got none (or call fit(data) with a graph that has labels and a split)"
        )
    data: Data = graph if isinstance(graph, Data) else load_graph(graph, need_labels=False)
    if not isinstance(data.x, Tensor) or data.x.ndim != 2:
        raise InputError(
            f"a graph must have node features x [N, D]; got x of type {type(data.x).__name__}"
        )
    return data


def graph_to_fit(
    graph: Data,
    nodes: NDArray[np.int64],
    labels: NDArray[Any],
    *,
    validation_fraction: float,
    seed: int,
) -> tuple[Data, NDArray[Any]]:
    """A copy of ``graph`` that knows the labels of ``nodes`` and no others, and the classes.

    The graph's own labels and split are dropped. A seeded share of ``nodes`` is for validation,
    the rest for training. The order of ``nodes`` makes no difference, nor do repetitions.

    Returns:
        The graph, with y = the place of the label among the classes; the classes, sorted.
    """
    same_length(nodes, labels)
    classes, codes = np.unique(labels, return_inverse=True)
    unique, first, place = np.unique(nodes, return_index=True, return_inverse=True)
    if (codes[first][place] != codes).any():
        raise InputError("a node must have one label; got a node with several")
    held_out = _validation(codes[first], validation_fraction, seed)
    hidden = copy.copy(graph)
    num_nodes = len(graph.x)
    hidden.y = torch.full((num_nodes,), -1)
    hidden.y[torch.from_numpy(unique)] = torch.from_numpy(codes[first])
    for name, part in zip(MASKS, (unique[~held_out], unique[held_out], unique[:0]), strict=True):
        hidden[name] = torch.zeros(num_nodes, dtype=torch.bool)
        hidden[name][torch.from_numpy(part)] = True
    hidden.class_names = _names(classes, graph.get("class_names"))
    return hidden, classes


def check_fraction(value: float) -> None:
    """Raise unless ``value`` leaves nodes for training and some for validation."""
    if not 0 < number("validation_fraction", value) < 1:
        raise InputError(f"validation_fraction must lie between 0 and 1; got {value}")


def _validation(codes: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which nodes to hold out: of each class about ``fraction``, never its last node."""
    check_fraction(fraction)
    counts = np.bincount(codes)
    if counts.max() < 2:
        raise InputError(
            "fit needs a class with two nodes or more, one for validation; got one node per class"
        )
    share = np.minimum(np.round(fraction * counts), counts - 1)
    if not share.any():
        share[counts.argmax()] = 1
    order = np.random.default_rng(seed).permutation(len(codes))
    held_out = np.zeros(len(codes), dtype=np.bool_)
    for code, count in enumerate(share.astype(np.int64)):
        held_out[order[codes[order] == code][:count]] = True
    return held_out


def _names(classes: NDArray[Any], own: Any) -> list[str]:
    """What to call the classes in files: the graph's own names where its numbers were given."""
    if own is not None and np.issubdtype(classes.dtype, np.integer) and classes[-1] < len(own):
        return [str(own[c]) for c in classes]
    return [str(c) for c in classes]


def _sentence(error: Exception) -> str:
    """The first sentence of a message of scikit-learn's."""
    return str(error).split("\n")[0]
