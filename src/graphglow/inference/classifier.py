"""Scikit-learn's verbs over a transfer."""

from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.inference.labelled_nodes import (
    check_fraction,
    class_labels,
    graph_given,
    graph_to_fit,
    node_index,
    same_length,
    several_classes,
)
from graphglow.structure import StructureLearner
from graphglow.training.config import TransferConfig
from graphglow.training.named_learner import named_learner
from graphglow.training.result import TransferResult
from graphglow.training.run_log import log_to
from graphglow.training.transfer import transfer

CONFIG = "config__"
"""How the names of the parameters begin that are settings of the transfer."""


class GlowClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classification with a frozen structure learner, as a scikit-learn estimator.

    A sample is a node of a graph, named by its index: X is [n] or [n, 1]. With the graph given at
    construction everything in scikit-learn that chooses samples chooses nodes::

        clf = GlowClassifier(graph=data)
        cross_val_score(clf, nodes, labels, cv=5)
        GridSearchCV(clf, {"config__learning_rate": [0.01, 0.05]}).fit(nodes, labels)

    Only the labels passed to ``fit`` are seen, and of those nodes a share is held out to choose the
    epoch; all nodes and edges take part in message passing. Labels may be text. A graph that
    has its own labels and split can be fitted as it is::

        clf = GlowClassifier(learner, config).fit(data)
        clf.predict(), clf.predict_proba(), clf.score()

    Without indices a method speaks of all nodes (``score``: of the test nodes).

    Args:
        learner: A structure learner, the name of one of the package's, or a file.
        config: Settings of the transfer; each is also a parameter, ``config__<name>``.
        graph: What the indices speak of: a ``Data`` (its labels and split are not read), or
            anything that :func:`graphglow.load_graph` takes.
        validation_fraction: Share of the nodes passed to ``fit`` that are held out, by class and by
            ``config.seed``, to choose the epoch.
        log: Where to log each fit as a run of its own, as in :func:`graphglow.log_to`.

    Attributes:
        classes_: The class labels, in the order of the columns of ``predict_proba``.
        result_: The :class:`TransferResult`, with the refined graph.
        n_features_in_: 1, the index.
    """

    def __init__(
        self,
        learner: StructureLearner | str | Path = "universal",
        config: TransferConfig | None = None,
        *,
        graph: Any = None,
        validation_fraction: float = 0.25,
        log: str | None = None,
    ) -> None:
        self.learner = learner
        self.config = config
        self.graph = graph
        self.validation_fraction = validation_fraction
        self.log = log

    def fit(self, X: Data | ArrayLike, y: ArrayLike | None = None) -> "GlowClassifier":
        """Train on the nodes ``X`` with the labels ``y``, or on a graph with its own."""
        learner = named_learner(self.learner)
        config = self._settings()
        check_fraction(self.validation_fraction)
        classes: NDArray[Any] | None = None
        if isinstance(X, Data):
            if y is not None:
                raise InputError("fit takes the labels of a graph from data.y; got a separate y")
            data = X
        else:
            labels = several_classes(class_labels(y))
            graph = graph_given(self.graph)
            nodes = node_index(X, len(graph.x), at_least=1)
            data, classes = graph_to_fit(
                graph,
                nodes,
                labels,
                validation_fraction=self.validation_fraction,
                seed=config.seed,
            )
        with nullcontext() if self.log is None else log_to(self.log, settings=config) as log:
            self.result_: TransferResult = transfer(learner, data, config, on_epoch=log)
        if classes is None:
            classes = np.arange(self.result_.graph.num_classes)
        self.classes_: NDArray[Any] = classes
        self.n_features_in_ = 1
        return self

    def predict_proba(self, X: ArrayLike | None = None) -> NDArray[np.float32]:
        """Class probabilities [n, C], in the order of ``classes_``."""
        probabilities: NDArray[np.float32] = self._fitted().predict_proba().numpy()
        return probabilities if X is None else probabilities[self._index(X)]

    def predict(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Most probable classes [n]."""
        codes = self._fitted().predict().numpy()
        classes: NDArray[Any] = self.classes_[codes]
        return classes if X is None else classes[self._index(X)]

    def score(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Accuracy on the nodes ``X`` (default: the test nodes) against ``y``.

        Without ``y`` the labels are those of the fitted graph; after ``fit(nodes, labels)`` it
        knows no others than those.
        """
        result = self._fitted()
        index = result.graph.test.cpu().numpy() if X is None else self._index(X)
        if len(index) == 0:
            raise InputError("score needs at least one node; got none")
        if y is None:
            codes = result.data.y.numpy()[index]
            if (codes < 0).any():
                raise InputError("score needs labelled nodes; got nodes with label -1")
            truth = self.classes_[codes]
        else:
            truth = class_labels(y)
            same_length(index, truth)
            if (truth.dtype.kind in "biuf") != (self.classes_.dtype.kind in "biuf"):
                raise InputError(
                    f"y must hold class labels as in fit ({self.classes_.dtype}); got {truth.dtype}"
                )
        return float(accuracy_score(truth, self.predict(index), sample_weight=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with ``deep`` the settings of the transfer too, as ``config__<name>``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        config = TransferConfig() if self.config is None else self.config
        if deep and isinstance(config, TransferConfig):
            params |= {f"{CONFIG}{f.name}": getattr(config, f.name) for f in fields(config)}
        return params

    def set_params(self, **params: Any) -> "GlowClassifier":
        """Set parameters by name; ``config__<name>`` changes one setting of the transfer."""
        changes = {n.removeprefix(CONFIG): v for n, v in params.items() if n.startswith(CONFIG)}
        super().set_params(**{n: v for n, v in params.items() if not n.startswith(CONFIG)})
        if not changes:
            return self
        config = self._settings()
        known = {field.name for field in fields(config)}
        for name in changes.keys() - known:
            raise InputError(
                f"{CONFIG}* must name a setting of TransferConfig ({', '.join(sorted(known))}); "
                f"got {CONFIG}{name}"
            )
        changes = {n: v for n, v in changes.items() if getattr(config, n) != v}
        if changes:
            self.config = replace(config, **changes)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True  # an index
        return tags

    def _settings(self) -> TransferConfig:
        if self.config is not None and not isinstance(self.config, TransferConfig):
            raise InputError(f"config must be a TransferConfig; got {type(self.config).__name__}")
        return TransferConfig() if self.config is None else self.config

    def _fitted(self) -> TransferResult:
        if not hasattr(self, "result_"):
            raise NotFittedError(
                "GlowClassifier must be fitted before use; call fit(nodes, labels) or fit(data)"
            )
        return self.result_

    def _index(self, nodes: ArrayLike) -> NDArray[np.int64]:
        return node_index(nodes, self._fitted().graph.num_nodes)
