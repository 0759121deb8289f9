"""LDS: its hypergradient against finite differences, what it learns, from which labels."""

from dataclasses import replace

import pytest
import torch
from small_fits import seeded

from graphglow.competitors import lds
from graphglow.competitors.lds import (
    LDS,
    LDSConfig,
    Recorded,
    gradient_factors,
    rows_of,
    validation_halves,
)
from graphglow.errors import InputError
from graphglow.gnn.train import Loop, accuracy
from graphglow.graph import prepare
from tiny_graphs import MASKS, raw_data, sparse_matrix

FLOAT64 = torch.float64
NODES = 21


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=FLOAT64, generator=seeded(seed))


def noisy_data(*, num_nodes=90, homophily=0.4, noise=0.6):
    return raw_data(num_nodes=num_nodes, homophily=homophily, degree=6.0, noise=noise, features=12)


def small_model(num_nodes=NODES, **changes):
    """A model in float64 of a small graph, without dropout."""
    graph = prepare(noisy_data(num_nodes=num_nodes)).to("cpu", FLOAT64)
    settings = {"dropout": 0.0, "learning_rate": 0.05, "weight_decay": 0.01, "hidden": 6}
    return LDS.build(graph, LDSConfig(device="cpu", **(settings | changes)))


MODEL = small_model()


def relaxed(shift=0):
    """A graph with weights in (0, 1): what a draw is replaced by where derivatives are taken."""
    upper = (2 * normal(NODES, NODES, seed=2) - 2).sigmoid().triu(1)
    return (upper + upper.T).roll((shift, shift), (0, 1))


def dense_loss(flat, adjacency):
    """The inner loss written out, with all of A in the autograd graph."""
    d, h, c = MODEL.graph.num_features, 6, 3
    first, bias, second, last_bias = flat.split([d * h, h, h * c, c])
    looped = adjacency + torch.eye(NODES, dtype=FLOAT64)
    scale = looped.sum(1).rsqrt()
    operator, first = scale[:, None] * looped * scale, first.view(d, h)
    hidden = torch.relu(operator @ MODEL.graph.x @ first + bias)
    logits = operator @ hidden @ second.view(h, c) + last_bias
    train, labels = MODEL.graph.train, MODEL.graph.y
    loss = torch.nn.functional.cross_entropy(logits[train], labels[train])
    return loss + 0.01 / 2 * first.square().sum()


def start(flat=None):
    flat = normal(len(MODEL.state.weights), seed=3) if flat is None else flat
    return MODEL.state._replace(weights=flat)


def judged_after(graphs, state=None):
    """The outer loss on the last of these graphs, after a step on each of the others; all graphs.

    Without autograd's graph of A, which is what LDS does, and what finite differences need.
    """
    drawn, state = [Recorded(graph) for graph in graphs], state or start()
    if len(drawn) > 1:
        state, _ = MODEL.inner_steps(state, drawn[:-1])
    else:
        state.weights.requires_grad_()
    return MODEL.outer_loss(state, drawn[-1]), drawn


def test_a_step_is_that_of_the_dense_formula_and_of_adam(monkeypatch):
    monkeypatch.setattr(lds, "EPSILON", 1e-24)  # which Adam has outside of the root
    state, graph = start(), relaxed()
    library = torch.nn.Parameter(state.weights.clone())
    optimizer = torch.optim.Adam([library], lr=0.05, eps=1e-14)
    for _ in range(4):
        optimizer.zero_grad()
        expected = dense_loss(library, graph)
        expected.backward()
        optimizer.step()
        state, (loss,) = MODEL.inner_steps(state, [Recorded(graph)])
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(state.weights.detach(), library.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_the_hypergradient_is_that_of_finite_differences(steps):
    """All steps on one graph; with none of them, the gradient of the judgement alone."""
    value, drawn = judged_after([relaxed()] * (steps + 1))
    left, right = gradient_factors(value, drawn)
    full = left @ right.T
    found, expected = (full + full.T).triu(1), torch.zeros(NODES, NODES, dtype=FLOAT64)
    for i, j in torch.triu_indices(NODES, NODES, 1).T.tolist():
        nudge = torch.zeros(NODES, NODES, dtype=FLOAT64)
        nudge[i, j] = nudge[j, i] = 1e-6
        up, down = (judged_after([relaxed() + s * nudge] * (steps + 1))[0] for s in (1, -1))
        expected[i, j] = (up - down).detach() / 2e-6
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert found.norm() > 1e-2


def test_every_step_has_a_graph_of_its_own_and_earlier_steps_count_as_constant():
    graphs = [relaxed(k) for k in range(3)]
    state, _ = MODEL.inner_steps(start(), [Recorded(relaxed())])
    value, drawn = judged_after(graphs, state)
    left, right = gradient_factors(value, drawn)
    full = left @ right.T
    nudge = torch.zeros(NODES, NODES, dtype=FLOAT64)
    nudge[1, 6] = nudge[6, 1] = 1e-6
    total = 0.0
    for place in range(3):
        moved = [[g + s * nudge * (k == place) for k, g in enumerate(graphs)] for s in (1, -1)]
        up, down = (float(judged_after(own, state)[0].detach()) for own in moved)
        total += (up - down) / 2e-6
    assert float(full[1, 6] + full[6, 1]) == pytest.approx(total, rel=1e-6)


def test_a_gradient_of_zero_gives_no_nan():
    zero = start(torch.zeros_like(MODEL.state.weights))
    value, drawn = judged_after([relaxed(), relaxed()], zero)
    assert all(factor.isfinite().all() for factor in gradient_factors(value, drawn))


@pytest.mark.parametrize("sparse", [False, True])
def test_products_with_features_are_differentiable_twice(sparse):
    x = normal(NODES, 5, seed=1).relu()
    matrix = sparse_matrix(x) if sparse else x
    v = normal(5, 2, seed=6).requires_grad_()

    def gradient(v):
        out = (rows_of(matrix) @ v).pow(3).sum()
        return torch.autograd.grad(out, v, create_graph=True)[0]

    assert torch.autograd.gradcheck(gradient, v)


def all_probabilities(model):
    return model.theta + model.theta.T


def random_model(num_nodes, seed=0):
    """A model with random probabilities, a third of them 0 and a third 1."""
    model = small_model(num_nodes)
    left, right = normal(num_nodes, 3, seed=seed), normal(num_nodes, 3, seed=seed + 1)
    model.update_theta(left, right)
    model.update_theta(0.1 * right.roll(1, 0), right)
    return model


@pytest.mark.parametrize("num_nodes", [NODES, 64, 150])
def test_probabilities_start_as_the_graph(num_nodes):
    model = small_model(num_nodes, samples=4)
    expected = (model.graph.neighbours.to_dense() > 0).double()
    assert torch.equal(all_probabilities(model), expected)
    draws = [*model.draws(1), *model.fixed_draws()]
    assert all(torch.equal(drawn.matrix.to_dense(), expected) for drawn in draws)  # no chance


@pytest.mark.parametrize("num_nodes", [NODES, 150])
def test_a_step_of_the_probabilities_is_projected_and_symmetric(num_nodes):
    model = random_model(num_nodes)
    before = all_probabilities(model)
    left, right = normal(num_nodes, 4, seed=8), normal(num_nodes, 4, seed=9)
    model.update_theta(left, right)
    full = left @ right.T
    expected = (before - full - full.T).clamp(0, 1).fill_diagonal_(0)
    torch.testing.assert_close(all_probabilities(model), expected)


def test_draws_follow_the_probabilities():
    model = random_model(NODES)
    truth, total, fixed = all_probabilities(model), 0, 0
    for _ in range(100):
        total = total + torch.stack([graph.matrix.to_dense() for graph in model.draws(4)]).sum(0)
        model.uniform.uniform_(generator=model.generator)
        draws = torch.stack([drawn.matrix.to_dense() for drawn in model.fixed_draws()])
        assert ((draws.sum(0) - 16 * truth).abs() < 1).all()  # as often as they should, up to one
        fixed = fixed + draws
    assert (total / 400 - truth).abs().max() < 5 * 0.5 / 400**0.5
    assert (fixed / 100 - truth).abs().max() < 5 * 0.5 / 100**0.5  # each by itself: Ber(theta)


def noisy_graph(**changes):
    return prepare(noisy_data(**changes)).to("cpu")


def config(**changes):
    return LDSConfig(**({"device": "cpu", "epochs": 30, "learning_rate": 0.02} | changes))


def trained(graph, settings):
    model = LDS.build(graph, settings)
    history = Loop(model, settings.epochs, settings.epochs).run()
    return model, history


@pytest.mark.slow
def test_adds_and_removes_edges_by_class_and_gains_by_it():
    """Half of the edges join two classes; the GCN on the graph as it is serves as control."""
    data = noisy_data(num_nodes=120, homophily=0.5, noise=1.5)
    order = torch.randperm(120, generator=seeded())
    for name, nodes in zip(MASKS, order.split([24, 60, 36]), strict=True):
        data[name] = torch.zeros(120, dtype=torch.bool).index_fill(0, nodes, True)
    graph = prepare(data).to("cpu")
    settings = {"epochs": 20, "dropout": 0.2, "graph_decay": 0.99, "seed": 1}
    learned, control = (
        trained(graph, config(graph_learning_rate=rate, **settings))[0] for rate in (10.0, 1e-9)
    )
    scores = [
        float(accuracy(t.logits(), graph.test, graph.y[graph.test])) for t in (learned, control)
    ]
    assert scores[0] > scores[1] + 0.1
    theta, edge = all_probabilities(learned), graph.neighbours.to_dense() > 0
    alike, apart = graph.y[:, None] == graph.y, ~torch.eye(120, dtype=torch.bool)
    assert theta[edge & alike].mean() > theta[edge & ~alike].mean() + 0.1
    assert theta[~edge & alike & apart].mean() > 4 * theta[~edge & ~alike].mean()


def test_evaluation_draws_nothing_and_gives_probabilities():
    model, _ = trained(noisy_graph(num_nodes=30), config(epochs=3))
    state = model.generator.get_state()
    total = model.logits().exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert torch.equal(model.generator.get_state(), state)


def test_the_gcn_starts_anew_once_its_loss_stops_falling():
    model = LDS.build(noisy_graph(num_nodes=30), config(inner_patience=7, window=5))
    model.train_step()
    model.lowest, model.since = 0.0, 0  # no loss is below
    for _ in range(2):  # asked before a window: after 5 steps not yet, after 10 it is
        model.train_step()
    assert model.state.done == 15
    old = model.state.weights.clone()
    model.train_step()
    assert model.state.done == 5
    assert model.lowest > 0
    moved = (model.state.weights - old).abs()  # Adam alone moves by about 0.02 a step
    assert moved.max() > 5 * 5 * 0.02 / 2


@pytest.mark.parametrize("seed", [0, 1])
def test_validation_halves_are_disjoint_cover_and_halve_each_class(seed):
    graph = noisy_graph()
    learn, stop = validation_halves(graph, seed)
    assert torch.equal(torch.cat([learn, stop]).sort().values, graph.val.sort().values)
    assert len(learn) - len(stop) in (0, 1)
    counts = [graph.y[half].bincount(minlength=3) for half in (learn, stop)]
    assert (counts[0] - counts[1]).abs().max() <= 1
    model = LDS.build(graph, config(seed=seed))
    assert torch.equal(model.graph.val, stop)
    assert torch.equal(model.learn, learn)


def test_one_validation_node_is_refused():
    graph = noisy_graph(num_nodes=30)
    with pytest.raises(InputError, match="at least two validation nodes; got 1"):
        LDS.build(replace(graph, val=graph.val[:1]), config())
