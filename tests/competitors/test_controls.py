"""MLP, LINK and LINKX against their equations; what each reads, and what it does not."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small_fits import built, config_of, float64, relabelled, shuffled, small_data
from torch_geometric.data import Data

from graphglow.competitors import fit

DECAY = 0.01
BOTH = pytest.mark.parametrize("name", ["link", "link-features"])


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_mlp_equals_the_dense_equation(num_layers):
    task = built("mlp", small_data(), num_layers=num_layers)
    with torch.no_grad():
        for bias in task.model.biases:
            bias.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    hidden = float64(small_data()).x.to_dense()
    for layer, (weight, bias) in enumerate(zip(task.model.weights, task.model.biases, strict=True)):
        hidden = (torch.relu(hidden) if layer else hidden) @ weight + bias
    torch.testing.assert_close(task.logits(), hidden)
    assert len(task.model.weights) == num_layers


def test_mlp_reads_no_edge():
    data, other = small_data(), small_data()
    other.edge_index = other.edge_index[:, ::7]
    one, two = (fit("mlp", d, config_of("mlp", dropout=0.5)) for d in (data, other))
    assert torch.equal(one.logits, two.logits)


def inputs(name, graph):
    """Adjacency rows, features where they are read, and a constant: the bias is penalised too."""
    adjacency = (graph.adj.to_dense() != 0).double() - torch.eye(45, dtype=torch.float64)
    parts = [adjacency, graph.x.to_dense()] if name == "link-features" else [adjacency]
    return torch.cat([*parts, torch.ones(45, 1, dtype=torch.float64)], dim=1)


@BOTH
def test_link_is_logistic_regression_with_the_matching_penalty(name):
    """Mean loss + DECAY / 2 |W|^2 is the loss of C = 1 / (DECAY n), divided by n."""
    data = small_data()
    task = built(name, data, weight_decay=DECAY, dropout=0.0, learning_rate=0.05)
    for _ in range(700):
        task.train_step()
    graph = task.graph
    x, train = inputs(name, graph).numpy(), graph.train.numpy()
    model = LogisticRegression(
        C=1 / (DECAY * len(train)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(x[train], graph.y.numpy()[train])
    np.testing.assert_allclose(task.logits().numpy(), x @ model.coef_.T, rtol=1e-3, atol=1e-4)


@BOTH
def test_no_seed_of_link_matters_without_dropout(name):
    one, other = (
        fit(name, small_data(), config_of(name, dropout=0.0, seed=seed)) for seed in (0, 1)
    )
    assert one.history == other.history
    assert torch.equal(one.logits, other.logits)


@BOTH
def test_link_starts_by_knowing_nothing(name):
    assert torch.equal(built(name, small_data()).logits(), torch.zeros(45, 3, dtype=torch.float64))


def test_only_link_with_features_reads_them():
    data = small_data()
    data.x = data.x.flip(0)
    for name, same in (("link", True), ("link-features", False)):
        one, other = (fit(name, d, config_of(name)) for d in (small_data(), data))
        assert torch.equal(one.logits, other.logits) == same


def test_edge_weights_do_not_count_for_link():
    data = small_data()
    data.edge_weight = torch.linspace(0.1, 2.0, data.edge_index.shape[1])
    one, other = (fit("link", d, config_of("link")) for d in (small_data(), data))
    assert torch.equal(one.logits, other.logits)


def test_the_adjacency_has_no_self_loops():
    graph = float64(small_data())
    assert torch.equal(graph.neighbours.to_dense(), inputs("link", graph)[:, :45])


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_linkx_equals_the_dense_equation(num_layers):
    task = built("linkx", small_data(), num_layers=num_layers)
    model, graph = task.model, task.graph
    with torch.no_grad():
        for parameter in model.parameters():
            if (parameter == 0).all():
                parameter.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    adjacency = (graph.adj.to_dense() != 0).double() - torch.eye(45, dtype=torch.float64)
    h_a = adjacency @ model.weight_adj + model.bias_adj
    h_x = graph.x.to_dense() @ model.weight_x + model.bias_x
    h = torch.cat([h_a, h_x], dim=1) @ model.weight_both + model.bias_both + h_a + h_x
    for weight, bias in zip(model.weights, model.biases, strict=True):
        h = torch.relu(h) @ weight + bias
    torch.testing.assert_close(task.logits(), h)
    assert len(model.weights) == num_layers


def test_linkx_follows_the_nodes_names_if_its_weights_do():
    order = shuffled()
    one, other = (built("linkx", d) for d in (small_data(), relabelled(small_data(), order)))
    state = one.model.state_dict()
    other.model.load_state_dict(state | {"weight_adj": state["weight_adj"][order]})
    torch.testing.assert_close(other.logits(), one.logits()[order])


def test_linkx_knows_which_neighbours_a_node_has_where_gcn_cannot():
    """Two hubs of the same degree and features; a leaf's class is the hub it is joined to."""
    leaf = torch.arange(2, 42)
    part = torch.cat([torch.tensor([3, 3]), leaf // 2 % 3])  # the hubs are in no part
    data = Data(
        x=torch.ones(42, 3),
        y=torch.cat([torch.tensor([0, 1]), leaf % 2]),
        edge_index=torch.stack([leaf, leaf % 2]),
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
    )
    settings = {"epochs": 60, "dropout": 0.0}
    for name in ("linkx", "link"):
        assert fit(name, data, config_of(name, **settings)).test_accuracy == 1.0
    assert fit("gcn", data, config_of("gcn", **settings)).test_accuracy == 0.5
