"""benchmarks/wrong_edges.py: the table follows the rows; rows that are there are not made again."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import wrong_edges


def test_the_page_is_not_stale():
    fresh = wrong_edges.main(["--tables", "--check"]) == 0
    assert fresh, "run python benchmarks/wrong_edges.py --tables"


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(wrong_edges, "HOMOPHILIES", (0.2,))
    monkeypatch.setattr(wrong_edges, "NOISES", (2.0,))
    monkeypatch.setattr(wrong_edges, "LAMBDAS", (0.5,))
    monkeypatch.setattr(wrong_edges, "SOURCES", ((0.2, 2.0, 3),))
    monkeypatch.setattr(wrong_edges, "EPOCHS", 2)
    monkeypatch.setattr(wrong_edges, "PRETRAINING", {"episodes": 1, "epochs": 2})
    monkeypatch.setattr(wrong_edges, "MODEL", {"num_pivots": 5, "refinements": 1})
    wrong_edges.pretrained.cache_clear()
    yield
    wrong_edges.pretrained.cache_clear()


def test_rows_are_made_once(small, tmp_path):
    out = tmp_path / "rows.jsonl"
    wrong_edges.make_rows(out, seeds=1)
    rows = wrong_edges.read(out)
    assert [row["method"] for row in rows] == list(wrong_edges.METHODS)
    assert [row.get("kappa") is not None for row in rows] == [False] * 4 + [True] * 2
    assert rows[-1]["kappa"] != rows[-2]["kappa"]  # it was trained
    wrong_edges.make_rows(out, seeds=1)
    assert wrong_edges.read(out) == rows
    lines = wrong_edges.table(rows).splitlines()
    assert len(lines) == 3
    assert lines[2].count("**") == 2
