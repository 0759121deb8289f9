"""The suite makes what is missing, keeps what fails, and stops in time."""

import pytest

from graphglow.errors import InputError
from graphglow.lab import open_methods as methods
from graphglow.lab import open_suite as suite
from graphglow.lab.config import RunsConfig
from graphglow.lab.open_suite import Target, run_suite
from graphglow.lab.row_files import read_rows


def config(**given):
    return RunsConfig(**{"seeds": 1, "device": "cpu", "workers": 1} | given)


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "EPOCHS", 2)
    out = tmp_path / "rows.jsonl"

    def run(asked=None, **more):
        given = {"targets": ["wine"], "conditions": ["as it is"], "methods": ["mlp", "predict"]}
        return run_suite(out, asked or config(), tmp_path, tmp_path, *(given | more).values())

    return out, run


def test_a_rerun_makes_only_what_is_missing(small):
    out, run = small
    assert run()[:3] == (2, 0, 0)
    assert run().made == 0
    assert run(config(seeds=2)).made == 2
    rows = read_rows(out)
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("mlp", 0), ("predict", 0), ("mlp", 1), ("predict", 1),
    ]  # fmt: skip
    assert all(0 < row["test_accuracy"] <= 1 for row in rows)
    assert rows[1]["config"]["learner"] == "universal"
    assert rows[1]["config"]["labels"] == "pool"
    assert "labels" not in rows[0]["config"]


def test_settings_of_a_method_are_part_of_a_run(small, monkeypatch):
    _, run = small
    run()
    monkeypatch.setattr(methods, "EPOCHS", 3)
    assert run().made == 1  # of the MLP


def test_a_method_that_fails_is_a_row(small, monkeypatch):
    def broken(*_args):
        raise RuntimeError("no luck")

    out, run = small
    with monkeypatch.context() as patch:
        patch.setattr(methods, "_trained", broken)
        assert run()[:2] == (2, 1)
    assert read_rows(out)[0]["error"] == "RuntimeError: no luck"
    assert run().made == 0
    assert run(config(retry_failed=True)).made == 1


def test_methods_that_need_features_have_nothing_to_do_without(small):
    out, run = small
    assert run(conditions=["no features"], methods=["knn", "mlp"]).made == 1
    assert [row["method"] for row in read_rows(out)] == ["mlp"]


def test_what_is_unknown_is_refused(small):
    _, run = small
    said = r"targets must be one of cora, digits.*; got 'whine' \(nearest: wine\)"
    with pytest.raises(InputError, match=said):
        run(targets=["whine"])


def test_learners_that_are_missing_are_named_with_the_command(tmp_path, monkeypatch):
    target = Target("dblp", "citation", tmp_path / "dblp.npz", (10, 10))
    monkeypatch.setattr(suite, "find_targets", lambda _root: [target])
    given = tmp_path / "held", tmp_path, [], ["as it is"]
    with pytest.raises(InputError, match=r"fold0.safetensors. Make them .* --train .*held"):
        run_suite(tmp_path / "rows.jsonl", config(), *given)
