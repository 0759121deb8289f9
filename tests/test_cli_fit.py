"""``graphglow fit``: every method, its settings, and what would not fit."""

from dataclasses import replace

import pytest

from graphglow import competitors
from graphglow.competitors import METHODS

KEYS = (
    "target method backbone test_accuracy val_accuracy epochs train_seconds total_seconds "
    "peak_memory_bytes device seed split predictions"
)


@pytest.fixture
def graph(home):
    return home / "g.npz"


def test_help_names_every_method(run):
    words = run("fit", "--help").out.translate(str.maketrans(",.;", "   ")).split()
    assert set(METHODS) <= set(words)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_prints_one_json_object(run, graph, name):
    words = ["fit", "--method", name, "--target", graph, "--epochs", "2", "--seed", "3", "--json"]
    facts = run(*words, "--device", "cpu").json
    assert set(facts) >= set(KEYS.split())
    assert (facts["target"], facts["method"], facts["epochs"]) == ("g", name, 2)
    assert 0 <= facts["test_accuracy"] <= 1
    assert (facts["seed"], facts["device"], facts["split"]) == (3, "cpu", "random seed 0")


def test_the_flags_reach_the_config(run, graph, monkeypatch):
    seen = []
    real = competitors.fit
    monkeypatch.setattr(
        competitors, "fit", lambda *args, **more: seen.append(args) or real(*args, **more)
    )
    words = ["--target", graph, "--epochs", "2", "--teleport", "0.25", "--steps", "3"]
    assert run("fit", "--method=appnp", *words, "--hidden", "5").status == 0
    name, _, config = seen[0]
    assert name == "appnp"
    assert config == METHODS["appnp"].config(epochs=2, teleport=0.25, steps=3, hidden=5)


def test_predictions_are_written(run, graph, tmp_path):
    out = tmp_path / "p.csv"
    words = ["fit", "--method", "mlp", "--target", graph, "--epochs", "1", "--predictions", out]
    outcome = run(*words)
    assert "test accuracy" in outcome.out
    assert len(out.read_text().splitlines()) == 41
    assert "--overwrite" in run(*words).refuses()
    assert run(*words, "--overwrite", "--json").json["predictions"] == str(out)


def test_settings_of_another_method_are_refused(run):
    words = ["fit", "--method", "gcn", "--target", "wine"]
    assert "--attention-heads" in run(*words, "--attention-heads", "2").refuses()
    assert "hidden must be" in run(*words, "--hidden", "0").refuses()


def test_what_would_not_fit_is_said_before_training(run, graph, monkeypatch):
    monkeypatch.setattr("graphglow.device.free_bytes", lambda device: 10)
    heavy = replace(METHODS["gcn"], pair_bytes=10**9)
    monkeypatch.setitem(METHODS, "gcn", heavy)
    line = run("fit", "--method", "gcn", "--target", graph).refuses()
    assert "it would need about" in line
    assert "idgl-anchor needs far less" in line


def test_an_output_never_replaces_a_file_of_the_target_folder(run, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    rows = [f"{i},{i % 3},{'ab'[i % 2]}" for i in range(12)]
    (folder / "nodes.csv").write_text("\n".join(["id,size,label", *rows]) + "\n")
    (folder / "edges.csv").write_text("source,target\n0,1\n1,2\n3,4\n")
    before = (folder / "nodes.csv").read_text()
    words = ["fit", "--method", "mlp", "--target", folder, "--epochs", "1", "--overwrite"]
    assert "one of the inputs" in run(*words, "--predictions", folder / "nodes.csv").refuses()
    assert (folder / "nodes.csv").read_text() == before
    assert run(*words, "--predictions", folder / "new.csv").status == 0
