"""Checkpoints that somebody has removed, or that are whole files with the wrong things in them."""

import json
import os
import shutil
import warnings

import pytest
import torch
from dying_runs import (
    TARGET,
    TRANSFER,
    assert_same_learner,
    assert_same_result,
    eager,
    killed,
    pretrained,
    transferred,
)
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_graphs import learner

from graphglow.errors import InputError, InputWarning
from graphglow.storage import load_tensors, save_tensors
from graphglow.training import checkpoint, transfer
from graphglow.training.checkpoint import Checkpoints

GONE = "the folder for checkpoints was removed and is made anew, training goes on"


def transferred_with(checkpoints, meddle, at=5):
    """A transfer that is meddled with before the checkpoint of an epoch."""

    def on_epoch(epoch):
        if epoch.epoch == at:
            meddle()

    return transfer(learner(), TARGET, TRANSFER, on_epoch=on_epoch, checkpoints=checkpoints)


# Removed while the run goes on


@pytest.mark.parametrize("seconds", [0, 1e9])
def test_a_folder_that_vanishes_is_made_anew_at_the_next_epoch(tmp_path, seconds):
    folder = tmp_path / "run"
    checkpoints = Checkpoints(folder, every_seconds=seconds)
    with checkpoints:
        with pytest.warns(InputWarning) as said:
            result = transferred_with(checkpoints, lambda: shutil.rmtree(folder))
        assert [str(one.message) for one in said] == [f"{GONE}: {folder}"]
        assert (folder / "lock").exists()
        assert checkpoints.files()  # written at once, whatever the time
        with pytest.raises(InputError, match="another process is at work in"):
            transferred(eager(folder))
        checkpoints.remove()
    assert list(tmp_path.iterdir()) == []
    assert_same_result(result, transferred())


def test_what_is_made_anew_can_be_gone_on_from(tmp_path):
    folder = tmp_path / "run"
    with pytest.warns(InputWarning, match="made anew"):
        assert killed(lambda c: transferred_with(c, lambda: shutil.rmtree(folder)), folder, 7)
    again = eager(folder)
    assert_same_result(transferred(again), transferred())
    assert again.resumed


def test_a_lock_alone_that_vanishes_is_taken_again(tmp_path):
    folder = tmp_path / "run"
    checkpoints = eager(folder)
    with checkpoints:
        with pytest.warns(InputWarning, match="made anew"):
            transferred_with(checkpoints, (folder / "lock").unlink)
        with pytest.raises(InputError, match="another process"):
            transferred(eager(folder))
        checkpoints.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_folder_may_vanish_while_a_checkpoint_is_written(tmp_path, monkeypatch, moment):
    folder = tmp_path / "run"
    real, left = save_tensors, [3]

    def save(*args):
        left[0] -= 1
        if left[0] == 0 and moment == "before":
            shutil.rmtree(folder)
        real(*args)
        if left[0] == 0 and moment == "after":
            shutil.rmtree(folder)

    monkeypatch.setattr(checkpoint, "save_tensors", save)
    checkpoints = eager(folder)
    with checkpoints:
        with pytest.warns(InputWarning, match="made anew"):
            result = transferred(checkpoints)
        assert (folder / "lock").exists()
        checkpoints.remove()
    assert list(tmp_path.iterdir()) == []
    assert_same_result(result, transferred())


def test_a_folder_that_another_run_has_taken_meanwhile_is_left_to_it(tmp_path):
    folder, other = tmp_path / "run", eager(tmp_path / "run")

    def take():
        shutil.rmtree(folder)
        other.__enter__()

    checkpoints = eager(folder)
    with checkpoints:
        with pytest.warns(InputWarning) as said:
            result = transferred_with(checkpoints, take)
        checkpoints.remove()
    (message,) = [str(one.message) for one in said]
    assert "training goes on: a run must have its folder to itself" in message
    assert [path.name for path in folder.iterdir()] == ["lock"]
    other.__exit__(None, None, None)
    assert_same_result(result, transferred())


def test_a_lock_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(InputError, match="a lock must lie on a regular file"):
        transferred(eager(tmp_path))


# Whole files, wrong things


def forged(path, change):
    """The same file with other tensors or facts, and a checksum that is right."""
    tensors, meta = load_tensors(path, "checkpoint")
    change(tensors, meta)
    save_tensors(path, "checkpoint", tensors, meta)


def swap(name, change):
    return lambda tensors, meta: tensors.update({name: change(tensors[name])})


FORGED = {
    "missing": lambda tensors, meta: tensors.pop("loop.best.accuracy"),
    "too many": lambda tensors, meta: tensors.update({"loop.more": torch.zeros(1)}),
    "shape": swap("task.gnn.mean", lambda t: t[:-1]),
    "a broadcast": swap("task.gnn.flat", lambda t: t[:1]),
    "another rank": swap("loop.best.loss", lambda t: t[None]),
    "dtype": swap("task.gnn.flat", torch.Tensor.double),
    "NaN weights": swap("task.gnn.flat", lambda t: t * float("nan")),
    "NaN scores": swap("loop.scores", lambda t: t * float("nan")),
    "infinite moments": swap("task.gnn.square", lambda t: t + float("inf")),
    "scores too few": swap("loop.scores", lambda t: t[:-1]),
    "epochs too many": swap("loop.scores", lambda t: torch.zeros(99, 4).double()),
    "no facts": lambda tensors, meta: meta.pop("facts"),
    "no run": lambda tensors, meta: meta.pop("run"),
    "no seconds": lambda tensors, meta: meta["facts"].pop("seconds"),
    "odd seconds": lambda tensors, meta: meta["facts"].update(seconds="soon"),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_a_checkpoint_that_does_not_fit_counts_as_damaged(tmp_path, change):
    killed(transferred, tmp_path, 6)
    checkpoints = eager(tmp_path)
    forged(checkpoints.files()[-1], change)
    with pytest.warns(InputWarning) as said:
        result = transferred(checkpoints)
    (message,) = [str(one.message) for one in said]
    assert message.startswith("a checkpoint cannot be used, the one before is used: ")
    assert "checkpoint-000006.safetensors" in message
    assert checkpoints.resumed
    assert_same_result(result, transferred())


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, meta: tensors.pop("course.best_theta"),
        lambda tensors, meta: meta["facts"].pop("scores"),
        lambda tensors, meta: meta["facts"].update(scores=["a"]),
        lambda tensors, meta: meta["facts"].update(heard=[[1]]),
    ],
)
def test_one_of_a_pretraining_too(tmp_path, change):
    killed(pretrained, tmp_path, 4)
    forged(eager(tmp_path).files()[-1], change)
    with pytest.warns(InputWarning, match="the one before is used"):
        assert_same_learner(pretrained(eager(tmp_path)), pretrained())


def test_nothing_is_restored_of_one_that_does_not_fit(tmp_path):
    """Its weights are good, and come first; the loop's scores are not."""
    killed(transferred, tmp_path, 6)
    for path in eager(tmp_path).files():
        forged(path, swap("loop.scores", lambda t: t * float("nan")))
    checkpoints = eager(tmp_path)
    with pytest.warns(InputWarning) as said:
        result = transferred(checkpoints)
    assert ["starts from the beginning" in str(one.message) for one in said] == [False, True]
    assert not checkpoints.resumed
    assert checkpoints.seconds_before == 0
    assert_same_result(result, transferred())


def test_a_checkpoint_without_a_checksum_is_damaged_whatever_its_version(tmp_path):
    killed(transferred, tmp_path, 6)
    path = eager(tmp_path).files()[-1]
    with safe_open(path, framework="pt") as file:
        meta = json.loads(file.metadata()["graphglow"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del meta["sha256"]
    tensors["task.gnn.flat"].fill_(5)
    save_file(tensors, path, {"graphglow": json.dumps({**meta, "version": 1})})
    with pytest.warns(InputWarning, match=r"the one before is used: .*its checksum is wrong or"):
        assert_same_result(transferred(eager(tmp_path)), transferred())


def test_without_a_way_to_restore_the_caller_gets_the_sentence(tmp_path):
    checkpoints = eager(tmp_path / "run")

    class Numbers:
        def state(self):
            return {"a": torch.zeros(2), "b": torch.zeros(0, 3)}

        def load_state(self, state):
            raise AssertionError("loaded")

    with checkpoints, warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoints.begin({})
        checkpoints.offer({"numbers": Numbers()})
        saved = checkpoints.begin({})
        saved.tensors["numbers.a"] = torch.zeros(3)
        with pytest.raises(InputError) as caught:
            saved.restore({"numbers": Numbers()})
    said = "numbers.a of a checkpoint must be float32 (2,); got float32 (3,)"
    assert str(caught.value) == said
