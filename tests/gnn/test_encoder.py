"""The encoder Z^0, and what it drops in training."""

import pytest
import torch
from gnn_graphs import float64, small_data, training

from graphglow.gnn.propagation import encode
from graphglow.linalg.sparse import SparseMatrix

W0 = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("sparse", [True, False])
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


@pytest.mark.parametrize("sparse", [True, False])
def test_encoder_drops_features_in_training_only(sparse):
    graph = float64(small_data(sparse_features=sparse))

    def xw(dropout):
        return encode(graph, W0, kind="gcn", dropout=dropout).cached[0]

    assert not torch.allclose(xw(training(1)), xw(None))
    assert torch.equal(xw(training(1)), xw(training(1)))
    assert not torch.equal(xw(training(1)), xw(training(2)))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("rate", [None, 0.5])
def test_a_batch_is_encoded_like_its_runs(sparse, rate):
    """Also where each run drops other entries of the features, which all share."""
    graph = float64(small_data(sparse_features=sparse))
    weights = torch.stack([W0, W0.flip(0), -2 * W0])

    def dropout(*seeds):
        return None if rate is None else training(*seeds, rate=rate)

    batch = encode(graph, weights, kind="gcn", dropout=dropout(1, 2, 3))
    for run, seed in enumerate((1, 2, 3)):
        alone = encode(graph, weights[run], kind="gcn", dropout=dropout(seed))
        torch.testing.assert_close(batch.z0[run], alone.z0)
        for together, single in zip(batch.cached, alone.cached, strict=True):
            torch.testing.assert_close(together[run], single)
