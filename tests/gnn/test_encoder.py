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
