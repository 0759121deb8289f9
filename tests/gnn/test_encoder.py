"""The encoder Z^0 and dropout."""

import pytest
import torch
from gnn_graphs import float64, small_data

from graphglow.gnn import encode
from graphglow.gnn.dropout import dropout, dropout_features
from graphglow.graphs.sparse import SparseMatrix

W0 = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("kind", ["gcn", "mlp"])
def test_encoder_is_one_linear_layer_without_activation(kind, sparse):
    graph = float64(small_data(sparse_features=sparse))
    assert isinstance(graph.x, SparseMatrix) == sparse
    xw = graph.x.to_dense() @ W0
    axw = graph.adj.to_dense() @ xw
    encoded = encode(graph, W0, kind=kind, dropout=0.5, generator=None)
    torch.testing.assert_close(encoded.xw, xw)
    torch.testing.assert_close(encoded.axw, axw)
    torch.testing.assert_close(encoded.z0, axw if kind == "gcn" else xw)
    assert (encoded.z0 < 0).any()


@pytest.mark.parametrize("sparse", [True, False])
def test_encoder_drops_features_in_training_only(sparse):
    graph = float64(small_data(sparse_features=sparse))
    settings = {"kind": "gcn", "dropout": 0.5}
    evaluated = encode(graph, W0, **settings, generator=None)
    trained = encode(graph, W0, **settings, generator=rng(1))
    assert not torch.allclose(trained.xw, evaluated.xw)
    assert torch.equal(trained.xw, encode(graph, W0, **settings, generator=rng(1)).xw)
    assert not torch.equal(trained.xw, encode(graph, W0, **settings, generator=rng(2)).xw)


def test_dropout_off_returns_the_input():
    x = torch.ones(4, 3)
    assert dropout(x, 0.0, rng()) is x
    assert dropout(x, 0.9, None) is x


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_dropout_keeps_the_mean_and_scales_what_stays(p):
    out = dropout(torch.ones(200, 100, dtype=torch.float64), p, rng())
    assert set(out.unique().tolist()) == {0.0, 1 / (1 - p)}
    standard_error = (p / (1 - p) / 20_000) ** 0.5
    assert (out.mean() - 1).abs() < 4 * standard_error


def test_dropout_of_sparse_features_stays_sparse():
    x = float64(small_data(sparse_features=True)).x
    dropped = dropout_features(x, 0.5, rng())
    assert isinstance(dropped, SparseMatrix)
    kept = dropped.to_dense() != 0
    assert 0 < int(kept.sum()) < x.values.numel()
    torch.testing.assert_close(dropped.to_dense()[kept], 2 * x.to_dense()[kept])
