"""Scikit-learn's verbs."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from graphglow.errors import InputError, InputWarning
from graphglow.inference.classifier import SETTINGS, GlowClassifier
from graphglow.training import transfer
from tiny_graphs import learner, same_tensors, small_data, transfer_config


@pytest.fixture(scope="module")
def data():
    return small_data()


@pytest.fixture(scope="module")
def fitted(data):
    return GlowClassifier(learner(), transfer_config()).fit(data)


def test_fitting_is_a_transfer(fitted, data):
    result = transfer(data, learner(), transfer_config())
    assert np.array_equal(fitted.predict_proba(), result.predict_proba().numpy())
    assert np.array_equal(fitted.predict(), result.predict().numpy())
    assert fitted.score() == pytest.approx(result.test_accuracy)
    assert fitted.classes_.tolist() == [0, 1, 2]


def test_fit_returns_the_classifier(data):
    clf = GlowClassifier(learner(), transfer_config(epochs=1))
    assert clf.fit(data) is clf
    check_is_fitted(clf)


@pytest.mark.parametrize("nodes", [[3, 0, 39], np.array([5, 5]), torch.tensor([1, 2]), (7,)])
def test_nodes_are_named_by_index(fitted, nodes):
    index = np.asarray(nodes)
    assert np.array_equal(fitted.predict(nodes), fitted.predict()[index])
    assert np.array_equal(fitted.predict_proba(nodes), fitted.predict_proba()[index])


def test_score_takes_nodes_and_labels(fitted, data):
    nodes = np.arange(10)
    expected = (fitted.predict()[:10] == data.y[:10].numpy()).mean()
    assert fitted.score(nodes) == pytest.approx(expected)
    assert fitted.score(nodes, fitted.predict(nodes)) == 1.0
    assert fitted.score(nodes, (fitted.predict(nodes) + 1) % 3) == 0.0


def test_get_and_set_params_and_clone(fitted):
    params = fitted.get_params(deep=False)
    own = {"learner", "config", "graph", "validation_fraction", "random_state"}
    assert set(params) == {*own, *SETTINGS}
    copy = clone(fitted)
    assert copy.config == fitted.config
    assert copy.learner is not fitted.learner
    assert same_tensors(copy.learner, fitted.learner)
    assert not hasattr(copy, "result_")
    config = transfer_config(epochs=2)
    assert copy.set_params(config=config).config is config
    assert "GlowClassifier" in repr(copy)


@pytest.mark.parametrize("verb", ["predict", "predict_proba", "score"])
def test_verbs_before_fit_are_refused(verb):
    clf = GlowClassifier(learner())
    with pytest.raises(NotFittedError, match="fit"):
        getattr(clf, verb)()
    with pytest.raises(NotFittedError):
        check_is_fitted(clf)


@pytest.mark.parametrize("verb", ["predict", "predict_proba", "score"])
@pytest.mark.parametrize("nodes", [[40], [-1], [0.5], [[0, 1]], ["a"], [True, False], 3])
def test_bad_nodes_are_refused(fitted, verb, nodes):
    with pytest.raises(InputError, match=r"nodes? must be"):
        getattr(fitted, verb)(nodes)


def test_no_nodes_give_no_predictions(fitted):
    assert fitted.predict(np.array([], dtype=np.int64)).shape == (0,)
    with pytest.raises(InputError, match="at least one node"):
        fitted.score(np.array([], dtype=np.int64))


def test_score_refuses_what_it_cannot_compare(fitted, data):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score([0, 1], [0])
    with pytest.raises(InputError, match=r"classes as fit was given them, \[0, 1, 2\]; got \['a'"):
        fitted.score([0, 1], ["a", "b"])
    unlabelled = data.clone()
    unlabelled.y[5] = -1
    clf = GlowClassifier(learner(), transfer_config(epochs=1)).fit(unlabelled)
    with pytest.raises(InputError, match="whose label fit was not given; got 1"):
        clf.score([5])


def test_score_without_test_nodes_is_of_those_held_out(data):
    without = data.clone()
    without.test_mask = torch.zeros_like(without.test_mask)
    clf = GlowClassifier(learner(), transfer_config(epochs=1)).fit(without)
    assert clf.score() == pytest.approx(clf.result_.val_accuracy)


def test_classes_of_a_graph_have_its_names(data):
    named = data.clone()
    named.class_names = ["red", "green", "blue"]
    clf = GlowClassifier(learner(), transfer_config(epochs=1)).fit(named)
    assert clf.classes_.tolist() == named.class_names
    codes = clf.predict_proba().argmax(1)
    assert clf.predict().tolist() == [named.class_names[code] for code in codes]
    assert clf.score([0, 1], clf.predict([0, 1])) == clf.score([0, 1], codes[:2]) == 1.0


def test_a_class_that_only_test_nodes_have_is_wrong(data):
    """Of the classes 0, 1 and 2 the last has neither training nor validation nodes."""
    rare = data.clone()
    rare.train_mask, rare.val_mask = (m & (data.y < 2) for m in (data.train_mask, data.val_mask))
    rare.test_mask = ~(rare.train_mask | rare.val_mask)
    clf = GlowClassifier(epochs=2, device="cpu").fit(rare)
    nodes = rare.test_mask.nonzero()[:, 0].numpy()
    right = (clf.predict(nodes) == rare.y[nodes].numpy()).mean()
    assert clf.score() == clf.score(nodes) == clf.score(nodes, rare.y[nodes]) == right
    assert (rare.y[nodes] == 2).any()
    named = GlowClassifier(graph=data, epochs=1, device="cpu").fit([0, 1, 2, 3], list("abab"))
    assert named.score([0, 1], ["dog", "cat"]) == named.score([0, 1], [7, 8]) == 0
    yes = GlowClassifier(graph=data, epochs=1, device="cpu").fit([0, 1, 2, 3], [True, False] * 2)
    assert yes.score([0, 1], yes.predict([0, 1])) == yes.score([0, 1], 1 * yes.predict([0, 1])) == 1


@pytest.mark.filterwarnings("ignore:.*no split of its own")
def test_what_is_loaded_can_be_fitted():
    clf = GlowClassifier(epochs=2, device="cpu").fit("wine")
    assert clf.score() == pytest.approx(clf.result_.test_accuracy)


@pytest.mark.filterwarnings("ignore:.*no split of its own", "ignore:.*no edges of its own")
def test_rows_of_features_are_refused_with_a_line_that_fits_them():
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.array(["a", "b"] * 30, dtype=object)
    X[::2] += 2
    with pytest.raises(InputError) as refused:
        GlowClassifier().fit(X, y)
    line = "GlowClassifier().fit(pandas.DataFrame(X).assign(label=y))"
    assert line in str(refused.value)
    y[:6] = None  # to predict
    with pytest.warns(InputWarning, match="has no id column: a node's id is the number of its row"):
        fitted = eval(line, {"GlowClassifier": GlowClassifier, "pandas": pd, "X": X, "y": y})
    assert fitted.predict([0, 1, 2, 3, 4, 5]).tolist() == ["a", "b"] * 3


def test_separate_labels_are_refused(data):
    with pytest.raises(InputError, match=r"data\.y"):
        GlowClassifier(learner(), transfer_config()).fit(data, data.y)
