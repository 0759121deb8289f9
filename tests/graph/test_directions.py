"""Edges count in both directions, so that is how they come back."""

import torch
from torch_geometric.data import Data

from graphglow.graph import check_graph, training_graph
from graphglow.refine import input_edges

PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0)]
Y = [0, 1, 0, 1]


def data(**more):
    return Data(x=torch.eye(4), y=torch.tensor(Y), edge_index=torch.tensor(PAIRS).T, **more)


def test_the_larger_weight_holds_and_models_see_the_same_graph():
    given = data(edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    found = check_graph(given)
    weight = dict(zip(map(tuple, found.edge_index.T.tolist()), found.edge_weight, strict=True))
    assert weight[0, 1] == weight[1, 0] == 5
    assert (found.edge_index.shape, input_edges(found)) == ((2, 8), 4)
    assert torch.equal(found.directed_edge_weight, given.edge_weight)
    symmetric = training_graph(found).adj
    found.edge_index, found.edge_weight = given.edge_index, given.edge_weight
    assert torch.equal(training_graph(found).adj.values, symmetric.values)


def test_what_else_is_known_of_edges_goes_along():
    found = check_graph(data(edge_in_input=torch.tensor([True, False, True, False, False])))
    assert found.edge_in_input.dtype == torch.bool
    assert int(found.edge_in_input.sum()) == 4
