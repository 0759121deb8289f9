"""``explain``, and ``predict`` and ``refine`` of a saved transfer, over the user's tables."""

import numpy as np
import pandas as pd
import pytest

from graphglow import TransferResult
from graphglow.cli import main


def person(number: int) -> str:
    """Town and group go together; ages differ; some cells are blank."""
    group = number % 2
    age = "" if number % 7 == 3 else 20 + 30 * group + number % 5
    return f"p{number},{age},{('Ulm', 'York')[group]}"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of tables, and a transfer to it, saved."""
    folder = tmp_path_factory.mktemp("people")
    (folder / "graph").mkdir()
    rows = [f"{person(n)},{('chess', 'rowing')[n % 2]}" for n in range(40)]
    (folder / "graph" / "nodes.csv").write_text("\n".join(["id,age,town,label", *rows]))
    edges = [f"p{n},p{(n + 2) % 40}" for n in range(40)]
    (folder / "graph" / "edges.csv").write_text("\n".join(["source,target", *edges]))
    words = ["transfer", "--target", str(folder / "graph"), "--epochs", "30"]
    assert main([*words, "--out", str(folder / "r.st")]) == 0
    (folder / "new.csv").write_text("\n".join(["id,age,town", *map(person, range(40, 46))]))
    joined = [f"p{n},p{n - 40}" for n in range(40, 46)]
    (folder / "joined.csv").write_text("\n".join(["source,target", *joined]))
    return folder


def predict_words(home, out, *more):
    inputs = ["--result", home / "r.st", "--nodes", home / "new.csv"]
    return ["predict", *inputs, "--edges", home / "joined.csv", "--out", out, *more]


# New nodes


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_new_people_are_put_into_their_groups(run, home, tmp_path, name):
    facts = run(*predict_words(home, tmp_path / name, "--json")).json
    assert facts["predicted"] == {"chess": 3, "rowing": 3}
    frame = (pd.read_parquet if name.endswith("t") else pd.read_csv)(tmp_path / name)
    assert list(frame) == ["id", "predicted", "probability", "p_chess", "p_rowing"]
    assert frame.id.tolist() == [f"p{n}" for n in range(40, 46)]
    result = TransferResult.load(home / "r.st")
    expected = result.predict_new_tables(home / "new.csv", home / "joined.csv").predict_proba()
    np.testing.assert_allclose(frame[["p_chess", "p_rowing"]], expected, atol=1e-6)


def test_what_is_not_known_of_training_is_a_note_beside_the_json(run, home, tmp_path):
    text = (home / "new.csv").read_text()
    (tmp_path / "new.csv").write_text(text.replace("p40,20,Ulm", "p40,20,Rome"))
    text = (home / "joined.csv").read_text()
    (tmp_path / "edges.csv").write_text(text.replace("p42,p2", "p42,zoe"))
    words = ["predict", "--result", home / "r.st", "--nodes", tmp_path / "new.csv"]
    words += ["--edges", tmp_path / "edges.csv", "--out", tmp_path / "p.csv", "--json"]
    outcome = run(*words, "--skip-unknown-edges")
    assert outcome.json["nodes"] == 6
    assert "'Rome'" in outcome.err
    assert "'zoe'" in outcome.err
    assert "--skip-unknown-edges" in run(*words, "--overwrite").err.splitlines()[-1]


def test_bad_new_nodes_are_refused(run, home, tmp_path):
    words = predict_words(home, tmp_path / "q.csv")
    words[words.index(home / "new.csv")] = home / "graph" / "nodes.csv"
    assert "'p0'" in run(*words).refuses()
    assert "one of the inputs" in run(*predict_words(home, home / "new.csv")).refuses()
    assert "--coverage has no effect" in run(*words, "--coverage", "0.9").refuses()
    assert not (tmp_path / "q.csv").exists()


# A graph of a saved transfer


def test_the_graph_of_a_saved_transfer_has_about_as_many_edges(run, home, tmp_path):
    words = ["refine", "--result", home / "r.st", "--out", tmp_path / "g.csv", "--json"]
    facts = run(*words).json
    usual = round(2 * facts["input_edges"] / facts["nodes"])
    assert facts["top_k"] == usual + 1  # and itself
    assert facts["refined_edges"] > 0
    assert run(*words, "--no-self-loops", "--overwrite").json["top_k"] == usual


# Why a pair


def test_a_pair_needs_nothing_but_a_graph(run, home):
    words = ["explain", "--target", home / "graph", "--pair", "p0", "p2"]
    facts = run(*words, "--json").json
    assert (facts["command"], facts["u"], facts["v"]) == ("explain", "p0", "p2")
    assert facts["input_edge"] is True
    parts = [one["contribution"] for one in facts["contributions"]]
    assert sum(parts) == pytest.approx(facts["score"], abs=1e-5)
    control = run(*words, "--learner", "untrained", "--seed", "3", "--json").json
    assert control["contributions"] != facts["contributions"]
    assert "p0 and p2 are " in run(*words).out


@pytest.mark.parametrize("name", ["why.html", "why.csv", "why.parquet"])
def test_a_pair_of_a_saved_transfer_is_written(run, home, tmp_path, name):
    words = ["explain", "--result", home / "r.st", "--pair", "p1", "p2"]
    facts = run(*words, "--out", tmp_path / name, "--json").json
    assert (tmp_path / name).stat().st_size > 0
    if name == "why.csv":
        frame = pd.read_csv(tmp_path / name)
        parts = [one["contribution"] for one in facts["contributions"]]
        assert frame.contribution.tolist() == pytest.approx(parts)


# Why a class


def explain_words(home, *more):
    return ["explain", "--result", home / "r.st", "--node", "p5", *more]


def test_a_decision_as_json_adds_up(run, home):
    facts = run(*explain_words(home, "--json", "--top-k", "3")).json
    assert (facts["id"], facts["explained"], len(facts["contributions"])) == ("p5", "rowing", 6)
    parts = sum(one["contribution"] for one in facts["contributions"])
    assert parts == pytest.approx(facts["score"], abs=1e-4)


def test_a_decision_for_people_and_on_paper(run, home, tmp_path):
    out = tmp_path / "why.html"
    words = explain_words(home, "--label", "chess", "--against", "rowing", "--out", out)
    assert "chess rather than rowing" in run(*words).out
    assert out.stat().st_size > 0


def test_a_decision_on_a_new_node(run, home, tmp_path):
    assert run(*predict_words(home, tmp_path / "p.csv")).status == 0
    frame = pd.read_csv(tmp_path / "p.csv", index_col="id")
    words = ["explain", "--result", home / "r.st", "--nodes", home / "new.csv"]
    words += ["--edges", home / "joined.csv"]
    facts = run(*words, "--node", "p42", "--json").json
    assert (facts["id"], facts["predicted"]) == ("p42", frame.predicted["p42"])
    assert "p42 and p3 are " in run(*words, "--pair", "p42", "p3").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node", "q5"], "'q5'"),
        (["--node", "p5", "--label", "tennis"], "'tennis'"),
        (["--node", "p5", "--top-k", "0"], "top_k"),
        (["--node", "p5", "--out", "why.txt"], ".html"),
        (["--node", "p5", "--split-seed", "3"], "--split-seed has no effect"),
        (["--pair", "p0", "p1", "--learner", "untrained"], "--learner has no effect"),
        (["--pair", "p0", "p0"], "different"),
        (["--pair", "p0", "p1", "--target", "wine"], "--target or --result"),
    ],
)
def test_bad_words_are_refused(run, home, words, said):
    assert said in run("explain", "--result", home / "r.st", *words).refuses()
