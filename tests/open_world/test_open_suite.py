"""The suite makes what is missing, keeps what fails, and stops in time."""

import json

import pytest
from suite_rows import made_rows

from graphglow.cli import main
from graphglow.errors import InputError
from graphglow.lab.open_world import methods, suite
from graphglow.lab.open_world.suite import SuiteConfig, compact, run_suite
from graphglow.lab.open_world.targets import Target
from graphglow.lab.runs.rows import read_rows

ONE = SuiteConfig(seeds=1, device="cpu")


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "EPOCHS", 2)
    out = tmp_path / "rows.jsonl"

    def run(config=ONE, **more):
        given = {"targets": ["wine"], "conditions": ["as it is"], "methods": ["mlp", "predict"]}
        return run_suite(out, config, learners=tmp_path, data_root=tmp_path, **given | more)

    return out, run


def test_a_rerun_makes_only_what_is_missing(small):
    out, run = small
    assert run()[:3] == (2, 0, 0)
    assert run()[0] == 0
    assert run(SuiteConfig(seeds=2, device="cpu"))[0] == 2
    rows = read_rows(out).rows
    assert [(row.method, row.seed, row.series) for row in rows] == [
        ("mlp", 0, "as it is"), ("predict", 0, "as it is"),
        ("mlp", 1, "as it is"), ("predict", 1, "as it is"),
    ]  # fmt: skip
    assert all(0 < row.test_accuracy <= 1 for row in rows)
    assert rows[1].config["learner"] == "universal"


def test_a_method_that_fails_is_a_row(small, monkeypatch):
    def broken(*_args):
        raise RuntimeError("no luck")

    out, run = small
    monkeypatch.setattr(methods, "_trained", broken)
    assert run()[:2] == (2, 1)
    assert read_rows(out).rows[0].error == "RuntimeError: no luck"


def test_no_time_leaves_all_jobs(small):
    out, run = small
    assert run(SuiteConfig(seconds=0, device="cpu")).left == 5
    assert not out.exists()


def test_what_is_unknown_is_refused(small):
    _, run = small
    said = r"targets must be one of cora, digits.*; got 'whine' \(nearest: wine\)"
    with pytest.raises(InputError, match=said):
        run(targets=["whine"])


def test_a_dry_run_counts_and_runs_nothing(small, tmp_path, capsys, monkeypatch):
    out, run = small
    run()
    words = ["reproduce", "open-world", "--out", str(out), "--data-root", str(tmp_path)]
    words += ["--targets", "wine", "--methods", "mlp", "predict", "--seeds", "2", "--dry-run"]
    before = out.read_bytes()
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["missing"]["as it is"] == 2  # of the second seed
    assert facts["missing"]["no features"] == 4
    assert facts["runs"] == sum(facts["missing"].values())
    assert (facts["graphs"], facts["learners"]) == (1, 0)
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--out", "no/folder/rows.jsonl"]) == 0
    said = capsys.readouterr().out
    assert "runs are to be made on 1 graph" in said
    assert len(said.splitlines()) < 30
    assert (out.read_bytes(), [*tmp_path.glob("no*")]) == (before, [])


def test_methods_of_one_refinement_share_it(small, monkeypatch):
    out, run = small
    refined, made = [], methods.refine_pool
    monkeypatch.setattr(methods, "refine_pool", lambda *a, **b: refined.append(1) or made(*a, **b))
    assert run(methods=["vote", "mlp", "predict", "mean"])[:2] == (4, 0)
    assert len(refined) == 1
    rows = {row.method: row for row in read_rows(out).rows}
    assert rows["predict"].config["labels"] == rows["vote"].config["labels"] == "pool"
    assert "labels" not in rows["mlp"].config
    assert rows["predict"].val_accuracy == pytest.approx(
        rows["predict"].metrics["loo_accuracy"], abs=1e-4
    )


def test_learners_that_are_missing_are_named_with_the_command(tmp_path, monkeypatch):
    target = Target("dblp", "citation", tmp_path / "dblp.npz", (10, 10))
    monkeypatch.setattr(suite, "find_targets", lambda _root: [target])
    given = {"learners": tmp_path / "held", "data_root": tmp_path, "conditions": ["as it is"]}
    with pytest.raises(InputError, match=r"fold0.safetensors. Make them .* --train .*held"):
        run_suite(tmp_path / "rows.jsonl", ONE, **given)
    plan = suite.plan_suite(
        tmp_path / "rows.jsonl", ONE, tmp_path / "held", tmp_path, [], ["as it is"], ["gcn"]
    )
    assert plan.absent == []  # a GCN needs none


def test_a_compact_row_is_read_back(tmp_path):
    rows = made_rows(("wine",), seeds=1)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(compact, rows)))
    found = read_rows(tmp_path / "rows.jsonl")
    assert found.damaged == []
    assert [row.cell for row in found.rows] == [row.cell for row in rows]
