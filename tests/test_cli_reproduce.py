"""``graphglow reproduce`` through the command line's one entry point."""

import json
from pathlib import Path

import pytest

from graphglow.cli import main
from graphglow.experiments.paper import cells as cells_module
from graphglow.experiments.paper.cells import Cell
from graphglow.experiments.runs import run as run_module
from graphglow.experiments.runs.rows import read_rows

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


def facts(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_json_is_one_object_and_a_rerun_makes_nothing(capsys, files):
    assert main(["reproduce", "tiny", *SMALL, *files, "--json"]) == 0
    first = facts(capsys)
    assert (first["command"], first["experiments"]) == ("reproduce", ["tiny"])
    assert (first["made"], first["copied"], first["failed"], first["errors"]) == (4, 0, 0, {})
    rows = read_rows(Path(first["out"])).rows
    assert {(row.method, row.seed) for row in rows} == {
        ("gcn", 0), ("gcn", 1), ("mlp", 0), ("mlp", 1),
    }  # fmt: skip
    assert {row.config["hidden"] for row in rows if row.method == "gcn"} == {4}
    assert all(row.provenance["versions"]["torch"] for row in rows)
    assert main(["reproduce", "tiny", *SMALL, *files, "--json"]) == 0
    assert facts(capsys)["made"] == 0


def test_people_are_told_what_was_done_and_what_is_next(capsys, files):
    assert main(["reproduce", "tiny", *SMALL, *files, "--methods", "gcn"]) == 0
    shown = capsys.readouterr()
    assert "2 runs made, in" in shown.out
    assert "graphglow report" in shown.out
    assert shown.err == ""
    assert main(["reproduce", "tiny", *SMALL, *files, "--methods", "gcn"]) == 0
    assert "nothing was missing" in capsys.readouterr().out
    assert main(["reproduce", "tiny", *SMALL, *files, "--methods", "mlp", "--seeds", "1"]) == 0
    assert "1 run made, in" in capsys.readouterr().out


def test_failures_are_counted_and_said(capsys, files, tmp_path):
    (tmp_path / "settings.json").write_text(
        json.dumps({"gcn": {TARGET: {"hidden": 4, "learning_rate": 1e30}}})
    )
    assert main(["reproduce", "tiny", *SMALL, *files, "--epochs", "20"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 runs made (2 failed)" in shown
    assert "failed 2 times: the loss must stay finite" in shown
    assert "--retry-failed" in shown


def test_a_dry_run_counts_and_runs_nothing(capsys, files, tmp_path):
    main(["reproduce", "tiny", *SMALL, *files, "--seeds", "1", "--methods", "gcn", "--json"])
    capsys.readouterr()
    before = (tmp_path / "rows.jsonl").read_bytes()
    assert main(["reproduce", "tiny", *SMALL, *files, "--dry-run", "--json"]) == 0
    found = facts(capsys)
    assert found["counts"] == {
        "tiny": {"done": 1, "failed": 0, "copied": 0, "shared": 0, "missing": 3}
    }
    assert (found["runs"], found["learners"]) == (3, 0)
    assert {(run["cell"], run["seed"]) for run in found["missing"]} == {
        (f"gcn/{TARGET}", 1), (f"mlp/{TARGET}", 0), (f"mlp/{TARGET}", 1),
    }  # fmt: skip
    assert main(["reproduce", "tiny", *SMALL, *files, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "3 runs are to be made" in shown
    assert f"2  mlp on {TARGET}" in shown
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_a_dry_run_of_everything_needs_no_data_and_says_what_is_missing(capsys, files, tmp_path):
    argv = ["reproduce", "all", *files, "--dry-run", "--json", "--data-root", str(tmp_path)]
    assert main([*argv, "--seeds", "1"]) == 0
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1
    assert "the raw files of cornell5, johnshopkins55," in shown.err
    found = json.loads(shown.out)
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
        ([], "required options are missing: EXPERIMENT"),
        (["tabel1"], "got 'tabel1' (nearest: table1)"),
        (["open-word"], "got 'open-word' (nearest: open-world)"),
        (["table1", "--methods", "gnc"], "methods must be among gcn"),
        (["table1", "--targets", "wine"], "targets must be among cornell5"),
        (["tiny", "--seeds", "0"], "seeds must be >= 1; got 0"),
        (["tiny", "--seeds", "many"], "--seeds must be a whole number; got 'many'"),
        (["tiny", "--out", "rows.csv"], "must end in .jsonl; got rows.csv"),
        (["tiny", "--procesess", "2"], "perhaps --processes"),
    ],
)
def test_bad_usage_is_one_line(capsys, argv, message):
    assert main(["reproduce", *argv]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert message in shown.err


def test_missing_data_is_one_line_and_leaves_no_row(capsys, files, tmp_path):
    argv = ["reproduce", "table1", *SMALL, *files, "--methods", "gcn", "--targets", "reed98"]
    assert main([*argv, "--data-root", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1
    assert not (tmp_path / "rows.jsonl").exists()


def test_bad_settings_are_one_line(capsys, files, tmp_path):
    (tmp_path / "settings.json").write_text('{"gcn": {"synthetic-small": {"wings": 2}}}')
    assert main(["reproduce", "tiny", *SMALL, *files]) == 2
    shown = capsys.readouterr().err
    assert f"gcn on {TARGET} in {tmp_path / 'settings.json'}" in shown
    assert "got 'wings'" in shown
    assert not (tmp_path / "rows.jsonl").exists()


def test_settings_that_are_named_must_be_there(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["reproduce", "tiny", *SMALL, "--seeds", "1", "--methods", "gcn", "--out", "r.jsonl"]
    assert main([*argv, "--settings", "absent.json"]) == 2
    assert capsys.readouterr().err == ("graphglow: the settings file must exist; got absent.json\n")
    assert main(argv) == 0
    assert capsys.readouterr().err == (
        "graphglow: there is no results/settings.json: every method runs with its default "
        "settings\n"
    )


def test_damaged_rows_are_named_and_files_of_others_refused(capsys, files, tmp_path):
    out = tmp_path / "rows.jsonl"
    assert main(["reproduce", "tiny", *SMALL, *files]) == 0
    capsys.readouterr()
    with out.open("a") as file:
        file.write('{"cut\n[1]\n')
    assert main(["reproduce", "tiny", *SMALL, *files, "--dry-run"]) == 0
    assert capsys.readouterr().err == (
        f"graphglow: {out}: 2 lines skipped (the first: line 5: not JSON)\n"
    )
    out.write_bytes(b"\x80binary")
    assert main(["reproduce", "tiny", *SMALL, *files]) == 2
    assert "no rows in it" in capsys.readouterr().err
    assert out.read_bytes() == b"\x80binary"


def test_ctrl_c_says_what_was_kept(capsys, files, tmp_path, monkeypatch):
    fit_many = run_module.fit_many

    def interrupted(name, *rest):
        if name == "mlp":
            raise KeyboardInterrupt
        return fit_many(name, *rest)

    monkeypatch.setattr(run_module, "fit_many", interrupted)
    assert main(["reproduce", "tiny", *SMALL, *files]) == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        f"graphglow: the rows written to {tmp_path / 'rows.jsonl'} are kept; the same command goes "
        "on from there\ngraphglow: interrupted\n"
    )


def test_cells_without_a_source_are_named(capsys, files, tmp_path):
    argv = ["reproduce", "table1", *files, "--dry-run", "--methods", "graphglow"]
    argv += ["--sources", "cora", "--data-root", str(tmp_path)]
    assert main(argv) == 0  # no data here
    assert capsys.readouterr().err.splitlines()[0] == (
        "graphglow: 15 cells left out, without a source among those given: GraphGLOW on cornell5 "
        "(table1), GraphGLOW on johnshopkins55 (table1), GraphGLOW on amherst41 (table1), "
        "GraphGLOW on reed98 (table1), GraphGLOW on cora (table1) and 10 more"
    )
