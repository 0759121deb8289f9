"""Scikit-learn's verbs over :func:`graphglow.predict`."""

import copy
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph import as_graph
from graphglow.graph.check import MASKS
from graphglow.graph.write import node_places, own_classes
from graphglow.predict import Prediction, predict
from graphglow.pretrained import UNIVERSAL, LearnerName

NEAREST = 10
"""Other rows that a row of a table is joined to."""


UNKNOWN = (-1, "", None)
"""Labels that mean that none is known."""


class GlowClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify rows of a table or nodes of a graph, with nothing trained.

    Each row is a node. Rows are joined to their nearest neighbours, or by the edges that you have::

        clf = GlowClassifier().fit(X, y)
        clf.predict(X_new)
        cross_val_score(GlowClassifier(), X, y)
        clf = GlowClassifier().fit(X, y, edges=edge_index)
        clf.predict()  # all rows of X

    With a graph given at construction X holds nodes, by id, or by index where the graph has no ids,
    so that whatever chooses samples chooses nodes. The labels of the graph itself are not read::

        cross_val_score(GlowClassifier(graph=data), nodes, y)

    A graph with labels of its own is fitted as it is, by those in its ``train_mask`` if there is
    one. It may be anything that :func:`graphglow.load_graph` takes::

        clf = GlowClassifier().fit("wine")
        clf.predict(), clf.predict_proba(), clf.score()

    A label of -1 is unknown, as in ``sklearn.semi_supervised``; so is a blank or None among text.
    Without an argument the verbs answer for all nodes of the graph, those with a label by
    leave-one-out.

    Args:
        learner: As for :func:`graphglow.predict`.
        graph: The graph whose nodes are passed to ``fit``.
        random_state: The seed, or a generator to draw it from; None is 0.
        device: Where to compute.

    ``classes_`` are in the order of the columns of ``predict_proba``; ``prediction_`` is the
    :class:`Prediction`, with explanations and the refined graph.
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

    def fit(self, X: Any, y: ArrayLike | None = None, edges: Any = None) -> "GlowClassifier":
        """Take labels ``y`` of rows [n, F], of nodes [n] or [n, 1], or a graph with its own.

        ``edges`` [2, E] are pairs of rows; without them each is joined to its nearest.
        """
        seed: Any = 0 if self.random_state is None else self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = int(seed.randint(2**31))
        self.neighbors_: Pipeline | None = None
        self.n_features_in_, self.rows_ = 1, False
        if y is None and not isinstance(X, np.ndarray):
            data, classes = X, None
        elif isinstance(X, Data):
            raise InputError("fit takes the labels of a graph from data.y; got a separate y")
        else:
            codes, classes = _codes(y)
            if self.graph is None:
                data = self._table(validate_data(self, X, dtype=np.float32), edges)
                nodes = np.arange(data.num_nodes)
            else:
                data = as_graph(self.graph, need_labels=False, split=False)
                nodes = _places(X, data)
            data = _with_labels(data, nodes, codes, classes)
        found = predict(data, self.learner, seed=seed, device=self.device)
        self.prediction_: Prediction = found
        count = found.probabilities.shape[1]
        own = np.array(own_classes(found.data, count)[:count])
        self.classes_: NDArray[Any] = own if classes is None else classes
        return self

    def predict_proba(self, X: Any = None, edges: Any = None) -> NDArray[np.float32]:
        """Class probabilities [n, C] of new rows, or of nodes.

        New rows are joined to their nearest old ones. Where ``fit`` had edges, so must they: pairs
        [2, E], each with at least one new end, numbered from N on.
        """
        check_is_fitted(self)
        known = self.prediction_
        probabilities: NDArray[np.float32] = known.probabilities.numpy()
        if X is None or not self.rows_:
            return probabilities if X is None else probabilities[_places(X, known.data)]
        X = validate_data(self, X, dtype=np.float32, reset=False)
        if edges is None:
            if self.neighbors_ is None:
                raise InputError("New rows need edges, as fit had some: predict(X, edges).")
            new, old = self.neighbors_.transform(X).nonzero()
            edges = np.stack([new + len(probabilities), old]).astype(np.int64)
        return known.predict_new(torch.from_numpy(X), edges).numpy()

    def predict(self, X: Any = None, edges: Any = None) -> NDArray[Any]:
        """Most probable classes [n]; see :meth:`predict_proba`."""
        codes = self.predict_proba(X, edges).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[codes]
        return classes

    def score(
        self, X: Any = None, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy on rows or nodes ``X`` against ``y``.

        Without ``X`` on the test nodes of the graph, or by leave-one-out where there are none.
        """
        check_is_fitted(self)
        known = self.prediction_
        if X is not None:
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        return known.score("test").accuracy if known.tests else known.accuracy.value

    def _table(self, X: NDArray[np.float32], edges: Any) -> Data:
        """Make rows of a table the nodes of a graph."""
        self.rows_ = True
        if edges is None:
            count = min(NEAREST + 1, len(X))  # a row is the nearest to itself
            knn = KNeighborsTransformer(mode="connectivity", n_neighbors=count)
            self.neighbors_ = make_pipeline(StandardScaler(), knn)
            edges = np.stack(self.neighbors_.fit_transform(X).nonzero()).astype(np.int64)
        return Data(x=torch.from_numpy(X), edge_index=torch.as_tensor(edges))


def _places(nodes: Any, data: Data) -> NDArray[np.int64]:
    """The places [n] of nodes [n] or [n, 1]."""
    array = check_array(nodes, dtype=None, ensure_2d=False, input_name="X")
    named = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if named.ndim != 1:
        raise InputError(f"nodes must be ids (or indices), [n] or [n, 1]; got {array.shape}")
    return node_places(data, int(data.num_nodes or 0), named)


def _codes(y: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Number the classes of labels, -1 staying what it is: codes [n], classes [C]."""
    if y is None:  # in words that scikit-learn's own checks look for
        raise InputError("GlowClassifier requires y to be passed, but the target y is None")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    known = np.array([label not in UNKNOWN for label in labels.tolist()], dtype=bool)
    kinds = sorted({type(label).__name__ for label in labels[known].tolist()})
    if len(kinds) > 1:
        raise InputError(f"y must be all text or all numbers (-1: unknown); got {kinds}")
    check_classification_targets(labels[known])
    codes = np.full(len(labels), -1)
    classes, codes[known] = np.unique(labels[known], return_inverse=True)
    if len(classes) < 2:
        got = f"{len(classes)} class: {classes.tolist()}"
        raise InputError(f"y must hold at least two classes (-1 means unknown); got {got}")
    return codes, classes


def _with_labels(
    graph: Data, nodes: NDArray[Any], codes: NDArray[np.int64], classes: NDArray[Any]
) -> Data:
    """Copy a graph with the labels of ``nodes`` and no others, and without its split."""
    check_consistent_length(nodes, codes)
    known = copy.copy(graph)
    for name in MASKS:
        known.pop(name, None)
    known.split = "passed to fit"  # leaks were looked for in the whole graph
    known.y = torch.full((int(graph.num_nodes or 0),), -1)
    given = torch.from_numpy(codes)
    known.y[nodes] = given
    if bool((known.y[nodes] != given).any()):
        raise InputError("a node must have one label; got a node with several")
    known.class_names = [str(name) for name in classes]
    return known
