"""Edges count in both directions, so that is how they come back, from every door."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import graphglow
from graphglow.graph import check_graph, training_graph
from graphglow.refine import input_edges

PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0)]
Y = [0, 1, 0, 1]


def tables():
    nodes = pd.DataFrame({"id": list("abcd"), "label": list("xyxy"), "f": [1.0, 2.0, 3.0, 5.0]})
    ends = np.array(list("abcd"))[np.array(PAIRS)]
    return nodes, pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})


def digraph():
    graph = nx.DiGraph()
    for node, label in enumerate(Y):
        graph.add_node(node, y=label, f=float(node))
    graph.add_edges_from(PAIRS)
    return graph


def data(**more):
    return Data(x=torch.eye(4), y=torch.tensor(Y), edge_index=torch.tensor(PAIRS).T, **more)


def matrix():
    row, col = np.array(PAIRS).T
    return sp.coo_array((np.ones(len(PAIRS)), (row, col)), shape=(4, 4)).tocsr()


@pytest.mark.parametrize("door", ["tables", "networkx", "pyg", "scipy"])
def test_every_door_gives_both_directions_once(door):
    if door == "scipy":
        found = graphglow.load_graph(matrix(), x=np.eye(4), y=Y)
    else:
        given = {"tables": tables, "networkx": digraph, "pyg": data}[door]()
        found = graphglow.load_graph(given)
    assert found.is_undirected()
    assert found.edge_index.shape == (2, 8)
    assert input_edges(found) == 4
    assert sorted(found.directed_edge_index.T.tolist()) == sorted(map(list, PAIRS))


def test_the_larger_weight_holds_and_models_see_the_same_graph():
    given = data(edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    found = check_graph(given)
    weight = dict(zip(map(tuple, found.edge_index.T.tolist()), found.edge_weight, strict=True))
    assert weight[0, 1] == weight[1, 0] == 5
    assert torch.equal(found.directed_edge_weight, given.edge_weight)
    symmetric = training_graph(found).adj
    found.edge_index, found.edge_weight = given.edge_index, given.edge_weight
    assert torch.equal(training_graph(found).adj.values, symmetric.values)


def test_what_else_is_known_of_edges_goes_along():
    found = check_graph(data(edge_in_input=torch.tensor([True, False, True, False, False])))
    assert found.edge_in_input.dtype == torch.bool
    assert int(found.edge_in_input.sum()) == 4
