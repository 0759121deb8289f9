"""Adam over one flat vector against ``torch.optim.Adam``, alone and in a batch of runs."""

import pytest
import torch
from graphglow.training.adam import Adam
from torch import nn

SHAPES = [(), (1,), (3,), (4, 5), (), (2, 3, 4)]
STEPS = 20


def parameters(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype))
        for s in SHAPES
    ]


def batch_of(runs):
    """The parameters of several runs, each stacked to [B, ..]."""
    together = zip(*runs, strict=True)
    return [nn.Parameter(torch.stack([p.detach() for p in same])) for same in together]


def loss(values, step):
    """Per run, of any leading dimension: curved, and moving with the step."""
    return sum(((v - 0.1 * step).sin() * (1 + i) + v.square()).sum() for i, v in enumerate(values))


def descend(optimizer, values, steps=STEPS):
    for step in range(steps):
        optimizer.zero_grad()
        loss(values, step).backward()
        optimizer.step()


@pytest.mark.parametrize("weight_decay", [0.0, 5e-4, 0.3])
@pytest.mark.parametrize("learning_rate", [0.01, 0.5])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_it_is_torchs_adam(weight_decay, learning_rate, dtype, tolerance):
    mine, theirs = parameters(dtype=dtype), parameters(dtype=dtype)
    descend(Adam(mine, learning_rate, weight_decay), mine)
    descend(torch.optim.Adam(theirs, lr=learning_rate, weight_decay=weight_decay), theirs)
    for one, other, start in zip(mine, theirs, parameters(dtype=dtype), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
        assert (one != start).all()


@pytest.mark.parametrize("rates", [(0.01, 0.01, 0.01), (0.01, 0.2, 1.5)])
@pytest.mark.parametrize("decays", [(0.0, 0.0, 0.0), (0.1, 0.1, 0.1), (0.0, 5e-4, 0.3)])
def test_each_run_of_a_batch_moves_as_it_does_alone(rates, decays):
    """With a step size and a penalty of its own where they differ."""

    def setting(values):
        if len(set(values)) == 1:
            return values[0]
        return torch.tensor(values, dtype=torch.float64)[:, None]

    singles = [parameters(seed) for seed in range(3)]
    together = batch_of(singles)
    descend(Adam(together, setting(rates), setting(decays), runs=3), together)
    for run, (single, rate, decay) in enumerate(zip(singles, rates, decays, strict=True)):
        descend(Adam(single, rate, decay), single)
        for one, other in zip(together, single, strict=True):
            torch.testing.assert_close(one[run], other, rtol=1e-12, atol=1e-12)


def test_the_parameters_become_views_of_one_vector_with_their_values():
    values, start = parameters(), parameters()
    optimizer = Adam(values, 0.1)
    assert optimizer.flat.shape == (1 + 1 + 3 + 20 + 1 + 24,)
    for value, before in zip(values, start, strict=True):
        assert torch.equal(value, before)
    kept = optimizer.flat.clone()
    descend(optimizer, values, steps=2)
    assert not torch.equal(values[3], start[3])
    optimizer.flat.copy_(kept)
    for value, before in zip(values, start, strict=True):
        assert torch.equal(value, before)


def test_a_batch_has_one_vector_per_run():
    singles = [parameters(seed) for seed in range(3)]
    together = batch_of(singles)
    optimizer = Adam(together, 0.1, runs=3)
    assert optimizer.flat.shape == (3, 50)
    for run, single in enumerate(singles):
        expected = torch.cat([p.detach().flatten() for p in single])
        assert torch.equal(optimizer.flat[run], expected)
    before = [p.detach().clone() for p in together]
    optimizer.flat[1] = 0
    for value, was in zip(together, before, strict=True):
        assert (value[1] == 0).all()
        assert torch.equal(value[[0, 2]], was[[0, 2]])


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_a_parameter_without_a_gradient_counts_as_one_whose_gradient_is_zero(weight_decay):
    mine, theirs = parameters(), parameters()
    ours = Adam(mine, 0.1, weight_decay)
    reference = torch.optim.Adam(theirs, lr=0.1, weight_decay=weight_decay)
    for step in range(STEPS):
        ours.zero_grad()
        reference.zero_grad()
        loss([p for p in mine if p.ndim != 1], step).backward()
        loss([p for p in theirs if p.ndim != 1], step).backward()
        for p in theirs:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        ours.step()
        reference.step()
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_zero_grad_forgets_every_gradient():
    values = parameters()
    optimizer = Adam(values, 0.1)
    loss(values, 0).backward()
    optimizer.zero_grad()
    assert all(p.grad is None for p in values)
