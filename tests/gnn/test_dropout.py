"""Dropout: what stays, what it draws from, and that a run drops the same alone and in a batch."""

import pytest
import torch
from gnn_graphs import float64, small_data, training

from graphglow.gnn import Dropout
from graphglow.gnn.propagation import drop, drop_features
from graphglow.linalg.sparse import SparseMatrix

X = torch.ones(9, 4, dtype=torch.float64)


def mixed(rates):
    """A batch with seeds 0, 1, .. and a rate of its own for each run."""
    generators = tuple(torch.Generator().manual_seed(seed) for seed in range(len(rates)))
    return Dropout(tuple(rates), generators)


def test_dropout_off_returns_the_input():
    assert drop(X, training(0, rate=0.0)) is X
    assert drop(X, None) is X
    assert drop_features(X, training(0, rate=0.0)) is X
    assert drop_features(X, None) is X


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


RATES = [(0.5, 0.5, 0.5), (0.2, 0.5, 0.9), (0.0, 0.5, 0.9), (0.5, 0.0, 0.0)]


@pytest.mark.parametrize("rates", RATES)
def test_a_run_of_a_batch_draws_what_it_draws_alone(rates):
    """And leaves its generator where it leaves it alone: pivots are drawn from it, too."""
    batch = mixed(rates)
    hidden = [drop(X.expand(3, 9, 4), batch) for _ in range(2)]
    features = drop_features(X, batch)
    for run, rate in enumerate(rates):
        alone = Dropout((rate,), (torch.Generator().manual_seed(run),))
        for together in hidden:
            assert torch.equal(together[run], drop(X, alone))
        assert torch.equal(features[run], drop_features(X, alone))
        state = batch.generators[run].get_state()
        assert torch.equal(state, alone.generators[0].get_state())


@pytest.mark.parametrize("rates", RATES)
def test_sparse_features_of_a_batch_share_their_pattern(rates):
    x = float64(small_data(sparse_features=True)).x
    dropped = drop_features(x, mixed(rates))
    assert dropped.values.shape == (3, len(x.values))
    for run, rate in enumerate(rates):
        alone = drop_features(x, Dropout((rate,), (torch.Generator().manual_seed(run),)))
        assert torch.equal(dropped.values[run], alone.values)
