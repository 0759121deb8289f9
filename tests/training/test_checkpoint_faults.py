"""Checkpoints that are whole files with the wrong things in them, and folders that vanish."""

import json
import os
import shutil

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
    unbroken,
)
from safetensors import safe_open
from safetensors.torch import save_file

from graphglow.errors import InputError, InputWarning
from graphglow.storage import load_tensors, save_tensors
from graphglow.training import transfer
from graphglow.training.checkpoint import Saved
from tiny_graphs import learner


def test_a_lock_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(InputError, match="a lock must lie on a regular file"):
        transferred(eager(tmp_path))


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
    assert_same_result(result, unbroken())


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
    assert_same_result(result, unbroken())


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
        assert_same_result(transferred(eager(tmp_path)), unbroken())


def test_what_does_not_fit_is_said_and_not_loaded(tmp_path):
    class Numbers:
        def state(self):
            return {"a": torch.zeros(2), "b": torch.zeros(0, 3)}

        def load_state(self, state):
            raise AssertionError("loaded")

    saved = Saved({"numbers.a": torch.zeros(3), "numbers.b": torch.zeros(5, 3)}, {})
    with pytest.raises(InputError) as caught:
        saved.restore({"numbers": Numbers()})
    said = "numbers.a of a checkpoint must be float32 (2,); got float32 (3,)"
    assert str(caught.value) == said


def test_a_folder_that_vanishes_stops_nothing(tmp_path):
    folder = tmp_path / "run"

    def vanish(epoch):
        if epoch.epoch == 5:
            shutil.rmtree(folder)

    checkpoints = eager(folder)
    with checkpoints:
        result = transfer(learner(), TARGET, TRANSFER, on_epoch=vanish, checkpoints=checkpoints)
        checkpoints.remove()
    assert list(tmp_path.iterdir()) == []
    assert_same_result(result, unbroken())
