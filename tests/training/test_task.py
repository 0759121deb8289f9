"""One training step: its loss, its pivots, what it updates."""

import math

import pytest
import torch
from tiny_graphs import WIDTH, learner, objective, same_tensors, small_data, transfer_config

from graphglow.errors import InputError
from graphglow.graphs import prepare
from graphglow.structure.objective import supervised_loss
from graphglow.training.refine import refine
from graphglow.training.task import Epoch, GraphTask, accuracy, improves, snapshot


def task(data=None, seed=0, **changes):
    config = transfer_config(**({"redraw_pivots": False} | changes))
    return GraphTask(prepare(data or small_data()), WIDTH, config, seed=seed)


@pytest.mark.parametrize("refinements", [1, 2, 5])
def test_the_loss_is_the_first_refinements_plus_the_mean_of_the_others(refinements):
    made, theta = task(refinements=refinements), learner()
    with torch.no_grad():
        losses = [
            supervised_loss(step.logits, made.graph.y, made.graph.train)
            for step in refine(made.gnn, theta, made.graph, made.pivots, made.config, None)
        ]
    expected = losses[0] + (torch.stack(losses[1:]).mean() if losses[1:] else 0)
    loss, count = made.train_step(theta)
    assert count == refinements
    assert loss == pytest.approx(float(expected), rel=1e-6)


def test_a_step_descends_the_gradient_of_that_loss():
    made, twin, theta = task(refinements=3), task(refinements=3), learner()
    assert same_tensors(made.gnn, twin.gnn)
    steps = list(refine(twin.gnn, theta, twin.graph, twin.pivots, twin.config, None))
    losses = [supervised_loss(s.logits, twin.graph.y, twin.graph.train) for s in steps]
    (losses[0] + (losses[1] + losses[2]) / 2).backward()
    twin.optimizer.step()
    made.train_step(theta)
    for one, other in zip(made.gnn.parameters(), twin.gnn.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_both_gradients_are_zeroed_in_every_step():
    made, theta = task(), learner()
    optimizer = torch.optim.SGD(theta.parameters(), lr=0.0)
    made.optimizer = torch.optim.SGD(made.gnn.parameters(), lr=0.0)
    settings = objective(smoothness=0.0, sparsity=0.0, entropy=0.1)
    found = []
    for _ in range(2):
        made.train_step(theta, settings, optimizer)
        found.append([p.grad.clone() for p in [*theta.parameters(), *made.gnn.parameters()]])
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second)
        assert (first != 0).any()


def test_without_an_optimizer_theta_stays():
    made, theta = task(), learner()
    before = snapshot(theta)
    made.train_step(theta)
    assert all(torch.equal(before[name], t) for name, t in theta.state_dict().items())


def test_pivots_are_redrawn_every_epoch_or_kept():
    fixed, moving = task(redraw_pivots=False), task(redraw_pivots=True)
    assert fixed._training_pivots() is fixed.pivots
    before = moving.pivots.clone()
    drawn = [moving._training_pivots() for _ in range(3)]
    assert not torch.equal(drawn[0], drawn[1])
    assert all(len(d.unique()) == 10 for d in drawn)
    assert torch.equal(moving.pivots, before)


@pytest.mark.parametrize(("asked", "used"), [(1, 1), (39, 39), (40, 40), (41, 40), (10**6, 40)])
def test_more_pivots_than_nodes_means_all_nodes(asked, used):
    made = task(num_pivots=asked, redraw_pivots=True)
    assert len(made.pivots) == made.num_pivots == used
    assert len(made.pivots.unique()) == used
    assert len(made._training_pivots()) == used


def test_evaluation_is_a_function_of_weights_and_graph():
    made, theta = task(dropout=0.5, redraw_pivots=True), learner()
    made.train_step(theta)
    first = made.logits(theta)
    state = made.generator.get_state()
    assert torch.equal(first, made.logits(theta))
    assert torch.equal(state, made.generator.get_state())


def test_accuracy_counts_the_given_nodes():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 0.0]])
    y = torch.tensor([0, 0, 0])
    assert accuracy(logits, y, torch.tensor([0, 1])) == 0.5
    assert accuracy(logits, y, torch.tensor([0, 2])) == 1.0
    assert math.isnan(accuracy(logits, y, torch.tensor([], dtype=torch.int64)))


def test_better_means_more_accurate_then_lower_loss():
    def epoch(accuracy, loss):
        return Epoch("g", 1, 0.0, loss, accuracy, 1)

    assert improves(epoch(0.1, 9.0), None)
    assert improves(epoch(0.6, 9.0), epoch(0.5, 1.0))
    assert improves(epoch(0.5, 0.9), epoch(0.5, 1.0))
    assert not improves(epoch(0.5, 1.0), epoch(0.5, 1.0))
    assert not improves(epoch(0.4, 0.1), epoch(0.5, 1.0))


def test_a_snapshot_does_not_follow_the_module():
    theta = learner()
    kept = snapshot(theta)
    with torch.no_grad():
        theta.node_weight.zero_()
    assert (kept["node_weight"] != 0).any()


def test_a_loss_that_is_not_finite_ends_training_in_one_sentence():
    made, theta = task(), learner()
    with torch.no_grad():
        made.gnn.weights[0].fill_(float("nan"))
    with pytest.raises(
        InputError, match=r"loss must stay finite; got nan .* epoch 7 on small-0"
    ) as e:
        made.run_epoch(7, theta)
    assert "\n" not in str(e.value)
