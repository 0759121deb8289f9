"""Training on a GPU: recorded as a CUDA graph or not, the numbers are the same to the last bit.

pytest -m gpu tests/training
"""

import pytest
import torch
from graphglow.training.loop import SHORTEST_RECORDING

from graphglow.competitors import METHODS, fit
from graphglow.gnn.train import READ_EVERY, Loop
from graphglow.graph import prepare
from graphglow.pretrain import pretrain
from graphglow.result import TransferResult
from graphglow.transfer import transfer
from tiny_graphs import (
    WIDTH,
    learner,
    objective,
    pretrain_config,
    same_tensors,
    small_data,
    transfer_config,
)

pytestmark = pytest.mark.gpu

EPOCHS = 30
BASE = {"device": "cuda", "epochs": EPOCHS, "dropout": 0.5, "refinements": 4, "tolerance": 4e-5}


def config(**changes):
    return transfer_config(**(BASE | changes))


def both(train):
    """Train with and without recording."""
    return train(capture=True), train(capture=False)


def assert_identical(one, other):
    assert one.history == other.history
    assert same_tensors(one.gnn, other.gnn)
    assert torch.equal(one.pivots, other.pivots)
    assert torch.equal(one.predict_proba(), other.predict_proba())


SETTINGS = {
    "as it comes": {},
    "fixed pivots": {"redraw_pivots": False},
    "all nodes are pivots": {"num_pivots": 1000},
    "momentum": {"structure_momentum": 0.6},
    "three layers": {"num_layers": 3},
    "no tolerance": {"tolerance": 0.0},
    "settles early": {"tolerance": 0.03},
    "no dropout": {"dropout": 0.0},
    "chunked": {"backend": "chunked"},
    "patience": {"patience": 3, "learning_rate": 0.1},
}


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse features", "dense features"])
@pytest.mark.parametrize("name", SETTINGS)
def test_recording_does_not_change_a_bit(name, sparse):
    data = small_data(noise=2.0, sparse_features=sparse)
    one, other = both(lambda **c: transfer(data, learner(), config(**SETTINGS[name], **c)))
    assert_identical(one, other)
    if name != "patience":
        assert one.epochs == EPOCHS


LEARNERS = {
    "rbf": {"similarity": "rbf"},
    "attention": {"similarity": "attention"},
    "dot": {"similarity": "dot"},
    "affine": {"delta": "affine"},
    "tied": {"tied": True},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_recording_does_not_change_a_bit_of_any_learner(name):
    theta = learner(**LEARNERS[name])
    assert_identical(*both(lambda **c: transfer(small_data(), theta, config(**c))))


def test_recording_does_not_change_a_bit_of_a_plain_gnn():
    def train(capture):
        settings = METHODS["gcn"].config(
            hidden=WIDTH, epochs=EPOCHS, device="cuda", capture=capture
        )
        return fit("gcn", small_data(), settings)

    one, other = both(train)
    assert one.history == other.history
    assert torch.equal(one.logits, other.logits)


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_recording_does_not_change_a_bit_of_a_batch(tolerance):
    def train(capture):
        runs = [
            config(seed=s, learning_rate=r, dropout=d, tolerance=tolerance, capture=capture)
            for s, r, d in ((0, 0.01, 0.5), (1, 0.1, 0.0), (2, 0.02, 0.8))
        ]
        return transfer_many(small_data(noise=2.0), learner(), runs)

    for one, other in zip(*both(train), strict=True):
        assert_identical(one, other)


@pytest.mark.parametrize("supervision", ["nwgm", "gumbel", "reinforce"])
def test_recording_does_not_change_a_bit_of_a_trained_learner(supervision):
    terms = objective(supervision=supervision)

    kind = METHODS["graphglow-star"].config

    def train(capture):
        settings = kind(device="cuda", epochs=15, num_pivots=10, objective=terms, capture=capture)
        return fit("graphglow-star", small_data(), settings)

    one, other = both(train)
    assert one.history == other.history
    assert torch.equal(one.predict_proba(), other.predict_proba())


def test_recording_does_not_change_a_bit_of_pretraining():
    """Two sources in turn, each with a record of its own, theta shared between them."""
    sources = [small_data(seed=1), small_data(seed=2, num_nodes=30)]
    histories = []

    def train(capture):
        settings = {"device": "cuda", "episodes": 2, "epochs": 15, "patience": 15, "dropout": 0.5}
        history = []
        made = pretrain(
            sources, pretrain_config(**settings, capture=capture), on_epoch=history.append
        )
        histories.append(history)
        return made

    one, other = both(train)
    assert histories[0] == histories[1]
    assert same_tensors(one, other)
    assert one.provenance["visit_scores"] == other.provenance["visit_scores"]


@pytest.mark.parametrize(
    ("epochs", "capture", "recorded"),
    [
        (EPOCHS, True, True),
        (EPOCHS, False, False),
        (SHORTEST_RECORDING, True, True),
        (SHORTEST_RECORDING - 1, True, False),
    ],
)
def test_an_epoch_is_recorded_where_asked_for_and_worth_it(epochs, capture, recorded):
    graph = prepare(small_data()).to("cuda")
    made = GraphTask(graph, learner().cuda(), WIDTH, [config(capture=capture)])
    loop = Loop(made, epochs, epochs)
    loop.run()
    assert (loop._replay.graph is not None) == recorded


def test_reading_seldom_ends_where_reading_always_does():
    found = []
    for read_every in (1, READ_EVERY):
        graph = prepare(small_data(noise=2.0)).to("cuda")
        settings = config(learning_rate=0.1)
        made = GraphTask(graph, learner().cuda(), WIDTH, [settings])
        history = Loop(made, 200, 4, read_every=read_every).run()
        assert len(history[0]) < 200
        found.append((history, made.optimizer.flat))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_a_batch_gives_what_its_runs_give_alone():
    runs = [config(seed=s, epochs=10, dropout=d) for s, d in ((0, 0.5), (1, 0.0), (2, 0.5))]
    together = transfer_many(small_data(), learner(), runs)
    for one, settings in zip(together, runs, strict=True):
        other = transfer(small_data(), learner(), settings)
        assert [e.loss for e in one.history] == pytest.approx(
            [e.loss for e in other.history], rel=1e-3
        )
        torch.testing.assert_close(one.predict_proba(), other.predict_proba(), rtol=1e-2, atol=1e-3)


def test_a_gpu_gives_what_a_cpu_gives():
    """Where nothing is drawn on the device: no dropout, the same pivots in every epoch."""
    settings = {"dropout": 0.0, "redraw_pivots": False, "epochs": 10, "tolerance": 0.0}
    gpu = transfer(small_data(), learner(), config(**settings))
    cpu = transfer(small_data(), learner(), config(**(settings | {"device": "cpu"})))
    assert [e.loss for e in gpu.history] == pytest.approx([e.loss for e in cpu.history], rel=1e-3)
    torch.testing.assert_close(gpu.predict_proba(), cpu.predict_proba(), rtol=1e-2, atol=1e-3)


def test_a_result_of_a_gpu_is_saved_and_loaded_onto_the_cpu(tmp_path):
    result = transfer(small_data(), learner(), config(structure_momentum=0.6))
    assert result.summary()["device"] == "cuda"
    result.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    torch.testing.assert_close(loaded.predict_proba(), result.predict_proba(), rtol=1e-3, atol=1e-4)
    assert loaded.history == result.history
    here, there = (r.refined_graph(top_k=40).edge_weight.sum() for r in (loaded, result))
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)
