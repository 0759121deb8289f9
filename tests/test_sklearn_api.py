"""Scikit-learn's verbs over ``predict``: rows or nodes are samples, only given labels are read."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from torch_geometric.data import Data

from graphglow import GlowClassifier, InputError, Prediction, predict
from tiny_graphs import small_data

NODES = np.arange(40)
NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(scope="module")
def data():
    return small_data()


def classifier(data, learner="untrained"):
    return GlowClassifier(learner, graph=data, device="cpu")


@pytest.fixture(scope="module")
def fitted(data):
    return classifier(data).fit(NODES[:30], NAMES[data.y[:30]])


# Rows


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X, NAMES[y]


@pytest.fixture(scope="module")
def rows(iris):
    return GlowClassifier(device="cpu").fit(iris[0][::2], iris[1][::2])


def test_rows_that_fit_has_not_seen_are_classified(rows, iris):
    X, y = iris
    assert rows.score(X[1::2], y[1::2]) > 0.9
    assert rows.n_features_in_ == 4
    assert list(rows.feature_names_in_) == list(X)
    assert np.array_equal(rows.predict(X[1:8:2]), rows.predict(X[1::2])[:4])
    assert rows.predict().shape == (75,)  # those that it has seen, by leave-one-out
    assert rows.score() == rows.prediction_.accuracy.value


def test_rows_are_chosen_and_piped(iris):
    model = make_pipeline(MinMaxScaler(), GlowClassifier(device="cpu"))
    assert cross_val_score(model, *iris, cv=3).mean() > 0.9


def test_rows_are_joined_to_their_nearest(rows, iris):
    scaled = (iris[0][::2] - iris[0][::2].mean()) / iris[0][::2].std(ddof=0)
    distance = ((scaled.values[:, None] - scaled.values) ** 2).sum(2)
    kept = [np.sort(d)[10] for d in distance]  # itself is the first
    source, target = rows.prediction_.data.edge_index.numpy()
    assert all(distance[u, v] <= kept[u] + 1e-5 for u, v in zip(source, target, strict=True))
    assert (np.bincount(source) == 11).all()


def test_edges_of_rows_are_used_and_labels_may_be_unknown(data):
    y = np.where(NODES < 30, data.y, -1)
    clf = GlowClassifier("untrained", device="cpu").fit(data.x, y, edges=data.edge_index)
    text = GlowClassifier("untrained", device="cpu").fit(
        data.x, np.where(NODES < 30, NAMES[data.y].astype(object), -1), edges=data.edge_index
    )
    assert text.predict().tolist() == NAMES[clf.predict()].tolist()
    known = Data(x=data.x, edge_index=data.edge_index, y=torch.tensor(y), split="given")
    expected = predict(known, "untrained", device="cpu").probabilities
    assert np.array_equal(clf.predict_proba(), expected.numpy())
    new = np.array([[40, 40], [3, 5]])
    expected = clf.prediction_.predict_new(data.x[:1], new)
    assert np.array_equal(clf.predict_proba(data.x[:1], edges=new), expected.numpy())
    with pytest.raises(InputError, match="New rows need edges"):
        clf.predict(data.x[:1])


# Nodes


def test_fitting_a_graph_is_predicting_it(data):
    clf = GlowClassifier("untrained", device="cpu")
    assert clf.fit(data) is clf
    found = predict(data, "untrained", device="cpu")
    assert np.array_equal(clf.predict_proba(), found.probabilities.numpy())
    assert np.array_equal(clf.predict(), found.classes.numpy())
    assert clf.score() == pytest.approx(found.score("test").accuracy)
    assert clf.classes_.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"data\.y"):
        clf.fit(data, data.y)


@pytest.mark.filterwarnings("ignore:.*no edges of its own")
def test_what_is_loaded_can_be_fitted():
    clf = GlowClassifier(device="cpu").fit("wine")
    assert clf.score() == clf.prediction_.accuracy.value  # every label is used
    assert clf.classes_.tolist() == [0, 1, 2]


def test_text_labels_are_the_classes(fitted):
    assert fitted.classes_.tolist() == ["ant", "bee", "cat"]
    assert fitted.predict_proba(NODES).shape == (40, 3)
    assert np.array_equal(fitted.predict([7, 3]), NAMES[fitted.predict_proba().argmax(1)[[7, 3]]])
    assert (fitted.n_features_in_, type(fitted.prediction_)) == (1, Prediction)
    assert list(fitted.prediction_.to_frame())[3:6] == ["p_ant", "p_bee", "p_cat"]


def test_score_is_the_accuracy_against_given_labels(fitted, data):
    truth = np.where(NODES < 5, NAMES[data.y - 1], NAMES[data.y])  # of five nodes another
    right = fitted.predict(NODES) == truth
    assert 0 < right.mean() < 1
    assert fitted.score(NODES, truth) == pytest.approx(right.mean())
    assert fitted.score(NODES, truth, sample_weight=right.astype(float)) == 1.0
    assert fitted.score([0, 1], ["dog", "cow"]) == 0.0
    assert fitted.score() == fitted.prediction_.accuracy.value


def test_order_repetition_and_shape_of_nodes_make_no_difference(fitted, data):
    order = np.random.default_rng(0).permutation(30)
    order = np.concatenate([order, order[:5]])
    for labels in (NAMES[data.y[order]], pd.Series(NAMES[data.y[order]], dtype=object)):
        other = classifier(data).fit(order[:, None], labels)
        assert np.array_equal(other.predict_proba(NODES[:, None]), fitted.predict_proba())


def test_labels_of_other_nodes_change_nothing(data, fitted):
    """The graph's own labels and split may say anything: fit never reads them."""
    other, bare = data.clone(), data.clone()
    other.y = torch.randint(3, (40,), generator=torch.Generator().manual_seed(1))
    other.train_mask, other.test_mask = data.test_mask, data.train_mask
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        del bare[name]
    for graph in (other, bare):
        clf = classifier(graph).fit(NODES[:30], NAMES[data.y[:30]])
        assert np.array_equal(clf.predict_proba(), fitted.predict_proba())


def test_scikit_learn_chooses_nodes_and_learners(data):
    labels = NAMES[data.y]
    assert cross_val_score(classifier(data), NODES, labels, cv=3).shape == (3,)
    guesses = cross_val_predict(classifier(data), NODES, labels, cv=3, method="predict_proba")
    assert guesses.shape == (40, 3)
    grid = {"learner": ["universal", "untrained"]}
    search = GridSearchCV(classifier(data), grid, cv=2, error_score="raise").fit(NODES, labels)
    assert search.best_params_["learner"] in grid["learner"]
    assert search.predict(NODES).shape == (40,)


@pytest.mark.parametrize("ids", [[f"n{i}" for i in range(40)], list(range(100, 140))])
def test_nodes_are_named_by_their_own_ids(data, fitted, ids):
    named = data.clone()
    named.node_id = ids
    clf = classifier(named).fit(np.array(ids)[:30], NAMES[data.y[:30]])
    assert np.array_equal(clf.predict_proba(ids[5:9]), fitted.predict_proba()[5:9])
    assert clf.prediction_.explain(ids[5]).facts["predicted"] == clf.predict([ids[5]])[0]
    with pytest.raises(InputError, match=r"node must be the id of a node \(nearest: .*; got '?3"):
        clf.predict([3])


def test_parameters_clones_and_copies(fitted):
    assert set(fitted.get_params()) == {"learner", "graph", "random_state", "device"}
    assert not hasattr(clone(fitted), "classes_")
    for copied in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(copied.predict_proba(), fitted.predict_proba())


def test_the_random_state_is_the_seed(data):
    def seed(state):
        clf = classifier(data).set_params(random_state=state)
        return clf.fit(NODES[:30], data.y[:30]).prediction_.seed

    assert (seed(None), seed(5)) == (0, 5)
    assert seed(np.random.RandomState(7)) == seed(np.random.RandomState(7)) > 0
    with pytest.raises(InputError, match="seed must be an integer"):
        seed("seven")


# Refusals


def test_verbs_before_fit_and_bad_nodes_are_refused(fitted):
    for verb in ("predict", "predict_proba", "score"):
        with pytest.raises(NotFittedError, match="fit"):
            getattr(GlowClassifier(), verb)()
    for nodes in ([40], [-1], [0.5], [[0, 1]], ["a"], [True, False]):
        with pytest.raises(InputError, match=r"nodes? must be"):
            fitted.predict(nodes)


@pytest.mark.parametrize(
    ("nodes", "labels", "rule"),
    [
        (NODES, None, "requires y to be passed"),
        ([0, 1, 2], [0, 1], "inconsistent numbers of samples"),
        ([0, 1, 2], [0, -1, 0], "at least two classes .-1 means unknown.; got 1 class"),
        ([0, 1, 2], [0.5, 1.5, 0.1], "Unknown label type"),
        ([0, 1, 2], [0.0, np.nan, 1.0], "NaN"),
        ([0, 1, 2], np.array(["a", 3, "b"], object), "all text or all numbers .-1: unknown.; got"),
        ([0, 0, 1], ["a", "b", "a"], "a node must have one label"),
        ([0, 40, 1], ["a", "b", "a"], r"index in \[0, 39\]"),
    ],
)
def test_what_cannot_be_fitted_is_refused(data, nodes, labels, rule):
    with pytest.raises(ValueError, match=rule):
        classifier(data).fit(nodes, labels)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"graph": "no-such-graph"}, "known name"),
        ({"learner": "paper"}, "needs an evidence learner"),
    ],
)
def test_bad_parameters_are_refused_in_fit(data, changes, rule):
    with pytest.raises(InputError, match=rule):
        classifier(data).set_params(**changes).fit(NODES[:30], data.y[:30])
