"""Scikit-learn's verbs over :func:`graphglow.predict`."""

import copy
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph import as_graph
from graphglow.graph.check import MASKS
from graphglow.graph.write import node_places, own_classes
from graphglow.predict import Prediction, predict
from graphglow.pretrained import UNIVERSAL, LearnerName

ARRAYS = np.ndarray | list | torch.Tensor | pd.Series


class GlowClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classification with nothing trained, as a scikit-learn estimator.

    A sample is a node of a graph, X is [n] or [n, 1]: its own id, or its index where the graph has
    no ids. With the graph given at construction everything in scikit-learn that chooses samples
    chooses nodes::

        clf = GlowClassifier(graph=data)
        cross_val_score(clf, nodes, labels, cv=5)
        GridSearchCV(clf, {"learner": ["universal", "untrained"]}).fit(nodes, labels)

    Only the labels passed to ``fit`` are read; all nodes and edges take part. Labels may be text.
    A graph that has its own labels can be fitted as it is, by those in its ``train_mask`` if it has
    one, and so can all that :func:`graphglow.load_graph` takes::

        clf = GlowClassifier().fit("wine")
        clf.predict(), clf.predict_proba(), clf.score()

    Without nodes a method speaks of all nodes. Nodes whose label ``fit`` was given are answered by
    leave-one-out.

    Args:
        learner: As for :func:`graphglow.predict`.
        graph: The graph of the nodes: a ``Data`` (its labels and split are not read), or anything
            that :func:`graphglow.load_graph` takes.
        random_state: The seed, or scikit-learn's generator to draw it from; None: 0.
        device: Where to compute.

    Attributes:
        classes_: The class labels, in the order of the columns of ``predict_proba``: what was
            passed to ``fit``, or the graph's own names of its classes.
        prediction_: The :class:`Prediction`, with explanations and the refined graph.
        n_features_in_: 1, the node.
    """

    def __init__(
        self,
        learner: LearnerName = UNIVERSAL,
        *,
        graph: Any = None,
        random_state: int | np.random.RandomState | None = None,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        self.learner = learner
        self.graph = graph
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: ArrayLike | None = None) -> "GlowClassifier":
        """Take the labels ``y`` of the nodes ``X``, or a graph with its own, and predict."""
        seed: Any = 0 if self.random_state is None else self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = int(check_random_state(seed).randint(2**31))
        if isinstance(X, Data) and y is not None:
            raise InputError("fit takes the labels of a graph from data.y; got a separate y")
        data, classes = X, None
        if y is not None or isinstance(X, ARRAYS):
            data, classes = _labelled_graph(self.graph, X, _class_labels(y))
        found = predict(data, self.learner, seed=seed, device=self.device)
        count = found.probabilities.shape[1]
        self.prediction_: Prediction = found
        self.classes_: NDArray[Any] = (
            np.array(own_classes(found.data, count)[:count]) if classes is None else classes
        )
        self.n_features_in_ = 1
        return self

    def predict_proba(self, X: ArrayLike | None = None) -> NDArray[np.float32]:
        """Class probabilities [n, C], in the order of ``classes_``."""
        check_is_fitted(self)
        probabilities: NDArray[np.float32] = self.prediction_.probabilities.numpy()
        return probabilities if X is None else probabilities[_node_index(X, self.prediction_.data)]

    def predict(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Most probable classes [n]."""
        codes = self.predict_proba(X).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[codes]
        return classes

    def score(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Accuracy on the nodes ``X`` against ``y``, classes or, where those are text, their codes.

        Without ``X`` that is on the test nodes of the graph, or, where there are none, as after
        ``fit(nodes, labels)``, the leave-one-out accuracy. Without ``y`` the labels are the
        graph's. A class that ``fit`` has not seen is never right.
        """
        check_is_fitted(self)
        data = self.prediction_.data
        if X is None:
            mask = data.get("test_mask")
            index = [] if mask is None else (mask.cpu() & (data.y >= 0)).nonzero()[:, 0].numpy()
            if len(index) == 0:
                return self.prediction_.accuracy.value
        elif len(index := _node_index(X, data)) == 0:
            raise InputError("score needs at least one node; got none")
        truth = data.y.numpy()[index] if y is None else self._codes(_class_labels(y))
        if y is None and (unknown := int((truth < 0).sum())):
            raise InputError(
                f"score needs y for nodes whose label fit was not given; got {unknown} such nodes"
            )
        predicted = self.predict_proba().argmax(axis=1)[index]
        return float(accuracy_score(truth, predicted, sample_weight=sample_weight))

    def _codes(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The places of labels among the classes, -1 for one that is not there: [n]."""
        text, texts = labels.dtype.kind not in "biuf", self.classes_.dtype.kind not in "biuf"
        if texts and labels.dtype.kind in "iu":
            return labels
        if text != texts:
            raise InputError(
                f"y must hold classes as fit was given them, {self.classes_[:3].tolist()}; got "
                f"{labels[:3].tolist()}"
            )
        known, given = (1 * a if a.dtype.kind == "b" else a for a in (self.classes_, labels))
        return np.asarray(pd.Index(known).get_indexer(given), dtype=np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True  # an index
        return tags


def _node_index(nodes: Any, data: Data, *, at_least: int = 0) -> NDArray[np.int64]:
    """The places [n] of nodes [n] or [n, 1]."""
    array = check_array(
        nodes, dtype=None, ensure_2d=False, ensure_min_samples=at_least, input_name="X"
    )
    column = array.ndim == 2 and array.shape[1] == 1
    named: NDArray[Any] = array[:, 0] if column else array
    if named.ndim != 1:
        raise InputError(
            "nodes must be a list of ids, or of indices where the graph has no ids, [n] or [n, 1]; "
            f"got {array.dtype} {array.shape}"
        )
    return node_places(data, int(data.num_nodes or 0), named)


def _class_labels(y: Any) -> NDArray[Any]:
    """Check that ``y`` holds class labels, all of them known, and return it as [n]."""
    if y is None:  # in words that scikit-learn's own checks look for
        raise InputError("GlowClassifier requires y to be passed, but the target y is None")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    if labels.dtype == object:
        if (missing := pd.isna(labels)).any():
            raise InputError(
                "y must hold the label of every node in X: pass labelled nodes only; got "
                f"{int(missing.sum())} of {len(labels)} without"
            )
        if len({isinstance(one, str) for one in labels}) > 1:
            raise InputError("y must be text or numbers; got both")
        labels = np.array(labels.tolist())
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    if np.issubdtype(labels.dtype, np.number) and (labels == -1).any():
        raise InputError(
            "y must not hold -1, which means unlabelled here: pass labelled nodes only; "
            f"got {int((labels == -1).sum())} of {len(labels)}"
        )
    return labels


def _labelled_graph(graph: Any, nodes: Any, labels: NDArray[Any]) -> tuple[Data, NDArray[Any]]:
    """The graph with the labels of ``nodes`` and no others, without a split, and the classes."""
    if len(seen := np.unique(labels)) < 2:
        raise InputError(
            f"y must hold at least two classes; got {len(seen)} class: {seen.tolist()}"
        )
    if graph is None:
        raise InputError(
            "fit(nodes, labels) needs the graph of these nodes: GlowClassifier(graph=data)"
            "; rows of features are fitted by GlowClassifier().fit(pandas.DataFrame(X)"
            ".assign(label=y)), where a blank label is one to predict"
        )
    graph = as_graph(graph, need_labels=False, split=False)
    nodes = _node_index(nodes, graph, at_least=1)
    check_consistent_length(nodes, labels)
    classes, codes = np.unique(labels, return_inverse=True)
    unique, first, place = np.unique(nodes, return_index=True, return_inverse=True)
    if (codes[first][place] != codes).any():
        raise InputError("a node must have one label; got a node with several")
    known = copy.copy(graph)
    for name in MASKS:
        known.pop(name, None)
    known.split = "nodes passed to fit"  # leaks were looked for in the whole graph
    known.y = torch.full((int(graph.num_nodes),), -1)
    known.y[torch.from_numpy(unique)] = torch.from_numpy(codes[first])
    own = graph.get("class_names")  # of the graph's numbers, where those are the labels
    numbered = own is not None and classes.dtype.kind in "iu" and classes[-1] < len(own)
    known.class_names = [str(own[c] if numbered else c) for c in classes]
    return known, classes
