"""A column that gives the label away is named."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

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


def bare(leak=True, seed=0):
    """A Data in whose column 7 of 50 the label is, in an order and scale of its own."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(N) % 3
    x = torch.rand(N, 50, generator=generator).round()  # words, as in a bag of them
    x[:, 3] += y  # which merely helps
    if leak:
        x[:, 7] = torch.tensor([900.0, -4.0, 1e6])[y] + torch.rand(N, generator=generator)
    ring = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
    return Data(x=x, y=y, edge_index=ring)


def attributes(data):
    graph = nx.Graph(data.edge_index.T.tolist())
    for node in graph:
        graph.nodes[node].update(
            y=int(data.y[node]), f=float(data.x[node, 3]), copied=f"c{node % 3}"
        )
    return graph


DOORS = {
    "load": (lambda data: graphglow.load_graph(data), "column 7 of x .* of graph alone says"),
    "transfer": (lambda data: graphglow.transfer(data, epochs=1), "column 7 of x .* of the graph"),
    "refine": (lambda data: graphglow.refine(data), "column 7 of x"),
    "fit": (lambda data: graphglow.fit("mlp", data, epochs=1), "column 7 of x"),
    "sparse": (
        lambda data: graphglow.load_graph(sp.eye(N), x=data.x.numpy(), y=data.y.numpy()),
        "column 7 of x",
    ),
    "networkx": (lambda data: graphglow.load_graph(attributes(data)), "column 'copied' "),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_leak_is_named_at_every_door(door):
    use, said = DOORS[door]
    with pytest.warns(graphglow.InputWarning, match=said):
        use(bare())


@pytest.mark.parametrize("layout", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_a_leak_is_named_among_sparse_features(layout):
    data = bare()
    data.x = layout(data.x)
    with pytest.warns(graphglow.InputWarning, match="column 7 of x"):
        graphglow.transfer(data, epochs=1)


def test_a_leak_is_named_once():
    with pytest.warns(graphglow.InputWarning, match="column 7 of x"):
        data = graphglow.load_graph(bare())
    graphglow.transfer(data, epochs=1)


def test_honest_columns_without_names_are_not():
    graphglow.load_graph(bare(leak=False))
    graphglow.load_graph(attributes(bare()), columns={"leave_out": "copied"})


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


def networkx_of(frame):
    graph = nx.path_graph(len(frame))
    for node, row in enumerate(frame.drop(columns="id").to_dict("records")):
        graph.nodes[node].update(row)
    return graph


@pytest.mark.parametrize("door", [lambda frame: frame, networkx_of], ids=["pandas", "networkx"])
def test_what_may_be_the_label_is_said_where_there_is_none(door):
    risk = {"risk": lambda label, rng: np.array(["low", "mid", "high"])[label]}
    frame = table(**risk, **{"rare": HONEST["rare"]}).rename(columns={"label": "Target"})
    said = r"graph has no labels, but features that look like them: 'Target', 'rare', 'risk' \("
    with pytest.warns(graphglow.InputWarning, match=said):
        found = graphglow.load_graph(door(frame[sorted(frame)]), need_labels=False)
    assert found.x.shape[1] == 1 + 1 + 20 + 3  # age and Target are numbers
    graphglow.load_graph(door(frame[["id", "age"]]), need_labels=False)
    graphglow.load_graph(door(frame.rename(columns={"Target": "label"})[["id", "label", "rare"]]))


def test_features_that_are_being_learned_are_read_too():
    data = graphglow.load_graph("synthetic-small")
    data.x = data.x.requires_grad_()
    assert graphglow.refine(data).num_nodes == data.num_nodes
