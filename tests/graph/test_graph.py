import pytest
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph import prepare
from graphglow.graph.graph import normalised_features
from graphglow.linalg.sparse import SparseMatrix


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
