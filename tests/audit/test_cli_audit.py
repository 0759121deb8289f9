"""``graphglow audit``: files with the user's own ids, a line of verdict, errors in one line."""

import json

import pandas as pd
import pytest
from small_audits import IDS, with_false_edges

from graphglow.cli import main


@pytest.fixture
def tables(tmp_path):
    data, _ = with_false_edges()
    nodes = pd.DataFrame(data.x.numpy(), columns=[f"f{i}" for i in range(data.x.shape[1])])
    nodes.insert(0, "id", IDS)
    nodes.to_csv(tmp_path / "people.csv", index=False)
    u, v = data.edge_index.tolist()
    edges = {"source": [IDS[i] for i in u], "target": [IDS[i] for i in v]}
    pd.DataFrame(edges).to_csv(tmp_path / "relations.csv", index=False)
    return f"{tmp_path / 'people.csv'}+{tmp_path / 'relations.csv'}"


def test_audit_writes_tables_and_a_page(tables, tmp_path, capsys):
    files = {name: tmp_path / name for name in ("s.csv", "m.csv", "page.html")}
    words = ["audit", "--target", tables, "--suspects", str(files["s.csv"]), "--top", "9"]
    words += ["--missing", str(files["m.csv"]), "--out", str(files["page.html"]), "--json"]
    assert main([*words, "--device", "cpu"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    suspects = pd.read_csv(files["s.csv"])
    assert len(suspects) == facts["edges"] == len(pd.read_csv(tmp_path / "relations.csv"))
    assert suspects["probability_real"].is_monotonic_increasing
    assert set(suspects["source"]) <= set(IDS)
    assert len(pd.read_csv(files["m.csv"])) == 9
    low, share, high = (facts[f"false_share{end}"] for end in ("_low", "", "_high"))
    assert low < high
    assert share is None or low <= share <= high  # None: it cannot be told
    assert "more likely false than real" in files["page.html"].read_text()
    for flag, name in (("--suspects", "s.csv"), ("--out", "page.html")):  # they exist
        assert main(["audit", "--target", tables, flag, str(files[name])]) == 2
        assert "--overwrite" in capsys.readouterr().err


def test_audit_says_its_verdict_in_one_line(tables, capsys):
    assert main(["audit", "--target", tables, "--device", "cpu"]) == 0
    assert "more likely false than real" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suspects", "a.txt"], "must end in .csv, .parquet"),
        (["--out", "a.csv"], "must end in .html"),
        (["--suspects", "a.csv", "--missing", "a.csv"], "one file"),
        (["--top", "-1"], "top must be >= 0"),
    ],
)
def test_bad_usage_is_one_line(words, said, tables, capsys):
    assert main(["audit", "--target", tables, *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
