"""``--resume``, and what is left where a run ends badly: by NaN, memory, Ctrl-C or another one."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import graphglow

FAST = ["--num-pivots", "8", "--refinements", "2", "--device", "cpu"]
SAVED = ["--epochs", "9", "--checkpoint-seconds", "0"]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "r.st"


@pytest.fixture
def words(home, out):
    """A transfer to ``out``, without epochs."""
    target = ["--learner", home / "learner.st", "--target", home / "g.npz"]
    return [str(word) for word in ("transfer", *target, *FAST, "--out", out)]


@pytest.fixture
def at_step(monkeypatch):
    """Let something happen at the training step of this number, counted from 1."""

    def at_step(number, act):
        real, count = GraphTask.train_step, [0]

        def step(task):
            count[0] += 1
            found = act() if count[0] == number else None
            loss, refinements = real(task)
            return loss if found is None else loss * found, refinements

        monkeypatch.setattr(GraphTask, "train_step", step)

    return at_step


def raising(error):
    def act():
        raise error

    return act


class Killed(BaseException):
    pass


def only(folder, name):
    return [path.name for path in folder.iterdir()] == [name]


def test_an_unreadable_checkpoint_is_passed_over(run, words, out, at_step, monkeypatch):
    at_step(6, raising(Killed()))
    with pytest.raises(Killed):
        run(*words, *SAVED)
    monkeypatch.undo()
    newest = Checkpoints(f"{out}.checkpoints").files()[-1]
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != newest and real(path, mode))
    again = run(*words, "--epochs", "9", "--resume")
    assert again.status == 0
    assert "the one before is used" in again.err
    assert only(out.parent, "r.st")


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_memory_that_ends_in_the_middle_costs_the_last_moments_only(
    run, words, out, at_step, monkeypatch, error
):
    at_step(6, raising(error))
    assert "the graph must fit in memory; 40 nodes" in run(*words, *SAVED).refuses()
    monkeypatch.undo()
    assert run(*words, *SAVED, "--resume", "--json").json["resumed"] is True
    assert graphglow.TransferResult.load(out).epochs == 9


@pytest.mark.parametrize("command", ["pretrain", "transfer"])
def test_a_loss_that_is_not_finite_leaves_disk_and_checkpoints_as_they_were(
    run, home, words, out, at_step, monkeypatch, command
):
    out.write_text("old")
    if command == "pretrain":
        words = ["pretrain", "--kind", "paper", "--sources", home / "g.npz", *FAST, "--out", out]
    at_step(5, lambda: float("nan"))
    line = run(*words, *SAVED, "--overwrite").refuses()
    assert "the loss must stay finite; got nan (training)" in line
    assert "at epoch 5 on g" in line
    assert out.read_text() == "old"
    kept = Checkpoints(f"{out}.checkpoints").files()
    assert [path.name[-14:-12] for path in kept] == ["03", "04"]  # none with the NaN in it
    monkeypatch.undo()
    assert run(*words, *SAVED, "--resume").status == 0
    assert out.read_bytes()[:3] != b"old"


@pytest.mark.slow
def test_of_two_processes_on_one_run_the_second_is_refused(run, words, out):
    first = subprocess.Popen(
        [sys.executable, "-m", "graphglow", *words, "--epochs", "100000"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    folder = Path(f"{out}.checkpoints")
    try:
        end = time.monotonic() + 60
        while not (folder / "lock").exists():
            assert first.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        for more in ([], ["--resume"], ["--overwrite"]):
            assert run(*words, "--epochs", "100000", *more).refuses() == (
                f"graphglow: one run at a time must write a file; got {out}, which another writes\n"
            )
    finally:
        first.kill()
        first.wait()
    assert run(*words, "--epochs", "2").status == 0  # a lock dies with its process


# The flags


def test_resume_needs_a_place(run, words):
    for more in ([], ["--overwrite"]):
        assert "--resume must go with --out FILE" in run(*words[:-2], "--resume", *more).refuses()


def test_a_run_that_has_ended_is_not_made_again(run, words, out):
    words = [*words, "--epochs", "2", "--resume"]
    assert run(*words).status == 0
    before = out.read_bytes()
    assert "whose run has ended (--overwrite makes it anew)" in run(*words).refuses()
    assert out.read_bytes() == before
    assert run(*words, "--overwrite").status == 0


def test_a_run_killed_between_its_output_and_its_end_is_ended(run, words, out, monkeypatch):
    monkeypatch.setattr(Checkpoints, "remove", lambda self: raising(Killed())())
    with pytest.raises(Killed):
        run(*words, *SAVED)
    monkeypatch.undo()
    assert out.exists()
    assert run(*words, *SAVED, "--resume").status == 0
    assert only(out.parent, "r.st")


@pytest.mark.usefixtures("plain_sigterm")
@pytest.mark.parametrize(("status", "said"), [(130, "interrupted"), (143, "terminated")])
def test_ctrl_c_and_sigterm_say_how_to_go_on(run, words, out, at_step, monkeypatch, status, said):
    def terminate():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # or this process ends
        signal.raise_signal(signal.SIGTERM)

    at_step(6, terminate if status == 143 else raising(KeyboardInterrupt()))
    assert run(*words, *SAVED) == (
        status,
        "",
        f"graphglow: the run is kept in {out}.checkpoints; the same command with --resume goes "
        f"on\ngraphglow: {said}\n",
    )
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.undo()
    assert run(*words, *SAVED, "--resume").status == 0
    assert only(out.parent, "r.st")


def test_ctrl_c_before_the_first_checkpoint_says_that_nothing_is_kept(run, words, out, at_step):
    at_step(2, raising(KeyboardInterrupt()))
    assert run(*words, "--epochs", "9", "--checkpoint-seconds", "99") == (
        130,
        "",
        "graphglow: nothing was kept: a checkpoint is written after 99 seconds\n"
        "graphglow: interrupted\n",
    )
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize(("code", "told"), [(errno.ENOSPC, True), (errno.EACCES, False)])
def test_a_result_without_room_says_how_to_go_on(run, words, out, monkeypatch, code, told):
    real = Path.replace

    def replace(path, target):
        if Path(target) == out:
            raise OSError(code, os.strerror(code))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    outcome = run(*words, *SAVED)
    assert outcome.status == 2
    *note, last = outcome.err.splitlines()
    assert last == f"graphglow: the output path must be writable; got {out} ({os.strerror(code)})"
    kept = (
        f"graphglow: the run is kept in {out}.checkpoints; when there is room, the same command "
        "with --resume goes on"
    )
    assert note == ([kept] if told else [])
    monkeypatch.undo()
    assert run(*words, *SAVED, "--resume").status == 0
    assert only(out.parent, "r.st")


def test_a_file_in_the_place_of_the_checkpoints_is_called_one(run, words, out):
    Path(f"{out}.checkpoints").touch()
    assert run(*words, "--epochs", "1000000").refuses() == (
        "graphglow: the place for checkpoints must be a writable folder; "
        f"got {out}.checkpoints (File exists)\n"
    )


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_a_bad_time_between_checkpoints_is_called_by_its_flag(run, home, words, out, seconds):
    pretrain = ["pretrain", "--kind", "paper", "--sources", home / "g.npz", *FAST, "--out", out]
    for job in (words, pretrain):
        said = run(*job, "--checkpoint-seconds", seconds).refuses()
        assert said.startswith(f"graphglow: --checkpoint-seconds must be >= 0; got {seconds};")
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("command", ["reproduce"])
def test_commands_that_always_resume_say_so(run, command):
    text = " ".join(run(command, "--help").out.split())
    assert "There is no --resume, since it always resumes" in text
