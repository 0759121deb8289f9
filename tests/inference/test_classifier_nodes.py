"""Nodes as scikit-learn's samples: fit(nodes, labels), cross-validation, searches, no leaks."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

from graphglow.errors import InputError
from graphglow.inference.classifier import GlowClassifier
from graphglow.training import PaperConfig, TransferConfig, TransferResult
from tiny_graphs import learner, small_data, transfer_config

NODES = np.arange(40)
NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(scope="module")
def data():
    return small_data()


def classifier(data, **changes):
    return GlowClassifier(learner(), transfer_config(**changes), graph=data)


@pytest.fixture(scope="module")
def fitted(data):
    return classifier(data).fit(NODES[:30], NAMES[data.y[:30]])


def test_text_labels_are_the_classes(fitted):
    assert fitted.classes_.tolist() == ["ant", "bee", "cat"]
    probabilities = fitted.predict_proba(NODES)
    assert probabilities.shape == (40, 3)
    assert np.array_equal(fitted.predict(NODES), NAMES[probabilities.argmax(1)])
    assert fitted.n_features_in_ == 1
    assert fitted.result_.data.class_names == ["ant", "bee", "cat"]


def test_score_is_the_accuracy_against_given_labels(fitted, data):
    truth = NAMES[data.y]
    expected = (fitted.predict(NODES) == truth).mean()
    assert fitted.score(NODES, truth) == pytest.approx(expected)
    right = fitted.predict(NODES) == truth
    assert fitted.score(NODES, truth, sample_weight=right.astype(float)) == 1.0
    assert fitted.score(NODES, np.array(["dog"] * 40)) == 0.0


def test_a_column_of_indices_is_the_same_as_a_list(fitted, data):
    column = classifier(data).fit(NODES[:30, None], NAMES[data.y[:30]])
    assert np.array_equal(column.predict_proba(NODES[:, None]), fitted.predict_proba(NODES))


def test_the_order_of_the_nodes_and_repetitions_make_no_difference(fitted, data):
    order = np.random.default_rng(0).permutation(30)
    order = np.concatenate([order, order[:5]])
    other = classifier(data).fit(NODES[order], NAMES[data.y[order]])
    assert np.array_equal(other.predict_proba(), fitted.predict_proba())


def test_fitting_twice_gives_the_same_and_changes_no_parameter(data):
    clf = classifier(data)
    before = {name: id(value) for name, value in clf.get_params(deep=False).items()}
    first = clf.fit(NODES[:30], data.y[:30]).predict_proba()
    assert np.array_equal(clf.fit(NODES[:30], data.y[:30]).predict_proba(), first)
    assert {name: id(value) for name, value in clf.get_params(deep=False).items()} == before


def test_a_part_of_the_nodes_is_predicted_as_in_the_whole(fitted):
    assert np.array_equal(fitted.predict_proba([7, 3]), fitted.predict_proba(NODES)[[7, 3]])


def test_labels_of_other_nodes_change_nothing(data, fitted):
    """The graph's own labels and split may say anything: fit never reads them."""
    other = data.clone()
    other.y[30:] = other.y[30:].flip(0)
    other.y[:30] = torch.randint(3, (30,), generator=torch.Generator().manual_seed(1))
    other.train_mask, other.test_mask = data.test_mask, data.train_mask
    bare = data.clone()
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        del bare[name]
    for graph in (other, bare):
        clf = classifier(graph).fit(NODES[:30], NAMES[data.y[:30]])
        assert np.array_equal(clf.predict_proba(), fitted.predict_proba())


def test_a_class_that_only_hidden_nodes_have_is_unknown(data):
    nodes = NODES[(data.y < 2).numpy()]
    clf = classifier(data).fit(nodes, data.y[nodes])
    assert clf.classes_.tolist() == [0, 1]
    assert clf.predict_proba().shape == (40, 2)


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
def test_each_class_keeps_a_training_node_and_gives_some_to_validation(data, fraction):
    clf = classifier(data, epochs=1).set_params(validation_fraction=fraction)
    graph = clf.fit(NODES[:30], data.y[:30]).result_.graph
    train, val = (set(part.tolist()) for part in (graph.train, graph.val))
    assert train.isdisjoint(val)
    assert train | val == set(range(30))
    assert set(data.y[sorted(train)].tolist()) == {0, 1, 2}
    counts = np.bincount(data.y[:30])
    expected = np.minimum(np.round(fraction * counts), counts - 1)
    assert len(val) == max(1, expected.sum())
    assert len(graph.test) == 0


def test_the_seed_chooses_the_validation_nodes(data):
    parts = [
        classifier(data, epochs=1, seed=seed).fit(NODES[:30], data.y[:30]).result_.graph.val
        for seed in (0, 0, 1)
    ]
    assert torch.equal(parts[0], parts[1])
    assert not torch.equal(parts[0], parts[2])


def test_labels_may_be_objects(data, fitted):
    for labels in (NAMES[data.y[:30]].astype(object), pd.Series(NAMES[data.y[:30]])):
        found = classifier(data).fit(NODES[:30], labels)
        assert np.array_equal(found.predict(), fitted.predict())
    numbers = classifier(data).fit(NODES[:30], data.y[:30].numpy().astype(object))
    assert numbers.classes_.tolist() == [0, 1, 2]


def test_cross_validation_over_nodes(data):
    labels = NAMES[data.y]
    scores = cross_val_score(classifier(data, epochs=15), NODES, labels, cv=5)
    assert scores.shape == (5,)
    assert np.isfinite(scores).all()
    assert scores.mean() > 0.4  # a guess is right for a third
    guesses = cross_val_predict(
        classifier(data, epochs=2), NODES[:, None], labels, cv=3, method="predict_proba"
    )
    assert guesses.shape == (40, 3)


def test_a_search_over_settings_of_the_transfer(data):
    grid = {"learning_rate": [1e-6, 0.1], "validation_fraction": [0.2]}
    search = GridSearchCV(classifier(data, epochs=10), grid, cv=3, error_score="raise")
    search.fit(NODES, NAMES[data.y])
    assert search.best_params_ == {"learning_rate": 0.1, "validation_fraction": 0.2}
    config = search.best_estimator_.result_.config
    assert (config.learning_rate, config.epochs) == (0.1, 10)
    assert search.predict(NODES).shape == (40,)


def test_settings_are_parameters():
    clf = GlowClassifier(epochs=3, dropout=0.1)
    assert clf._settings() == TransferConfig(epochs=3, dropout=0.1)
    assert clone(clf).set_params(config=TransferConfig(epochs=9, hidden=8))._settings() == (
        TransferConfig(epochs=3, dropout=0.1, hidden=8)
    )
    assert GlowClassifier("paper", epochs=4)._settings() == PaperConfig(epochs=4)
    with pytest.raises(InputError, match=r"settings must be those of PaperConfig.*'hidden'"):
        GlowClassifier("paper", hidden=4)._settings()
    with pytest.raises(ValueError, match="Invalid parameter 'speed'"):
        clf.set_params(speed=1)


def test_classes_can_count_alike(data):
    clf = GlowClassifier(graph=data, class_weight="balanced", epochs=2, hidden=8, device="cpu")
    clf.fit(NODES[:30], NAMES[data.y[:30]])
    assert clf.result_.config.class_weight == "balanced"
    with pytest.raises(InputError, match="class_weight must be one of none, balanced"):
        clf.set_params(class_weight={"ant": 2.0}).fit(NODES[:30], NAMES[data.y[:30]])


def test_the_random_state_is_the_seed(data):
    assert GlowClassifier(random_state=5)._settings().seed == 5
    assert GlowClassifier(config=TransferConfig(seed=3))._settings().seed == 3
    drawn = [GlowClassifier(random_state=np.random.RandomState(7))._settings() for _ in range(2)]
    assert drawn[0].seed == drawn[1].seed > 0
    with pytest.raises(InputError, match="seed must be an integer"):
        GlowClassifier(random_state="seven")._settings()


@pytest.mark.parametrize("ids", [[f"n{i}" for i in range(40)], list(range(100, 140))])
def test_nodes_are_named_by_their_own_ids(data, fitted, ids):
    named = data.clone()
    named.node_id = ids
    clf = classifier(named).fit(np.array(ids)[:30], NAMES[data.y[:30]])
    assert np.array_equal(clf.predict_proba(ids[5:9]), fitted.predict_proba()[5:9])
    assert clf.score(pd.Series(ids), NAMES[data.y]) == fitted.score(NODES, NAMES[data.y])
    explained = clf.result_.explain(ids[5])
    assert (explained.node, explained.predicted) == (5, clf.predict([ids[5]])[0])
    for door in (lambda node: clf.predict([node]), clf.result_.explain):  # an index is no id
        with pytest.raises(InputError, match=r"node must be the id of a node \(nearest: .*; got 3"):
            door(3)
    assert np.array_equal(clf.predict([str(one) for one in ids]), fitted.predict())


def test_score_without_nodes_is_of_those_held_out(fitted):
    assert fitted.score() == pytest.approx(fitted.result_.val_accuracy)
    with pytest.raises(InputError, match="score needs y for nodes whose label fit was not given"):
        fitted.score(NODES)


def test_clones_and_copies_are_independent_and_predict_alike(fitted):
    fresh = clone(fitted)
    assert not hasattr(fresh, "classes_")
    for copied in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(copied.predict_proba(), fitted.predict_proba())


def test_the_learner_may_be_a_name_or_a_file_and_the_graph_a_name(tmp_path):
    config = PaperConfig(epochs=1, num_pivots=10, device="cpu")
    clf = GlowClassifier("Paper", config, graph="synthetic-small")
    nodes, labels = np.arange(60), np.arange(60) % 3
    by_name = clf.fit(nodes, labels).predict_proba()
    clf.result_.learner.save(tmp_path / "mine.safetensors")
    for file in (tmp_path / "mine.safetensors", str(tmp_path / "mine.safetensors")):
        assert np.array_equal(
            clf.set_params(learner=file).fit(nodes, labels).predict_proba(), by_name
        )


def test_the_result_comes_along(fitted, tmp_path):
    assert isinstance(fitted.result_, TransferResult)
    fitted.result_.write_predictions(tmp_path / "p.csv")
    assert "p_ant" in (tmp_path / "p.csv").read_text().splitlines()[0]


def test_class_names_of_the_graph_are_kept_for_its_numbers(data):
    named = data.clone()
    named.class_names = ["red", "green", "blue"]
    clf = classifier(named, epochs=1).fit(NODES[:30], data.y[:30].numpy())
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.result_.data.class_names == ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("nodes", "labels", "rule"),
    [
        ([0, 1], None, "requires y to be passed"),
        ([0, 1, 2], [0, 1], "inconsistent numbers of samples"),
        ([0, 1, 2], [0, 0, 0], "at least two classes"),
        ([0, 1, 2], [0.5, 1.5, 0.1], "Unknown label type"),
        ([0, 1, 2], [0.0, np.nan, 1.0], "NaN"),
        ([0, 1, 2], ["a", None, "b"], "y must hold the label of every node .* got 1 of 3 without"),
        ([0, 1, 2], pd.Series(["a", pd.NA, "b"], dtype="string"), "got 1 of 3 without"),
        ([0, 1, 2], np.array(["a", 1, "b"], dtype=object), "text or numbers; got both"),
        ([0, 1, 2], [0, -1, 1], "-1, which means unlabelled"),
        ([0, 0, 1], ["a", "b", "a"], "a node must have one label"),
        ([0, 1], ["a", "b"], "two nodes or more"),
        ([0, 40, 1], ["a", "b", "a"], r"index in \[0, 39\]"),
        ([0, -1, 1], ["a", "b", "a"], r"index in \[0, 39\]"),
        ([0.0, 1.0, 2.0], ["a", "b", "a"], "must be an index"),
        ([[0, 1], [2, 3]], ["a", "b"], "nodes must be a list of ids"),
        (["x", "y", "z"], ["a", "b", "a"], "must be an index"),
        ([], [], "at least two classes"),
    ],
)
def test_what_cannot_be_fitted_is_refused(data, nodes, labels, rule):
    with pytest.raises(ValueError, match=rule):
        classifier(data).fit(nodes, labels)


def test_labels_in_a_column_warn_as_everywhere_in_scikit_learn(data):
    with pytest.warns(DataConversionWarning):
        classifier(data, epochs=1).fit(NODES[:30], data.y[:30, None].numpy())


def test_nodes_without_a_graph_are_refused():
    with pytest.raises(InputError, match="GlowClassifier\\(graph=data\\)"):
        GlowClassifier(learner()).fit([0, 1, 2], [0, 1, 0])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"graph": 3}, "a graph must be"),
        ({"graph": "no-such-graph"}, "known name"),
        ({"learner": "universe"}, "nearest: universal"),
        ({"learner": 3}, "learner must be"),
        ({"config": {}}, "config must be a PaperConfig"),
        ({"validation_fraction": 0}, "validation_fraction"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_bad_parameters_are_refused_in_fit(data, changes, rule):
    clf = classifier(data).set_params(**changes)
    with pytest.raises(InputError, match=rule):
        clf.fit(NODES[:30], data.y[:30])
