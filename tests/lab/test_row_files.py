"""Rows are lines of JSON that pandas reads; of several about one run the last counts."""

import gzip
import json
import sys

import pytest
import torch

from graphglow.errors import InputError, InputWarning
from graphglow.lab.row_files import as_line, digest, file_of, newest, provenance, read_rows, rows_in


def row(cell="gcn/cora", seed=0, setup="a", **more):
    return {"experiment": "tiny", "cell": cell, "method": "gcn", "target": "cora", "seed": seed,
            "setup": setup} | more  # fmt: skip


def test_a_line_holds_what_there_is():
    made = json.loads(as_line(row(accuracy=0.5, x=None, label="", metrics={"a": (1.0, 2.0)})))
    assert made == row(accuracy=0.5, metrics={"a": [1.0, 2.0]})


def test_a_digest_is_of_values_in_any_order():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


def test_packed_rows_come_first_and_lines_that_are_none_are_counted(tmp_path):
    out = tmp_path / "rows"
    out.mkdir()
    packed = gzip.compress((as_line(row(seed=1)) + "\n").encode())
    (out / "tiny.jsonl.gz").write_bytes(packed)
    text = as_line(row(seed=2))
    (out / "tiny.jsonl").write_text(f"{text}\n[1]\n{{}}\n{text[:20]}")
    with pytest.warns(InputWarning, match="3 lines are no rows"):
        found = rows_in(out, ["tiny", "absent"])
    assert [one["seed"] for one in found] == [1, 2]
    assert file_of(out, "tiny") == out / "tiny.jsonl"
    assert file_of(out / "all.jsonl", "tiny") == out / "all.jsonl"


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    for path in tmp_path.iterdir():
        with pytest.raises(InputError, match="is no file of rows"):
            read_rows(path)


def test_the_last_setup_of_a_cell_counts_and_the_last_row_of_a_seed():
    rows = [
        row(seed=0, setup="b", n=1),
        row(seed=1, setup="a", n=2),
        row(seed=1, setup="b", n=3),
        row("mlp/cora", seed=1, setup="a", n=4),
        row(seed=2, setup="a", n=5),
        row(seed=0, setup="b", n=6),
    ]
    assert [one["n"] for one in newest(rows)] == [6, 3, 4]


def test_the_command_names_no_machine_paths(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/x/bin/graphglow", "audit", "--data-root", "/home/x/d"])
    assert provenance()["command"] == "graphglow audit --data-root d"
    monkeypatch.setattr(sys, "argv", ["benchmarks/search.py", "--seeds", "3"])
    assert provenance()["command"].endswith(" benchmarks/search.py --seeds 3")


def test_machine_and_versions(monkeypatch):
    monkeypatch.setenv("GRAPHGLOW_COMMIT", "abc1234")
    found = provenance()
    assert found["commit"] == "abc1234"
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["torch"] == torch.__version__
