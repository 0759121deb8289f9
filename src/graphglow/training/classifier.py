"""Scikit-learn's verbs over a transfer."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.structure import StructureLearner
from graphglow.training.config import TransferConfig
from graphglow.training.result import TransferResult
from graphglow.training.transfer import transfer


class GlowClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classification with a frozen structure learner::

        clf = GlowClassifier(learner).fit(data)
        clf.predict(), clf.predict_proba(), clf.score()

    A sample is a node of the fitted graph, named by its index; without indices a method speaks of
    all nodes (``score``: of the test nodes).

    Args:
        learner: A structure learner.
        config: Settings of the transfer.
    """

    def __init__(self, learner: StructureLearner, config: TransferConfig | None = None) -> None:
        self.learner = learner
        self.config = config

    def fit(self, data: Data, y: None = None) -> "GlowClassifier":
        """Train on the nodes of ``data.train_mask``; ``y`` is there for scikit-learn's sake."""
        if y is not None:
            raise InputError("fit takes its labels from data.y; got a separate y")
        self.result_: TransferResult = transfer(self.learner, data, self.config)
        self.classes_: NDArray[np.int64] = np.arange(self.result_.graph.num_classes)
        return self

    def predict_proba(self, nodes: ArrayLike | None = None) -> NDArray[np.float32]:
        """Class probabilities [n, C]."""
        probabilities: NDArray[np.float32] = self._fitted().predict_proba().numpy()
        return probabilities if nodes is None else probabilities[self._index(nodes)]

    def predict(self, nodes: ArrayLike | None = None) -> NDArray[np.int64]:
        """Most probable classes [n]."""
        classes: NDArray[np.int64] = self._fitted().predict().numpy()
        return classes if nodes is None else classes[self._index(nodes)]

    def score(self, nodes: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Accuracy on ``nodes`` (default: the test nodes) against ``y`` (default: their labels)."""
        result = self._fitted()
        index = result.graph.test.cpu().numpy() if nodes is None else self._index(nodes)
        truth = result.data.y.numpy()[index] if y is None else np.asarray(y)
        if len(index) == 0:
            raise InputError("score needs at least one node; got none")
        if truth.shape != index.shape:
            raise InputError(f"y must have one label per node; got {truth.shape} for {index.shape}")
        if not np.issubdtype(truth.dtype, np.integer):
            raise InputError(f"y must hold integer class labels; got {truth.dtype}")
        if (truth < 0).any():
            raise InputError("score needs labelled nodes; got nodes with label -1")
        return float((self.predict(index) == truth).mean())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    def _fitted(self) -> TransferResult:
        if not hasattr(self, "result_"):
            raise NotFittedError("GlowClassifier must be fitted before use; call fit(data)")
        return self.result_

    def _index(self, nodes: ArrayLike) -> NDArray[np.int64]:
        try:
            index: NDArray[Any] = np.asarray(nodes)
        except ValueError as error:  # a list of lists, a graph
            raise InputError(f"nodes must be a list of indices; got {nodes!r:.60}") from error
        count = self._fitted().graph.num_nodes
        if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
            raise InputError(f"nodes must be a list of indices; got {index.dtype} {index.shape}")
        if len(index) and not 0 <= index.min() <= index.max() < count:
            raise InputError(
                f"nodes must lie in [0, {count - 1}]; got {index.min()}..{index.max()}"
            )
        return index
