"""The hypergradient of LDS against finite differences; its GCN and Adam against plain ones."""

from dataclasses import replace

import pytest
import torch

from graphglow.competitors.lds import AdamState, Bilevel, Inputs, Objective, adam

FLOAT64 = torch.float64
NODES, WIDTHS, RATE = 9, (5, 6, 3), 0.05


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=FLOAT64, generator=torch.Generator().manual_seed(seed))


FEATURES = normal(NODES, WIDTHS[0], seed=1)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])
INNER = Objective(torch.arange(0, 5), LABELS[:5], weight_decay=0.01)
OUTER = Objective(torch.arange(5, 9), LABELS[5:])
GCN = Bilevel(WIDTHS, INNER, OUTER, RATE)


def relaxed():
    """A graph with weights in (0, 1): what a draw is replaced by where derivatives are taken."""
    upper = (2 * normal(NODES, NODES, seed=2) - 2).sigmoid().triu(1)
    return upper + upper.T


def start():
    flat = normal(sum(GCN.sizes), seed=3)
    return AdamState(
        flat, torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros((), dtype=FLOAT64)
    )


def mask():
    return (normal(NODES, WIDTHS[1], seed=4) > -0.5).to(FLOAT64) / 0.7


def unrolled(adjacency, state, count):
    """The steps from ``state``, all on one graph; dropped units are dropped in all of them."""
    steps = []
    for _ in range(count):
        _, step = GCN.step(state, Inputs(adjacency, FEATURES, mask()))
        steps.append(step)
        state = step.after
    return steps


def dense_loss(flat, adjacency, objective, dropped=None):
    """The GCN written out, with all of A in the autograd graph."""
    w = GCN.unpack(flat)
    looped = adjacency + torch.eye(NODES, dtype=FLOAT64)
    scale = looped.sum(1).rsqrt()
    operator = scale[:, None] * looped * scale
    hidden = torch.relu(operator @ FEATURES @ w.first + w.bias)
    hidden = hidden if dropped is None else hidden * dropped
    logits = operator @ hidden @ w.second + w.last_bias
    loss = torch.nn.functional.cross_entropy(logits[objective.nodes], objective.labels)
    return loss + objective.weight_decay / 2 * w.first.square().sum()


def outer_loss(adjacency, state, count):
    last = unrolled(adjacency, state, count)[-1].after
    return dense_loss(last.weights, adjacency, OUTER)


def by_differences(adjacency, state, count, h=1e-6):
    grad = torch.zeros(NODES, NODES, dtype=FLOAT64)
    for i, j in torch.triu_indices(NODES, NODES, 1).T.tolist():
        nudge = torch.zeros_like(adjacency)
        nudge[i, j] = nudge[j, i] = h
        up, down = (outer_loss(adjacency + s * nudge, state, count) for s in (1, -1))
        grad[i, j] = (up - down) / (2 * h)
    return grad


def per_pair(factors):
    """The gradient of each pair i < j."""
    full = factors.left @ factors.right.T
    return (full + full.T).triu(1)


def of_steps(adjacency, steps):
    inputs = Inputs(adjacency, FEATURES, None)
    return per_pair(GCN.hypergradient(steps, inputs))


def test_loss_and_both_gradients_are_those_of_the_dense_formula():
    flat, adjacency = start().weights.requires_grad_(), relaxed().requires_grad_()
    expected = dense_loss(flat, adjacency, INNER, mask())
    to_weights, to_graph = torch.autograd.grad(expected, [flat, adjacency])
    inputs = Inputs(adjacency.detach(), FEATURES, mask())
    loss, grad, (left, right) = GCN.loss_and_factors(flat, inputs, INNER)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(grad, to_weights)
    torch.testing.assert_close(left @ right.T, to_graph)


def test_hypergradient_is_that_of_finite_differences():
    """With all steps in the window nothing is truncated."""
    adjacency = relaxed()
    exact = of_steps(adjacency, unrolled(adjacency, start(), 5))
    torch.testing.assert_close(exact, by_differences(adjacency, start(), 5), rtol=1e-6, atol=1e-8)
    direct = GCN.loss_and_factors(
        unrolled(adjacency, start(), 5)[-1].after.weights,
        Inputs(adjacency, FEATURES, None),
        OUTER,
    )[2]
    assert (exact - per_pair(direct)).norm() > 0.05 * exact.norm()  # p E_s is not a trifle


def test_truncation_takes_earlier_steps_as_constant():
    adjacency = relaxed()
    steps = unrolled(adjacency, start(), 6)
    truncated = of_steps(adjacency, steps[4:])
    expected = by_differences(adjacency, steps[4].before, 2)
    torch.testing.assert_close(truncated, expected, rtol=1e-6, atol=1e-8)
    full = of_steps(adjacency, steps)
    assert (full - truncated).norm() > 0.01 * full.norm()


def test_every_step_has_a_graph_of_its_own():
    """The gradient with respect to the graph of one step only."""
    graphs = [relaxed().roll((k, k), (0, 1)) for k in range(3)]
    first = GCN.step(start(), Inputs(graphs[0], FEATURES, None))[1]
    second = GCN.step(first.after, Inputs(graphs[1], FEATURES, None))[1]
    judged = Inputs(graphs[2], FEATURES, None)
    factors = GCN.hypergradient([first, second], judged)

    def outcome(own):
        state = GCN.step(start(), Inputs(own[0], FEATURES, None))[1].after
        state = GCN.step(state, Inputs(own[1], FEATURES, None))[1].after
        return dense_loss(state.weights, own[2], OUTER)

    nudge, h = torch.zeros(NODES, NODES, dtype=FLOAT64), 1e-6
    nudge[1, 6] = nudge[6, 1] = h
    changes = [
        [outcome([g + s * nudge * (k == own) for k, g in enumerate(graphs)]) for s in (1, -1)]
        for own in range(3)
    ]
    total = sum(float(up - down) / (2 * h) for up, down in changes)
    assert per_pair(factors)[1, 6] == pytest.approx(total, rel=1e-6)


def test_adam_is_adam_up_to_its_epsilon():
    target = normal(6, seed=5)
    parameter = torch.nn.Parameter(normal(6, seed=6))
    state = AdamState(
        parameter.detach().clone(),
        *(torch.zeros(6, dtype=FLOAT64) for _ in range(2)),
        torch.zeros((), dtype=FLOAT64),
    )
    library = torch.optim.Adam([parameter], lr=RATE, eps=1e-12)
    for _ in range(20):
        state = adam(state, 2 * (state.weights - target), RATE)
        parameter.grad = 2 * (parameter.detach() - target)
        library.step()
    torch.testing.assert_close(state.weights, parameter.detach(), rtol=0, atol=1e-5)


def test_a_gradient_of_zero_gives_no_nan():
    dead = start()._replace(weights=torch.zeros(sum(GCN.sizes), dtype=FLOAT64))
    inputs = Inputs(relaxed(), FEATURES, None)
    plain = replace(GCN, inner=INNER._replace(weight_decay=0.0))
    step = plain.step(dead, inputs)[1]
    assert (step.gradient == 0).any()
    assert of_steps(relaxed(), [step]).isfinite().all()
