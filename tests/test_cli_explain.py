"""``graphglow explain`` of a pair: with nothing trained, and of a saved transfer."""

import pandas as pd
import pytest

from graphglow.cli import main

NODES = 24


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two tables with the user's own ids, and a transfer to them, saved."""
    folder = tmp_path_factory.mktemp("people")
    people = [f"p{i},{i % 2 + i / 100},{i % 5},{'ab'[i % 2]}" for i in range(NODES)]
    (folder / "people.csv").write_text("\n".join(["id,x,z,label", *people]))
    knows = [f"p{i},p{(i + 2) % NODES}" for i in range(NODES)]
    (folder / "knows.csv").write_text("\n".join(["source,target", *knows]))
    words = ["transfer", "--target", tables(folder), "--epochs", "2", "--hidden", "8"]
    assert main([*words, "--out", str(folder / "r.safetensors")]) == 0
    return folder


def tables(home):
    return f"{home / 'people.csv'}+{home / 'knows.csv'}"


def test_a_pair_needs_nothing_but_a_graph(run, home):
    facts = run("explain", "--target", tables(home), "--pair", "p0", "p2", "--json").json
    assert (facts["command"], facts["u"], facts["v"]) == ("explain", "p0", "p2")
    assert (facts["input_edge"], facts["outcome"] in ("kept", "dropped")) == (True, True)
    parts = [one["contribution"] for one in facts["contributions"]]
    assert sum(parts) == pytest.approx(facts["score"], abs=1e-5)
    assert facts["text"].startswith("p0 and p2 are ")
    assert facts["out"] is None
    control = ["--learner", "untrained", "--seed", "3", "--device", "cpu"]
    other = run("explain", "--target", tables(home), "--pair", "p0", "p2", *control, "--json").json
    assert other["contributions"] != facts["contributions"]


def test_a_pair_for_people(run, home):
    out = run("explain", "--target", tables(home), "--pair", "p0", "p7").out
    assert "p0 and p7 are " in out
    assert "score: " in out
    assert "features around" in out


@pytest.mark.parametrize("name", ["why.html", "why.csv", "why.parquet"])
def test_a_pair_of_a_saved_transfer_is_written(run, home, tmp_path, name):
    words = ["explain", "--result", home / "r.safetensors", "--pair", "p1", "p2"]
    facts = run(*words, "--out", tmp_path / name, "--json").json
    assert facts["out"] == str(tmp_path / name)
    if name == "why.csv":
        frame = pd.read_csv(tmp_path / name)
        told = [one["contribution"] for one in facts["contributions"]]
        assert frame.contribution.tolist() == pytest.approx(told)
    else:
        assert (tmp_path / name).stat().st_size > 500


def test_a_node_of_a_saved_transfer(run, home, tmp_path):
    words = ["explain", "--result", home / "r.safetensors", "--node", "p0", "--top-k", NODES]
    facts = run(*words, "--json").json
    assert (facts["id"], facts["label"]) == ("p0", "a")
    parts = [one["contribution"] for one in facts["contributions"]]
    assert sum(parts) == pytest.approx(facts["score"], abs=1e-4)
    run(*words, "--out", tmp_path / "why.html")
    assert "<script" not in (tmp_path / "why.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--pair", "p0"], "--pair must be two ids; got p0"),
        (["--pair", "p0", "p1", "p2"], "--pair must be two ids; got p0 p1 p2"),
        (["--pair", "p0", "p0"], "two different nodes; got 'p0' twice"),
        (["--pair", "p0", "q1"], "must be the id of a node (nearest: "),
        (["--pair", "p0", "p1", "--top-k", "3"], "--top-k must go with --node; got --pair"),
        (["--pair", "p0", "p1", "--learner", "paper"], "needs an evidence learner"),
        (["--node", "p0"], "--node must go with --result"),
        (["--node", "p0", "--pair", "p0", "p1"], "either --node or --pair; got both"),
        ([], "either --node or --pair; got none"),
    ],
)
def test_bad_words_about_a_graph_are_refused(run, home, words, sentence):
    assert sentence in run("explain", "--target", tables(home), *words).refuses()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--learner", "untrained"], "--result has its own settings and must come without --lear"),
        (["--split-seed", "3"], "must come without --split-seed"),
        (["--target", "wine"], "either --target or --result; got both"),
    ],
)
def test_a_result_comes_alone(run, home, words, sentence):
    given = ["explain", "--result", home / "r.safetensors", "--pair", "p0", "p1"]
    assert sentence in run(*given, *words).refuses()


def test_neither_a_graph_nor_a_result(run):
    refused = run("explain", "--pair", "a", "b").refuses()
    assert "either --target or --result; got none" in refused
