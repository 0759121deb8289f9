import pickle

import pytest
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph import check_graph, graph_of, prepare, synthetic_graph
from graphglow.graph.graph import normalised_features
from graphglow.linalg.rows import as_dense
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
    small_graph.class_names = ["low", "high"]
    with pytest.raises(InputError, match="must have at least two classes; got only low"):
        prepare(small_graph)


@pytest.mark.parametrize("factor", [1e-30, 1e-12, 1e19, 1e30])
def test_features_far_from_one_keep_their_direction(factor):
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-1.0, 0.0]])
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]])
    torch.testing.assert_close(normalised_features(x * factor), expected)


def test_a_checked_graph_stays_as_it_is_and_is_checked_again(small_graph):
    checked = check_graph(small_graph)
    again = check_graph(checked, split_seed=5)
    assert again is not checked
    assert again.keys() == checked.keys()
    assert all(torch.equal(value, again[name]) for name, value in checked if torch.is_tensor(value))
    assert checked.split == again.split == "random seed 0"
    assert again.x.data_ptr() == checked.x.data_ptr()
    checked.x = checked.x.clone()
    checked.x[0, 0] = float("nan")
    with pytest.raises(InputError, match="must be finite"):
        check_graph(checked)


def test_a_graph_keeps_no_features_that_were_replaced():
    data = check_graph(synthetic_graph(num_nodes=500, num_features=200))
    data.x = data.x[:, :1].clone()
    assert len(pickle.dumps(data)) < 200_000  # the old features alone are 400,000 bytes


@pytest.mark.parametrize("weighted", [False, True])
def test_matrices_are_those_of_the_dense_adjacency(weighted):
    data = synthetic_graph(num_nodes=40, num_classes=2, average_degree=5.0)
    if weighted:
        data.edge_weight = torch.rand(100).repeat(2) + 0.1
    graph = graph_of(data)
    weight = torch.ones(200) if data.get("edge_weight") is None else data.edge_weight
    dense = torch.zeros(40, 40).index_put_(tuple(data.edge_index), weight)
    torch.testing.assert_close(graph.links.to_dense(), (dense > 0).float())
    assert torch.equal(graph.degree, (dense > 0).sum(1).float())
    rows = torch.nn.functional.normalize(dense, dim=1)
    torch.testing.assert_close(graph.neighbour_rows.to_dense(), rows)
    mean = dense / dense.sum(1, keepdim=True).clamp_min(1e-9)
    torch.testing.assert_close(graph.neighbour_mean.to_dense(), mean)
    one, two = ((matrix.to_dense() > 0) for matrix in graph.hops)
    assert torch.equal(one, dense > 0)
    reached = (dense @ dense > 0) & (dense == 0)
    assert torch.equal(two, reached.fill_diagonal_(False))


def test_labels_as_evidence_reads_them():
    y, train = torch.tensor([4, -1, 2, 4, 1, 2]), torch.tensor([1, 1, 1, 1, 0, 0]).bool()
    graph = graph_of(Data(y=y, train_mask=train, num_nodes=6))
    assert (graph.labelled.tolist(), graph.seen.tolist()) == ([0, 2, 3], [2, 4])
    assert graph.classes.tolist() == [1, 0, 1]
    assert graph.prior.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert graph.chance == pytest.approx(5 / 9)
    assert graph.num_classes == 5
    assert graph_of(Data(y=y)).labelled.tolist() == [0, 2, 3, 4, 5]  # without a mask, all
    assert graph_of(Data(num_nodes=3)).chance == 0.25


@pytest.mark.parametrize("words", [False, True])
def test_the_encoder_gives_the_rows_of_the_graph(words):
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)) * 5 + 2
    x = (x > 6).float() if words else x
    graph = graph_of(Data(x=x, num_nodes=30))
    rows = as_dense(graph.features)
    torch.testing.assert_close(as_dense(graph.encoder.rows(x)), rows)
    torch.testing.assert_close(as_dense(graph_of(Data(x=x.to_sparse())).features), rows)
    if words:  # idf of the words that are there
        weight = (30 / x.sum(0)).log() * x
        expected = weight / weight.norm(dim=1, keepdim=True).clamp_min(1e-12)
    else:
        expected = torch.nn.functional.normalize((x - x.mean(0)) / x.std(0, correction=0), dim=1)
    torch.testing.assert_close(rows, expected)
