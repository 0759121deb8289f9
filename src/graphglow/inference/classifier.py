"""Scikit-learn's verbs over a transfer."""

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

from graphglow.checks import number, with_settings
from graphglow.errors import InputError
from graphglow.graphs import as_graph
from graphglow.graphs.check import MASKS
from graphglow.graphs.write import own_classes
from graphglow.inference.own_names import node_places
from graphglow.pretrained import UNIVERSAL, LearnerName, load_learner
from graphglow.training.config import PaperConfig, TransferConfig
from graphglow.training.result import TransferResult
from graphglow.training.transfer import config_for, transfer

SETTINGS = (
    *("epochs", "patience", "learning_rate", "weight_decay", "dropout"),
    *("hidden", "backbone", "class_weight", "device"),
)
"""Parameters that are settings of the transfer by the same name."""
ARRAYS = np.ndarray | list | torch.Tensor | pd.Series


class GlowClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classification with a frozen structure learner, as a scikit-learn estimator.

    A sample is a node of a graph, X is [n] or [n, 1]: its own id, or its index where the graph has
    no ids. With the graph given at construction everything in scikit-learn that chooses samples
    chooses nodes::

        clf = GlowClassifier(graph=data, epochs=100, class_weight="balanced")
        cross_val_score(clf, nodes, labels, cv=5)
        GridSearchCV(clf, {"learning_rate": [0.01, 0.05]}).fit(nodes, labels)

    Only the labels passed to ``fit`` are seen, and of those nodes a share is held out to choose the
    epoch; all nodes and edges take part in message passing. Labels may be text. A graph that
    has its own labels and split can be fitted as it is, and so can all that
    :func:`graphglow.load_graph` takes::

        clf = GlowClassifier().fit("wine")
        clf.predict(), clf.predict_proba(), clf.score()

    Without nodes a method speaks of all nodes (``score``: of the test nodes).

    Args:
        learner: What :func:`graphglow.load_learner` takes.
        config: Settings of the transfer, a :class:`TransferConfig`, or a :class:`PaperConfig` under
            a learner of the paper's kind.
        graph: What the nodes are of: a ``Data`` (its labels and split are not read), or
            anything that :func:`graphglow.load_graph` takes.
        validation_fraction: Share of the nodes passed to ``fit`` that are held out, by class and by
            seed, to choose the epoch.
        random_state: The seed, or scikit-learn's generator to draw it from; None: that of
            ``config``, which is 0 by default.
        class_weight: ``"balanced"``: each class counts alike, however rare; as all that follow, a
            setting of the transfer, which goes before that of ``config`` where it is not None.
        epochs: As in the config.
        patience: As in the config.
        learning_rate: As in the config.
        weight_decay: As in the config.
        dropout: As in the config.
        hidden: As in the config; not under a learner of the paper's kind.
        backbone: As in the config.
        device: As in the config.

    Attributes:
        classes_: The class labels, in the order of the columns of ``predict_proba``: what was
            passed to ``fit``, or the graph's own names of its classes.
        result_: The :class:`TransferResult`, with the refined graph.
        n_features_in_: 1, the node.
    """

    def __init__(
        self,
        learner: LearnerName = UNIVERSAL,
        config: TransferConfig | PaperConfig | None = None,
        *,
        graph: Any = None,
        validation_fraction: float = 0.25,
        random_state: int | np.random.RandomState | None = None,
        class_weight: Literal["balanced"] | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        dropout: float | None = None,
        hidden: int | None = None,
        backbone: str | None = None,
        device: str | None = None,
    ) -> None:
        self.learner = learner
        self.config = config
        self.graph = graph
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.class_weight = class_weight
        self.epochs = epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.hidden = hidden
        self.backbone = backbone
        self.device = device

    def fit(self, X: Any, y: ArrayLike | None = None) -> "GlowClassifier":
        """Train on the nodes ``X`` with the labels ``y``, or on a graph with its own."""
        config = self._settings()
        learner = load_learner(self.learner, seed=config.seed)
        fraction = number("validation_fraction", self.validation_fraction)
        if not 0 < fraction < 1:
            raise InputError(f"validation_fraction must lie between 0 and 1; got {fraction}")
        if isinstance(X, Data) and y is not None:
            raise InputError("fit takes the labels of a graph from data.y; got a separate y")
        if y is None and not isinstance(X, ARRAYS):
            self.result_: TransferResult = transfer(X, learner, config)
            count = self.result_.graph.num_classes
            self.classes_: NDArray[Any] = np.array(own_classes(self.result_.data, count))
        else:
            labels = _class_labels(y)
            if len(seen := np.unique(labels)) < 2:
                raise InputError(
                    f"y must hold at least two classes; got {len(seen)} class: {seen.tolist()}"
                )
            if self.graph is None:
                raise InputError(
                    "fit(nodes, labels) needs the graph of these nodes: GlowClassifier(graph=data)"
                    "; rows of features are fitted by GlowClassifier().fit(pandas.DataFrame(X)"
                    ".assign(label=y)), where a blank label is one to predict"
                )
            graph = as_graph(self.graph, need_labels=False, split=False)
            nodes = _node_index(X, graph, at_least=1)
            data, classes = _graph_to_fit(graph, nodes, labels, fraction, config.seed)
            self.result_ = transfer(data, learner, config)
            self.classes_ = classes
        self.n_features_in_ = 1
        return self

    def predict_proba(self, X: ArrayLike | None = None) -> NDArray[np.float32]:
        """Class probabilities [n, C], in the order of ``classes_``."""
        check_is_fitted(self)
        probabilities: NDArray[np.float32] = self.result_.predict_proba().numpy()
        return probabilities if X is None else probabilities[_node_index(X, self.result_.data)]

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

        Without ``X`` that is on the test nodes, or, where there are none, as after ``fit(nodes,
        labels)``, on the nodes that were held out, which have chosen the epoch. Without ``y`` the
        labels are those that ``fit`` was given. A class that ``fit`` has not seen is never right.
        """
        check_is_fitted(self)
        graph = self.result_.graph
        held_out = next((part for part in (graph.test, graph.val) if len(part)), graph.train)
        index = held_out.cpu().numpy() if X is None else _node_index(X, self.result_.data)
        if len(index) == 0:
            raise InputError("score needs at least one node; got none")
        truth = self.result_.data.y.numpy()[index] if y is None else self._codes(_class_labels(y))
        if y is None and (truth < 0).any():
            raise InputError(
                "score needs y for nodes whose label fit was not given; got "
                f"{int((truth < 0).sum())} such nodes"
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

    def _settings(self) -> TransferConfig | PaperConfig:
        """Those of the config, or the defaults for the learner's kind, and those given by name."""
        given = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}
        seed = self.random_state
        if seed is not None:
            drawn = isinstance(seed, np.random.RandomState)
            given["seed"] = check_random_state(seed).randint(2**31) if drawn else seed
        return with_settings(config_for(load_learner(self.learner), self.config), given)


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
