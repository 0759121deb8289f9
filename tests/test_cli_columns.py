"""``--columns`` from one end to the other: tables whose columns nobody has renamed."""

import json

import pandas as pd
import pytest

from graphglow import Prediction

COLUMNS = ["--columns", "id=person", "label=risk", "source=payer", "target=payee"]
COLUMNS += ["weight=amount", "leave-out=phone", "leave_out=note"]
SMALL = ["--epochs", "3", "--device", "cpu"]
TARGET = "people.csv+payments.csv"
GLOW = [*SMALL, "--num-pivots", "8"]
PAPER = ["--kind", "paper", "--episodes", "1", *GLOW]
READERS = [
    ["transfer", "--target", TARGET, *SMALL],
    ["fit", "--method", "gcn", "--target", TARGET, *SMALL],
    ["refine", "--target", TARGET, "--out", "r.csv"],
    ["pretrain", "--sources", TARGET, "--out", "l.safetensors", *PAPER],
]


@pytest.fixture(autouse=True)
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = range(40)
    frame = pd.DataFrame({"person": [f"{n:03d}" for n in numbers]})
    frame["risk"] = [("low", "high")[n % 2] if n % 4 < 2 else "" for n in numbers]
    frame["Age"] = [20 + n % 2 * 10 + n % 7 for n in numbers]
    frame["phone"] = [n * 7919 for n in numbers]
    frame["note"] = [f"called {n} times" for n in numbers]
    frame.to_csv("people.csv", index=False)
    edges = pd.DataFrame({"payer": frame.person, "payee": frame.person.to_numpy()[::-1]})
    edges["amount"], edges["day"] = 1500, "2024-01-31"
    edges.to_csv("payments.csv", index=False)


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_every_command_that_reads_tables_takes_them(run, words):
    outcome = run(*words, *COLUMNS, "--json")
    assert outcome.err == ""
    facts = outcome.json
    assert "people" in (facts.get("target"), *facts.get("sources", ()))
    err = run(*words, "--overwrite").refuses()
    assert "people.csv has no id column" in err
    assert 'Say which: --columns id=NAME (in Python load_graph(.., columns={"id": "NAME"}))' in err


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_every_command_that_reads_tables_can_skip_unknown_edges(run, words):
    edges = pd.read_csv("payments.csv", dtype=str)
    edges.loc[3:4, "payee"] = ["zoe", "max"]
    edges.to_csv("payments.csv", index=False)
    err = run(*words, *COLUMNS, "--json").refuses()
    assert "2 of 40 edges of payments.csv name an id that no node has, such as 'zoe'" in err
    status, out, err = run(*words, *COLUMNS, "--skip-unknown-edges", "--json")
    assert (status, len(err.splitlines())) == (0, 1)
    assert err.startswith(
        "graphglow: note: 2 of 40 edges of payments.csv name an id that no node has"
    )
    assert json.loads(out)


def test_a_saved_prediction_remembers_them(run):
    words = ["predict", "--target", TARGET, *COLUMNS, "--save", "p.safetensors"]
    assert run(*words)[0] == 0
    data = Prediction.load("p.safetensors").data
    assert [facts["name"] for facts in data.feature_columns["columns"]] == ["Age"]
    assert data.node_id[7] == "007"
    with open("new.csv", "w") as file:
        file.write("person,Age\nn1,25\nn2,31\n")
    with open("new_payments.csv", "w") as file:
        file.write("day,payer,payee,amount\n1,n1,007,3\n")
    predict = ["predict", "--saved", "p.safetensors", "--nodes", "new.csv"]
    status, _, err = run(*predict, "--edges", "new_payments.csv", "--out", "p.csv")
    assert (status, err) == (0, "")
    assert pd.read_csv("p.csv").id.tolist() == ["n1", "n2"]
    with open("new.csv", "w") as file:
        file.write("who,Age\nn1,25\n")
    assert run(*predict, "--out", "q.csv")[0] == 2
    assert run(*predict, "--out", "q.csv", "--columns", "id=who")[0] == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["id"], "--columns takes pairs such as id=person leave_out=notes; got 'id'"),
        (["id="], "got 'id='"),
        (["id=person", "id=risk"], "--columns names two columns as id"),
        (["category=fone"], "people.csv has no column 'fone', which columns names"),
    ],
)
def test_bad_choices_are_one_line(run, given, said):
    words = ["fit", "--method", "gcn", "--target", TARGET, "--columns", *given]
    assert said in run(*words).refuses()


@pytest.mark.parametrize("table", ["people.csv", "payments.csv"])
def test_a_table_of_a_pair_is_never_overwritten(run, table, tmp_path):
    before = (tmp_path / table).read_bytes()
    words = ["fit", "--method", "gcn", "--target", TARGET, *SMALL, *COLUMNS]
    line = run(*words, "--predictions", table, "--overwrite").refuses()
    assert "one of the inputs" in line
    assert (tmp_path / table).read_bytes() == before
