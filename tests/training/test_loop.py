"""Epochs: what they record, when they end, which weights they leave, and reading less often."""

import gc
import weakref

import pytest
import torch

from graphglow.errors import InputError
from graphglow.gnn.train import Epoch, Loop
from graphglow.graph import prepare
from tiny_graphs import (
    WIDTH,
    close_histories,
    computing_in_float64,
    objective,
    small_data,
    task,
    transfer_config,
)

NOISY = small_data(noise=3.0)


def config(**changes):
    return transfer_config(**({"dropout": 0.5, "learning_rate": 0.1} | changes))


def best_of(history):
    return max(history, key=lambda e: (e.val_accuracy, -e.val_loss))


def test_the_history_is_that_of_steps_and_validations():
    looped, stepped = (task(config(tolerance=0.03), data=NOISY) for _ in range(2))
    expected = []
    for number in range(1, 9):
        loss, refinements = stepped.train_step()
        val_loss, share = stepped.validate()
        scores = (float(loss), float(val_loss), float(share), int(refinements))
        expected.append(Epoch("small-0", number, *scores))
    (history,) = Loop(looped, 8, 8).run()
    assert history == expected
    assert len({epoch.refinements for epoch in history}) > 1


def test_the_best_weights_are_put_back():
    made = task(config(learning_rate=0.5), data=NOISY)
    (history,) = Loop(made, 25, 25).run()
    best = best_of(history)
    assert best.epoch < 25
    loss, share = made.validate()
    assert (float(loss), float(share)) == (best.val_loss, best.val_accuracy)


def test_theta_returns_to_the_same_epoch_as_the_gnn():
    made = task(config(), data=NOISY, trained=objective())
    start = made.trained.theta.flat.clone()
    (history,) = Loop(made, 25, 25).run()
    best = best_of(history)
    assert 1 < best.epoch < 25
    assert not torch.equal(made.trained.theta.flat, start)
    loss, share = made.validate()
    assert (float(loss), float(share)) == (best.val_loss, best.val_accuracy)


@pytest.mark.parametrize("patience", [1, 3, 8])
def test_a_run_stops_after_its_patience(patience):
    made = task(config(), data=NOISY)
    (history,) = Loop(made, 200, patience).run()
    assert len(history) == best_of(history).epoch + patience < 200
    (longer,) = Loop(task(config(), data=NOISY), 40, 40).run()
    assert longer[: len(history)] == history[:40]  # up to there nothing differs


SEVERAL = [config(seed=seed, learning_rate=rate) for seed, rate in ((0, 0.1), (1, 0.5), (2, 0.02))]


@pytest.mark.parametrize("read_every", [7, 1000])
@pytest.mark.parametrize("patience", [3, 16])
@pytest.mark.parametrize("configs", [SEVERAL[:1], SEVERAL], ids=["alone", "in a batch"])
def test_reading_less_often_changes_nothing(configs, patience, read_every):
    found = []
    for every in (1, read_every):
        made, seen = task(*configs, data=NOISY), []
        histories = Loop(made, 16, patience, read_every=every).run(seen.append)
        found.append((histories, seen, made.optimizer.flat))
    assert found[0][:2] == found[1][:2]
    assert torch.equal(found[0][2], found[1][2])
    stopped = max(len(history) for history in found[0][0]) < 16
    assert stopped == (patience == 3)


@pytest.fixture
def float64():
    with computing_in_float64():
        yield


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("patience", [3, 20])
def test_each_run_of_a_batch_ends_where_it_does_alone(patience):
    batch, seen = task(*SEVERAL, data=NOISY), []
    histories = Loop(batch, 20, patience).run(seen.append)
    for run, one in enumerate(SEVERAL):
        alone = task(one, data=NOISY)
        (history,) = Loop(alone, 20, patience).run()
        assert close_histories(histories[run], history)
        torch.testing.assert_close(batch.optimizer.flat[run], alone.optimizer.flat)
    lengths = {len(history) for history in histories}
    assert len(lengths) > 1 if patience == 3 else lengths == {20}
    for run, history in enumerate(histories):
        assert [epoch._replace(run=0) for epoch in seen if epoch.run == run] == history
    assert [epoch.epoch for epoch in seen] == sorted(epoch.epoch for epoch in seen)


@pytest.mark.usefixtures("float64")
def test_a_batch_of_plain_gnns_is_trained_like_each_of_them():
    graph = prepare(NOISY).to("cpu")
    batch = GraphTask(graph, None, WIDTH, SEVERAL)
    histories = Loop(batch, 12, 5).run()
    for run, one in enumerate(SEVERAL):
        alone = GraphTask(graph, None, WIDTH, [one])
        (history,) = Loop(alone, 12, 5).run()
        assert close_histories(histories[run], history)
        torch.testing.assert_close(batch.optimizer.flat[run], alone.optimizer.flat)
        assert all(epoch.refinements == 1 for epoch in history)


def test_a_loop_can_run_again_from_where_it_left():
    made, twin = (task(config(), data=NOISY) for _ in range(2))
    loop = Loop(made, 10, 10)
    (first,) = loop.run()
    (second,) = loop.run()
    (expected_first,) = Loop(twin, 10, 10).run()
    (expected_second,) = Loop(twin, 10, 10).run()  # a new loop over the same task
    assert first == expected_first
    assert second == expected_second
    assert [epoch.epoch for epoch in second] == list(range(1, 11))
    assert torch.equal(made.optimizer.flat, twin.optimizer.flat)


def test_scores_of_an_earlier_run_do_not_count_in_a_later_one():
    made = task(config(), data=NOISY)
    loop = Loop(made, 10, 10)
    loop.run()
    made.optimizer.flat.normal_(generator=torch.Generator().manual_seed(0), std=20.0)
    (second,) = loop.run()
    loss, share = made.validate()
    best = best_of(second)
    assert (float(loss), float(share)) == (best.val_loss, best.val_accuracy)


def poisoned(made, epoch):
    """Put NaN into the weights before the given epoch's step."""
    step, count = made.train_step, 0

    def train_step():
        nonlocal count
        count += 1
        if count == epoch:
            made.optimizer.flat.fill_(float("nan"))
        return step()

    made.train_step = train_step
    return made


@pytest.mark.parametrize("read_every", [1, 5, 100])
def test_a_loss_that_is_not_finite_ends_training_in_one_sentence(read_every):
    made, seen = poisoned(task(config()), 7), []
    with pytest.raises(
        InputError, match=r"loss must stay finite; got nan .* epoch 7 on small-0"
    ) as caught:
        Loop(made, 20, 20, read_every=read_every).run(seen.append)
    assert "\n" not in str(caught.value)
    assert [epoch.epoch for epoch in seen] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_blows_up_after_it_stopped_does_no_harm():
    """Reading seldom, epochs are made after the stop: they are neither read nor kept."""
    (history,) = Loop(task(config(), data=NOISY), 60, 2).run()
    made = poisoned(task(config(), data=NOISY), len(history) + 1)
    loop = Loop(made, 60, 2, read_every=60)
    assert loop.run() == [history]
    assert made.optimizer.flat.isfinite().all()


def test_a_cpus_scores_are_read_after_each_epoch():
    made, calls = task(config()), []
    step = made.train_step
    made.train_step = lambda: (calls.append(1), step())[1]
    heard = []
    Loop(made, 4, 4).run(lambda epoch: heard.append(len(calls)))
    assert heard == [1, 2, 3, 4]


def test_a_loop_is_freed_when_its_owner_lets_go():
    """No circle of references: a GPU's memory must not wait for the garbage collector."""
    gc.disable()
    try:
        loop = Loop(task(config()), 2, 2)
        loop.run()
        alive = weakref.ref(loop)
        del loop
        assert alive() is None
    finally:
        gc.enable()


def test_a_run_that_diverges_in_a_batch_is_named():
    configs = [config(learning_rate=rate) for rate in (0.01, 1e25, 0.01)]
    with pytest.raises(InputError, match=r"on small-0, run 2 of 3 \(a smaller"):
        Loop(task(*configs), 20, 20).run()
