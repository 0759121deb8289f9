import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from graphglow.errors import InputError
from graphglow.graphs import load_graph

ADJACENCY = np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]])
X = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix])
@pytest.mark.parametrize(
    "x",
    [X, X.tolist(), sp.csr_array(X), torch.from_numpy(X)],
    ids=["array", "list", "csr", "tensor"],
)
@pytest.mark.parametrize("y", [[0, 1, -1], np.array([0.0, 1.0, np.nan]), torch.tensor([0, 1, -1])])
def test_adjacency_features_and_labels(form, x, y):
    data = load_graph(form(ADJACENCY), x=x, y=y)
    pairs = dict(
        zip(map(tuple, data.edge_index.T.tolist()), data.edge_weight.tolist(), strict=True)
    )
    assert pairs == {(0, 1): 1.0, (1, 0): 1.0, (1, 2): 2.0, (2, 1): 2.0}
    assert data.x.tolist() == X.tolist()
    assert data.y.tolist() == [0, 1, -1]
    assert data.name == "graph"


def test_ones_are_no_weights_and_zeros_no_edges():
    matrix = sp.coo_array(([1, 0, 1], ([0, 1, 2], [1, 2, 0])), shape=(3, 3))
    data = load_graph(matrix, x=X, y=pd.Series(["u", "", "v"]))
    assert data.edge_index.tolist() == [[0, 2], [1, 0]]
    assert data.get("edge_weight") is None
    assert data.class_names == ["u", "v"]
    assert load_graph(matrix > 0, x=X, y=[0, 1, 0]).get("edge_weight") is None


def test_a_frame_of_features_is_encoded():
    frame = pd.DataFrame({"a": [1, 3, None], "b": ["x", "y", "x"]})
    data = load_graph(sp.csr_array(ADJACENCY), x=frame, y=[0, 1, 0])
    assert data.x.tolist() == [[-1, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_no_labels_where_none_are_needed():
    data = load_graph(sp.csr_array(ADJACENCY), x=X, need_labels=False)
    assert data.y.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("adjacency", "given", "message"),
    [
        (ADJACENCY[:2], {}, "must be square [N, N]; got shape (2, 3)"),
        (ADJACENCY * 1j, {}, "must hold numbers; got complex128"),
        (ADJACENCY, {"x": None}, "must come with node features x; got none"),
        (ADJACENCY, {"x": X[:2]}, "x must have one row per node (3); got 2 rows"),
        (ADJACENCY, {"x": [["a"]] * 3}, "x of the graph must hold numbers; got <U1"),
        (ADJACENCY, {"y": None}, "a graph must have labels y [N]; got y of type NoneType"),
        (ADJACENCY, {"y": [0, 1]}, "y must have one label per node (3); got shape (2,)"),
        (
            ADJACENCY,
            {"y": np.eye(3)},
            "y of the graph must have one label per node; got shape (3, 3)",
        ),
        (-ADJACENCY, {}, "edge_weight must be finite and non-negative"),
        (ADJACENCY * np.nan, {}, "edge_weight must be finite and non-negative"),
    ],
)
def test_bad_input(adjacency, given, message):
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(sp.csr_array(adjacency), **{"x": X, "y": [0, 1, 0], **given})
