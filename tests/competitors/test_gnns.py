"""Plain GNNs through the door: against each other, against plain torch, and what they heed."""

from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F
from small_fits import built, config_of, shuffled, small_data

from graphglow.competitors import METHODS, fit
from graphglow.competitors.baselines import PLAIN_GNNS
from graphglow.graph import prepare
from tiny_graphs import relabelled

EVERY_GNN = pytest.mark.parametrize("name", sorted(PLAIN_GNNS))


def losses(result):
    return [epoch.loss for epoch in result.history]


def test_gcn_is_what_plain_torch_trains():
    config = config_of("gcn", epochs=12, dropout=0.0, learning_rate=0.02, weight_decay=5e-4)
    result = fit("gcn", small_data(), config)
    graph = result.graph
    start = METHODS["gcn"].build(graph, config).gnn
    w, b = (
        [p.detach().clone().requires_grad_() for p in ps] for ps in (start.weights, start.biases)
    )
    optimizer = torch.optim.Adam(w + b, lr=0.02, weight_decay=5e-4)
    adj, x = graph.adj.to_dense(), graph.x.to_dense()
    expected = []
    for _ in range(12):
        z = torch.relu(adj @ x @ w[0] + b[0])
        loss = F.cross_entropy((adj @ z @ w[1] + b[1])[graph.train], graph.y[graph.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    assert losses(result) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("num_layers", [2, 3])
def test_appnp_that_only_teleports_is_the_mlp(num_layers):
    """The same seed draws the same weights and the same masks."""
    shared = {"num_layers": num_layers, "dropout": 0.5, "epochs": 10}
    one = fit("appnp", small_data(), config_of("appnp", teleport=1.0, **shared))
    other = fit("mlp", small_data(), config_of("mlp", **shared))
    assert losses(one) == pytest.approx(losses(other), rel=1e-5)
    torch.testing.assert_close(one.logits, other.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"teleport": 0.5, "steps": 3}])
def test_gpr_starts_as_appnp(settings):
    gpr, appnp = (
        built(name, small_data(), dtype=torch.float32, **settings) for name in ("gpr", "appnp")
    )
    torch.testing.assert_close(gpr.logits(), appnp.logits(), rtol=1e-5, atol=1e-6)
    before = gpr.gnn.gamma.clone()
    gpr.train_step()
    assert not torch.equal(gpr.gnn.gamma, before)


@pytest.mark.parametrize("name", [*sorted(PLAIN_GNNS), "cpgnn", "mlp", "link", "link-features"])
def test_follows_the_nodes_names(name):
    order, settings = shuffled(), config_of(name, dropout=0.0, epochs=5)
    one = fit(name, small_data(), settings)
    other = fit(name, relabelled(small_data(), order), settings)
    torch.testing.assert_close(other.logits, one.logits[order], rtol=1e-3, atol=1e-4)


@EVERY_GNN
def test_reads_features_and_edges(name):
    features, edges = small_data(), small_data()
    features.x = features.x.flip(0)
    edges.edge_index = edges.edge_index[:, ::3]
    base = fit(name, small_data(), config_of(name)).logits
    for changed in (features, edges):
        assert not torch.allclose(fit(name, changed, config_of(name)).logits, base)


@EVERY_GNN
def test_every_setting_reaches_the_engine(name):
    config = config_of(name)
    engine = METHODS[name].build(prepare(small_data()), config).gnn.config
    assert engine.backbone == name
    for field in fields(config):
        assert getattr(engine, field.name) == getattr(config, field.name)
    assert built("gcn", small_data(), hidden=5, num_layers=3).gnn.weights[1].shape == (5, 5)
