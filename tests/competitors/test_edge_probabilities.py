"""One probability per pair: steps of theta, and graphs drawn from it."""

import pytest
import torch
from small_fits import all_probabilities

from graphglow.competitors.edge_probabilities import EdgeProbabilities

FLOAT64 = torch.float64


def normal(*shape, seed):
    return torch.randn(*shape, dtype=FLOAT64, generator=torch.Generator().manual_seed(seed))


def probabilities(num_nodes, *, dense=None, seed=0):
    """Random ones, a third of them 0 and a third 1."""
    theta = EdgeProbabilities(torch.zeros(2, 0, dtype=torch.int64), num_nodes, FLOAT64, dense=dense)
    left, right = normal(num_nodes, 3, seed=seed), normal(num_nodes, 3, seed=seed + 1)
    theta.descend(left, right)
    theta.descend(0.1 * right.roll(1, 0), right)
    return theta


def dense(sample):
    return sample.to(FLOAT64) if isinstance(sample, torch.Tensor) else sample.to_dense()


@pytest.mark.parametrize("num_nodes", [2, 3, 17, 64, 150])
def test_starts_as_the_graph(num_nodes):
    pairs = torch.randint(num_nodes, (2, 300), generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(num_nodes, num_nodes, dtype=FLOAT64)
    expected[pairs[0], pairs[1]] = expected[pairs[1], pairs[0]] = 1
    expected.fill_diagonal_(0)
    theta = EdgeProbabilities(pairs, num_nodes, FLOAT64)
    assert torch.equal(all_probabilities(theta), expected)
    sample = theta.draw(torch.Generator().manual_seed(0))  # of zeros and ones: no chance
    assert torch.equal(dense(sample), expected)
    assert all(torch.equal(dense(s), expected) for s in theta.fixed_draws(theta.flat * 0.99, 4))


@pytest.mark.parametrize("num_nodes", [2, 17, 150])
def test_a_step_is_projected_and_symmetric(num_nodes):
    theta = probabilities(num_nodes)
    before = all_probabilities(theta)
    left, right = normal(num_nodes, 4, seed=8), normal(num_nodes, 4, seed=9)
    theta.descend(left, right)
    full = left @ right.T
    expected = (before - full - full.T).clamp(0, 1).fill_diagonal_(0)
    torch.testing.assert_close(all_probabilities(theta), expected)
    assert torch.equal(all_probabilities(theta), all_probabilities(theta).T)
    assert theta.flat.min() >= 0
    assert theta.flat.max() <= 1


@pytest.mark.parametrize("num_nodes", [2, 17, 150])
def test_dense_and_sparse_draws_are_the_same(num_nodes):
    sparse, full = (probabilities(num_nodes, dense=kind) for kind in (False, True))
    uniform = torch.rand(
        len(sparse.flat), dtype=FLOAT64, generator=torch.Generator().manual_seed(1)
    )
    drawn = [theta.draw(torch.Generator().manual_seed(2)) for theta in (sparse, full)]
    fixed = zip(sparse.fixed_draws(uniform, 5), full.fixed_draws(uniform, 5), strict=True)
    for one, other in [drawn, *fixed]:
        assert torch.equal(dense(one), dense(other))
        assert torch.equal(dense(one), dense(one).T)
        assert not dense(one).diagonal().any()


def test_draws_follow_the_probabilities():
    theta, generator = probabilities(20, dense=True), torch.Generator().manual_seed(3)
    truth = all_probabilities(theta)
    mean = torch.stack([dense(theta.draw(generator)) for _ in range(400)]).mean(0)
    assert (mean - truth).abs().max() < 5 * 0.5 / 400**0.5
    assert ((truth > 0) & (truth < 1)).any()


def test_fixed_draws_have_each_edge_as_often_as_they_should():
    theta, generator = probabilities(20), torch.Generator().manual_seed(4)
    truth, total = all_probabilities(theta), 0
    for _ in range(100):
        uniform = torch.rand(len(theta.flat), dtype=FLOAT64, generator=generator)
        draws = torch.stack([dense(s) for s in theta.fixed_draws(uniform, 16)])
        assert ((draws.sum(0) - 16 * truth).abs() < 1).all()
        total = total + draws
    assert (total / 100 - truth).abs().max() < 5 * 0.5 / 100**0.5  # each draw by itself: Ber(theta)
