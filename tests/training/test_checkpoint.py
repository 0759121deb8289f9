"""Runs that were stopped go on where they were, and end with the bits of one that never was."""

import pytest
import torch
from dying_runs import (
    assert_same_learner,
    assert_same_result,
    eager,
    killed,
    pretrained,
    transferred,
    unbroken,
)

import graphglow
from graphglow.errors import InputError
from graphglow.gnn.train import Loop
from graphglow.graph import load_graph
from graphglow.storage import load_tensors
from graphglow.training import checkpoint
from graphglow.result import TransferResult
from tiny_graphs import learner, objective, pretrain_config, task, transfer_config


def test_a_pretraining_can_die_after_any_epoch(tmp_path):
    heard = []
    whole = pretrained(seen=heard)
    assert len({epoch.graph for epoch in heard}) == 2
    for after in (1, 3, 4, len(heard)):  # in a visit, at its end, in the next episode
        folder = tmp_path / str(after)
        assert killed(pretrained, folder, after)
        seen = []
        again = eager(folder)
        assert_same_learner(pretrained(again, seen=seen), whole)
        assert again.resumed
        assert seen == heard  # those before the checkpoint too
    assert not killed(pretrained, tmp_path / "never", len(heard) + 1)


def test_a_pretraining_can_die_again_and_again(tmp_path):
    deaths = 0
    while killed(pretrained, tmp_path / "run", 1):
        deaths += 1
    assert deaths >= 6
    assert_same_learner(pretrained(eager(tmp_path / "run")), pretrained())


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": objective(supervision="gumbel")},
        {"objective": objective(supervision="reinforce")},
        {"structure_momentum": 0.5, "tolerance": 0.03},
        {"redraw_pivots": False, "num_pivots": 1000},
        {"backbone": "linkx", "encoder": "mlp"},
    ],
)
def test_a_pretraining_of_any_kind_goes_on(tmp_path, changes):
    config = pretrain_config(**({"dropout": 0.5, "episodes": 2, "epochs": 3} | changes))

    def run(checkpoints=None):
        return pretrained(checkpoints, config=config)

    assert killed(run, tmp_path, 8)
    assert_same_learner(run(eager(tmp_path)), run())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"patience": 2, "learning_rate": 0.1},
        {"pivots_by_degree": True, "backend": "chunked"},
        {"backbone": "gat", "tolerance": 0.03},
    ],
)
def test_a_transfer_can_die_after_any_epoch(tmp_path, changes):
    config = transfer_config(**({"dropout": 0.5, "epochs": 4} | changes))

    def run(checkpoints=None, seen=None):
        return transferred(checkpoints, config=config, seen=seen)

    heard = []
    whole = run(seen=heard)
    for after in (1, len(heard) - 1, len(heard)):
        assert killed(run, tmp_path / str(after), after)
        seen = []
        assert_same_result(run(eager(tmp_path / str(after)), seen=seen), whole)
        assert seen == heard


def test_an_early_stop_is_not_trained_past(tmp_path):
    config = transfer_config(epochs=50, patience=2, learning_rate=0.1, dropout=0.5)
    whole = transferred(config=config)
    assert whole.epochs < 50
    folder = tmp_path / "run"
    assert killed(lambda c: transferred(c, config=config), folder, whole.epochs)
    assert_same_result(transferred(eager(folder), config=config), whole)


def test_a_saved_result_of_a_resumed_run_is_that_of_an_unbroken_one(tmp_path):
    whole = unbroken()
    killed(transferred, tmp_path / "run", 5)
    transferred(eager(tmp_path / "run")).save(tmp_path / "resumed.st")
    assert_same_result(TransferResult.load(tmp_path / "resumed.st"), whole)


def test_seconds_are_sums_over_the_parts(tmp_path, monkeypatch):
    killed(transferred, tmp_path / "run", 5)

    def hour_later(path, kind, **how):
        tensors, meta = load_tensors(path, kind, **how)
        meta["facts"]["seconds"] += 3600
        return tensors, meta

    monkeypatch.setattr(checkpoint, "load_tensors", hour_later)
    checkpoints = eager(tmp_path / "run")
    result = transferred(checkpoints)
    assert 3600 < checkpoints.seconds_before < 3700
    assert 3600 < result.train_seconds <= result.seconds < 3700
    _, meta = load_tensors(checkpoints.files()[-1], "checkpoint")
    assert meta["facts"]["seconds"] > 3600


def test_the_callers_own_state_is_all_that_is_needed():
    """A task and a loop, without files: nothing that training changes is left out."""
    settings = transfer_config(dropout=0.5)
    one = task(settings, trained=objective())
    states = []

    def keep(now):
        if int(now.number) == 4:
            parts = (one, one.trained.theta, now)
            states.extend({n: t.clone() for n, t in p.state().items()} for p in parts)

    loop = Loop(one, 10, 10)
    loop.on_read = keep
    (history,) = loop.run()
    other = task(settings, trained=objective(), theta=learner(seed=9))
    again = Loop(other, 10, 10)
    for part, state in zip((other, other.trained.theta, again), states, strict=True):
        part.load_state(state)
    assert again.run() == [history]
    assert torch.equal(one.optimizer.flat, other.optimizer.flat)
    assert torch.equal(one.trained.theta.flat, other.trained.theta.flat)
    assert again.run() != [history]  # restored once; a second run begins anew


@pytest.mark.gpu
@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("after", [1, 2])
def test_on_a_gpu_a_run_goes_on_from_where_scores_are_read(tmp_path, capture, after):
    config = transfer_config(device="cuda", epochs=80, dropout=0.5, capture=capture)
    whole = transferred(config=config)
    assert killed(lambda c: transferred(c, config=config), tmp_path, after)
    assert_same_result(transferred(eager(tmp_path), config=config), whole)


@pytest.mark.gpu
def test_on_a_gpu_a_pretraining_goes_on(tmp_path):
    config = pretrain_config(device="cuda", epochs=12, patience=12, episodes=2, dropout=0.5)
    whole = pretrained(config=config)
    for after in (5, 20, 40):
        assert killed(lambda c: pretrained(c, config=config), tmp_path / str(after), after)
        assert_same_learner(pretrained(eager(tmp_path / str(after)), config=config), whole)


def test_parts_and_checkpoints_are_told_apart(tmp_path):
    data = load_graph("synthetic-small")
    with pytest.raises(InputError, match="parts must be a Parts; got Checkpoints"):
        graphglow.refine(data, parts=checkpoint.Checkpoints(tmp_path / "c"))
    with pytest.raises(InputError, match="parts must be a Parts; got str"):
        graphglow.refine(data, parts="folder")
    with pytest.raises(InputError, match="checkpoints must be a Checkpoints; got Parts"):
        graphglow.transfer(data, checkpoints=checkpoint.Parts(tmp_path / "p"))
