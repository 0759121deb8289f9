"""MLP, LINK and LINKX against their equations; what each reads, and what it does not."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small_fits import built, config_of, seeded, shuffled, small_data

from graphglow.competitors import fit
from tiny_graphs import hubs, relabelled

DECAY = 0.01
BOTH = pytest.mark.parametrize("name", ["link", "link-features"])
FLOAT64 = torch.float64


def with_biases(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if (parameter == 0).all():
                parameter.uniform_(-1, 1, generator=seeded())
    return model


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_mlp_equals_the_dense_equation(num_layers):
    model = with_biases(built("mlp", small_data(), num_layers=num_layers))
    hidden = model.graph.x.to_dense()
    for layer, (matrix, bias) in enumerate(zip(model.matrices, model.biases, strict=True)):
        hidden = (torch.relu(hidden) if layer else hidden) @ matrix + bias
    torch.testing.assert_close(model.logits(), hidden.detach())
    assert len(model.matrices) == num_layers


def adjacency(model):
    return (model.graph.adj.to_dense() != 0).double() - torch.eye(45, dtype=FLOAT64)


@BOTH
def test_link_is_logistic_regression_with_the_matching_penalty(name):
    """Mean loss + DECAY / 2 |W|^2 is the loss of C = 1 / (DECAY n), divided by n.

    A constant input is the bias, which is penalised too. All weights start at zero.
    """
    model = built(name, small_data(), weight_decay=DECAY, dropout=0.0, learning_rate=0.05)
    assert torch.equal(model.logits(), torch.zeros(45, 3, dtype=FLOAT64))
    for _ in range(700):
        model.train_step()
    graph = model.graph
    parts = (
        [adjacency(model), graph.x.to_dense()] if name == "link-features" else [adjacency(model)]
    )
    x = torch.cat([*parts, torch.ones(45, 1, dtype=FLOAT64)], dim=1).numpy()
    train = graph.train.numpy()
    regression = LogisticRegression(
        C=1 / (DECAY * len(train)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(x[train], graph.y.numpy()[train])
    np.testing.assert_allclose(model.logits().numpy(), x @ regression.coef_.T, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "features", "edges", "weights"),
    [
        ("mlp", True, False, False),
        ("link", False, True, False),
        ("link-features", True, True, False),
        ("linkx", True, True, False),
    ],
)
def test_each_reads_what_it_should(name, features, edges, weights):
    flipped, fewer, weighted = (small_data() for _ in range(3))
    flipped.x = flipped.x.flip(0)
    fewer.edge_index = fewer.edge_index[:, ::7]
    weighted.edge_weight = torch.linspace(0.1, 2.0, weighted.edge_index.shape[1])
    base = fit(name, small_data(), config_of(name)).logits
    for data, read in ((flipped, features), (fewer, edges), (weighted, weights)):
        assert torch.equal(fit(name, data, config_of(name)).logits, base) != read


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_linkx_equals_the_dense_equation(num_layers):
    model = with_biases(built("linkx", small_data(), num_layers=num_layers))
    h_a = adjacency(model) @ model.weight_adj + model.bias_adj
    h_x = model.graph.x.to_dense() @ model.weight_x + model.bias_x
    h = torch.cat([h_a, h_x], dim=1) @ model.weight_both + model.bias_both + h_a + h_x
    for matrix, bias in zip(model.matrices, model.biases, strict=True):
        h = torch.relu(h) @ matrix + bias
    torch.testing.assert_close(model.logits(), h.detach())
    assert len(model.matrices) == num_layers


def test_linkx_follows_the_nodes_names_if_its_weights_do():
    order = shuffled()
    one, other = (built("linkx", d) for d in (small_data(), relabelled(small_data(), order)))
    state = one.state_dict()
    other.load_state_dict(state | {"weight_adj": state["weight_adj"][order]})
    torch.testing.assert_close(other.logits(), one.logits()[order])


def test_linkx_knows_which_neighbours_a_node_has_where_gcn_cannot():
    for name, accuracy in {"linkx": 1.0, "link": 1.0, "gcn": 0.5}.items():
        config = config_of(name, epochs=60, dropout=0.0)
        assert fit(name, hubs(), config).test_accuracy == accuracy
