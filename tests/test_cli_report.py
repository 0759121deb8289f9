"""``graphglow report`` through the command line's one entry point."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import graphglow
from command_line import Outcome
from graphglow.report import is_report

pytest.importorskip("plotly", reason="needs plotly (the report extra)")

Run = Callable[..., Outcome]


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


def test_transfers_make_one_page(run: Run, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    words = ["report", saved / "wine.safetensors", "--out", out, "--title", "My <title>"]
    status, printed, err = run(*words, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(printed.splitlines()[-1])
    assert facts["transfers"] == ["wine"]
    assert facts["bytes"] == out.stat().st_size
    assert is_report(out)
    text = out.read_text(encoding="utf-8")
    assert "<title>My &lt;title&gt;</title>" in text
    assert "The learned structure of wine" in text
    assert run(*words).status == 0  # an older report is replaced


def test_what_is_no_transfer_is_refused(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    for path in (tmp_path / "rows.jsonl", tmp_path / "absent.safetensors"):
        run("report", path, "--out", tmp_path / "page.html").refuses()
    run("report", saved / "wine.safetensors", "--out", tmp_path / "page.txt").refuses()
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
