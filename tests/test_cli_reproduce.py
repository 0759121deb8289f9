"""``graphglow reproduce`` through the command line's one entry point."""

import json
from pathlib import Path

import pytest

from graphglow.lab.paper import cells as cells_module
from graphglow.lab.paper.cells import Cell
from graphglow.lab.runs import run as run_module
from graphglow.lab.runs.rows import read_rows

TARGET = "synthetic-small"


def tiny():
    """Two cells on a graph that comes with the package."""
    for method in ("gcn", "mlp"):
        yield Cell(
            experiment="tiny",
            key=f"{method}/{TARGET}",
            label=method.upper(),
            method=method,
            target=TARGET,
        )


@pytest.fixture(autouse=True)
def tiny_experiment(monkeypatch):
    monkeypatch.setitem(cells_module.EXPERIMENTS, "tiny", tiny)


@pytest.fixture
def files(tmp_path):
    out, settings = tmp_path / "rows.jsonl", tmp_path / "settings.json"
    settings.write_text(json.dumps({"gcn": {TARGET: {"hidden": 4}}}))
    return ["--out", str(out), "--settings", str(settings)]


SMALL = ["--seeds", "2", "--epochs", "2", "--device", "cpu", "--processes", "1"]


def test_json_is_one_object_and_a_rerun_makes_nothing(run, files):
    first = run("reproduce", "tiny", *SMALL, *files, "--json").json
    assert (first["command"], first["experiments"]) == ("reproduce", ["tiny"])
    assert (first["made"], first["copied"], first["failed"], first["errors"]) == (4, 0, 0, {})
    rows = read_rows(Path(first["out"])).rows
    assert {(row.method, row.seed) for row in rows} == {
        ("gcn", 0), ("gcn", 1), ("mlp", 0), ("mlp", 1),
    }  # fmt: skip
    assert {row.config["hidden"] for row in rows if row.method == "gcn"} == {4}
    assert all(row.provenance["versions"]["torch"] for row in rows)
    assert run("reproduce", "tiny", *SMALL, *files, "--json").json["made"] == 0


def test_people_are_told_what_was_done_and_what_is_next(run, files):
    words = ["reproduce", "tiny", *SMALL, *files, "--methods"]
    shown = run(*words, "gcn")
    assert "2 runs made, in" in shown.out
    assert "graphglow report" in shown.out
    assert shown.err == ""
    assert "nothing was missing" in run(*words, "gcn").out
    assert "1 run made, in" in run(*words, "mlp", "--seeds", "1").out


def test_failures_are_counted_and_said(run, files, tmp_path):
    (tmp_path / "settings.json").write_text(
        json.dumps({"gcn": {TARGET: {"hidden": 4, "learning_rate": 1e30}}})
    )
    shown = " ".join(run("reproduce", "tiny", *SMALL, *files, "--epochs", "20").out.split())
    assert "4 runs made (2 failed)" in shown
    assert "failed 2 times: the loss must stay finite" in shown
    assert "--retry-failed" in shown


def test_a_dry_run_counts_and_runs_nothing(run, files, tmp_path):
    words = ["reproduce", "tiny", *SMALL, *files]
    run(*words, "--seeds", "1", "--methods", "gcn")
    before = (tmp_path / "rows.jsonl").read_bytes()
    found = run(*words, "--dry-run", "--json").json
    assert found["counts"] == {
        "tiny": {"done": 1, "failed": 0, "copied": 0, "shared": 0, "missing": 3}
    }
    assert (found["runs"], found["learners"]) == (3, 0)
    assert {(run["cell"], run["seed"]) for run in found["missing"]} == {
        (f"gcn/{TARGET}", 1), (f"mlp/{TARGET}", 0), (f"mlp/{TARGET}", 1),
    }  # fmt: skip
    shown = run(*words, "--dry-run").out
    assert "3 runs are to be made" in shown
    assert f"2  mlp on {TARGET}" in shown
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_a_dry_run_of_everything_needs_no_data_and_says_what_is_missing(run, files, tmp_path):
    words = ["reproduce", "all", *files, "--dry-run", "--json", "--data-root", tmp_path]
    shown = run(*words, "--seeds", "1")
    assert len(shown.err.splitlines()) == 1
    assert "the raw files of cornell5, johnshopkins55," in shown.err
    found = shown.json
    assert "citeseer" in found["graphs_without_files"]
    assert "cora" not in found["graphs_without_files"]  # of the package
    assert set(found["counts"]) == {*cells_module.EXPERIMENTS}
    assert found["runs"] == sum(counts["missing"] for counts in found["counts"].values())
    assert sum(counts["shared"] for counts in found["counts"].values()) > 0
    assert found["learners"] > 0
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "EXPERIMENT"),
        (["tabel1"], "got 'tabel1' (nearest: table1)"),
        (["open-word"], "got 'open-word' (nearest: open-world)"),
        (["table1", "--methods", "gnc"], "methods must be among gcn"),
        (["table1", "--targets", "wine"], "targets must be among cornell5"),
        (["tiny", "--seeds", "0"], "seeds must be >= 1; got 0"),
        (["tiny", "--seeds", "many"], "'many'"),
        (["tiny", "--out", "rows.csv"], "must end in .jsonl; got rows.csv"),
        (["tiny", "--procesess", "2"], "--processes"),
    ],
)
def test_bad_usage_is_one_line(run, argv, message):
    assert message in run("reproduce", *argv).refuses()


def test_missing_data_is_one_line_and_leaves_no_row(run, files, tmp_path):
    words = ["reproduce", "table1", *SMALL, *files, "--methods", "gcn", "--targets", "reed98"]
    run(*words, "--data-root", tmp_path).refuses()
    assert not (tmp_path / "rows.jsonl").exists()


def test_bad_settings_are_one_line(run, files, tmp_path):
    (tmp_path / "settings.json").write_text('{"gcn": {"synthetic-small": {"wings": 2}}}')
    shown = run("reproduce", "tiny", *SMALL, *files).refuses()
    assert f"gcn on {TARGET} in {tmp_path / 'settings.json'}" in shown
    assert "got 'wings'" in shown
    assert not (tmp_path / "rows.jsonl").exists()


def test_settings_that_are_named_must_be_there(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "tiny", *SMALL, "--seeds", "1", "--methods", "gcn", "--out", "r.jsonl"]
    line = run(*words, "--settings", "absent.json").refuses()
    assert line == "graphglow: the settings file must exist; got absent.json\n"
    assert run(*words).err == (
        "graphglow: there is no results/settings.json: every method runs with its default "
        "settings\n"
    )


def test_damaged_rows_are_named_and_files_of_others_refused(run, files, tmp_path):
    out, words = tmp_path / "rows.jsonl", ["reproduce", "tiny", *SMALL, *files]
    assert run(*words).status == 0
    with out.open("a") as file:
        file.write('{"cut\n[1]\n')
    said = f"graphglow: {out}: 2 lines skipped (the first: line 5: not JSON)\n"
    assert run(*words, "--dry-run").err == said
    out.write_bytes(b"\x80binary")
    assert "no rows in it" in run(*words).refuses()
    assert out.read_bytes() == b"\x80binary"


def test_ctrl_c_says_what_was_kept(run, files, tmp_path, monkeypatch):
    fit_many = run_module.fit_many

    def interrupted(name, *rest):
        if name == "mlp":
            raise KeyboardInterrupt
        return fit_many(name, *rest)

    monkeypatch.setattr(run_module, "fit_many", interrupted)
    assert run("reproduce", "tiny", *SMALL, *files) == (
        130,
        "",
        f"graphglow: the rows written to {tmp_path / 'rows.jsonl'} are kept; the same command goes "
        "on from there\ngraphglow: interrupted\n",
    )


def test_cells_without_a_source_are_named(run, files, tmp_path):
    words = ["reproduce", "table1", *files, "--dry-run", "--methods", "graphglow"]
    outcome = run(*words, "--sources", "cora", "--data-root", tmp_path)  # no data here
    assert outcome.err.splitlines()[0] == (
        "graphglow: 15 cells left out, without a source among those given: GraphGLOW on cornell5 "
        "(table1), GraphGLOW on johnshopkins55 (table1), GraphGLOW on amherst41 (table1), "
        "GraphGLOW on reed98 (table1), GraphGLOW on cora (table1) and 10 more"
    )
