"""Dropout: what stays, and that sparse features stay sparse."""

import pytest
import torch
from gnn_graphs import float64, small_data, training

from graphglow.gnn.propagation import drop, drop_features
from graphglow.linalg.sparse import SparseMatrix

X = torch.ones(9, 4, dtype=torch.float64)


def test_dropout_off_returns_the_input():
    assert drop(X, training(0, rate=0.0)) is X
    assert drop(X, None) is X
    assert drop_features(X, training(0, rate=0.0)) is X


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_dropout_keeps_the_mean_and_scales_what_stays(p):
    out = drop(torch.ones(200, 100, dtype=torch.float64), training(0, rate=p))
    assert set(out.unique().tolist()) == {0.0, 1 / (1 - p)}
    standard_error = (p / (1 - p) / 20_000) ** 0.5
    assert (out.mean() - 1).abs() < 4 * standard_error


def test_dropout_of_sparse_features_stays_sparse():
    x = float64(small_data(sparse_features=True)).x
    dropped = drop_features(x, training(0))
    assert isinstance(dropped, SparseMatrix)
    kept = dropped.to_dense() != 0
    assert 0 < int(kept.sum()) < x.values.numel()
    torch.testing.assert_close(dropped.to_dense()[kept], 2 * x.to_dense()[kept])
