"""Drawn graphs: order of the pairs, draws, KL and gradients, each against its plain formula."""

import math

import pytest
import torch
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from torch.nn import functional as F

from graphglow.baselines.relaxed_graph import (
    Relaxation,
    draw,
    outer_on_pairs,
    unfolded,
    unfolding,
)

FLOAT64 = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def relaxation(num_nodes, *, tau=0.5, prior_tau=0.5, prior=-1.0, compare=True):
    """The same prior logit for every pair."""
    return Relaxation(
        places=unfolding(num_nodes, "cpu"),
        temperature=tau,
        prior_temperature=prior_tau,
        edges=torch.tensor([0, 1]),
        edge_logit=prior,
        other_logit=prior,
        compare=compare,
    )


@pytest.mark.parametrize("num_nodes", [2, 3, 4, 5, 8, 21])
def test_each_pair_stands_at_its_two_places(num_nodes):
    places = unfolding(num_nodes, "cpu")
    assert torch.equal(places, places.T)
    upper = places[tuple(torch.triu_indices(num_nodes, num_nodes, 1))]
    assert sorted(upper.tolist()) == list(range(num_nodes * (num_nodes - 1) // 2))


@pytest.mark.parametrize("num_nodes", [2, 3, 6, 21])
def test_outer_products_are_taken_over_pairs(num_nodes):
    left, right = torch.randn(2, num_nodes, 4, dtype=FLOAT64, generator=generator())
    both = left @ right.T + right @ left.T
    dense = unfolded(outer_on_pairs(left, right), unfolding(num_nodes, "cpu"))
    torch.testing.assert_close(dense, both - both.diagonal().diag())


def test_a_draw_is_symmetric_in_the_unit_interval_with_no_loops():
    posterior = torch.randn(45, dtype=FLOAT64, generator=generator())
    adjacency = draw(posterior, relaxation(10), generator(), [])[0].adjacency
    assert torch.equal(adjacency, adjacency.T)
    assert (adjacency.diagonal() == 0).all()
    off = adjacency[~torch.eye(10, dtype=torch.bool)]
    assert ((off > 0) & (off < 1)).all()


@pytest.mark.parametrize("probability", [0.2, 0.7])
def test_at_a_low_temperature_draws_are_binary_with_the_right_mean(probability):
    logit = math.log(probability / (1 - probability))
    posterior = torch.full((199 * 100,), logit, dtype=FLOAT64)
    drawn = draw(posterior, relaxation(200, tau=1e-3), generator(), [])[0].adjacency
    values = drawn[tuple(torch.triu_indices(200, 200, 1))]
    assert (values * (1 - values) > 1e-3).double().mean() < 0.01
    error = math.sqrt(probability * (1 - probability) / len(values))
    assert abs(float(values.mean()) - probability) < 4 * error


@pytest.mark.parametrize(("tau", "prior_tau"), [(0.5, 0.5), (0.5, 0.3), (0.3, 1.0)])
def test_a_draw_matches_plain_autograd(tau, prior_tau):
    """Products, degrees, KL, and the gradient of all three, for an uneven number of nodes."""
    how = relaxation(9, tau=tau, prior_tau=prior_tau)
    posterior = torch.randn(36, dtype=FLOAT64, generator=generator(1), requires_grad=True)
    v = torch.randn(9, 3, dtype=FLOAT64, generator=generator(2), requires_grad=True)

    graph, kl = draw(posterior, how, generator(3), [3, 3])
    result = (graph @ torch.tanh(graph @ v)).square().sum() + 0.7 * kl
    grads = torch.autograd.grad(result, [posterior, v])

    uniform = torch.empty(36, dtype=FLOAT64).uniform_(generator=generator(3))
    y = (posterior + uniform.logit()) / tau
    q = LogitRelaxedBernoulli(torch.tensor(tau, dtype=FLOAT64), logits=posterior)
    p = LogitRelaxedBernoulli(
        torch.tensor(prior_tau, dtype=FLOAT64), logits=torch.full_like(posterior, -1.0)
    )
    looped = unfolded(y.sigmoid(), how.places) + torch.eye(9, dtype=FLOAT64)
    scale = looped.sum(1).rsqrt()
    norm = scale[:, None] * looped * scale
    expected = (norm @ torch.tanh(norm @ v)).square().sum()
    expected = expected + 0.7 * (q.log_prob(y) - p.log_prob(y)).sum()
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(grads, torch.autograd.grad(expected, [posterior, v]))


def estimated_kl(shift, tau, prior_tau, draws=200, num_nodes=40):
    """Mean over pairs and draws of the KL's estimate, and its standard error."""
    how = relaxation(num_nodes, tau=tau, prior_tau=prior_tau)
    posterior = torch.full((num_nodes * (num_nodes - 1) // 2,), -1.0 + shift, dtype=FLOAT64)
    source = generator()
    each = torch.stack([draw(posterior, how, source, [])[1] for _ in range(draws)])
    each /= len(posterior)
    return float(each.mean()), float(each.std() / math.sqrt(draws))


@pytest.mark.parametrize("tau", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("shift", [-3.0, 0.5, 4.0])
def test_kl_is_that_of_two_logistics_where_temperatures_are_equal(shift, tau):
    """m coth(m / 2) - 2 for logits that lie m apart, whatever the temperature.

    It is at least the KL of the two Bernoulli distributions, which are what A > 1/2 leaves.
    """
    mean, error = estimated_kl(shift, tau, tau)
    assert abs(mean - (shift / math.tanh(shift / 2) - 2)) < 4 * error
    q, p = (torch.distributions.Bernoulli(logits=torch.tensor(a)) for a in (-1.0 + shift, -1.0))
    assert mean + 4 * error > float(torch.distributions.kl_divergence(q, p))


@pytest.mark.parametrize(("tau", "prior_tau"), [(0.1, 0.5), (0.5, 0.1), (0.4, 0.5)])
def test_kl_is_the_integral_where_temperatures_differ(tau, prior_tau):
    steps = 400_000
    uniform = (torch.arange(steps, dtype=FLOAT64) + 0.5) / steps
    y = (0.5 + uniform.logit()) / tau
    x = prior_tau * y + 1.0
    integrand = math.log(tau / prior_tau) + (uniform * (1 - uniform)).log()
    integrand -= F.logsigmoid(x) + F.logsigmoid(-x)
    mean, error = estimated_kl(1.5, tau, prior_tau)
    assert abs(mean - float(integrand.mean())) < 4 * error


def test_no_draw_says_that_the_prior_differs_from_itself():
    assert estimated_kl(0.0, 0.3, 0.3, draws=3)[0] == pytest.approx(0, abs=1e-12)


def test_a_kl_left_out_is_zero_and_pulls_nowhere():
    posterior = torch.zeros(45, dtype=FLOAT64, requires_grad=True)
    graph, kl = draw(posterior, relaxation(10, compare=False), generator(), [1])
    ones = torch.ones(10, 1, dtype=FLOAT64)
    ((graph @ ones).sum() * 0 + kl).backward()
    assert kl.item() == 0
    assert (posterior.grad == 0).all()
