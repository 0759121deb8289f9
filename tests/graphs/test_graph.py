import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs import prepare
from graphglow.graphs.graph import normalised_adjacency, normalised_features
from graphglow.ops.sparse import SparseMatrix


def dense_formula(edge_index, edge_weight, num_nodes):
    """D^-1/2 (A + I) D^-1/2, as the paper writes it, edge by edge."""
    a = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    weights = torch.ones(edge_index.shape[1]) if edge_weight is None else edge_weight
    for (u, v), w in zip(edge_index.T.tolist(), weights.tolist(), strict=True):
        if u != v:
            a[u, v] = a[v, u] = max(float(a[u, v]), w)
    a = a + torch.eye(num_nodes, dtype=torch.float64)
    scale = a.sum(1).rsqrt()
    return (scale[:, None] * a * scale[None]).float()


CASES = {
    "undirected": ([[0, 1, 1, 2], [1, 0, 2, 1]], None),
    "directed": ([[0, 1], [1, 2]], None),
    "duplicates": ([[0, 0, 0], [1, 1, 2]], None),
    "self-loops": ([[0, 1, 1], [0, 1, 2]], None),
    "isolated": ([[0], [1]], None),
    "no edges": ([[], []], None),
    "weights": ([[0, 1, 2], [1, 2, 3]], [0.5, 2.0, 0.0]),
    "weights differ by direction": ([[0, 1, 0], [1, 0, 1]], [0.5, 2.0, 1.0]),
    "weighted self-loop": ([[0, 0], [0, 1]], [9.0, 0.5]),
}


@pytest.mark.parametrize("case", CASES)
def test_adjacency_equals_the_dense_formula(case):
    edges, weights = CASES[case]
    edge_index = torch.tensor(edges, dtype=torch.int64)
    edge_weight = None if weights is None else torch.tensor(weights)
    got = normalised_adjacency(edge_index, edge_weight, 5).to_dense()
    torch.testing.assert_close(got, dense_formula(edge_index, edge_weight, 5))


@settings(max_examples=50, deadline=None)
@given(data=st.data(), n=st.integers(1, 12), weighted=st.booleans())
def test_adjacency_of_any_edges(data, n, weighted):
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node, st.floats(0, 10, width=32)), max_size=40))
    edge_index = torch.tensor([e[:2] for e in edges], dtype=torch.int64).reshape(-1, 2).T
    edge_weight = torch.tensor([e[2] for e in edges]) if weighted else None
    got = normalised_adjacency(edge_index, edge_weight, n).to_dense()
    torch.testing.assert_close(got, dense_formula(edge_index, edge_weight, n))
    torch.testing.assert_close(got, got.T)
    assert torch.linalg.eigvalsh(got.double()).abs().max() <= 1 + 1e-5
    shuffled = torch.randperm(len(edges))
    again = normalised_adjacency(
        edge_index[:, shuffled], None if edge_weight is None else edge_weight[shuffled], n
    )
    torch.testing.assert_close(again.to_dense(), got)


def test_isolated_node_keeps_only_itself():
    adj = normalised_adjacency(torch.tensor([[0], [1]]), None, 3).to_dense()
    assert adj[2].tolist() == [0.0, 0.0, 1.0]


def test_sparse_and_dense_features_are_the_same_numbers():
    x = torch.zeros(20, 30)
    x[torch.arange(20), torch.arange(20)] = -3.0
    x[:19, 29] = 1.0  # and row 19 has one entry only
    x[5] = 0.0
    expected = x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)
    sparse = normalised_features(x)
    assert isinstance(sparse, SparseMatrix)
    torch.testing.assert_close(sparse.to_dense(), expected)
    assert not sparse.to_dense()[5].any()
    dense = normalised_features(x + 1.0)
    assert isinstance(dense, torch.Tensor)
    torch.testing.assert_close(dense.norm(dim=1), torch.ones(20))


def test_prepare_holds_what_models_read(small_graph):
    small_graph.name = "ring"
    graph = prepare(small_graph)
    assert (graph.name, graph.num_nodes, graph.num_features, graph.num_classes) == (
        "ring",
        12,
        3,
        2,
    )
    together = torch.cat([graph.train, graph.val, graph.test])
    assert sorted(together.tolist()) == list(range(11))  # node 11 is unlabelled
    moved = graph.to("cpu", torch.float64)
    assert moved.adj.values.dtype == moved.x.dtype == torch.float64


def test_a_class_that_training_lacks_still_counts(small_graph):
    small_graph.y[3] = 2
    for name, nodes in (("train", [0, 1]), ("val", [2, 3]), ("test", [4])):
        small_graph[f"{name}_mask"] = torch.isin(torch.arange(12), torch.tensor(nodes))
    assert prepare(small_graph).num_classes == 3


def test_prepare_leaves_the_input_alone(small_graph):
    before = small_graph.clone()
    prepare(small_graph)
    assert small_graph.keys() == before.keys()
    assert isinstance(small_graph, Data)
    assert all(torch.equal(small_graph[k], before[k]) for k in before.keys())  # noqa: SIM118


def test_training_nodes_of_one_class_are_refused(small_graph):
    small_graph.train_mask = torch.zeros(12, dtype=torch.bool)
    small_graph.train_mask[[0, 2]] = True
    small_graph.val_mask = torch.zeros(12, dtype=torch.bool)
    small_graph.val_mask[[1, 4]] = True
    with pytest.raises(InputError, match="training nodes must have at least two classes; got only"):
        prepare(small_graph)


@pytest.mark.parametrize("factor", [1e-30, 1e-12, 1e19, 1e30])
def test_features_far_from_one_keep_their_direction(factor):
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-1.0, 0.0]])
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]])
    torch.testing.assert_close(normalised_features(x * factor), expected)
