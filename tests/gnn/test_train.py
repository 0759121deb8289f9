"""The training loop: what it records, when it ends, which weights it leaves."""

import gc
import weakref

import pytest
import torch
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.gnn.propagation import FixedStructure, MixedPropagation
from graphglow.gnn.train import Epoch, GNNTask, Loop, accuracy
from graphglow.graph import prepare
from graphglow.graph.graph import normalised_adjacency
from graphglow.settings import GNNConfig
from tiny_graphs import small_data

NOISY = prepare(small_data(noise=3.0))


def task(graph=NOISY, *, given=None, input_weight=1.0, **changes):
    mixed = {"given": given, "input_weight": input_weight}
    settings = {"device": "cpu", "dropout": 0.5, "learning_rate": 0.1} | changes
    return GNNTask(graph, GNNConfig(hidden=6, **settings), **mixed)


def best_of(history):
    return max(history, key=lambda epoch: (epoch.val_accuracy, -epoch.val_loss))


def weights(made):
    return torch.cat([weight.flatten() for weight in made.weights])


class Scripted(GNNTask):
    """A task whose validation scores are given; each step writes its number into the weights."""

    def __init__(self, scores):
        super().__init__(NOISY, GNNConfig(hidden=6, device="cpu"))
        self.todo, self.steps = list(scores), 0

    def train_step(self):
        self.steps += 1
        for weight in self.weights:
            weight.fill_(float(self.steps))
        return torch.tensor(0.0), torch.tensor(1)

    def validate(self):
        score, loss = self.todo.pop(0)
        return torch.tensor(loss), torch.tensor(score, dtype=torch.float64)


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([(0.0, 9.0)], 1),  # anything is better than nothing
        ([(0.5, 1.0), (0.6, 9.0)], 2),  # accuracy first
        ([(0.5, 1.0), (0.5, 0.9)], 2),  # then the loss
        ([(0.5, 1.0), (0.5, 1.0)], 1),  # the same is not better
        ([(0.5, 1.0), (0.5, 1.1), (0.7, 3.0), (0.7, 2.0), (0.6, 0.0), (0.7, 2.0)], 4),
    ],
)
def test_the_most_accurate_epoch_is_kept_then_the_one_with_the_lower_loss(scores, kept):
    made = Scripted(scores)
    assert len(Loop(made, len(scores), None).run()) == len(scores)
    assert (weights(made) == kept).all()


@pytest.mark.parametrize("patience", [1, 2, 3])
@pytest.mark.parametrize("read_every", [1, 4, 100])
def test_a_run_stops_after_its_patience(patience, read_every):
    scores = [(0.1, 1.0), (0.2, 1.0), *[(0.1, 1.0)] * 3, (0.9, 1.0), *[(0.1, 1.0)] * 20]
    made = Scripted(scores)
    history = Loop(made, 20, patience, read_every=read_every).run()
    assert len(history) == 2 + patience
    assert (weights(made) == 2).all()  # whatever came after the stop


def test_the_history_is_that_of_steps_and_validations():
    looped, stepped, expected = task(), task(), []
    for number in range(1, 9):
        loss, refinements = stepped.train_step()
        val_loss, share = stepped.validate()
        expected.append(
            Epoch("small-0", number, float(loss), float(val_loss), float(share), int(refinements))
        )
    seen = []
    assert Loop(looped, 8, 8).run(seen.append) == expected == seen


def test_the_best_weights_are_put_back():
    made = task(learning_rate=0.5)
    history = Loop(made, 25, None).run()
    best = best_of(history)
    assert best.epoch < 25
    loss, share = made.validate()
    assert (float(loss), float(share)) == (best.val_loss, best.val_accuracy)


def test_a_new_loop_goes_on_from_where_the_last_one_left():
    made, twin = task(), task()
    for _ in range(2):  # as in the visits of Algorithm 2
        assert Loop(made, 10, 10).run() == Loop(twin, 10, 10).run()
    assert torch.equal(weights(made), weights(twin))


@pytest.mark.parametrize("read_every", [1, 5, 100])
def test_a_loss_that_is_not_finite_ends_training_in_one_sentence(read_every):
    scores = [(0.5, 1.0)] * 6 + [(0.5, float("nan"))] * 14
    seen = []
    with pytest.raises(InputError, match=r"loss must stay finite; .*epoch 7 on small-0"):
        Loop(Scripted(scores), 20, 20, read_every=read_every).run(seen.append)
    assert len(seen) == 6


def test_looks_come_before_training_and_after_each_epoch():
    seen = []
    history = Loop(Scripted([(0.5, 1.0)] * 9), 9, 3).run(look=seen.append)
    assert seen == [0, *(epoch.epoch for epoch in history)]
    assert len(seen) == 5


def test_a_loop_is_freed_when_its_owner_lets_go():
    """No circle of references: a GPU's memory must not wait for the garbage collector."""
    gc.disable()
    try:
        loop = Loop(task(), 2, 2)
        loop.run()
        alive = weakref.ref(loop)
        del loop
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_gnn_is_trained_over_a_mixture_of_two_graphs(share):
    other = small_data(seed=3)
    given = FixedStructure(normalised_adjacency(other.edge_index, None, 40))
    made = task(given=given, dropout=0.0, input_weight=share)
    mix = MixedPropagation(NOISY.adj, given, share)
    _, expected = made.gnn(made.gnn.encode(NOISY, None), mix, None)
    torch.testing.assert_close(made.logits(), expected)
    loss, count = made.train_step()
    labels = NOISY.y[NOISY.train]
    torch.testing.assert_close(loss, F.cross_entropy(expected[NOISY.train], labels))
    assert int(count) == 1
    plain = task(dropout=0.0)
    assert torch.allclose(expected, plain.logits()) == (share == 1)


def test_the_seed_decides_a_run():
    one, same, other = (Loop(task(seed=seed), 5, 5).run() for seed in (1, 1, 2))
    assert one == same != other


def test_accuracy_counts_the_given_nodes():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 0.0]])

    def found(*nodes):
        nodes = torch.tensor(nodes, dtype=torch.int64)
        return accuracy(logits, nodes, torch.zeros_like(nodes))

    assert found(0, 1) == 0.5
    assert found(0, 2) == 1.0
    assert found(0, 1).dtype == torch.float64
    assert found().isnan()


@pytest.mark.gpu
@pytest.mark.parametrize("epochs", [7, 8, 30])
def test_a_gpu_records_where_it_is_worth_it_to_the_same_numbers(epochs):
    graph = prepare(small_data(noise=3.0)).to("cuda")
    found = []
    for capture in (True, False):
        made = task(graph, capture=capture, dropout=0.5)
        loop = Loop(made, epochs, 5)
        history = loop.run()
        found.append((history, weights(made)))
        recorded = loop._replay is not None and loop._replay.graph is not None
        assert recorded == (capture and epochs >= 8)
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
