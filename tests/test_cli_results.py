"""``graphglow predict`` and ``graphglow explain``, from the user's tables to theirs."""

import csv

import numpy as np
import pandas as pd
import pytest

from graphglow import TransferResult, load_graph
from graphglow.cli import main
from graphglow.graph.tables import read_new_nodes

TOWNS = ("Ulm", "York")


def person(number: int) -> dict[str, object]:
    """Town and group go together; ages differ; some cells are blank."""
    group = number % 2
    return {
        "id": f"p{number}",
        "age": "" if number % 7 == 3 else 20 + 30 * group + number % 5,
        "town": "" if number % 11 == 5 else TOWNS[group],
        "joined": f"20{10 + group}-01-{1 + number % 28:02d}",
        "active": number % 3 == 0,
        "group": ("chess", "rowing")[group],
    }


def write(path, rows, **rename):
    names = [rename.get(name, name) for name in rows[0]]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(row.values() for row in rows)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of tables, and a transfer to it, saved."""
    folder = tmp_path_factory.mktemp("people")
    (folder / "graph").mkdir()
    rows = [person(number) for number in range(40)]
    write(folder / "graph" / "nodes.csv", rows, group="label")
    edges = [{"source": f"p{n}", "target": f"p{(n + 2) % 40}"} for n in range(40)]
    write(folder / "graph" / "edges.csv", edges)
    words = ["transfer", "--target", str(folder / "graph"), "--epochs", "30"]
    assert main([*words, "--out", str(folder / "people.safetensors")]) == 0
    new = [{k: v for k, v in person(n).items() if k != "group"} for n in range(40, 46)]
    write(folder / "new.csv", new)
    joined = [{"source": f"p{n}", "target": f"p{n - 40}"} for n in range(40, 46)]
    write(folder / "joined.csv", joined)
    return folder


def predict_words(home, out, *more):
    inputs = ["--result", home / "people.safetensors", "--nodes", home / "new.csv"]
    return ["predict", *inputs, "--edges", home / "joined.csv", "--out", out, *more]


def test_the_table_of_training_is_encoded_to_the_features_of_training(home):
    """Whatever the loader makes of a column, new nodes get the same."""
    data = load_graph(home / "graph")
    frame = pd.read_csv(home / "graph" / "nodes.csv", dtype=str, keep_default_na=False)
    frame["id"] = "new " + frame["id"]
    found = read_new_nodes(frame, None, data).x
    np.testing.assert_allclose(found, data.x, atol=1e-6)
    frame.to_csv(home / "again.csv", index=False)
    np.testing.assert_allclose(read_new_nodes(home / "again.csv", None, data).x, data.x, atol=1e-6)


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_new_people_are_put_into_their_groups(run, home, tmp_path, name):
    outcome = run(*predict_words(home, tmp_path / name, "--json"))
    assert outcome.err == ""
    facts = outcome.json
    assert facts["predicted"] == {"chess": 3, "rowing": 3}
    assert (facts["nodes"], facts["out"]) == (6, str(tmp_path / name))
    frame = (pd.read_parquet if name.endswith("t") else pd.read_csv)(tmp_path / name)
    assert list(frame) == ["id", "predicted", "probability", "p_chess", "p_rowing"]
    assert frame.id.tolist() == [f"p{n}" for n in range(40, 46)]
    assert frame.predicted.tolist() == ["chess", "rowing"] * 3
    result = TransferResult.load(home / "people.safetensors")
    expected = result.predict_new_tables(home / "new.csv", home / "joined.csv").predict_proba()
    np.testing.assert_allclose(frame[["p_chess", "p_rowing"]], expected, atol=1e-6)


def test_predictions_for_people(run, home, tmp_path):
    assert "chess 3, rowing 3" in run(*predict_words(home, tmp_path / "p.csv")).out


def test_without_edges_the_learned_graph_alone_joins_them(run, home, tmp_path):
    words = ["--result", home / "people.safetensors", "--nodes", home / "new.csv"]
    assert run("predict", *words, "--out", tmp_path / "p.csv").status == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == 6


def test_what_is_not_known_of_training_is_a_note_beside_the_json(run, home, tmp_path):
    nodes = pd.read_csv(home / "new.csv", dtype=str, keep_default_na=False)
    nodes.loc[:1, "town"] = ["Rome", "Bonn"]
    nodes.to_csv(tmp_path / "new.csv", index=False)
    edges = pd.read_csv(home / "joined.csv")
    edges.loc[2, "target"] = "zoe"
    edges.to_csv(tmp_path / "edges.csv", index=False)
    words = ["predict", "--result", home / "people.safetensors", "--nodes", tmp_path / "new.csv"]
    words += ["--edges", tmp_path / "edges.csv", "--out", tmp_path / "p.csv", "--json"]
    outcome = run(*words, "--skip-unknown-edges")
    assert outcome.json["nodes"] == 6
    first, second = outcome.err.splitlines()
    assert first.startswith("graphglow: note: column 'town' of ")
    assert "in 2 of 6 nodes ('Rome', 'Bonn'); they count as blanks" in first
    assert "1 of 6 edges of" in second
    assert second.endswith("must name old or new nodes; got 'zoe'")
    status, out, err = run(*words, "--overwrite")
    assert (status, out) == (2, "")
    assert "--skip-unknown-edges" in err.splitlines()[-1]


def test_bad_words_to_predict_are_refused_before_work(run, home, tmp_path):
    out = tmp_path / "p.csv"
    assert "must be .csv or .parquet" in run(*predict_words(home, tmp_path / "p.txt")).refuses()
    assert (
        "one of the inputs" in run(*predict_words(home, home / "new.csv", "--overwrite")).refuses()
    )
    out.write_text("mine")
    assert "--overwrite" in run(*predict_words(home, out)).refuses()
    assert out.read_text() == "mine"
    words = predict_words(home, tmp_path / "q.csv")
    words[words.index(home / "new.csv")] = home / "graph" / "nodes.csv"
    assert "ids that are new; got 'p0'" in run(*words).refuses()
    assert not (tmp_path / "q.csv").exists()


def explain_words(home, *more):
    return ["explain", "--result", home / "people.safetensors", "--node", "p5", *more]


def test_a_decision_as_json_adds_up(run, home):
    facts = run(*explain_words(home, "--json", "--top-k", "3")).json
    assert (facts["id"], facts["explained"], len(facts["contributions"])) == ("p5", "rowing", 6)
    parts = sum(one["contribution"] for one in facts["contributions"])
    assert parts == pytest.approx(facts["score"], abs=1e-4)
    assert facts["out"] is None


def test_a_decision_on_a_new_node(run, home, tmp_path):
    assert run(*predict_words(home, tmp_path / "p.csv")).status == 0
    frame = pd.read_csv(tmp_path / "p.csv", index_col="id")
    words = ["explain", "--result", home / "people.safetensors", "--nodes", home / "new.csv"]
    words += ["--edges", home / "joined.csv"]
    facts = run(*words, "--node", "p42", "--json").json
    assert (facts["id"], facts["predicted"]) == ("p42", frame.predicted["p42"])
    assert "p42 and p3 are " in run(*words, "--pair", "p42", "p3").out
    line = run(*words, "--node", "p42", "--out", home / "new.csv", "--overwrite").refuses()
    assert "must not be one of the inputs" in line
    assert "--split-seed" in run(*words, "--node", "p42", "--split-seed", "3").refuses()
    for alone in (["explain", "--target", "wine", *words[3:]], words[:3] + words[5:]):
        assert "--nodes must go with --result" in run(*alone, "--pair", "1", "2").refuses()


def test_a_decision_for_people(run, home):
    out = run(*explain_words(home, "--label", "chess", "--against", "rowing")).out
    assert "chess rather than rowing" in out
    assert "over the learned graph" in out


@pytest.mark.parametrize("name", ["why.html", "why.csv", "why.parquet"])
def test_a_decision_is_written(run, home, tmp_path, name):
    assert run(*explain_words(home, "--out", tmp_path / name)).status == 0
    assert (tmp_path / name).stat().st_size > 0
    assert "--overwrite" in run(*explain_words(home, "--out", tmp_path / name)).refuses()
    assert run(*explain_words(home, "--out", tmp_path / name, "--overwrite")).status == 0


def test_bad_words_to_explain_are_refused(run, home, tmp_path):
    assert "must end in .html" in run(*explain_words(home, "--out", tmp_path / "why.txt")).refuses()
    assert "got 'tennis'" in run(*explain_words(home, "--label", "tennis")).refuses()
    assert "top_k must be >= 1" in run(*explain_words(home, "--top-k", "0")).refuses()
    words = ["explain", "--result", home / "people.safetensors", "--node", "q5"]
    assert "the id of a node (nearest: " in run(*words).refuses()


# refine, with nothing trained


def test_refine_needs_a_target_alone(run, tmp_path):
    out, told = tmp_path / "better.csv", tmp_path / "classes.csv"
    facts = run("refine", "--target", "wine", "--out", out, "--predictions", told, "--json").json
    assert (facts["learner"], facts["split"]) == ("universal", "random seed 0")
    assert facts["edges_out"] == facts["edges_in"] + facts["added"] - facts["dropped"]
    assert facts["test_accuracy"] > 0.9
    assert facts["verdict"].startswith("better: ")
    assert 0 < facts["seconds"] < 60
    edges = pd.read_csv(out)
    assert list(edges) == ["source", "target", "weight", "probability", "in_input"]
    assert len(edges) == 2 * facts["edges_out"]
    assert int((~edges.in_input).sum()) == 2 * facts["added"]
    assert list(pd.read_csv(told))[:2] == ["id", "predicted"]
    run("refine", "--target", "wine", "--out", out).refuses(2)


def test_refine_takes_tables_without_labels_and_writes_the_users_own_ids(run, tmp_path):
    people = [f"p{i},{i % 3},{i % 3 + i / 10}" for i in range(12)]
    (tmp_path / "people.csv").write_text("\n".join(["id,a,b", *people]))
    knows = [f"p{i},p{(i + 3) % 12}" for i in range(12)]
    (tmp_path / "knows.csv").write_text("\n".join(["source,target", *knows]))
    graph, out = f"{tmp_path / 'people.csv'}+{tmp_path / 'knows.csv'}", tmp_path / "better.csv"
    facts = run("refine", "--target", graph, "--out", out, "--json").json
    assert facts["edges_in"] == 12
    assert facts["verdict"] == "cannot tell: no labels"
    assert facts["test_accuracy"] is None
    assert set(pd.read_csv(out).source) <= {f"p{i}" for i in range(12)}
    told = tmp_path / "classes.csv"
    refused = run("refine", "--target", graph, "--out", tmp_path / "x.csv", "--predictions", told)
    assert "--predictions needs labels to learn from; got none" in refused.refuses(2)
    assert not (tmp_path / "x.csv").exists()


def test_refine_prunes_only_or_adds_only(run, tmp_path):
    words = ("refine", "--target", "wine", "--json", "--out")
    assert run(*words, tmp_path / "pruned.csv", "--no-add").json["added"] == 0
    assert run(*words, tmp_path / "grown.csv", "--no-drop").json["dropped"] == 0


def test_transfer_has_controls_and_metrics_beside_its_accuracy(run):
    words = ("transfer", "--target", "wine", "--epochs", "3")
    facts = run(*words, "--json").json
    assert set(facts["controls"]) == {"majority", "mlp", "gcn"}
    assert facts["metrics"]["accuracy"] == facts["test_accuracy"]
    assert "a GNN on the input graph" in facts["verdict"]
    text = run(*words).out
    assert "majority " in text
    assert "AUC" in text
    assert "controls" not in run(*words, "--json", "--no-controls").json


def test_the_graph_of_a_saved_transfer_has_a_verdict_and_about_as_many_edges(run, home, tmp_path):
    words = ["refine", "--result", home / "people.safetensors", "--out", tmp_path / "g.csv"]
    facts = run(*words, "--json").json
    assert "labelled pairs among the refined edges are of one class" in facts["verdict"]
    usual = round(2 * facts["input_edges"] / facts["nodes"])
    assert facts["top_k"] == usual + 1  # and itself
    alone = run(*words, "--json", "--no-self-loops", "--overwrite").json
    assert alone["top_k"] == usual


def test_bad_numbers_are_refused_before_the_graph_is_read(run, tmp_path):
    words = ["refine", "--target", "nobody.csv", "--out", tmp_path / "g.csv"]
    for flag, value in (("--top-k", "0"), ("--seed", "-1"), ("--min-probability", "nan")):
        assert flag[2:].replace("-", "_") in run(*words, flag, value).refuses()
    long = tmp_path / f"{'g' * 300}.csv"
    assert "File name too long" in run(*words[:3], "--out", long).refuses()


@pytest.mark.parametrize(
    "flag", [["--predictions", "p.csv"], ["--min-probability", "0.5"], ["--no-add"]]
)
def test_what_is_instant_does_not_go_with_training(run, home, tmp_path, monkeypatch, flag):
    monkeypatch.chdir(tmp_path)
    words = ["refine", "--target", "wine", "--learner", "paper", "--out", "g.csv"]
    assert f"{flag[0]} has no effect here" in run(*words, *flag).refuses(2)
    words = ["refine", "--result", home / "people.safetensors", "--out", "g.csv"]
    assert f"must come alone; got {flag[0]} too" in run(*words, *flag).refuses(2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--top-k", "0"], "top_k must be >= 1; got 0"),
        (["--epochs", "7"], "it belongs to --learner paper"),
        (["--no-self-loops"], "--no-self-loops must go with"),
        (["--predictions", "better.csv"], "--predictions must be another file than --out"),
        (["--min-probability", "2"], "min_probability must lie in [0, 1]; got 2"),
    ],
)
def test_flags_that_would_do_nothing_are_refused(run, tmp_path, monkeypatch, flags, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in run("refine", "--target", "wine", "--out", "better.csv", *flags).refuses(2)
    assert not list(tmp_path.iterdir())
