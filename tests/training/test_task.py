"""One training step: its loss, its pivots, what it updates; alone and in a batch."""

import copy

import pytest
import torch

from graphglow.gnn.train import accuracy
from graphglow.graph import prepare
from tiny_graphs import (
    WIDTH,
    computing_in_float64,
    learner,
    objective,
    same_tensors,
    small_data,
    task,
    transfer_config,
)


def config(**changes):
    return transfer_config(**({"redraw_pivots": False} | changes))


def losses_of(made):
    """L_s of each refinement of one pass without dropout."""
    steps = refine(made.gnn, made.learner, made.graph, made.pivots, made.runs, None, wait=True)
    return [supervised_loss(s.logits, made.graph.train, made.train_labels) for s in steps]


def gradients(made):
    return [p.grad.clone() for p in made.gnn.parameters()]


@pytest.mark.parametrize("refinements", [1, 2, 5])
def test_the_loss_is_the_first_refinements_plus_the_mean_of_the_others(refinements):
    made = task(config(refinements=refinements))
    with torch.no_grad():
        losses = losses_of(made)
    expected = losses[0] + (torch.stack(losses[1:]).mean() if losses[1:] else 0)
    loss, count = made.train_step()
    assert int(count) == refinements
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    assert not loss.requires_grad


def test_a_step_descends_the_gradient_of_that_loss():
    made, twin = task(config(refinements=3)), task(config(refinements=3))
    assert same_tensors(made.gnn, twin.gnn)
    losses = losses_of(twin)
    (losses[0] + (losses[1] + losses[2]) / 2).backward()
    twin.optimizer.step()
    made.train_step()
    for one, other in zip(made.gnn.parameters(), twin.gnn.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_both_gradients_are_zeroed_in_every_step():
    made = task(config(), trained=objective(smoothness=0.0, sparsity=0.0, entropy=0.1))
    made.optimizer.learning_rate = made.trained.theta.learning_rate = 0.0
    found = []
    for _ in range(2):
        made.train_step()
        both = [*made.learner.parameters(), *made.gnn.parameters()]
        found.append([p.grad.clone() for p in both])
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second)
        assert (first != 0).any()


def test_theta_moves_only_where_it_is_trained():
    frozen, moving = task(config()), task(config(), trained=objective())
    before = copy.deepcopy(frozen.learner)
    for made in (frozen, moving):
        start = copy.deepcopy(made.gnn)
        made.train_step()
        assert not same_tensors(made.gnn, start)
    assert same_tensors(frozen.learner, before)
    assert not same_tensors(moving.learner, before)


@pytest.mark.parametrize("weights", [{"smoothness": 0.0, "sparsity": 0.0}, {}])
def test_a_prior_without_weight_draws_nothing(weights):
    """Neither the sketch of the features nor a structure: the nwgm loss draws nothing itself."""
    made = task(config(dropout=0.0), trained=objective(supervision="nwgm", **weights))
    (generator,) = made.dropout.generators
    before = generator.get_state()
    made.train_step()
    assert torch.equal(before, generator.get_state()) == bool(weights)


def test_pivots_are_redrawn_every_epoch_or_kept():
    fixed, moving = task(config(redraw_pivots=False)), task(config(redraw_pivots=True))
    assert fixed._training_pivots() is fixed.pivots
    before = moving.pivots.clone()
    drawn = [moving._training_pivots() for _ in range(3)]
    assert not torch.equal(drawn[0].sort()[0], drawn[1].sort()[0])
    assert all(len(d.unique()) == 10 for d in drawn)
    assert torch.equal(moving.pivots, before)


def test_every_node_is_a_pivot_equally_often():
    made = task(config(num_pivots=10, redraw_pivots=True))
    drawn = torch.cat([made._training_pivots() for _ in range(2000)])
    share = torch.bincount(drawn, minlength=40) / 2000
    standard_error = (0.25 * 0.75 / 2000) ** 0.5
    assert (share - 0.25).abs().max() < 4.5 * standard_error


@pytest.mark.parametrize(("asked", "used"), [(1, 1), (39, 39), (40, 40), (41, 40), (10**6, 40)])
def test_more_pivots_than_nodes_means_all_nodes(asked, used):
    made = task(config(num_pivots=asked, redraw_pivots=True))
    assert len(made.pivots) == made.num_pivots == used
    assert len(made.pivots.unique()) == used
    assert len(made._training_pivots()) == used


def test_evaluation_is_a_function_of_weights_and_graph():
    made = task(config(dropout=0.5, redraw_pivots=True))
    made.train_step()
    first = made.logits()
    (generator,) = made.dropout.generators
    state = generator.get_state()
    assert torch.equal(first, made.logits())
    assert torch.equal(state, generator.get_state())
    assert not first.requires_grad


def test_validation_scores_the_validation_nodes():
    made = task(config())
    nodes, logits = made.graph.val, made.logits()
    loss, share = made.validate()
    labels = made.graph.y[nodes]
    assert float(loss) == pytest.approx(float(supervised_loss(logits, nodes, labels)))
    assert float(share) == float((logits[nodes].argmax(1) == labels).double().mean())
    assert not loss.requires_grad


def test_accuracy_counts_the_given_nodes():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 0.0]])

    def found(*nodes, of=logits):
        nodes = torch.tensor(nodes, dtype=torch.int64)
        return accuracy(of, nodes, torch.zeros_like(nodes))

    assert found(0, 1) == 0.5
    assert found(0, 2) == 1.0
    assert found(0, 1).dtype == torch.float64
    assert found().isnan()
    both = found(0, 1, of=torch.stack([logits, -logits, logits.flip(1)]))
    assert both.tolist() == [0.5, 0.5, 0.5]
    assert found(0, 2, of=torch.stack([logits, -logits])).tolist() == [1.0, 0.0]


# --- several runs as one batch ---

MIXED = [
    {"seed": 0},
    {"seed": 1, "learning_rate": 0.3},
    {"seed": 2, "weight_decay": 0.1, "input_weight": 0.9},
    {"seed": 2, "structure_momentum": 0.5, "dropout": 0.5},
]


def test_a_batch_begins_with_the_weights_and_pivots_of_its_runs():
    configs = [config(**changes) for changes in MIXED]
    batch = task(*configs)
    assert batch.pivots.shape == (4, 10)
    for run, one in enumerate(configs):
        alone = task(one)
        assert torch.equal(batch.pivots[run], alone.pivots)
        assert torch.equal(batch.optimizer.flat[run], alone.optimizer.flat)


def test_a_batch_redraws_the_pivots_of_its_runs():
    configs = [config(seed=seed, redraw_pivots=True) for seed in (0, 1, 2)]
    batch, singles = task(*configs), [task(one) for one in configs]
    for _ in range(3):
        drawn = batch._training_pivots()
        assert drawn.shape == (3, 10)
        for run, alone in enumerate(singles):
            assert torch.equal(drawn[run].sort()[0], alone._training_pivots().sort()[0])


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_a_step_of_a_batch_is_a_step_of_each_run(tolerance):
    configs = [config(**changes, tolerance=tolerance) for changes in MIXED]
    batch = task(*configs)
    loss, refinements = batch.train_step()
    val_loss, share = batch.validate()
    assert loss.shape == refinements.shape == val_loss.shape == share.shape == (4,)
    for run, one in enumerate(configs):
        alone = task(one)
        single_loss, single_refinements = alone.train_step()
        torch.testing.assert_close(loss[run], single_loss)
        assert refinements[run] == single_refinements
        for together, single in zip(gradients(batch), gradients(alone), strict=True):
            torch.testing.assert_close(together[run], single)
        torch.testing.assert_close(batch.optimizer.flat[run], alone.optimizer.flat)
        torch.testing.assert_close(batch.logits()[run], alone.logits())
        torch.testing.assert_close(val_loss[run], alone.validate()[0])
        assert share[run] == alone.validate()[1]
    assert (len(set(refinements.tolist())) > 1) == (tolerance > 0)


def test_a_batch_of_plain_gnns_takes_one_step_on_the_input_graph():
    configs = [config(seed=seed, dropout=0.5) for seed in (0, 1)]
    graph = prepare(small_data())
    batch = GraphTask(graph, None, WIDTH, configs)
    loss, refinements = batch.train_step()
    assert refinements.tolist() == [1, 1]
    for run, one in enumerate(configs):
        alone = GraphTask(graph, None, WIDTH, [one])
        torch.testing.assert_close(loss[run], alone.train_step()[0])
        torch.testing.assert_close(batch.optimizer.flat[run], alone.optimizer.flat)


def test_seeds_of_a_tasks_own_stand_in_for_the_configs():
    given, own = task(config(seed=0), seeds=[5]), task(config(seed=5))
    assert same_tensors(given.gnn, own.gnn)
    assert torch.equal(given.pivots, own.pivots)
    states = [made.dropout.generators[0].get_state() for made in (given, own)]
    assert torch.equal(*states)


# --- waiting for the answer, or masking what has settled: the same numbers ---


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("tolerance", [0.0, 1e-3, 0.01, 0.1, 1e9])
def test_a_step_without_waiting_has_the_same_loss_and_gradients(tolerance, dropout):
    settings = config(refinements=6, tolerance=tolerance, dropout=dropout)
    waiting, masking = task(settings), task(settings)
    loss, count = waiting.train_step()
    logits, (val_loss, share) = waiting.logits(), waiting.validate()
    masking._on_cpu = False
    masked_loss, masked_count = masking.train_step()
    torch.testing.assert_close(masked_loss, loss)
    assert masked_count == count
    assert (int(count) < 6) == (tolerance > 0)
    for one, other in zip(gradients(masking), gradients(waiting), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(masking.optimizer.flat, waiting.optimizer.flat)
    torch.testing.assert_close(masking.logits(), logits)
    torch.testing.assert_close(masking.validate()[0], val_loss)
    assert masking.validate()[1] == share


def test_a_step_that_trains_theta_without_waiting_has_the_same_gradients():
    settings = config(refinements=6, tolerance=0.1)
    terms = objective(smoothness=0.0, sparsity=0.0, entropy=0.5)  # nothing is drawn
    waiting, masking = task(settings, trained=terms), task(settings, trained=terms)
    loss, count = waiting.train_step()
    masking._on_cpu = False
    masked_loss, masked_count = masking.train_step()
    assert masked_count == count < 6
    torch.testing.assert_close(masked_loss, loss)
    for one, other in zip(
        [*masking.learner.parameters(), *masking.gnn.parameters()],
        [*waiting.learner.parameters(), *waiting.gnn.parameters()],
        strict=True,
    ):
        torch.testing.assert_close(one.grad, other.grad)
    torch.testing.assert_close(masking.learner.node_weight, waiting.learner.node_weight)
    assert not same_tensors(masking.learner, learner())


@pytest.mark.parametrize("similarity", ["cosine", "dot", "rbf", "attention"])
def test_theta_knows_no_embedding_dimension_by_its_place(similarity):
    """Theta and the GNN's units in another order, alike: the same run, training included.

    A new GNN draws its units independently and alike. So theta with its columns in any other
    order does as well on average: "What theta can carry over" in docs/paper_notes.md.
    """
    order = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(3))
    with computing_in_float64():
        config = transfer_config(dropout=0.0, refinements=3)
        made, moved = (task(config, theta=learner(similarity=similarity)) for _ in range(2))
        with torch.no_grad():
            for theta, weight in zip(
                moved.learner.parameters(), made.learner.parameters(), strict=True
            ):
                theta.copy_(weight[:, order])  # [H, D], or [H, D, D / H]
            before = made.logits()
            assert not torch.allclose(before, moved.logits())
            moved.gnn.weights[0].copy_(made.gnn.weights[0][:, order])
            moved.gnn.weights[1].copy_(made.gnn.weights[1][order])
        torch.testing.assert_close(before, moved.logits())
        for _ in range(20):
            torch.testing.assert_close(made.train_step()[0], moved.train_step()[0])
        torch.testing.assert_close(made.logits(), moved.logits())
    assert not torch.allclose(before, made.logits())
