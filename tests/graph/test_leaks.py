"""A column that gives the label away is named."""

import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import graphglow
from graphglow.graph.features import needed_accuracy

N = 120


def table(**columns):
    rng = np.random.default_rng(0)
    label = np.arange(N) % 3
    frame = {"id": range(N), "label": label, "age": rng.normal(size=N)}
    return pd.DataFrame(frame | {name: make(label, rng) for name, make in columns.items()})


LEAKS = {
    "copied": lambda label, rng: label * 10,
    "in words": lambda label, rng: np.array(["low", "mid", "high"])[label],
    "nearly": lambda label, rng: label + rng.normal(size=N) / 100,
}
HONEST = {
    "helps": lambda label, rng: label + rng.normal(size=N) / 2,
    "rare": lambda label, rng: np.array([f"t{i // 6}" for i in range(N)]),
    "hints": lambda label, rng: np.array(["a", "b"])[label // 2],
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_named(name):
    with pytest.warns(graphglow.InputWarning, match=f"column '{name}' .* of graph alone says the"):
        graphglow.load_graph(table(**{name: LEAKS[name], **HONEST}))


KNOWN_OF_ONE = {
    "reason": lambda rng: rng.choice(["moved", "price", "other"], N),
    "one word": lambda rng: np.full(N, "left"),
    "amount": lambda rng: rng.normal(size=N),
    "left on": lambda rng: np.array([f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(N)]),
}


@pytest.mark.parametrize("name", KNOWN_OF_ONE)
@pytest.mark.parametrize("leak", [True, False])
def test_what_is_filled_in_for_one_class_alone_is_named(name, leak):
    frame = table()
    frame["label"] = np.arange(N) % 2
    blank = frame["label"] == 0 if leak else np.arange(N) % 4 < 2
    values = pd.Series(KNOWN_OF_ONE[name](np.random.default_rng(1)))
    frame[name] = values.mask(blank)
    if not leak:
        graphglow.load_graph(frame)
        return
    with pytest.warns(graphglow.InputWarning, match=rf"column '{name}' \(100.0%\) of graph alone"):
        graphglow.load_graph(frame)


def test_a_leak_among_attributes_is_named():
    graph = nx.path_graph(N)
    for node, attributes in graph.nodes.items():
        attributes |= {"y": node % 3, "f": float(node % 7), "copied": f"c{node % 3}"}
    with pytest.warns(graphglow.InputWarning, match="column 'copied' "):
        graphglow.load_graph(graph)
    graphglow.load_graph(graph, columns={"leave_out": "copied"})


def test_a_category_of_one_node_says_nothing():
    frame = table(code=lambda label, rng: np.array([f"c{i}" for i in range(N)]))
    graphglow.load_graph(frame, columns={"category": "code"})


@pytest.mark.parametrize(("train", "looked"), [(30, True), (29, False)])
def test_a_leak_is_looked_for_from_30_training_nodes_on(train, looked):
    frame = table(copied=LEAKS["copied"])
    frame["split"] = np.where(np.arange(N) < train, "train", "val")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graphglow.load_graph(frame)
    assert any("'copied'" in str(one.message) for one in caught) is looked


def test_a_rare_class_is_no_excuse_to_warn():
    frame = table()
    frame["label"] = (np.arange(N) == 3).astype(int) + (np.arange(N) == 7)
    graphglow.load_graph(frame)  # the majority alone is right in 98 of 100


@pytest.mark.parametrize(("share", "needed"), [(0.5, 0.98), (0.95, 0.99), (0.99, 0.998)])
def test_the_accuracy_of_a_leak(share, needed):
    """98 %, or a fifth of the errors that the majority class makes where that is less."""
    labels = (np.arange(1000) >= round(1000 * share)).astype(int)
    assert needed_accuracy(labels) == pytest.approx(needed)


@pytest.mark.parametrize(("wrong", "leaks"), [(2, True), (3, False)])
def test_a_column_is_a_leak_from_98_percent_on(wrong, leaks):
    frame = table()
    frame["label"] = np.where(np.arange(N) % 4 < 2, "a", "b")
    frame["split"] = np.where(np.arange(N) < 100, "train", "val")
    told = np.array(frame["label"])
    told[[0, 1, 4][:wrong]] = "b"
    frame["told"] = told
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graphglow.load_graph(frame)
    assert any("'told'" in str(one.message) for one in caught) is leaks
