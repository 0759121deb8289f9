"""CPGNN: its start by hand, its equations dense, its limits, and what it is for."""

import math

import pytest
import torch
from small_fits import built as built_by_name
from small_fits import config_of, seeded, slope_error, small_data
from torch_geometric.data import Data

from graphglow.competitors import METHODS
from graphglow.competitors.cpgnn import (
    CPGNN,
    SMOOTHING,
    row_sum_penalty,
    sinkhorn,
    weighted_neighbours,
)
from graphglow.gnn.train import Loop, accuracy
from graphglow.graph import prepare, synthetic_graph
from tiny_graphs import float64

BOTH = pytest.mark.parametrize("estimator", ["mlp", "cheb"])
EACH = pytest.mark.parametrize("adjacency", ["raw", "symmetric"])


def config(**changes):
    return config_of("cpgnn", **({"epochs": 6, "pretrain_epochs": 5} | changes))


def built(**changes):
    """In float64, before its first step."""
    return built_by_name("cpgnn", small_data(), **({"pretrain_epochs": 5} | changes))


def trained(graph, settings, name="cpgnn"):
    model = METHODS[name].build(graph, settings)
    history = Loop(model, settings.epochs, settings.epochs).run()
    return model, history


def drawn(*shape, seed=0):
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64)


def set_compatibility(model, values):
    with torch.no_grad():
        model.compatibility.copy_(values)


def path_of_four():
    """0 - 1 - 2 - 3; 0 and 1 are training nodes of class 0 and 1."""
    train = torch.tensor([True, True, False, False])
    masks = {"train_mask": train, "val_mask": ~train, "test_mask": train & ~train}
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    return Data(x=torch.eye(4), y=torch.tensor([0, 1, 0, 1]), edge_index=edges, **masks)


def test_compatibility_starts_by_hand_on_a_path():
    """Node 0 (class 0) sees node 1 (class 1); node 1 sees node 0 (class 0) and what 2 may be.

    The scaling of [[a, b], [c, d]] has sqrt(ad) / (sqrt(ad) + sqrt(bc)) on its diagonal.
    """
    model = CPGNN.build(float64(path_of_four()), config())
    with torch.no_grad():  # all weights zero: node 2's belief is its bias's
        for parameter in model.estimator.parameters():
            parameter.zero_()
        model.estimator.bias_out[1] = math.log(0.7 / 0.3)
    model.start_compatibility()
    (a, b), (c, d) = (torch.tensor([[0.0, 1.0], [1.3, 0.7]]).double() + SMOOTHING * 0.75).tolist()
    own = math.sqrt(a * d) / (math.sqrt(a * d) + math.sqrt(b * c)) - 0.5
    expected = torch.tensor([[own, -own], [-own, own]], dtype=torch.float64)
    torch.testing.assert_close(model.compatibility.detach(), expected)
    assert own < 0  # neighbours differ


@pytest.mark.parametrize("size", [2, 3, 7, 15])
def test_sinkhorn_is_doubly_stochastic_and_a_scaling(size):
    counts = drawn(size, size, seed=size) + 5 * torch.eye(size)
    scaled = sinkhorn(counts)
    ones = torch.ones(size, dtype=torch.float64)
    torch.testing.assert_close(scaled.sum(0), ones)
    torch.testing.assert_close(scaled.sum(1), ones)
    ratio = (scaled / (counts + SMOOTHING * counts.mean())).log()  # log r_i + log c_j
    rank_one = ratio.mean(1, keepdim=True) + ratio.mean(0) - ratio.mean()
    torch.testing.assert_close(ratio, rank_one)


def test_sinkhorn_of_zeros_and_of_an_absent_class():
    torch.testing.assert_close(sinkhorn(torch.zeros(4, 4)), torch.full((4, 4), 0.25).double())
    scaled = sinkhorn(torch.tensor([[3.0, 1.0, 0.2], [1.0, 2.0, 0.1], [0.0, 0.0, 0.0]]))
    assert (scaled.sum(1) - 1).abs().max() < 1e-12
    assert (scaled.sum(0) - 1).abs().max() < 1e-2


@EACH
def test_adjacency_is_weighed_as_said(adjacency):
    graph = float64(small_data())
    dense = graph.neighbours.to_dense()
    degree = dense.sum(1, keepdim=True).clamp_min(1)
    expected = dense / (degree * degree.T).sqrt() if adjacency == "symmetric" else dense
    weighed = weighted_neighbours(graph, adjacency)
    torch.testing.assert_close(weighed.to_dense(), expected)
    v = drawn(45, 2).requires_grad_()
    (weighed @ v).pow(2).sum().backward()
    torch.testing.assert_close(v.grad, 2 * expected.T @ expected @ v.detach())


@EACH
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_propagation_equals_the_dense_equation(steps, adjacency):
    model = built(propagations=steps, adjacency=adjacency)
    matrix, compatibility = model.weighing.to_dense(), drawn(3, 3) - 0.4
    prior = 4 * drawn(45, 3, seed=1)
    start = prior.softmax(1) - 1 / 3
    torch.testing.assert_close(model.propagate(prior), start)  # H_bar is zero before it starts
    set_compatibility(model, compatibility)
    expected, power = start, start
    for _ in range(steps):  # sum_k A^k B0 H^k
        power = matrix @ power @ compatibility
        expected = expected + power
    torch.testing.assert_close(model.propagate(prior), expected)


@pytest.mark.parametrize(("estimator", "maps"), [("mlp", 1), ("cheb", 3)])
def test_estimator_equals_the_dense_equation(estimator, maps):
    """Polynomials of the Laplacian's eigenvalues: T_k(cos t) = cos(k t)."""
    whole = built(estimator=estimator)
    model = whole.estimator
    with torch.no_grad():
        model.bias_in.copy_(drawn(8) - 0.5)
    adjacency = whole.graph.neighbours.to_dense()
    scale = adjacency.sum(1).clamp_min(1).rsqrt()
    values, vectors = torch.linalg.eigh(-scale[:, None] * adjacency * scale)
    angle = values.clamp(-1, 1).acos()

    def layer(h, weight):
        parts = enumerate(weight.chunk(maps, dim=1))
        return sum(((k * angle).cos() * vectors) @ vectors.T @ h @ w for k, w in parts)

    hidden = torch.relu(layer(whole.graph.x.to_dense(), model.weight_in) + model.bias_in)
    torch.testing.assert_close(model(None), layer(hidden, model.weight_out))


def test_penalty_is_the_absolute_row_sums():
    compatibility = torch.tensor([[1.0, 2.0], [-4.0, 1.5], [1e-6, 0.0]])
    assert row_sum_penalty(compatibility).item() == 3.0 + 2.5  # a rounding error counts as zero


@pytest.mark.parametrize("eta", [0.0, 0.7])
def test_loss_is_final_plus_prior_plus_penalty(eta):
    model = built(co_training=eta, dropout=0.0)
    set_compatibility(model, drawn(3, 3))
    prior, graph = model.estimator(None), model.graph
    final, before = (
        torch.nn.functional.cross_entropy(logits[graph.train], graph.y[graph.train])
        for logits in (model.propagate(prior), prior)
    )
    expected = final + eta * before + row_sum_penalty(model.compatibility)
    torch.testing.assert_close(model.loss(), expected)


@BOTH
def test_gradients_of_every_weight(estimator):
    model = built(estimator=estimator, dropout=0.0, hidden=4)
    set_compatibility(model, drawn(3, 3) - 0.3)
    assert slope_error(model.parameters(), model.loss) < 1e-4


def test_pretraining_moves_the_estimator_alone_and_then_sets_the_compatibility():
    model, same = built(), built(pretrain_epochs=0)
    for _ in range(5):
        same.descend(same.training_loss(same.estimator(same.dropout)))
    assert (same.compatibility == 0).all()
    for one in (model, same):
        one.train_step()
    assert all(torch.equal(a, b) for a, b in zip(model.weights, same.weights, strict=True))
    before = model.compatibility.clone()
    model.train_step()  # no second pre-training: one Adam step moves nothing by more than its size
    assert (model.compatibility - before).abs().max() < 2 * config().learning_rate


def test_learns_that_neighbours_differ_and_beats_the_mlp():
    data = synthetic_graph(
        num_nodes=600, num_classes=3, homophily=0.1, average_degree=12.0, feature_noise=4.0
    )
    graph = prepare(data).to("cpu")
    settings = {"hidden": 32, "epochs": 60, "weight_decay": 5e-4, "dropout": 0.5}
    own = {"estimator": "mlp", "adjacency": "raw", "pretrain_epochs": 40}
    model, _ = trained(graph, config_of("cpgnn", **settings, **own))
    plain, _ = trained(graph, config_of("mlp", **settings), "mlp")
    ours, theirs = (accuracy(t.logits(), graph.test, graph.y[graph.test]) for t in (model, plain))
    assert ours > theirs + 0.05
    compatibility = model.compatibility.detach()
    off = ~torch.eye(3, dtype=torch.bool)
    assert compatibility.diagonal().max() < 0 < compatibility[off].min()


@EACH
def test_hubs_do_not_overflow(adjacency):
    """A star of 2,000 leaves, three steps: 2,000^2 beliefs are added up."""
    leaves = torch.arange(1, 2001)
    edges = torch.stack([torch.zeros_like(leaves), leaves])
    data = Data(x=drawn(2001, 4).float(), y=torch.arange(2001) % 2, edge_index=edges)
    settings = config(adjacency=adjacency, propagations=3, epochs=10)
    model, history = trained(prepare(data).to("cpu"), settings)
    assert all(math.isfinite(epoch.loss) for epoch in history)
    assert model.logits().isfinite().all()
