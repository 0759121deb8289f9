"""LINK is convex: no seed matters, and it is scikit-learn's logistic regression."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small_fits import built, config_of, float64, relabelled, shuffled, small_data

from graphglow.baselines import fit

DECAY = 0.01
BOTH = pytest.mark.parametrize("name", ["link", "link-features"])


def inputs(name, graph):
    """Adjacency rows, features where they are read, and a constant: the bias is penalised too."""
    adjacency = (graph.adj.to_dense() != 0).double() - torch.eye(45, dtype=torch.float64)
    parts = [adjacency, graph.x.to_dense()] if name == "link-features" else [adjacency]
    return torch.cat([*parts, torch.ones(45, 1, dtype=torch.float64)], dim=1)


@BOTH
def test_is_logistic_regression_with_the_matching_penalty(name):
    """Mean loss + DECAY / 2 |W|^2 is the loss of C = 1 / (DECAY n), divided by n."""
    data = small_data()
    task = built(name, data, weight_decay=DECAY, dropout=0.0, learning_rate=0.02)
    for _ in range(2000):
        task.train_step()
    graph = task.graph
    x, train = inputs(name, graph).numpy(), graph.train.numpy()
    model = LogisticRegression(
        C=1 / (DECAY * len(train)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(x[train], graph.y.numpy()[train])
    np.testing.assert_allclose(task.logits().numpy(), x @ model.coef_.T, rtol=1e-3, atol=1e-4)


@BOTH
def test_no_seed_matters_without_dropout(name):
    one, other = (
        fit(name, small_data(), config_of(name, dropout=0.0, seed=seed)) for seed in (0, 1)
    )
    assert one.history == other.history
    assert torch.equal(one.logits, other.logits)


@BOTH
def test_starts_by_knowing_nothing(name):
    assert torch.equal(built(name, small_data()).logits(), torch.zeros(45, 3, dtype=torch.float64))


@BOTH
def test_follows_the_nodes_names(name):
    order, settings = shuffled(), config_of(name, dropout=0.0, epochs=10)
    one = fit(name, small_data(), settings)
    other = fit(name, relabelled(small_data(), order), settings)
    torch.testing.assert_close(other.logits, one.logits[order], rtol=1e-4, atol=1e-5)


def test_only_link_with_features_reads_them():
    data = small_data()
    data.x = data.x.flip(0)
    for name, same in (("link", True), ("link-features", False)):
        one, other = (fit(name, d, config_of(name)) for d in (small_data(), data))
        assert torch.equal(one.logits, other.logits) == same


def test_edge_weights_do_not_count():
    data = small_data()
    data.edge_weight = torch.linspace(0.1, 2.0, data.edge_index.shape[1])
    one, other = (fit("link", d, config_of("link")) for d in (small_data(), data))
    assert torch.equal(one.logits, other.logits)


def test_the_adjacency_has_no_self_loops():
    graph = float64(small_data())
    assert torch.equal(graph.neighbours.to_dense(), inputs("link", graph)[:, :45])
