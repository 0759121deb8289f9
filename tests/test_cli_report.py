"""``graphglow report`` through the command line's one entry point."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import graphglow
from command_line import Outcome
from graphglow.report import is_report

pytest.importorskip("plotly", reason="needs plotly (the report extra)")

Run = Callable[..., Outcome]
ROW = {
    "experiment": "synthetic",
    "cell": "gcn/wine",
    "label": "GCN",
    "method": "gcn",
    "sources": None,
    "target": "wine",
    "split": "public",
    "seed": 0,
    "x": None,
    "test_accuracy": 0.5,
    "train_seconds": 1.0,
    "paper": None,
    "metrics": {},
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(ROW | {"seed": seed}) + "\n" for seed in range(2)))
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("saved")
    learner = graphglow.StructureLearner(graphglow.LearnerConfig(embedding_size=4), seed=0)
    learner.save(folder / "learner.safetensors")
    config = graphglow.PaperConfig(epochs=1, num_pivots=8, refinements=1, device="cpu")
    result = graphglow.transfer(graphglow.load_graph("wine"), learner, config)
    result.save(folder / "wine.safetensors")
    return folder


def test_rows_and_transfers_make_one_page(
    run: Run, rows: Path, saved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    words = ["report", rows, saved / "wine.safetensors", "--out", out, "--title", "My <title>"]
    status, printed, err = run(*words, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(printed.splitlines()[-1])
    assert facts == {
        "command": "report",
        "out": str(out),
        "bytes": out.stat().st_size,
        "experiments": ["synthetic"],
        "runs": 2,
        "left_out": 0,
        "transfers": ["wine"],
        "damaged_lines": 0,
        "skipped": [],
    }
    assert is_report(out)
    text = out.read_text(encoding="utf-8")
    assert "<title>My &lt;title&gt;</title>" in text
    assert "The learned structure of wine" in text
    status, printed, _ = run(*words)  # an older report is replaced
    assert status == 0
    assert f"report: {out}" in printed
    assert "shown: 2 runs of synthetic; 1 saved transfer\n" in printed
    _, printed, _ = run("report", saved / "wine.safetensors", "--out", out)
    assert printed.startswith("shown: 1 saved transfer\n")
    (tmp_path / "notes.txt").write_text("hello")
    run("report", saved / "wine.safetensors", tmp_path / "notes.txt", "--out", out)
    text = out.read_text(encoding="utf-8")
    assert "line 1: not JSON" in text
    assert " of 0 experiment" not in text


def test_what_is_skipped_is_said_and_the_rest_is_shown(
    run: Run, rows: Path, saved: Path, tmp_path: Path
) -> None:
    with rows.open("a") as file:
        file.write('{"experiment": "search", "method": "gcn", "target": "cora"}\n')
        file.write(json.dumps(ROW | {"test_accuracy": "7.3"}) + "\n")
        file.write('{"experiment": "synth')
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bench.jsonl").write_text('{"benchmark": "epoch", "seed": 0}\n')
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "text.jsonl").write_text("hello\n")
    others = [tmp_path / n for n in ("empty.jsonl", "bench.jsonl", "binary", "text.jsonl")]
    learner = saved / "learner.safetensors"
    out = tmp_path / "p.html"
    status, printed, err = run("report", *others, rows, learner, "--out", out, "--json")
    assert status == 0
    first, none = "line 3: no row of a run", "1 line skipped (no rows in it; line 1:"
    said = [
        f"{tmp_path}/empty.jsonl: skipped (no rows in it)",
        f"{tmp_path}/bench.jsonl: {none} no row of a run)",
        f"{tmp_path}/binary: {none} not JSON)",
        f"{tmp_path}/text.jsonl: {none} not JSON)",
        f"{rows}: 3 lines skipped (the first: {first})",
        f"{learner}: skipped ({learner} must be a graphglow result; got a 'learner' file)",
    ]
    assert err.splitlines() == [f"graphglow: {sentence}" for sentence in said]
    facts = json.loads(printed)
    assert (facts["runs"], facts["damaged_lines"], facts["skipped"]) == (2, 3 + 1 + 1 + 1, said)
    assert "line 4: test_accuracy must be of type int or float" in out.read_text(encoding="utf-8")


def test_runs_of_other_settings_than_the_newest_are_left_out_and_marked(
    run: Run, rows: Path, tmp_path: Path
) -> None:
    with rows.open("a") as file:
        file.write(json.dumps(ROW | {"config": {"epochs": 3}, "test_accuracy": 0.25}) + "\n")
    out = tmp_path / "p.html"
    status, printed, err = run("report", rows, "--out", out)
    assert (status, err) == (0, "")
    shown = "shown: 1 run of synthetic; 1 older row replaced; 1 run of other settings left out\n"
    assert printed.startswith(shown)
    facts = json.loads(run("report", rows, "--out", out, "--json")[1])
    assert (facts["runs"], facts["left_out"]) == (1, 1)
    text = out.read_text(encoding="utf-8")
    assert '25.0<sup class="alone" title="runs of this cell with other settings' in text
    legend = "&sect; runs of this cell with other settings than its newest are left out."
    assert text.count(legend) == 1


def test_what_is_not_a_report_is_kept(run: Run, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.html"
    out.write_text("mine")
    assert "--overwrite" in run("report", rows, "--out", out).refuses()
    assert out.read_text() == "mine"
    assert run("report", rows, "--out", out, "--overwrite")[0] == 0
    assert is_report(out)


def test_bad_files_are_refused_in_one_line(
    run: Run, rows: Path, saved: Path, tmp_path: Path
) -> None:
    out = ["--out", tmp_path / "p.html"]
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "text.jsonl").write_text("hello\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    whole = (saved / "wine.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    for name, said in (
        ("absent.jsonl", "must exist"),
        ("absent.safetensors", "must exist"),
        ("empty.jsonl", "no rows in it"),
        ("text.jsonl", "line 1: not JSON"),
        ("binary", "line 1: not JSON"),
        ("cut.safetensors", "truncated"),
        (".", "folder"),
    ):
        assert said in run("report", tmp_path / name, *out).refuses()
    assert "must exist" in run("report", rows, tmp_path / "absent.jsonl", *out).refuses()
    assert "'learner'" in run("report", saved / "learner.safetensors", *out).refuses()
    assert not (tmp_path / "p.html").exists()


def test_bad_usage_is_one_line(run: Run, rows: Path, tmp_path: Path) -> None:
    assert "at least one file" in run("report", "--out", tmp_path / "p.html").refuses()
    assert "must end in .html" in run("report", rows, "--out", tmp_path / "p.txt").refuses()
    (tmp_path / "d.html").mkdir()
    assert "no regular file" in run("report", rows, "--out", tmp_path / "d.html").refuses()
    assert "inputs" in run("report", tmp_path / "a.html", "--out", tmp_path / "a.html").refuses()
    assert "--bogus" in run("report", rows, "--bogus").refuses()


def test_without_plotly_one_line_says_what_to_install(
    run: Run, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    line = run("report", rows, "--out", tmp_path / "p.html").refuses()
    assert 'pip install "graphglow[report]"' in line
    assert not (tmp_path / "p.html").exists()
