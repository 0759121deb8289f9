"""``graphglow reproduce`` through the command line's one entry point."""

import json

import pytest

from graphglow.lab import paper_tables
from graphglow.lab.paper_tables import Cell

TARGET = "synthetic-small"


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """An experiment of one cell on a graph that comes with the package, in an empty folder."""
    cell = Cell(experiment="encoder", key=f"gcn/{TARGET}", label="GCN", method="gcn", target=TARGET)
    monkeypatch.setitem(paper_tables.EXPERIMENTS, "encoder", lambda: iter([cell]))
    monkeypatch.chdir(tmp_path)
    return ["reproduce", "encoder", "--seeds", "2", "--epochs", "2", "--device", "cpu"]


def test_runs_are_made_once_and_the_table_is_printed(run, tiny, tmp_path):
    outcome = run(*tiny, "--workers", "1")
    assert outcome.status == 0
    assert "2 rows made, 0 failed, 0 left" in outcome.out
    assert f"| method | {TARGET} |" in outcome.out
    assert len((tmp_path / "results" / "reproduce" / "encoder.jsonl").read_text().splitlines()) == 2
    facts = run(*tiny, "--workers", "1", "--json").json
    assert (facts["made"], facts["left"]) == (0, 0)
    assert "| GCN | " in run(*tiny[:2], "--table").out


def test_a_dry_run_counts_and_runs_nothing(run, tiny, tmp_path):
    facts = run(*tiny, "--dry-run", "--json").json
    assert facts["counts"] == {"encoder": {"missing": 2}}
    assert "2 missing" in run(*tiny, "--dry-run").out
    assert list(tmp_path.iterdir()) == []


def test_a_log_has_lines_and_json_the_accuracies(run, tiny, tmp_path):
    outcome = run(*tiny, "--json")
    assert "encoder: 2 missing" in outcome.err
    assert "2 of 2: GCN on synthetic-small: " in outcome.err
    assert 0 < outcome.json["accuracies"]["encoder"][f"gcn/{TARGET}"] <= 1


def test_learners_that_are_pre_trained_are_said_before(run, tmp_path):
    words = ["reproduce", "table1", "--targets", "reed98", "--methods", "graphglow-on"]
    words += ["--seeds", "2", "--dry-run", "--device", "cpu", "--out", tmp_path / "rows.jsonl"]
    said = (
        "pre-trained first: 2 of cornell5 + johnshopkins55 + amherst41: at most 480 epochs, about"
    )
    assert said in run(*words).out
    defaults = run(*words, "--settings", "defaults", "--json").json
    assert len(defaults["pretraining"]) == 2


def test_the_open_world_suite_is_an_experiment(run, tmp_path, monkeypatch):
    from graphglow.lab import open_methods as methods

    monkeypatch.setattr(methods, "EPOCHS", 2)
    words = ["reproduce", "open-world", "--targets", "wine", "--conditions", "as it is", "--seeds",
             "1", "--methods", "mlp", "predict", "--out", tmp_path / "rows.jsonl", "--data-root",
             tmp_path, "--device", "cpu", "--workers", "1"]  # fmt: skip
    assert "| **predict** | **pool** |" in run(*words).out
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2
    facts = run(*words, "--seeds", "2", "--dry-run", "--json").json
    assert facts["counts"] == {"open-world": {"done": 2, "missing": 2}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table3"], "got 'table3' (nearest: table"),
        (["table1", "--methods", "gnc"], "got 'gnc' (nearest: gcn"),
        (["table1", "--conditions", "as it is"], "--conditions goes with open-world alone"),
        (["table1", "--settings", "no.json"], "no.json"),
        (["table1", "--seeds", "0"], "seeds must be >= 1; got 0"),
    ],
)
def test_bad_words_are_refused_before_anything_is_made(run, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in run("reproduce", *words).refuses()
    assert list(tmp_path.iterdir()) == []


def test_rows_that_are_damaged_are_said(run, tiny, tmp_path):
    out = tmp_path / "rows.jsonl"
    out.write_text(json.dumps({"benchmark": "op"}) + "\n")
    outcome = run(*tiny, "--workers", "1", "--out", out)
    assert "1 lines are no rows" in outcome.err
    assert len(out.read_text().splitlines()) == 3
