"""``--resume``, and what is left where a run ends badly: by NaN, memory, Ctrl-C or another one."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import graphglow
from graphglow.cli import main
from graphglow.training.checkpoint import Checkpoints
from graphglow.training.task import GraphTask

FAST = ["--num-pivots", "8", "--refinements", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a graph and a learner."""
    folder, ring = tmp_path_factory.mktemp("resume"), np.arange(40)
    np.savez(
        folder / "g.npz",
        x=np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32),
        y=ring % 2,
        edge_index=np.stack([ring, (ring + 2) % 40]),
    )
    learner = graphglow.StructureLearner(graphglow.LearnerConfig(embedding_size=6))
    learner.save(folder / "learner.st")
    return folder


def transfer_words(home, out, *more):
    target = ["--learner", home / "learner.st", "--target", home / "g.npz"]
    return [str(word) for word in ("transfer", *target, *FAST, "--out", out, *more)]


def steps_until(monkeypatch, number, error):
    """Let the training step of this number, counted from 1, raise."""
    real, count = GraphTask.train_step, [0]

    def step(task):
        count[0] += 1
        if count[0] == number:
            raise error
        return real(task)

    monkeypatch.setattr(GraphTask, "train_step", step)


class Killed(BaseException):
    pass


def kill_after(monkeypatch, steps):
    steps_until(monkeypatch, steps + 1, Killed())


def test_an_unreadable_checkpoint_is_passed_over(home, tmp_path, monkeypatch, capsys):
    out = tmp_path / "r.st"
    kill_after(monkeypatch, 5)
    with pytest.raises(Killed):
        main(transfer_words(home, out, "--epochs", "9", "--checkpoint-seconds", "0"))
    monkeypatch.undo()
    newest = Checkpoints(tmp_path / "r.st.checkpoints").files()[-1]
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != newest and real(path, mode))
    assert main(transfer_words(home, out, "--epochs", "9", "--resume")) == 0
    assert "the one before is used" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r.st"]


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_memory_that_ends_in_the_middle_costs_the_last_moments_only(
    home, tmp_path, monkeypatch, capsys, error
):
    out = tmp_path / "r.st"
    words = transfer_words(home, out, "--epochs", "9", "--checkpoint-seconds", "0")
    steps_until(monkeypatch, 6, error)
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("graphglow: the graph must fit in memory; 40 nodes")
    monkeypatch.undo()
    assert main([*words, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["resumed"] is True
    assert graphglow.TransferResult.load(out).epochs == 9


# A loss that is not finite


@pytest.mark.parametrize("command", ["pretrain", "transfer"])
def test_a_loss_that_is_not_finite_leaves_disk_and_checkpoints_as_they_were(
    home, tmp_path, monkeypatch, capsys, command
):
    out = tmp_path / "r.st"
    out.write_text("old")
    more = ["--epochs", "9", "--checkpoint-seconds", "0"]
    words = transfer_words(home, out, *more)
    if command == "pretrain":
        words = ["pretrain", "--sources", str(home / "g.npz"), *FAST, "--out", str(out), *more]
    real, count = GraphTask.train_step, [0]

    def step(task):
        loss, refinements = real(task)
        count[0] += 1
        return loss * (float("nan") if count[0] == 5 else 1), refinements

    monkeypatch.setattr(GraphTask, "train_step", step)
    assert main([*words, "--overwrite"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert "the loss must stay finite; got nan (training)" in errors[0]
    assert "at epoch 5 on g" in errors[0]
    assert out.read_text() == "old"
    kept = Checkpoints(tmp_path / "r.st.checkpoints").files()
    assert [path.name[-14:-12] for path in kept] == ["03", "04"]  # none with the NaN in it
    monkeypatch.undo()
    assert main([*words, "--resume"]) == 0
    assert out.read_bytes()[:3] != b"old"


# Two processes


@pytest.mark.slow
def test_of_two_processes_on_one_run_the_second_is_refused(home, tmp_path, capsys):
    out = tmp_path / "r.st"
    words = transfer_words(home, out, "--epochs", "100000")
    first = subprocess.Popen(
        [sys.executable, "-m", "graphglow", *words], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        lock = tmp_path / "r.st.checkpoints" / "lock"
        end = time.monotonic() + 60
        while not lock.exists() and time.monotonic() < end:
            time.sleep(0.01)
        for more in ([], ["--resume"], ["--overwrite"]):
            assert main([*words, *more]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert line == (
                "graphglow: a run must have its folder to itself; got "
                f"{tmp_path / 'r.st.checkpoints'}, which another process is at work in"
            )
    finally:
        first.kill()
        first.wait()
    assert main([*transfer_words(home, out, "--epochs", "2")]) == 0  # a lock dies with its process


# The flags


def test_resume_needs_a_place(home, capsys):
    words = transfer_words(home, "none", "--resume")
    del words[words.index("--out") : words.index("--out") + 2]
    assert main(words) == 2
    assert "--resume must go with --out FILE" in capsys.readouterr().err


def test_a_run_that_has_ended_is_not_made_again(home, tmp_path, capsys):
    out = tmp_path / "r.st"
    assert main(transfer_words(home, out, "--epochs", "2", "--resume")) == 0
    before = out.read_bytes()
    assert main(transfer_words(home, out, "--epochs", "2", "--resume")) == 2
    assert "its run has ended (--overwrite makes it anew)" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main(transfer_words(home, out, "--epochs", "2", "--resume", "--overwrite")) == 0


def test_a_run_killed_between_its_output_and_its_end_is_ended(home, tmp_path, monkeypatch, capsys):
    out = tmp_path / "r.st"
    words = transfer_words(home, out, "--epochs", "4", "--checkpoint-seconds", "0")

    def die(checkpoints):
        raise Killed

    monkeypatch.setattr(Checkpoints, "remove", die)
    with pytest.raises(Killed):
        main(words)
    monkeypatch.undo()
    assert out.exists()
    assert main([*words, "--resume"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["r.st"]


def test_ctrl_c_says_how_to_go_on(home, tmp_path, monkeypatch, capsys):
    out = tmp_path / "r.st"
    words = transfer_words(home, out, "--epochs", "9", "--checkpoint-seconds", "0")
    steps_until(monkeypatch, 6, KeyboardInterrupt())
    assert main(words) == 130
    folder = tmp_path / "r.st.checkpoints"
    assert capsys.readouterr().err == (
        f"graphglow: the run is kept in {folder}; the same command with --resume goes on\n"
        "graphglow: interrupted\n"
    )


@pytest.mark.usefixtures("plain_sigterm")
def test_sigterm_is_heard_as_ctrl_c_is(home, tmp_path, monkeypatch, capsys):
    out = tmp_path / "r.st"
    words = transfer_words(home, out, "--epochs", "9", "--checkpoint-seconds", "0")
    real, count = GraphTask.train_step, [0]

    def step(task):
        count[0] += 1
        if count[0] == 6:
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # or this process ends
            signal.raise_signal(signal.SIGTERM)
        return real(task)

    monkeypatch.setattr(GraphTask, "train_step", step)
    assert main(words) == 143
    folder = tmp_path / "r.st.checkpoints"
    assert capsys.readouterr().err == (
        f"graphglow: the run is kept in {folder}; the same command with --resume goes on\n"
        "graphglow: terminated\n"
    )
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert main([*words, "--resume"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["r.st"]


@pytest.mark.parametrize(("code", "told"), [(errno.ENOSPC, True), (errno.EACCES, False)])
def test_a_result_without_room_says_how_to_go_on(home, tmp_path, monkeypatch, capsys, code, told):
    out = tmp_path / "r.st"
    words = transfer_words(home, out, "--epochs", "9", "--checkpoint-seconds", "0")
    real = Path.replace

    def replace(path, target):
        if Path(target) == out:
            raise OSError(code, os.strerror(code))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    assert main(words) == 2
    folder = tmp_path / "r.st.checkpoints"
    *note, last = capsys.readouterr().err.splitlines()
    assert last == (f"graphglow: the output path must be writable; got {out} ({os.strerror(code)})")
    kept = (
        f"graphglow: the run is kept in {folder}; when there is room, the same command with "
        "--resume goes on"
    )
    assert note == ([kept] if told else [])
    monkeypatch.undo()
    assert main([*words, "--resume"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["r.st"]


def test_a_file_in_the_place_of_the_checkpoints_is_called_one(home, tmp_path, capsys):
    (tmp_path / "r.st.checkpoints").touch()
    assert main(transfer_words(home, tmp_path / "r.st", "--epochs", "1000000")) == 2
    assert capsys.readouterr().err == (
        "graphglow: the place for checkpoints must be a folder; got "
        f"{tmp_path / 'r.st.checkpoints'}, which is none\n"
    )


def test_ctrl_c_before_the_first_checkpoint_says_that_nothing_is_kept(
    home, tmp_path, monkeypatch, capsys
):
    words = transfer_words(home, tmp_path / "r.st", "--epochs", "9", "--checkpoint-seconds", "99")
    steps_until(monkeypatch, 2, KeyboardInterrupt())
    assert main(words) == 130
    assert capsys.readouterr().err == (
        "graphglow: nothing was kept: the first checkpoint is written after 99 seconds\n"
        "graphglow: interrupted\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_a_bad_time_between_checkpoints_is_called_by_its_flag(home, tmp_path, capsys, seconds):
    out = tmp_path / "r.st"
    pretrain = ["pretrain", "--sources", str(home / "g.npz"), *FAST, "--out", str(out)]
    for words in (transfer_words(home, out), pretrain):
        assert main([*words, "--checkpoint-seconds", seconds]) == 2
        said = f"graphglow: --checkpoint-seconds must be >= 0; got {seconds}\n"
        assert capsys.readouterr().err == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["search", "reproduce"])
def test_commands_that_always_resume_say_so(capsys, command):
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "There is no --resume, since it always resumes" in text
