"""The objective: fast forms equal those of ``paper_in_one_file``, estimators equal enumeration."""

import itertools

import paper_in_one_file as paper
import pytest
import torch
from torch.distributions import Bernoulli

from graphglow.paper.objective import (
    PROBABILITY_MARGIN,
    edge_probabilities,
    entropy_loss,
    frobenius,
    prior_loss,
    prior_reward,
    random_signs,
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


def weights(smoothness=paper.ALPHA, sparsity=paper.RHO, samples=2):
    return ObjectiveConfig(smoothness=smoothness, sparsity=sparsity, samples=samples, probes=1)


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
    torch.testing.assert_close(smoothness(b, x), literal)


@pytest.mark.parametrize(("n", "p"), [(1, 1), (4, 3), (6, 8)])
def test_frobenius_over_all_sign_vectors_is_exact(n, p):
    b = uniform(n, p)
    literal = sum((b[:, i] @ b[:, j]) ** 2 for i in range(p) for j in range(p))
    torch.testing.assert_close(direct_frobenius(b), literal)
    torch.testing.assert_close(frobenius(b, all_signs(p)), literal)


def test_frobenius_over_random_signs_approaches_the_direct_form():
    b = uniform(10, 6)
    signs = random_signs((6, 600), b, rng())
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    probes = torch.stack([frobenius(b, sign[:, None]) for sign in signs.T])
    standard_error = probes.std() / len(probes) ** 0.5
    assert standard_error < 0.06 * direct_frobenius(b)
    assert (probes.mean() - direct_frobenius(b)).abs() < 4 * standard_error


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
    torch.testing.assert_close(sketch(sparse_matrix(x), size, rng()), x)


def test_entropy_and_probability_are_those_of_independent_edges():
    alpha = uniform(7, 3, low=0.01, high=0.99)
    b = torch.bernoulli(alpha, generator=rng(1))
    torch.testing.assert_close(entropy_loss(alpha), -Bernoulli(alpha).entropy().mean())
    torch.testing.assert_close(paper.log_pi(b, alpha), Bernoulli(alpha).log_prob(b).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_stay_away_from_zero_and_one(dtype):
    gamma = torch.tensor([[-1.0, 0.0, 0.4, 1.0, 7.0]], dtype=dtype)
    alpha = edge_probabilities(gamma)
    assert alpha[0, 2] == gamma[0, 2]
    assert ((alpha > 0) & (alpha < 1)).all()
    assert entropy_loss(alpha).isfinite()
    assert torch.logit(alpha).isfinite().all()
    assert alpha.min() >= PROBABILITY_MARGIN * 0.99


def test_the_reward_is_equation_14_as_a_mean_per_entry():
    """Repeating every node, or every pivot, changes nothing."""
    b, x = uniform(6, 3).round(), normal(3, 4, seed=1)

    def reward(b, x):
        return prior_reward(b, x, all_signs(b.shape[1]), weights())

    torch.testing.assert_close(reward(b, x), paper.reward(b, x))
    torch.testing.assert_close(reward(b.repeat(4, 1), x), reward(b, x))
    torch.testing.assert_close(reward(b.repeat(1, 2), x.repeat(2, 1)), reward(b, x))
    assert reward(b, x) < 0


@pytest.mark.parametrize(
    ("samples", "draws", "alpha_weight", "rho"),
    [(2, 1000, 0.7, 0.0), (2, 1000, 0.0, 0.9), (5, 1500, 0.7, 0.9)],
)
def test_the_mean_reinforce_gradient_is_the_exact_gradient(
    samples, draws, alpha_weight, rho, monkeypatch
):
    """The exact one is of -E[R(B)], summed over all 2^(N P) structures."""
    monkeypatch.setattr(paper, "ALPHA", alpha_weight)
    monkeypatch.setattr(paper, "RHO", rho)
    config, x = weights(alpha_weight, rho, samples), normal(2, 4, seed=1)
    alpha = uniform(3, 2, low=0.3, high=0.8).requires_grad_()
    loss = -sum(paper.log_pi(b, alpha).exp() * paper.reward(b, x) for b in all_binary(3, 2))
    (exact,) = torch.autograd.grad(loss, alpha)
    generator = rng(7)
    losses = (prior_loss(alpha, x, config, generator) for _ in range(draws))
    found = torch.stack([torch.autograd.grad(loss, alpha)[0] for loss in losses])
    standard_error = found.std(0) / draws**0.5
    # sharp enough to tell K from K - 1, which is twice as much for K = 2
    assert standard_error.norm() < (0.18 if samples == 2 else 0.1) * exact.norm()
    assert ((found.mean(0) - exact).abs() < 4 * standard_error).all()


def test_the_prior_loss_draws_from_its_generator_only():
    alpha, x = uniform(6, 3, low=0.2, high=0.8), normal(3, 4)
    torch.manual_seed(0)
    first = prior_loss(alpha, x, weights(), rng(3))
    torch.manual_seed(1)
    assert torch.equal(first, prior_loss(alpha, x, weights(), rng(3)))
    assert not torch.equal(first, prior_loss(alpha, x, weights(), rng(4)))
