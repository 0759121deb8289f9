"""``--log``: the commands that train, logged."""

from pathlib import Path

import pytest

from graphglow.cli import main
from graphglow.commands import terminal

FAST = ("--epochs", "2", "--num-pivots", "8", "--refinements", "2", "--device", "cpu")
TARGET = ("--target", "synthetic-small")


def run(*argv: str | Path) -> int:
    return main([str(word) for word in argv])


def events(logs: Path) -> list[str]:
    """The series with event files, without the time that names the run."""
    found = {path.parent.relative_to(logs).parts[1:] for path in logs.rglob("events*")}
    return sorted("/".join(parts) for parts in found)


def scalars(logs: Path) -> set[str]:
    """Names of the curves in all event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: set[str] = set()
    for path in logs.rglob("events*"):
        read = EventAccumulator(str(path))
        read.Reload()
        found |= set(read.Tags()["scalars"])
    return found


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("transfer", ("--learner", "universal", *TARGET, *FAST)),
        ("refine", ("--learner", "universal", *TARGET, *FAST, "--out", "graph.csv")),
        ("fit", ("--method", "mlp", *TARGET, "--epochs", "2", "--device", "cpu")),
        ("pretrain", ("--sources", "synthetic-small", "wine", *FAST, "--out", "l.safetensors")),
    ],
)
def test_commands_that_train_are_logged(
    command: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    assert run(command, *words, "--log", "tensorboard:logs") == 0
    expected = ["synthetic-small/run0"] + ["wine/run0"] * (command == "pretrain")
    assert events(tmp_path / "logs") == expected
    logged = scalars(tmp_path / "logs")
    assert "val_accuracy" in logged
    assert ("test_accuracy" in logged) == (command != "pretrain")  # the facts of the result


def test_a_log_goes_with_a_progress_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(terminal, "interactive", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the captured stream for a terminal
    words = ("transfer", "--learner", "universal", *TARGET, *FAST)
    assert run(*words, "--log", f"tensorboard:{tmp_path}") == 0
    assert events(tmp_path) == ["synthetic-small/run0"]
    assert "training" in capsys.readouterr().err


def test_a_log_that_goes_nowhere_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("transfer", "--learner", "universal", *TARGET, *FAST, "--log", "nowhere") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "tensorboard:FOLDER" in line


def test_a_saved_result_is_not_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--result", tmp_path / "r.safetensors", "--out", tmp_path / "graph.csv")
    assert run("refine", *words, "--log", f"tensorboard:{tmp_path}") == 2
    assert "--log" in capsys.readouterr().err
