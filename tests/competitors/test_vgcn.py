"""VGCN against a dense GCN and finite differences; that it is a function of its seed; learning."""

import math
from dataclasses import replace

import pytest
import torch
from small_fits import seeded, slope_error
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from torch.nn import functional as F

from graphglow.competitors.vgcn import VGCN, VGCNConfig, symmetric
from graphglow.gnn.train import Loop
from graphglow.graph import prepare
from tiny_graphs import raw_data

FLOAT64 = torch.float64
PAIRS = 30 * 29 // 2


def small_graph(*, num_nodes=30, noise=0.5, homophily=0.8, dtype=FLOAT64):
    data = raw_data(num_nodes=num_nodes, homophily=homophily, degree=4.0, noise=noise)
    return prepare(data).to("cpu", dtype)


def model(graph=None, **changes):
    settings = {
        "hidden": 5, "edge_probability": 0.8, "other_probability": 0.05, "temperature": 0.5,
        "prior_temperature": 0.3, "kl_weight": 0.1, "samples": 2, "eval_samples": 4,
        "dropout": 0.0, "device": "cpu",
    }  # fmt: skip
    return VGCN.build(graph or small_graph(), VGCNConfig(**(settings | changes)))


def trained(graph, epochs=5, **changes):
    vgcn = model(graph, epochs=epochs, **changes)
    Loop(vgcn, epochs, epochs).run()
    return vgcn


def dense_gcn(vgcn, adjacency):
    """The two layers, plainly, on a dense adjacency without self-loops."""
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)
    scale = looped.sum(1).rsqrt()
    norm = scale[:, None] * looped * scale
    x = vgcn.graph.x if isinstance(vgcn.graph.x, torch.Tensor) else vgcn.graph.x.to_dense()
    hidden = torch.relu(norm @ (x @ vgcn.weight_in) + vgcn.bias_in)
    return norm @ (hidden @ vgcn.weight_out) + vgcn.bias_out


def test_the_loss_has_the_gradient_of_finite_differences():
    vgcn = model(dropout=0.3)

    def loss():
        vgcn.generator.manual_seed(4)
        return vgcn.loss()

    assert slope_error(vgcn.parameters(), loss) < 1e-5


def test_the_posterior_starts_at_the_prior_of_the_input_graph():
    vgcn = model()
    probability = symmetric(vgcn.posterior.detach(), 30).sigmoid()
    connected = vgcn.graph.neighbours.to_dense().bool()
    apart = ~connected & ~torch.eye(30, dtype=torch.bool)
    torch.testing.assert_close(probability[connected].unique().item(), 0.8, rtol=1e-6, atol=0)
    torch.testing.assert_close(probability[apart].unique().item(), 0.05, rtol=1e-6, atol=0)


def test_a_sharp_prior_without_kl_is_a_gcn_on_the_input_graph():
    sharp = {"edge_probability": 1 - 1e-13, "other_probability": 1e-13, "temperature": 0.05}
    vgcn = model(kl_weight=0.0, **sharp)
    logits = dense_gcn(vgcn, vgcn.graph.neighbours.to_dense())
    torch.testing.assert_close(vgcn.logits(), logits.log_softmax(-1).detach())
    train = vgcn.graph.train
    torch.testing.assert_close(vgcn.loss(), F.cross_entropy(logits[train], vgcn.graph.y[train]))


def test_a_prediction_is_the_mean_probability_over_paired_draws():
    vgcn = model(eval_samples=3)
    each = []
    for noise in (vgcn.noise[0], -vgcn.noise[0], vgcn.noise[1]):
        pairs = (vgcn.posterior / 0.5 + noise).sigmoid()
        each.append(dense_gcn(vgcn, symmetric(pairs, 30)).softmax(-1))
    torch.testing.assert_close(vgcn.logits().exp(), torch.stack(each).mean(0).detach())
    assert torch.equal(vgcn.logits(), vgcn.logits())


@pytest.mark.parametrize("num_nodes", [2, 3, 4, 5, 8, 21])
def test_each_pair_stands_at_its_two_places_and_gathers_their_gradients(num_nodes):
    count = num_nodes * (num_nodes - 1) // 2
    places = symmetric(torch.arange(count), num_nodes)
    upper = tuple(torch.triu_indices(num_nodes, num_nodes, 1))
    assert sorted(places[upper].tolist()) == list(range(count))
    pairs = torch.randn(count, dtype=FLOAT64, generator=seeded(), requires_grad=True)
    matrix = symmetric(pairs, num_nodes)
    assert torch.equal(matrix, matrix.T)
    assert (matrix.diagonal() == 0).all()
    grad = torch.randn(num_nodes, num_nodes, dtype=FLOAT64, generator=seeded(1))
    (found,) = torch.autograd.grad(matrix, pairs, grad)
    torch.testing.assert_close(found[places[upper]], (grad + grad.T)[upper])


def draw(vgcn, seed):
    uniform = torch.empty_like(vgcn.posterior).uniform_(generator=seeded(seed))
    return vgcn.posterior + uniform.logit(), uniform


@pytest.mark.parametrize(("tau", "prior_tau"), [(0.5, 0.5), (0.5, 0.3), (0.3, 1.0)])
def test_a_draw_matches_the_distributions_of_torch(tau, prior_tau):
    """KL and its gradient, for a posterior that is not the prior."""
    vgcn = model(temperature=tau, prior_temperature=prior_tau)
    with torch.no_grad():
        vgcn.posterior += torch.randn(PAIRS, dtype=FLOAT64, generator=seeded(1))
    drawn, uniform = draw(vgcn, 3)
    q, p = (
        LogitRelaxedBernoulli(torch.tensor(t, dtype=FLOAT64), logits=logits)
        for t, logits in ((tau, vgcn.posterior), (prior_tau, vgcn.prior_logits(uniform)))
    )
    y = drawn / tau
    expected = (q.log_prob(y) - p.log_prob(y)).sum()
    found = vgcn.kl(drawn, uniform)
    torch.testing.assert_close(found, expected)
    grads = (torch.autograd.grad(kl, vgcn.posterior)[0] for kl in (found, expected))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("tau", [0.1, 1.0])
@pytest.mark.parametrize("shift", [-3.0, 0.5, 4.0])
def test_kl_is_that_of_two_logistics_where_temperatures_are_equal(shift, tau):
    """m coth(m / 2) - 2 for logits that lie m apart, whatever the temperature.

    It is at least the KL of the two Bernoulli distributions, which are what A > 1/2 leaves.
    """
    vgcn = model(temperature=tau, prior_temperature=tau)
    with torch.no_grad():
        assert float(vgcn.kl(*draw(vgcn, 0))) == pytest.approx(0, abs=1e-6)
        vgcn.posterior += shift
        each = torch.stack([vgcn.kl(*draw(vgcn, seed)) for seed in range(200)]) / PAIRS
    error = float(each.std()) / math.sqrt(200)
    assert abs(float(each.mean()) - (shift / math.tanh(shift / 2) - 2)) < 4 * error


@pytest.mark.slow
def test_labels_tell_helpful_edges_from_harmful_ones():
    """With all nodes labelled and no prior, edges between classes lose against those within."""
    graph = small_graph(num_nodes=60, noise=1.0, homophily=0.5)
    graph = replace(graph, train=torch.arange(60))
    vgcn = trained(graph, epochs=60, kl_weight=0.0, edge_probability=0.5)
    target, source = (side[graph.entries[0] < graph.entries[1]] for side in graph.entries)
    logit = vgcn.posterior.detach()[vgcn.edges]
    same = graph.y[target] == graph.y[source]
    assert logit[same].mean() > logit[~same].mean() + 0.5


def test_only_the_first_layer_is_penalised_and_the_posterior_has_its_own_step():
    vgcn = model(weight_decay=0.1, learning_rate=0.02, posterior_learning_rate=0.3)
    first, others, posterior = vgcn.optimizer.param_groups
    assert first["params"] == [vgcn.weight_in]
    assert posterior["params"][0] is vgcn.posterior
    groups = (first, others, posterior)
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0, 0.0]
    assert [group["lr"] for group in groups] == [0.02, 0.02, 0.3]
    assert sum(len(group["params"]) for group in groups) == len(list(vgcn.parameters()))
