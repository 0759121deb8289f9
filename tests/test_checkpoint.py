"""Trainings that were stopped go on where they were, to the same bits as one that never was."""

import itertools

import pytest
import torch

from graphglow.cli import main
from graphglow.errors import InputError, InputWarning
from graphglow.paper.algorithms import PaperTask
from graphglow.pretrain import pretrain
from graphglow.result import TransferResult
from graphglow.storage import Checkpoint
from graphglow.transfer import transfer
from tiny_graphs import (
    learner,
    pretrain_config,
    same_tensors,
    small_data,
    transfer_config,
)

SOURCES = [small_data(seed=1), small_data(seed=2, num_nodes=30)]


class Killed(Exception):
    pass


class Dying(Checkpoint):
    """Dies after a number of writes."""

    def __init__(self, path, after):
        super().__init__(path, every_seconds=0)
        self.left = after

    def offer(self, *state):
        super().offer(*state)
        self.left -= 1
        if self.left == 0:
            raise Killed


def pretrained(checkpoint=None, seen=None, **changes):
    settings = {"dropout": 0.5, "episodes": 2, "epochs": 3} | changes
    on_epoch = None if seen is None else seen.append
    return pretrain(SOURCES, pretrain_config(**settings), on_epoch=on_epoch, checkpoint=checkpoint)


def transferred(checkpoint=None, seen=None, data=None, **changes):
    settings = transfer_config(**({"dropout": 0.5, "epochs": 6} | changes))
    on_epoch = None if seen is None else seen.append
    return transfer(
        data or small_data(), learner(), settings, on_epoch=on_epoch, checkpoint=checkpoint
    )


def same_learner(one, other):
    return same_tensors(one, other) and one.provenance == other.provenance


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


@pytest.mark.parametrize("after", [1, 3, 4, 8])  # in a visit, at its end, in the next episode
def test_a_pre_training_can_die_after_any_epoch(path, after):
    heard, again = [], []
    whole = pretrained(seen=heard)
    with pytest.raises(Killed):
        pretrained(Dying(path, after))
    checkpoint = Checkpoint(path, every_seconds=0)
    assert same_learner(pretrained(checkpoint, seen=again), whole)
    assert checkpoint.resumed
    assert again == heard  # those before the checkpoint too


@pytest.mark.parametrize(
    "changes",
    [
        {"structure_momentum": 0.5, "tolerance": 0.03},
        {"redraw_pivots": False, "backbone": "linkx", "encoder": "mlp"},
    ],
)
def test_a_pre_training_of_any_kind_goes_on(path, changes):
    with pytest.raises(Killed):
        pretrained(Dying(path, 8), **changes)
    again = pretrained(Checkpoint(path), **changes)
    assert same_learner(again, pretrained(**changes))


@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize(
    "changes", [{}, {"patience": 2, "learning_rate": 0.1}, {"backbone": "gat", "tolerance": 0.03}]
)
def test_a_transfer_can_die_after_any_epoch(path, after, changes):
    heard, again = [], []
    whole = transferred(seen=heard, **changes)
    with pytest.raises(Killed):
        transferred(Dying(path, min(after, len(heard))), **changes)
    resumed = transferred(Checkpoint(path), seen=again, **changes)
    assert again == heard
    assert resumed.history == whole.history
    assert same_tensors(resumed.gnn, whole.gnn)


def test_the_checkpoint_of_another_training_is_refused(path):
    with pytest.raises(Killed):
        transferred(Dying(path, 2))
    for other in ({"epochs": 7}, {"data": small_data(num_nodes=41)}):
        with pytest.raises(InputError, match=r"checkpoint of another training: .* differ"):
            transferred(Checkpoint(path), **other)
    with pytest.raises(InputError, match="another training"):
        pretrained(Checkpoint(path))


def test_without_resuming_a_training_begins_anew(path):
    with pytest.raises(Killed):
        transferred(Dying(path, 2))
    checkpoint = Checkpoint(path, resume=False)
    assert transferred(checkpoint).history == transferred().history
    assert not checkpoint.resumed


@pytest.mark.parametrize("content", [b"", b"hello", b"\0" * 100])
def test_a_file_that_is_no_checkpoint_is_refused_and_kept(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError, match="foreign or truncated"):
        transferred(Checkpoint(path))
    assert path.read_bytes() == content


def test_a_checkpoint_that_cannot_be_written_stops_no_training(tmp_path):
    lost = Checkpoint(tmp_path / "no such folder" / "x", every_seconds=0)
    with pytest.warns(InputWarning, match="could not be written, the training goes on"):
        result = transferred(lost)
    assert result.history == transferred().history


def test_a_checkpoint_is_one_file_and_removed_at_the_end(path):
    checkpoint = Checkpoint(path, every_seconds=0)
    transferred(checkpoint)
    assert [*path.parent.iterdir()] == [path]
    checkpoint.remove()
    checkpoint.remove()
    assert [*path.parent.iterdir()] == []


@pytest.mark.parametrize("seconds", [-1, float("nan"), "soon"])
def test_times_between_writes_are_numbers(path, seconds):
    with pytest.raises(InputError, match="every_seconds must"):
        Checkpoint(path, every_seconds=seconds)


def test_seconds_are_sums_over_the_parts(path):
    with pytest.raises(Killed):
        transferred(Dying(path, 3))
    checkpoint = Checkpoint(path)
    result = transferred(checkpoint)
    assert 0 < checkpoint.seconds_before < result.train_seconds <= result.seconds


@pytest.mark.gpu
def test_on_a_gpu_a_training_goes_on_from_where_scores_are_read(path):
    whole = transferred(device="cuda", epochs=80)
    with pytest.raises(Killed):
        transferred(Dying(path, 2), device="cuda", epochs=80)
    again = transferred(Checkpoint(path), device="cuda", epochs=80)
    torch.testing.assert_close(again.predict_proba(), whole.predict_proba(), rtol=1e-2, atol=1e-3)


def test_the_command_line_goes_on_with_resume(tmp_path, monkeypatch):
    """Stopped by Ctrl-C in the middle, and to the same bits as a run that was not."""
    learner().save(tmp_path / "l.st")
    words = ["--learner", tmp_path / "l.st", "--target", "wine", "--epochs", "8", "--device", "cpu"]
    monkeypatch.setitem(Checkpoint.__init__.__kwdefaults__, "every_seconds", 0.0)

    def run(out, *more):
        return main([*map(str, ["transfer", *words, "--out", tmp_path / out, *more])])

    assert run("whole.st") == 0
    step, count = PaperTask.train_step, itertools.count(1)

    def interrupted(task):
        if next(count) == 5:
            raise KeyboardInterrupt
        return step(task)

    with monkeypatch.context() as patch:
        patch.setattr(PaperTask, "train_step", interrupted)
        assert run("stopped.st") == 130
    assert (tmp_path / "stopped.st.checkpoint").exists()
    assert run("stopped.st", "--resume") == 0
    assert not (tmp_path / "stopped.st.checkpoint").exists()
    one, other = (TransferResult.load(tmp_path / name) for name in ("whole.st", "stopped.st"))
    assert one.history == other.history
    assert same_tensors(one.gnn, other.gnn)
