"""A column that gives the label away is named."""

import numpy as np
import pandas as pd
import pytest

import graphglow

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
    with pytest.warns(graphglow.InputWarning, match=f"column '{name}' .* of graph alone say the"):
        graphglow.load_graph(table(**{name: LEAKS[name], **HONEST}))


def test_what_is_left_out_and_what_merely_helps_is_not():
    graphglow.load_graph(table(**HONEST))
    given = table(copied=LEAKS["copied"])
    graphglow.load_graph(given, columns={"leave_out": ["copied"]})


def test_of_few_nodes_nothing_is_said():
    graphglow.load_graph(table(copied=LEAKS["copied"]).head(40))


def test_a_rare_class_is_no_excuse_to_warn():
    frame = table()
    frame["label"] = (np.arange(N) == 3).astype(int) + (np.arange(N) == 7)
    graphglow.load_graph(frame)  # the majority alone is right in 98 of 100
