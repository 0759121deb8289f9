"""Algorithm 3 from end to end: what is frozen, reproducible, and refused."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from graphglow.competitors import fit
from graphglow.competitors.gnns import GNNConfig
from graphglow.errors import InputError
from graphglow.gnn.train import Loop, accuracy
from graphglow.pretrained import load_learner
from graphglow.transfer import transfer
from tiny_graphs import (
    WIDTH,
    learner,
    objective,
    same_tensors,
    small_data,
    task,
    transfer_config,
)


def separable_data():
    return small_data(num_nodes=60, noise=0.2, homophily=0.95)


def losses(result):
    return [epoch.loss for epoch in result.history]


def test_the_callers_learner_is_never_touched():
    theta = learner()
    theta.node_weight.requires_grad_(False)
    theta.train()
    before, provenance = copy.deepcopy(theta), dict(theta.provenance)
    result = transfer(small_data(), theta, transfer_config(epochs=10))
    assert same_tensors(theta, before)
    assert same_tensors(result.learner, theta)
    assert not any(p.requires_grad for p in result.learner.parameters())
    assert theta.provenance == provenance
    assert theta.training
    assert [p.requires_grad for p in theta.parameters()] == [False, True]
    assert all(p.grad is None for p in theta.parameters())


def test_the_same_seed_gives_the_same_result_twice():
    config = transfer_config(dropout=0.5, seed=3)
    one, other = (transfer(small_data(), learner(), config) for _ in range(2))
    assert losses(one) == losses(other)
    assert torch.equal(one.predict_proba(), other.predict_proba())
    assert torch.equal(one.pivots, other.pivots)
    another = transfer(small_data(), learner(), transfer_config(dropout=0.5, seed=4))
    assert losses(one) != losses(another)
    assert not torch.equal(one.pivots, another.pivots)


def test_the_global_random_state_neither_matters_nor_changes():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = transfer(small_data(), learner(), transfer_config(dropout=0.5))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert losses(one) == losses(transfer(small_data(), learner(), transfer_config(dropout=0.5)))


def test_a_learner_may_be_given_by_name_or_file(tmp_path):
    learner().save(tmp_path / "l.st")
    by_file = transfer(small_data(), tmp_path / "l.st", transfer_config(epochs=1))
    assert same_tensors(by_file.learner, learner())
    (by_name,) = transfer_many(small_data(), "paper", [transfer_config(epochs=1)])
    assert same_tensors(by_name.learner, load_learner("paper"))


@pytest.mark.slow
def test_another_process_gives_the_same_result():
    program = (
        "import sys, json, torch; sys.path.insert(0, sys.argv[1]); torch.set_num_threads(1)\n"
        "from tiny_graphs import *; from graphglow.training import transfer\n"
        "r = transfer(small_data(), learner(), transfer_config(dropout=0.5))\n"
        "print(json.dumps([[e.loss for e in r.history], r.predict_proba().tolist()]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "77"},
    )
    here = transfer(small_data(), learner(), transfer_config(dropout=0.5))
    assert json.loads(done.stdout) == [losses(here), here.predict_proba().tolist()]


def test_the_best_epoch_is_kept():
    seen = []
    data = small_data(noise=3.0)
    result = transfer(
        data, learner(), transfer_config(epochs=25, dropout=0.5), on_epoch=seen.append
    )
    assert seen == result.history
    assert [e.epoch for e in seen] == list(range(1, 26))
    best = max(seen, key=lambda e: (e.val_accuracy, -e.val_loss))
    assert result.val_accuracy == best.val_accuracy
    logits = result.predict_proba().log()
    kept_loss = F.nll_loss(logits[data.val_mask], data.y[data.val_mask])
    assert float(kept_loss) == pytest.approx(best.val_loss, rel=1e-5)


@pytest.mark.parametrize("supervision", ["nwgm", "gumbel", "reinforce"])
def test_every_supervision_trains_a_separable_graph(supervision):
    """GraphGLOW*: the learner is trained on the target."""
    theta = learner()
    config = transfer_config(learning_rate=0.1, refinements=2)
    terms = objective(supervision=supervision)
    made = task(config, data=separable_data(), theta=theta, trained=terms)
    (history,) = Loop(made, 30, 30).run()
    assert float(accuracy(made.logits(), made.graph.test, made.graph.y[made.graph.test])) >= 0.9
    assert not same_tensors(theta, learner())
    assert history[-1].loss < 0.7 * history[0].loss


def test_a_frozen_random_learner_trains_a_separable_graph():
    result = transfer(separable_data(), learner(), transfer_config(epochs=30, learning_rate=0.1))
    assert result.test_accuracy >= 0.9
    assert result.method == "random-theta"


@pytest.mark.parametrize("size", [1, 4, 17])
def test_the_gnn_takes_the_learners_embedding_size(size):
    result = transfer(small_data(), learner(embedding_size=size), transfer_config())
    assert result.gnn.shape.hidden == size
    assert result.gnn.encode(result.graph, None).z0.shape == (40, size)


@pytest.mark.parametrize("num_pivots", [1, 40, 5000])
def test_any_number_of_pivots_is_legal(num_pivots):
    result = transfer(small_data(), learner(), transfer_config(num_pivots=num_pivots))
    assert len(result.pivots) == min(num_pivots, 40)
    assert result.predict_proba().isfinite().all()


@pytest.mark.parametrize(
    "changes",
    [
        {"similarity": "rbf"},
        {"similarity": "attention"},
        {"similarity": "dot"},
        {"delta": "affine"},
        {"threshold": 0.5},
        {"tied": True},
    ],
)
def test_every_learner_trains(changes):
    made = task(transfer_config(), theta=learner(**changes), trained=objective())
    assert all(made.train_step()[0].isfinite() for _ in range(3))
    result = transfer(small_data(), learner(**changes), transfer_config(dropout=0.3))
    assert result.predict_proba().isfinite().all()
    torch.testing.assert_close(result.predict_proba().sum(1), torch.ones(40))


@pytest.mark.parametrize("backend", ["eager", "dense", "chunked"])
def test_the_backend_does_not_change_the_result(backend):
    auto = transfer(small_data(), learner(), transfer_config(epochs=3))
    named = transfer(small_data(), learner(), transfer_config(epochs=3, backend=backend))
    torch.testing.assert_close(named.predict_proba(), auto.predict_proba(), rtol=1e-3, atol=1e-4)


def test_isolated_nodes_are_classified():
    data = small_data()
    lonely = torch.tensor([0, 7, 20])
    data.edge_index = data.edge_index[:, ~torch.isin(data.edge_index, lonely).any(0)]
    for input_weight in (0.0, 0.5, 1.0):
        result = transfer(data, learner(), transfer_config(input_weight=input_weight))
        assert result.predict_proba().isfinite().all()


def test_labels_outside_the_masks_do_not_matter():
    data = small_data()
    data.test_mask = torch.zeros_like(data.test_mask)
    spare = ~(data.train_mask | data.val_mask)
    hidden = data.clone()
    hidden.y = torch.where(spare, -1, data.y)
    one, other = (transfer(d, learner(), transfer_config(dropout=0.5)) for d in (data, hidden))
    assert (hidden.y == -1).sum() >= 5
    assert losses(one) == losses(other)
    assert torch.equal(one.predict_proba(), other.predict_proba())


def test_an_unlabelled_node_inside_a_mask_is_left_out_of_it():
    data = small_data()
    node = int(data.train_mask.nonzero()[0, 0])
    data.y[node] = -1
    without = data.clone()
    without.train_mask[node] = False
    one, other = (transfer(d, learner(), transfer_config()) for d in (data, without))
    assert losses(one) == losses(other)


def test_unlabelled_nodes_take_part_in_message_passing():
    data = small_data()
    spare = data.test_mask.clone()
    data.y[spare] = -1
    changed = data.clone()
    changed.x[spare] *= -1
    one, other = (transfer(d, learner(), transfer_config()) for d in (data, changed))
    assert losses(one) != losses(other)
    assert one.predict_proba().shape == (40, 3)


def test_without_test_nodes_there_is_no_test_accuracy():
    data = small_data()
    data.test_mask = torch.zeros_like(data.test_mask)
    result = transfer(data, learner(), transfer_config())
    assert result.test_accuracy is None
    assert result.summary()["test_accuracy"] is None
    assert 0 <= result.val_accuracy <= 1


def test_the_callers_graph_is_not_changed():
    data = small_data()
    before = data.clone()
    transfer(data, learner(), transfer_config())
    assert data.keys() == before.keys()
    assert torch.equal(data.x, before.x)
    assert torch.equal(data.edge_index, before.edge_index)


def test_transfer_on_the_input_graph_alone_is_the_plain_gnn():
    config = transfer_config(
        input_weight=1.0, refinements=1, redraw_pivots=False, dropout=0.5, num_layers=3
    )
    one = transfer(small_data(), learner(), config)
    plain = GNNConfig(
        hidden=WIDTH,
        epochs=config.epochs,
        num_layers=3,
        dropout=0.5,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        seed=config.seed,
        device="cpu",
    )
    other = fit("gcn", small_data(), plain)
    assert losses(one) == losses(other)
    assert torch.equal(one.predict_proba(), other.predict_proba())


def test_a_loss_that_blows_up_is_refused_in_one_sentence():
    config = transfer_config(learning_rate=1e30, epochs=20)
    with pytest.raises(InputError, match="loss must stay finite") as caught:
        transfer(small_data(), learner(), config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stranger", [None, "univers", torch.nn.Linear(2, 2)])
def test_only_a_structure_learner_is_transferred(stranger):
    with pytest.raises(InputError, match=r"learner must be .*; got"):
        transfer(small_data(), stranger, transfer_config())


def test_recording_is_no_matter_without_a_gpu():
    one, other = (
        transfer(small_data(), learner(), transfer_config(epochs=12, dropout=0.5, capture=capture))
        for capture in (True, False)
    )
    assert one.history == other.history
    assert same_tensors(one.gnn, other.gnn)
