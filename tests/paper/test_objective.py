"""The objective: fast forms equal direct ones, estimators equal enumeration."""

import itertools

import pytest
import torch
from torch.distributions import Bernoulli

from graphglow.paper.objective import (
    PROBABILITY_MARGIN,
    edge_probabilities,
    entropy_loss,
    frobenius,
    log_probability,
    prior_loss,
    prior_reward,
    random_signs,
    relaxed_bernoulli,
    sketch,
    smoothness,
)
from graphglow.settings import ObjectiveConfig
from tiny_graphs import sparse_matrix

DTYPE = torch.float64


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(*shape, seed=0, low=0.0, high=1.0):
    return low + (high - low) * torch.rand(*shape, generator=rng(seed), dtype=DTYPE)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed), dtype=DTYPE)


def all_binary(n, p):
    """Every matrix in {0, 1}^(n x p)."""
    bits = itertools.product([0.0, 1.0], repeat=n * p)
    return [torch.tensor(b, dtype=DTYPE).reshape(n, p) for b in bits]


def all_signs(p):
    return torch.tensor(list(itertools.product([-1.0, 1.0], repeat=p)), dtype=DTYPE).T  # [P, 2^P]


def objective(**changes):
    settings = {
        "supervision": "nwgm",
        "smoothness": 0.7,
        "sparsity": 0.9,
        "entropy": 1.0,
        "samples": 2,
        "temperature": 0.5,
        "probes": 1,
        "sketch": 64,
    }
    return ObjectiveConfig(**(settings | changes))


def direct_smoothness(b, x):
    """sum_pq E_pq |x_p - x_q|^2 with E = B^T B (Eq. 14), as the paper writes it."""
    return ((b.mT @ b) * torch.cdist(x, x).square()).sum()


def direct_frobenius(b):
    """|B^T B|_F^2 (Eq. 14)."""
    return (b.mT @ b).square().sum()


@pytest.mark.parametrize(("n", "p", "d"), [(1, 1, 1), (5, 3, 2), (20, 7, 11)])
@pytest.mark.parametrize("binary", [True, False])
def test_smoothness_equals_the_sum_over_pairs_of_pivots(n, p, d, binary):
    b, x = uniform(n, p), normal(p, d, seed=1)
    b = b.round() if binary else b
    literal = sum(
        (b[u, i] * b[u, j] * (x[i] - x[j]).square().sum())
        for u, i, j in itertools.product(range(n), range(p), range(p))
    )
    torch.testing.assert_close(direct_smoothness(b, x), literal)
    torch.testing.assert_close(smoothness(b, x), literal)


@pytest.mark.parametrize(("n", "p"), [(1, 1), (4, 3), (6, 8)])
def test_frobenius_over_all_sign_vectors_is_exact(n, p):
    b = uniform(n, p)
    literal = sum((b[:, i] @ b[:, j]) ** 2 for i in range(p) for j in range(p))
    torch.testing.assert_close(direct_frobenius(b), literal)
    torch.testing.assert_close(frobenius(b, all_signs(p)), literal)


def test_frobenius_over_random_signs_approaches_the_direct_form():
    b = uniform(10, 6)
    probes = torch.stack([frobenius(b, random_signs((6, 1), b, rng(seed))) for seed in range(600)])
    standard_error = probes.std() / len(probes) ** 0.5
    assert standard_error < 0.06 * direct_frobenius(b)
    assert (probes.mean() - direct_frobenius(b)).abs() < 4 * standard_error


def test_random_signs_are_signs_of_the_type_asked_for():
    signs = random_signs((50, 40), torch.zeros(1, dtype=DTYPE), rng())
    assert signs.dtype == DTYPE
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert signs.mean().abs() < 4 / 2000**0.5


@pytest.mark.parametrize("sparse", [True, False])
def test_sketch_is_unbiased_in_every_inner_product(sparse):
    x = normal(4, 30)
    x[x.abs() < 0.7] = 0
    given = sparse_matrix(x) if sparse else x
    exact = given.to_dense() @ given.to_dense().T
    draws = torch.stack([(s := sketch(given, 5, rng(seed))) @ s.T for seed in range(500)])
    assert draws.shape == (500, 4, 4)
    standard_error = draws.std(0) / len(draws) ** 0.5
    off = (draws.mean(0) - exact).abs()
    assert (off <= 4.5 * standard_error + 1e-12).all()
    assert standard_error.max() < 0.1 * exact.diagonal().max()


@pytest.mark.parametrize("size", [30, 64])
def test_sketch_is_exact_where_the_features_are_narrow(size):
    x = normal(4, 30)
    assert torch.equal(sketch(x, size, rng()), x)
    matrix = sparse_matrix(x)
    torch.testing.assert_close(sketch(matrix, size, rng()), x)


def test_entropy_loss_is_the_mean_negative_entropy():
    alpha = uniform(7, 3, low=0.01, high=0.99)
    torch.testing.assert_close(entropy_loss(alpha), -Bernoulli(alpha).entropy().mean())


def test_log_probability_is_that_of_independent_edges():
    alpha = uniform(7, 3, low=0.01, high=0.99)
    b = torch.bernoulli(alpha, generator=rng(1))
    torch.testing.assert_close(log_probability(b, alpha), Bernoulli(alpha).log_prob(b).sum())


def test_the_probabilities_of_all_structures_sum_to_one():
    alpha = uniform(3, 2, low=0.1, high=0.9)
    total = sum(log_probability(b, alpha).exp() for b in all_binary(3, 2))
    torch.testing.assert_close(total, torch.tensor(1.0, dtype=DTYPE))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_stay_away_from_zero_and_one(dtype):
    gamma = torch.tensor([[-1.0, 0.0, 0.4, 1.0, 7.0]], dtype=dtype)
    alpha = edge_probabilities(gamma)
    assert alpha[0, 2] == gamma[0, 2]
    assert ((alpha > 0) & (alpha < 1)).all()
    assert entropy_loss(alpha).isfinite()
    assert torch.logit(alpha).isfinite().all()
    assert alpha.min() >= PROBABILITY_MARGIN * 0.99


def test_the_reward_is_a_mean_per_entry():
    """Repeating every node, or every pivot, changes nothing."""
    b, x = uniform(6, 3).round(), normal(3, 4, seed=1)
    config = objective()

    def reward(b, x):
        return prior_reward(b, x, all_signs(b.shape[1]), config)

    torch.testing.assert_close(reward(b.repeat(4, 1), x), reward(b, x))
    torch.testing.assert_close(reward(b.repeat(1, 2), x.repeat(2, 1)), reward(b, x))


def literal_reward(b, x, config):
    n, p = b.shape
    smooth, sparse = direct_smoothness(b, x), direct_frobenius(b)
    return -config.smoothness * smooth / (n * p**2) - config.sparsity * sparse / (n * p) ** 2


def test_the_reward_equals_equation_14_scaled():
    b, x, config = uniform(6, 3).round(), normal(3, 4, seed=1), objective()
    torch.testing.assert_close(
        prior_reward(b, x, all_signs(3), config), literal_reward(b, x, config)
    )
    assert literal_reward(b, x, config) < 0


def exact_prior_gradient(alpha, x, config):
    """Of -E[R(B)], by summing over all 2^(N P) structures."""
    alpha = alpha.clone().requires_grad_()
    n, p = alpha.shape
    loss = -sum(
        log_probability(b, alpha).exp() * literal_reward(b, x, config) for b in all_binary(n, p)
    )
    return torch.autograd.grad(loss, alpha)[0]


@pytest.mark.parametrize(
    ("samples", "draws", "weights"),
    [
        (2, 1000, {"smoothness": 0.7, "sparsity": 0.0}),
        (2, 1000, {"smoothness": 0.0, "sparsity": 0.9}),
        (5, 1500, {"smoothness": 0.7, "sparsity": 0.9}),
    ],
)
def test_the_mean_reinforce_gradient_is_the_exact_gradient(samples, draws, weights):
    config = objective(samples=samples, **weights)
    alpha, x = uniform(3, 2, low=0.3, high=0.8), normal(2, 4, seed=1)
    exact = exact_prior_gradient(alpha, x, config)
    leaf, generator = alpha.clone().requires_grad_(), rng(7)
    losses = (prior_loss(leaf, x, config, generator) for _ in range(draws))
    found = torch.stack([torch.autograd.grad(loss, leaf)[0] for loss in losses])
    standard_error = found.std(0) / draws**0.5
    # sharp enough to tell K from K - 1, which is twice as much for K = 2
    assert standard_error.norm() < (0.18 if samples == 2 else 0.1) * exact.norm()
    assert ((found.mean(0) - exact).abs() < 4 * standard_error).all()


def test_the_prior_loss_draws_from_its_generator_only():
    alpha, x, config = uniform(6, 3, low=0.2, high=0.8), normal(3, 4), objective()
    torch.manual_seed(0)
    first = prior_loss(alpha, x, config, rng(3))
    torch.manual_seed(1)
    assert torch.equal(first, prior_loss(alpha, x, config, rng(3)))
    assert not torch.equal(first, prior_loss(alpha, x, config, rng(4)))


def test_relaxed_draws_lie_between_zero_and_one_and_are_differentiable():
    alpha = uniform(20, 10, low=0.05, high=0.95).requires_grad_()
    b = relaxed_bernoulli(alpha, 0.5, rng())
    assert ((b > 0) & (b < 1)).all()
    (gradient,) = torch.autograd.grad(b.sum(), alpha)
    assert (gradient > 0).all()


@pytest.mark.parametrize("temperature", [0.01, 1e-4])
def test_relaxed_draws_at_low_temperature_are_bernoulli(temperature):
    alpha = torch.tensor([0.1, 0.5, 0.9], dtype=DTYPE).repeat(4000, 1)
    b = relaxed_bernoulli(alpha, temperature, rng())
    assert b.isfinite().all()
    assert ((b < 0.01) | (b > 0.99)).float().mean() > 0.97
    standard_error = (alpha[0] * (1 - alpha[0]) / len(alpha)) ** 0.5
    assert ((b.mean(0) - alpha[0]).abs() < 4 * standard_error + 0.01 * temperature).all()


def test_relaxed_draws_agree_with_the_uniform_noise_at_any_temperature():
    """b > 1/2 exactly where an exact Bernoulli draw with the same noise is 1."""
    alpha = uniform(50, 4, low=0.05, high=0.95)
    warm, cold = (relaxed_bernoulli(alpha, t, rng(2)) for t in (2.0, 0.1))
    assert torch.equal(warm > 0.5, cold > 0.5)
    assert (warm - 0.5).abs().mean() < (cold - 0.5).abs().mean()
