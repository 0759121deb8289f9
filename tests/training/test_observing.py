"""Looking at the learned structure while a GNN trains changes nothing, and sees it as it is."""

import pytest
import torch

from graphglow.gnn.train import Loop
from graphglow.paper import BlendedStructure
from graphglow.transfer import StructureObserver, transfer
from tiny_graphs import learner, same_tensors, small_data, task, transfer_config

DATA = small_data()


@pytest.mark.parametrize(("every", "epochs", "looks"), [(1, 3, [0, 1, 2, 3]), (5, 12, [0, 5, 10])])
def test_looks_come_before_training_and_then_every_so_often(every, epochs, looks):
    seen = []
    observer = StructureObserver(every, lambda epoch, latent, pivots: seen.append(epoch))
    transfer(DATA, learner(), transfer_config(epochs=epochs), observer=observer)
    assert seen == looks


def test_a_run_that_stops_is_not_looked_at_any_more():
    seen = []
    made = task(transfer_config(learning_rate=1e-9))
    (history,) = Loop(made, 50, 3).run(look=seen.append)
    assert len(history) < 50
    assert seen == [0, *(epoch.epoch for epoch in history)]


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.5}, {"structure_momentum": 0.6}])
def test_an_observed_transfer_is_the_same_transfer(changes):
    config, looked = transfer_config(epochs=6, **changes), []
    observer = StructureObserver(2, lambda epoch, latent, pivots: looked.append((epoch, latent)))
    watched = transfer(DATA, learner(), config, observer=observer)
    alone = transfer(DATA, learner(), config)
    assert watched.history == alone.history
    assert same_tensors(watched.gnn, alone.gnn)
    assert [epoch for epoch, _ in looked] == [0, 2, 4, 6]


def test_the_structure_is_that_of_the_weights_of_that_epoch():
    config, looked = transfer_config(epochs=4, patience=None, refinements=2), {}
    observer = StructureObserver(2, lambda epoch, latent, pivots: looked.update({epoch: latent}))
    transfer(DATA, learner(), config, observer=observer)
    stepped = task(config, data=DATA)
    for epoch in range(5):
        if epoch in looked:
            expected = stepped.evaluate().latent.gamma()
            torch.testing.assert_close(looked[epoch].gamma(), expected)
        stepped.train_step()
    assert not torch.equal(looked[0].gamma(), looked[4].gamma())


def test_a_blend_is_seen_as_a_blend():
    looked = []
    config = transfer_config(epochs=1, structure_momentum=0.5)
    observer = StructureObserver(1, lambda epoch, latent, pivots: looked.append(latent))
    transfer(DATA, learner(), config, observer=observer)
    assert all(isinstance(latent, BlendedStructure) for latent in looked)


def test_pivots_are_those_of_the_result():
    looked = []
    observer = StructureObserver(1, lambda epoch, latent, pivots: looked.append(pivots))
    result = transfer(DATA, learner(), transfer_config(epochs=1), observer=observer)
    assert all(torch.equal(pivots, result.pivots) for pivots in looked)
