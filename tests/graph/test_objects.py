"""Graphs of NetworkX (and GraphML), SciPy and DGL."""

import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from graphglow.errors import InputError, InputWarning
from graphglow.graph import load_graph


def people(kind=nx.Graph):
    graph = kind()
    for i, name in enumerate("abcd"):
        graph.add_node(name, label=["u", "v"][i % 2], age=10.0 * i, tall=i > 1, note="text")
    graph.add_edge("a", "b", weight=0.5)
    graph.add_edge("b", "c")
    return graph


def test_undirected_with_own_ids_and_numeric_attributes():
    data = load_graph(people())
    assert data.node_id == ["a", "b", "c", "d"]
    assert data.class_names == ["u", "v"]
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.x.shape == (4, 4)  # age, the one value of note, tall or not
    torch.testing.assert_close(data.x.mean(0), torch.tensor([0.0, 1.0, 0.5, 0.5]))
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert data.edge_weight.tolist() == [0.5, 1.0, 0.5, 1.0]


def test_text_is_encoded_as_in_a_table(tmp_path):
    frame = pd.DataFrame({"id": list("abcdef"), "label": ["u", "v"] * 3})
    frame["job"] = ["cook", "smith", None, "cook", "clerk", "smith"]
    frame["joined"] = ["2024-01-31", "2024-02-01", "2024-02-02", None, "2024-03-01", "2024-04-01"]
    frame["height"] = ["1.5", "1.75", "1.5", "2", "1.25", None]
    graph = nx.path_graph(list("abcdef"))
    for row in frame.to_dict("records"):
        known = {key: value for key, value in row.items() if isinstance(value, str)}
        graph.add_node(known.pop("id"), **known)
    edges = pd.DataFrame(list(graph.edges), columns=["source", "target"])
    table = load_graph((frame, edges))
    columns = [c["name"] for c in table.feature_columns["columns"]]
    assert columns == ["job", "joined", "height"]
    found = load_graph(graph).x
    torch.testing.assert_close(found[:, [1, 2, 3, 4, 0]], table.x)  # attributes go by their names
    nx.write_graphml(graph, tmp_path / "g.graphml")
    torch.testing.assert_close(load_graph(tmp_path / "g.graphml").x, found)


def test_attributes_that_are_no_features_are_named():
    graph = people()
    for node in graph:
        graph.nodes[node]["pos"] = (0.0, 1.0)
    said = "column 'pos' of graph is left out: features are .*, not tuple"
    with pytest.warns(InputWarning, match=said):
        assert torch.equal(load_graph(graph).x, load_graph(people()).x)
    for i in range(30):
        graph.add_node(i, label="u", age=1.0, comment=f"number{i}")
    with pytest.warns(InputWarning) as said:
        load_graph(graph)
    assert any("column 'comment' of graph is left out: 30 diff" in str(s.message) for s in said)


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph])
def test_directed(kind):
    assert load_graph(people(kind)).directed_edge_index.tolist() == [[0, 1], [1, 2]]


def test_split_and_missing_labels_and_no_edges():
    graph = people()
    graph.remove_edges_from(list(graph.edges))
    nx.set_node_attributes(graph, {"a": "train", "b": "val", "c": "test"}, "split")
    del graph.nodes["d"]["label"]
    data = load_graph(graph)
    assert data.knn_graph
    assert data.y.tolist() == [0, 1, 0, -1]
    assert data.train_mask.tolist() == [True, False, False, False]


def test_graphml(tmp_path):
    nx.write_graphml(people(), tmp_path / "p.graphml")
    data, direct = load_graph(tmp_path / "p.graphml"), load_graph(people())
    assert data.name == "p"
    assert data.node_id == direct.node_id
    assert data.class_names == direct.class_names
    torch.testing.assert_close(data.x, direct.x)
    assert torch.equal(data.edge_index, direct.edge_index)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<html></html>", "cannot be read as GraphML; it is damaged or foreign"),
        ("<graphml xmlns='http://graphml.graphdrawing.org/xmlns'></graphml>", "foreign"),
        (
            "<graphml xmlns='http://graphml.graphdrawing.org/xmlns'>"
            "<graph edgedefault='directed'></graph></graphml>",
            "p has no nodes",
        ),
    ],
)
def test_graphml_without_a_graph(content, message, tmp_path):
    (tmp_path / "p.graphml").write_text(content)
    with pytest.raises(InputError, match=message):
        load_graph(tmp_path / "p.graphml")


BAD = {
    "empty": (lambda g: g.clear(), "graph has no nodes. Add at least one"),
    "no label": (
        lambda g: [a.pop("label") for a in g.nodes.values()],
        "graph has no label column, called label, y, class; it has id, age, note, tall. Say which",
    ),
    "text among numbers": (
        lambda g: [a.update(note=n) for a, n in zip(g.nodes.values(), "12x4", strict=True)],
        "Column 'note' of graph has text among numbers in row 3 ('x')",
    ),
    "x on one node": (
        lambda g: g.add_node("a", x=[1.0]),
        "x of graph must be a list of numbers, of one length, at every",
    ),
    "x of two lengths": (
        lambda g: [g.add_node(n, x=[1.0] * (i + 1)) for i, n in enumerate("abcd")],
        "at every node (all input arrays must have the same shape)",
    ),
    "x of text": (
        lambda g: [g.add_node(n, x="tall") for n in "abcd"],
        "x of graph must be a list of numbers",
    ),
    "nan in x": (
        lambda g: [g.add_node(n, x=[float("nan")]) for n in "abcd"],
        "x must be finite; got nan at node 0, column 0",
    ),
    "text weight": (
        lambda g: g.add_edge("a", "b", weight="much"),
        "Column 'weight' of the edges of graph has text among numbers in row 1",
    ),
    "list weight": (lambda g: g.add_edge("a", "b", weight=[1, 2]), "the edges of graph has text"),
    "huge weight": (lambda g: g.add_edge("a", "b", weight=10**400), "the edges of graph has"),
    "split": (
        lambda g: g.add_node("c", split="later"),
        "column 'split' of graph has 'later'. Write train, val, test or a blank",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_graphs(case):
    change, message = BAD[case]
    graph = people()
    change(graph)
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(graph)


def test_attributes_are_chosen_and_left_out():
    graph = nx.karate_club_graph()
    for node, attributes in graph.nodes.items():
        attributes |= {"age": node % 7, "phone": f"{node}", "part": "train" if node % 2 else "val"}
    for *_, attributes in graph.edges(data=True):
        attributes["calls"] = 3.0
    columns = {"label": "club", "split": "part", "weight": "calls", "leave_out": ["phone"]}
    data = load_graph(graph, columns=columns)
    assert data.class_names == ["Mr. Hi", "Officer"]
    assert [column["name"] for column in data.feature_columns["columns"]] == ["age"]
    assert data.x.shape == (34, 1)
    assert (int(data.train_mask.sum()), int(data.val_mask.sum())) == (17, 17)
    assert bool((data.edge_weight == 3).all())


ADJACENCY = np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]])
X = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])


@pytest.mark.parametrize(
    ("form", "x"),
    [
        (sp.csr_array, X),
        (sp.csc_matrix, X.tolist()),
        (sp.coo_array, sp.csr_array(X)),
        (sp.lil_matrix, torch.from_numpy(X)),
    ],
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
    assert data.directed_edge_index.tolist() == [[0, 2], [1, 0]]
    assert data.get("edge_weight") is None
    assert data.class_names == ["u", "v"]
    assert load_graph(matrix > 0, x=X, y=[0, 1, 0]).get("edge_weight") is None


def test_a_frame_of_features_is_encoded():
    frame = pd.DataFrame({"a": [1, 3, None], "b": ["x", "y", "x"]})
    data = load_graph(sp.csr_array(ADJACENCY), x=frame, y=[0, 1, 0])
    assert data.x.tolist() == [[-1, 1, 0], [1, 0, 1], [0, 1, 0]]
    numbered = frame.set_axis([0, 1], axis=1).set_axis([7, 7, 8])
    assert torch.equal(load_graph(sp.csr_array(ADJACENCY), x=numbered, y=[0, 1, 0]).x, data.x)


@pytest.mark.parametrize(
    ("adjacency", "given", "message"),
    [
        (ADJACENCY[:2], {}, "of shape (2, 3) and type int64 is no graph"),
        (ADJACENCY * 1j, {}, "of shape (3, 3) and type complex128 is no graph"),
        (ADJACENCY, {"x": X[:2]}, "x must have one row per node (3); got 2 rows"),
        (ADJACENCY, {"x": [["a"]] * 3}, "x must hold numbers [N, D]; got others"),
        (ADJACENCY, {"y": None}, "a graph must have labels y [N]; got y of type NoneType"),
        (
            ADJACENCY,
            {"y": np.eye(3)},
            "y must have one label per node (3); got shape (9,)",
        ),
        (-ADJACENCY, {}, "edge_weight must be finite and non-negative"),
        (ADJACENCY * np.nan, {}, "edge_weight must be finite and non-negative"),
    ],
)
def test_bad_matrices(adjacency, given, message):
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(sp.csr_array(adjacency), **{"x": X, "y": [0, 1, 0], **given})


class DGLGraph:
    is_homogeneous = True
    ntypes, etypes = ["a", "b"], ["r"]

    def __init__(self, ndata, edata=None):
        self.ndata, self.edata = ndata, edata or {}

    def edges(self):
        return torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor(
            [1, 2, 3], dtype=torch.int32
        )

    def num_nodes(self):
        return 4


DGLGraph.__module__ = "dgl.heterograph"
EYE, TURNS = torch.eye(4), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(("x", "y"), [("feat", "label"), ("x", "y")])
def test_features_labels_masks_and_weights(x, y):
    mask = torch.tensor([1, 1, 0, 0], dtype=torch.uint8)
    ndata = {x: EYE, y: TURNS, "train_mask": mask, "val_mask": 1 - mask}
    data = load_graph(DGLGraph(ndata, {"w": torch.tensor([1.0, 2.0, 3.0])}))
    assert data.directed_edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert data.directed_edge_weight.tolist() == [1.0, 2.0, 3.0]
    assert torch.equal(data.x, EYE)
    assert data.y.tolist() == TURNS.tolist()
    assert data.train_mask.tolist() == [True, True, False, False]


def test_bad_dgl_graphs():
    with pytest.raises(InputError, match="a graph must have labels y"):
        load_graph(DGLGraph({"feat": EYE}))
    mixed = DGLGraph({"feat": EYE, "label": TURNS})
    mixed.is_homogeneous = False
    with pytest.raises(InputError, match="Make it one kind"):
        load_graph(mixed)


def test_an_adjacency_matrix_without_features_is_known_by_its_edges():
    with pytest.warns(InputWarning, match="known by their edges alone"):
        data = load_graph(sp.csr_array(ADJACENCY), y=[0, 1, 0])
    assert data.x.shape == (3, 1)
