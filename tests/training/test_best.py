"""The best weights: what counts as better, when a run stops, and what is put back."""

import pytest
import torch
from graphglow.training.loop import Best


def number(value):
    return torch.tensor(value)


def scores(*values):
    return torch.tensor(values, dtype=torch.float64)


def follow(best, weights, history):
    """Write the epoch's number into the weights, and its score into ``best``: epochs 1, 2, .."""
    for epoch, (accuracy, loss) in enumerate(history, start=1):
        for w in weights:
            w.fill_(float(epoch))
        best.update(number(epoch), scores(*accuracy), scores(*loss))


def single(history, patience=100):
    """A run of one set of two numbers; each epoch's score is (accuracy, loss)."""
    weights = torch.zeros(2)
    best = Best([weights], patience)
    for epoch, (accuracy, loss) in enumerate(history, start=1):
        weights.fill_(float(epoch))
        best.update(number(epoch), scores(accuracy)[0], scores(loss)[0])
    return best, weights


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        ([(0.1, 9.0)], 1),  # anything is better than nothing
        ([(0.0, 9.0)], 1),
        ([(0.5, 1.0), (0.6, 9.0)], 2),  # accuracy first
        ([(0.5, 1.0), (0.5, 0.9)], 2),  # then the loss
        ([(0.5, 1.0), (0.5, 1.0)], 1),  # the same is not better
        ([(0.5, 1.0), (0.4, 0.1)], 1),
        ([(0.5, 1.0), (0.5, 1.1), (0.7, 3.0), (0.7, 2.0), (0.6, 0.0), (0.7, 2.0)], 4),
    ],
)
def test_better_means_more_accurate_then_lower_loss(history, kept):
    best, weights = single(history)
    assert int(best.epoch) == kept
    assert (float(best.accuracy), float(best.loss)) == history[kept - 1]
    assert int(best.last) == len(history)
    best.restore()
    assert weights.tolist() == [kept, kept]


def test_what_is_kept_does_not_follow_the_weights():
    best, weights = single([(0.5, 1.0)])
    weights.fill_(float("nan"))
    assert best.kept[0].tolist() == [1.0, 1.0]
    best.restore()
    best.kept[0].zero_()
    assert weights.tolist() == [1.0, 1.0]


def test_nothing_scored_puts_the_first_weights_back():
    weights = torch.tensor([3.0, 4.0])
    best = Best([weights], 5)
    weights.zero_()
    best.restore()
    assert weights.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_a_run_stops_after_its_patience_without_a_better_score(patience):
    falling = [(0.5 - 0.01 * i, 1.0) for i in range(6)]
    for count in range(1, 7):
        best, _ = single(falling[:count], patience)
        assert bool(best.running) == (count <= patience)
        assert int(best.last) == min(count, patience + 1)


def test_a_better_score_renews_the_patience():
    history = [(0.1, 1.0), (0.1, 1.0), (0.2, 1.0), (0.2, 1.0), (0.2, 0.9), (0.1, 1.0), (0.1, 1.0)]
    for count in range(1, 7):
        assert bool(single(history[:count], 2)[0].running)
    assert not bool(single(history, 2)[0].running)


def test_a_stopped_run_keeps_its_weights_whatever_comes_later():
    best, weights = single([(0.5, 1.0), (0.4, 1.0), (0.3, 1.0), (0.9, 0.0), (1.0, 0.0)], patience=2)
    assert (int(best.epoch), int(best.last)) == (1, 3)
    assert float(best.accuracy) == 0.5
    best.restore()
    assert weights.tolist() == [1.0, 1.0]


def test_weights_that_blow_up_after_the_stop_do_no_harm():
    best, weights = single([(0.5, 1.0), (0.4, 1.0), (float("nan"), float("nan"))], patience=1)
    weights.fill_(float("nan"))
    best.update(number(4), scores(0.9)[0], scores(float("nan"))[0])
    best.restore()
    assert weights.tolist() == [1.0, 1.0]


BATCH = [  # accuracies, losses of three runs
    ((0.5, 0.1, 0.9), (1.0, 1.0, 1.0)),
    ((0.5, 0.2, 0.8), (0.5, 1.0, 0.1)),
    ((0.5, 0.3, 0.8), (0.7, 1.0, 0.1)),
    ((0.5, 0.4, 1.0), (0.7, 1.0, 0.1)),
]


@pytest.mark.parametrize("patience", [1, 2, 50])
def test_each_run_of_a_batch_is_scored_as_it_is_alone(patience):
    weights = torch.zeros(3, 2)
    best = Best([weights], patience)
    follow(best, [weights], BATCH)
    best.restore()
    for run in range(3):
        alone, flat = single([(a[run], b[run]) for a, b in BATCH], patience)
        alone.restore()
        assert torch.equal(weights[run], flat)
        for name in ("accuracy", "loss", "epoch", "last", "running"):
            assert getattr(best, name)[run] == getattr(alone, name)
    assert len({int(epoch) for epoch in best.epoch}) > 1


def test_several_sets_of_weights_are_kept_together():
    theta, w = torch.zeros(4), torch.zeros(2)
    best = Best([w, theta], 10)
    for epoch, accuracy in enumerate((0.2, 0.8, 0.5), start=1):
        w.fill_(float(epoch))
        theta.fill_(-float(epoch))
        best.update(number(epoch), scores(accuracy)[0], scores(1.0)[0])
    best.restore()
    assert w.tolist() == [2.0] * 2
    assert theta.tolist() == [-2.0] * 4


def test_a_reset_forgets_all_scores_in_place_and_begins_with_the_weights_of_now():
    best, weights = single([(0.9, 0.1), (0.5, 1.0)], patience=1)
    tensors = [best.accuracy, best.loss, best.epoch, best.last, best.running, *best.kept]
    weights.fill_(7.0)
    best.reset()
    assert bool(best.running)
    best.restore()
    assert weights.tolist() == [7.0, 7.0]
    weights.fill_(8.0)
    best.update(number(1), scores(0.1)[0], scores(5.0)[0])  # worse than any before the reset
    weights.zero_()
    best.restore()
    assert weights.tolist() == [8.0, 8.0]
    now = [best.accuracy, best.loss, best.epoch, best.last, best.running, *best.kept]
    assert all(a is b for a, b in zip(tensors, now, strict=True))
