"""``explain``, new nodes of ``predict``, and ``refine`` of a transfer, over the user's tables."""

import pandas as pd
import pytest

from graphglow import Prediction
from graphglow.cli import main


def person(number: int) -> str:
    """Town and group go together; ages differ; some cells are blank."""
    group = number % 2
    age = "" if number % 7 == 3 else 20 + 30 * group + number % 5
    return f"p{number},{age},{('Ulm', 'York')[group]}"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of tables; a prediction and a transfer of it, saved."""
    folder = tmp_path_factory.mktemp("people")
    (folder / "graph").mkdir()
    rows = [f"{person(n)},{('chess', 'rowing')[n % 2]}" for n in range(40)]
    (folder / "graph" / "nodes.csv").write_text("\n".join(["id,age,town,label", *rows]))
    edges = [f"p{n},p{(n + 2) % 40}" for n in range(40)]
    (folder / "graph" / "edges.csv").write_text("\n".join(["source,target", *edges]))
    target = ["--target", str(folder / "graph")]
    assert main(["transfer", *target, "--epochs", "5", "--out", str(folder / "r.st")]) == 0
    assert main(["predict", *target, "--save", str(folder / "p.st")]) == 0
    (folder / "new.csv").write_text("\n".join(["id,age,town", *map(person, range(40, 46))]))
    joined = [f"p{n},p{n - 40}" for n in range(40, 46)]
    (folder / "joined.csv").write_text("\n".join(["source,target", *joined]))
    return folder


def predict_words(home, out, *more):
    inputs = ["--saved", home / "p.st", "--nodes", home / "new.csv"]
    return ["predict", *inputs, "--edges", home / "joined.csv", "--out", out, *more]


# New nodes


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_new_people_are_put_into_their_groups(run, home, tmp_path, name):
    facts = run(*predict_words(home, tmp_path / name, "--json")).json
    assert facts["predicted"] == {"chess": 3, "rowing": 3}
    frame = (pd.read_parquet if name.endswith("t") else pd.read_csv)(tmp_path / name)
    assert list(frame) == ["id", "predicted", "probability", "p_chess", "p_rowing"]
    assert frame.id.tolist() == [f"p{n}" for n in range(40, 46)]
    prediction = Prediction.load(home / "p.st")
    expected = prediction.predict_new_tables(home / "new.csv", home / "joined.csv")
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


def test_what_is_not_known_of_training_is_a_note_beside_the_json(run, home, tmp_path):
    text = (home / "new.csv").read_text()
    (tmp_path / "new.csv").write_text(text.replace("p40,20,Ulm", "p40,20,Rome"))
    text = (home / "joined.csv").read_text()
    (tmp_path / "edges.csv").write_text(text.replace("p42,p2", "p42,zoe"))
    words = ["predict", "--saved", home / "p.st", "--nodes", tmp_path / "new.csv"]
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
    assert "--save has no effect" in run(*words, "--save", tmp_path / "s.st").refuses()
    assert "--target or --saved" in run(*words, "--target", "wine").refuses()
    assert "go with --saved" in run("predict", "--target", "wine", *words[3:5]).refuses()
    assert not (tmp_path / "q.csv").exists()


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


@pytest.mark.parametrize("name", ["why.html", "why.csv"])
def test_an_explanation_is_written(run, home, tmp_path, name):
    words = ["explain", "--target", home / "graph", "--pair", "p1", "p2"]
    facts = run(*words, "--out", tmp_path / name, "--json").json
    assert (tmp_path / name).stat().st_size > 0
    if name == "why.csv":
        frame = pd.read_csv(tmp_path / name)
        parts = [one["contribution"] for one in facts["contributions"]]
        assert frame.contribution.tolist() == pytest.approx(parts)


# Why a class


def test_a_class_is_explained_as_it_is_predicted(run, home):
    words = ["explain", "--target", home / "graph", "--node", "p5"]
    facts = run(*words, "--json").json
    assert (facts["id"], facts["explained"]) == ("p5", "rowing")
    parts = sum(one["contribution"] for one in facts["contributions"])
    assert parts == pytest.approx(facts["score"], abs=1e-4)
    frame = Prediction.load(home / "p.st").to_frame().set_index("id")
    assert facts["probability"] == pytest.approx(frame.probability["p5"], abs=1e-5)
    assert run(*words, "--label", "chess", "--json").json["explained"] == "chess"
    assert "Node p5 is rowing" in run(*words).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node", "q5"], "'q5'"),
        (["--node", "p5", "--label", "tennis"], "'tennis'"),
        (["--node", "p5", "--out", "why.txt"], ".html"),
        (["--pair", "p0", "p0"], "different"),
        (["--pair", "p0", "p1", "--node", "p5"], "either --node ID or --pair"),
    ],
)
def test_bad_words_are_refused(run, home, words, said):
    assert said in run("explain", "--target", home / "graph", *words).refuses()
