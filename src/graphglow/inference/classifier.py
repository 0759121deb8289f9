"""Scikit-learn's verbs over a transfer."""

import copy
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import assert_all_finite, check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch_geometric.data import Data

from graphglow.checks import number
from graphglow.errors import InputError
from graphglow.graphs import load_graph
from graphglow.graphs.check import MASKS
from graphglow.pretrained import UNIVERSAL, LearnerName, load_learner
from graphglow.training.config import PaperConfig, TransferConfig
from graphglow.training.result import TransferResult
from graphglow.training.transfer import config_for, transfer

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
        learner: What :func:`graphglow.load_learner` takes.
        config: Settings of the transfer, a :class:`TransferConfig`, or a :class:`PaperConfig` under
            a learner of the paper's kind; each is also a parameter, ``config__<name>``.
        graph: What the indices speak of: a ``Data`` (its labels and split are not read), or
            anything that :func:`graphglow.load_graph` takes.
        validation_fraction: Share of the nodes passed to ``fit`` that are held out, by class and by
            ``config.seed``, to choose the epoch.

    Attributes:
        classes_: The class labels, in the order of the columns of ``predict_proba``.
        result_: The :class:`TransferResult`, with the refined graph.
        n_features_in_: 1, the index.
    """

    def __init__(
        self,
        learner: LearnerName = UNIVERSAL,
        config: TransferConfig | PaperConfig | None = None,
        *,
        graph: Any = None,
        validation_fraction: float = 0.25,
    ) -> None:
        self.learner = learner
        self.config = config
        self.graph = graph
        self.validation_fraction = validation_fraction

    def fit(self, X: Data | ArrayLike, y: ArrayLike | None = None) -> "GlowClassifier":
        """Train on the nodes ``X`` with the labels ``y``, or on a graph with its own."""
        config = self._settings()
        learner = load_learner(self.learner, seed=config.seed)
        fraction = number("validation_fraction", self.validation_fraction)
        if not 0 < fraction < 1:
            raise InputError(f"validation_fraction must lie between 0 and 1; got {fraction}")
        if isinstance(X, Data):
            if y is not None:
                raise InputError("fit takes the labels of a graph from data.y; got a separate y")
            self.result_: TransferResult = transfer(X, learner, config)
            self.classes_: NDArray[Any] = np.arange(self.result_.graph.num_classes)
        else:
            labels = _class_labels(y)
            if len(seen := np.unique(labels)) < 2:
                raise InputError(
                    f"y must hold at least two classes; got {len(seen)} class: {seen.tolist()}"
                )
            if self.graph is None:
                raise InputError(
                    "fit(nodes, labels) needs the graph of these nodes: GlowClassifier(graph=data)"
                )
            given = self.graph
            graph = given if isinstance(given, Data) else load_graph(given, need_labels=False)
            nodes = _node_index(X, graph.num_nodes, at_least=1)
            data, classes = _graph_to_fit(graph, nodes, labels, fraction, config.seed)
            self.result_ = transfer(data, learner, config)
            self.classes_ = classes
        self.n_features_in_ = 1
        return self

    def predict_proba(self, X: ArrayLike | None = None) -> NDArray[np.float32]:
        """Class probabilities [n, C], in the order of ``classes_``."""
        check_is_fitted(self)
        probabilities: NDArray[np.float32] = self.result_.predict_proba().numpy()
        return probabilities if X is None else probabilities[self._index(X)]

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
        """Accuracy on the nodes ``X`` (default: the test nodes) against ``y``.

        Without ``y`` the labels are those of the fitted graph; after ``fit(nodes, labels)`` it
        knows no others than those.
        """
        check_is_fitted(self)
        index = self.result_.graph.test.cpu().numpy() if X is None else self._index(X)
        if len(index) == 0:
            raise InputError("score needs at least one node; got none")
        if y is None:
            codes = self.result_.data.y.numpy()[index]
            if (codes < 0).any():
                raise InputError("score needs labelled nodes; got nodes with label -1")
            truth = self.classes_[codes]
        else:
            truth = _class_labels(y)
        return float(accuracy_score(truth, self.predict(index), sample_weight=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with ``deep`` the settings of the transfer too, as ``config__<name>``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        with suppress(InputError):  # what is wrong with learner or config is said in fit
            config = self._settings()
            if deep:
                params |= {f"{CONFIG}{f.name}": getattr(config, f.name) for f in fields(config)}
        return params

    def set_params(self, **params: Any) -> "GlowClassifier":
        """Set parameters by name; ``config__<name>`` changes one setting of the transfer."""
        changes = {n.removeprefix(CONFIG): v for n, v in params.items() if n.startswith(CONFIG)}
        super().set_params(**{n: v for n, v in params.items() if not n.startswith(CONFIG)})
        if not changes:
            return self
        config = self._settings()
        try:
            changed = replace(config, **changes)
        except TypeError as error:
            raise InputError(
                f"{CONFIG}* must name a setting of {type(config).__name__}; {error}"
            ) from error
        if changed != config:
            self.config = changed
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True  # an index
        return tags

    def _settings(self) -> TransferConfig | PaperConfig:
        """Those given; else the defaults for the learner's kind."""
        given = self.config
        if given is None:
            return config_for(load_learner(self.learner), None)
        if not isinstance(given, TransferConfig | PaperConfig):
            raise InputError(f"config must be a TransferConfig; got {type(given).__name__}")
        return given

    def _index(self, nodes: ArrayLike) -> NDArray[np.int64]:
        return _node_index(nodes, self.result_.graph.num_nodes)


def _node_index(nodes: Any, num_nodes: int, *, at_least: int = 0) -> NDArray[np.int64]:
    """Check node indices [n] or [n, 1] and return them as [n]."""
    array = check_array(
        nodes, dtype=None, ensure_2d=False, ensure_min_samples=at_least, input_name="X"
    )
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


def _class_labels(y: Any) -> NDArray[Any]:
    """Check that ``y`` holds class labels, all of them known, and return it as [n]."""
    if y is None:  # in words that scikit-learn's own checks look for
        raise InputError("GlowClassifier requires y to be passed, but the target y is None")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    if np.issubdtype(labels.dtype, np.number) and (labels == -1).any():
        raise InputError(
            "y must not hold -1, which means unlabelled here: pass labelled nodes only; "
            f"got {int((labels == -1).sum())} of {len(labels)}"
        )
    return labels


def _graph_to_fit(
    graph: Data, nodes: NDArray[np.int64], labels: NDArray[Any], fraction: float, seed: int
) -> tuple[Data, NDArray[Any]]:
    """A copy of ``graph`` that knows the labels of ``nodes`` and no others, and the classes.

    The graph's own labels and split are dropped. A seeded share of ``nodes`` is for validation,
    the rest for training. The order of ``nodes`` makes no difference, nor do repetitions.

    Returns:
        The graph, with y = the place of the label among the classes; the classes, sorted.
    """
    check_consistent_length(nodes, labels)
    classes, codes = np.unique(labels, return_inverse=True)
    unique, first, place = np.unique(nodes, return_index=True, return_inverse=True)
    if (codes[first][place] != codes).any():
        raise InputError("a node must have one label; got a node with several")
    held_out = _validation(codes[first], fraction, seed)
    hidden = copy.copy(graph)
    num_nodes = graph.num_nodes
    hidden.y = torch.full((num_nodes,), -1)
    hidden.y[torch.from_numpy(unique)] = torch.from_numpy(codes[first])
    for name, part in zip(MASKS, (unique[~held_out], unique[held_out], unique[:0]), strict=True):
        hidden[name] = torch.zeros(num_nodes, dtype=torch.bool)
        hidden[name][torch.from_numpy(part)] = True
    own = graph.get("class_names")  # of the graph's numbers, where those are the labels
    numbered = own is not None and classes.dtype.kind in "iu" and classes[-1] < len(own)
    hidden.class_names = [str(own[c] if numbered else c) for c in classes]
    return hidden, classes


def _validation(codes: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which nodes to hold out: of each class about ``fraction``, never its last node."""
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
