"""Mixed message passing in closed form, the first embeddings, and what dropout keeps."""

import pytest
import torch
from gnn_graphs import latent_structure, small_data, training

from graphglow.gnn.propagation import MixedPropagation, drop, encode
from graphglow.linalg.sparse import SparseMatrix
from tiny_graphs import dense_latent, float64

ADJ = float64(small_data()).adj
LATENT = latent_structure()
V = torch.randn(20, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
W0 = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SPARSE = pytest.mark.parametrize("sparse", [True, False])


@pytest.mark.parametrize("input_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("known", [True, False])
def test_mixes_the_dense_operators(input_weight, known):
    mix = MixedPropagation(ADJ, LATENT, input_weight)
    operator = input_weight * ADJ.to_dense() + (1 - input_weight) * dense_latent(LATENT)
    out = mix(V, input_part=ADJ @ V if known else None)
    torch.testing.assert_close(out, operator @ V)


def test_with_one_graph_alone_it_is_that_graph_exactly():
    assert torch.equal(MixedPropagation(ADJ, LATENT, 1.0)(V), ADJ @ V)
    assert torch.equal(MixedPropagation(ADJ, LATENT, 0.0)(V), LATENT.propagate(V))
    assert torch.equal(MixedPropagation(ADJ, None, 0.5)(V), ADJ @ V)


@SPARSE
@pytest.mark.parametrize("kind", ["gcn", "mlp"])
def test_encoder_is_one_linear_layer_without_activation(kind, sparse):
    graph = float64(small_data(sparse_features=sparse))
    assert isinstance(graph.x, SparseMatrix) == sparse
    xw = graph.x.to_dense() @ W0
    axw = graph.adj.to_dense() @ xw
    encoded = encode(graph, W0, kind=kind, dropout=None)
    torch.testing.assert_close(encoded.cached, (xw, axw))
    torch.testing.assert_close(encoded.z0, axw if kind == "gcn" else xw)
    assert (encoded.z0 < 0).any()


@SPARSE
def test_encoder_drops_features_in_training_only(sparse):
    graph = float64(small_data(sparse_features=sparse))
    one, again, other, whole = (
        encode(graph, W0, kind="gcn", dropout=dropout).z0
        for dropout in (training(1), training(1), training(2), None)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.allclose(one, whole)


def test_dropout_off_returns_the_input():
    assert drop(V, training(0, rate=0.0)) is drop(V, None) is V
    assert drop(V, training(0, rate=0.0)) is V


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_dropout_keeps_the_mean_and_scales_what_stays(p):
    out = drop(torch.ones(200, 100, dtype=torch.float64), training(0, rate=p))
    assert set(out.unique().tolist()) == {0.0, 1 / (1 - p)}
    standard_error = (p / (1 - p) / 20_000) ** 0.5
    assert (out.mean() - 1).abs() < 4 * standard_error


def test_dropout_of_sparse_features_stays_sparse():
    x = float64(small_data(sparse_features=True)).x
    dropped = drop(x, training(0))
    assert isinstance(dropped, SparseMatrix)
    kept = dropped.to_dense() != 0
    assert 0 < int(kept.sum()) < x.values.numel()
    torch.testing.assert_close(dropped.to_dense()[kept], 2 * x.to_dense()[kept])
