import json
from pathlib import Path

import pytest
from synthetic_rows import row, write_rows

from graphglow.errors import InputError
from graphglow.experiments import row_checks
from graphglow.report.result_rows import origins, read_rows, row_of, without_repeats

MANY = "damaged lines, the first: line 1: not JSON"


def test_a_row_of_the_contract_is_read_whole() -> None:
    read = row_of(
        row(sources=["a", "b"], x=3, paper=0.6, metrics={"m": 1, "l": [1, None, float("nan")]})
    )
    assert read is not None
    assert read.sources == ("a", "b")
    assert (read.x, read.paper, read.test_accuracy) == (3.0, 0.6, 0.5)
    assert read.metrics == {"m": 1.0, "l": (1.0, None, None)}


def test_rows_of_benchmarks_are_read_and_other_kinds_are_counted(tmp_path: Path) -> None:
    run = {"benchmark": "competitors", "kind": "run", "method": "lds", "target": "cora"}
    run |= {"split": "public", "seed": 0, "test_accuracy": 0.8, "runs_at_once": 5}
    transfer = run | {"benchmark": "transfer_accuracy", "setting": "A", "epochs": 300}
    trial = {"benchmark": "competitors", "kind": "trial", "val_accuracy": [0.5]}
    path = write_rows(tmp_path / "rows.jsonl", [trial, run, transfer, {"anything": 1}])
    file = read_rows(path)
    assert [r.label for r in file.rows] == ["LDS", "LDS (setting A, 300 epochs)"]
    assert [r.experiment for r in file.rows] == ["competitors", "transfer_accuracy"]
    assert file.rows[0].runs_at_once == 5
    assert (file.others, file.damaged) == ({"of a search": 1, "of another kind": 1}, [])
    assert file.skipped == f"{path}: 2 lines skipped (1 of a search, 1 of another kind)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_accuracy": 66.1}, "test_accuracy must lie in [0, 1]; got 66.1"),
        ({"test_accuracy": "0.5"}, "test_accuracy must be a finite number"),
        ({"test_accuracy": float("nan")}, "test_accuracy must be a finite number"),
        ({"train_seconds": 10**400}, "train_seconds must be a finite number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": True}, "seed must be a whole number"),
        ({"seed": -1}, "seed must be a whole number in [0, 4294967295]; got -1"),
        ({"train_seconds": -3}, "train_seconds must lie in [0, 1e+12]; got -3"),
        ({"train_seconds": float("inf")}, "train_seconds must be a finite number"),
        ({"paper_std": 1.6}, "paper_std must lie in [0, 1]"),
        ({"processes": 0}, "processes must lie in [1,"),
        ({"x": 1e300}, "x must lie in"),
        ({"label": "a" * 10_000}, "label must have at most 300 characters; got 10,000"),
        ({"error": "a" * 10_000}, "error must have at most 5000 characters"),
        ({"metrics": {"m": 1e300}}, "metrics.m must lie in"),
        ({"metrics": {"m": [True]}}, "metrics.m must hold numbers"),
        ({"sources": [1]}, "sources must be names; got 1"),
        ({"target": None}, "target must be text"),
        ({"label": ""}, "label must be text"),
        ({"metrics": [1]}, "metrics must be an object"),
        ({"metrics": {"m": "high"}}, "metrics.m must be a number"),
        ({"metrics": {"m": ["high"]}}, "metrics.m must hold numbers"),
        ({"sources": "cora"}, "sources must be a list"),
    ],
)
def test_a_damaged_row_is_left_out_and_named(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(), row(**changes)])
    file = read_rows(path)
    assert len(file.rows) == 1
    assert len(file.damaged) == 1
    assert file.damaged[0].startswith("line 2: ")
    assert said in file.damaged[0]


def test_lines_that_are_not_json_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    deep = "[" * 100_000 + "]" * 100_000
    path.write_text(f'{{"cut": \n\n{json.dumps(row())}\n[1]\n{deep}\n')
    file = read_rows(path)
    assert len(file.rows) == 1
    assert file.damaged[0] == "line 1: not JSON"
    assert file.damaged[1] == "line 4: must be a JSON object"
    assert file.damaged[2].startswith("line 5: ")


def test_a_line_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_checks, "LONGEST_LINE", 2000)
    path = write_rows(
        tmp_path / "rows.jsonl", [row(label="a" * 9000), row(), row(label="b" * 3000)]
    )
    file = read_rows(path)
    assert len(file.rows) == 1
    assert file.damaged == ["line 1: longer than 2,000 bytes", "line 3: longer than 2,000 bytes"]


def test_files_without_rows_are_said_for_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must exist"):
        read_rows(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="folder"):
        read_rows(tmp_path)
    path = tmp_path / "rows.jsonl"
    for content, said in (
        (b"", "skipped (an empty file)"),
        (b'{"a": 1}\n', "1 line skipped (1 of another kind)"),
        (b"hello\n", "skipped (text that is no lines of JSON)"),
        (b'{"cut\n', "1 line skipped (1 damaged line: line 1: not JSON)"),
        (b'{"cut\n' * 1000, f"1,000 lines skipped (1,000 {MANY})"),
        (b'{"cut\n' * 1001, f"the first 1,000 lines skipped, the rest not read (1,000 {MANY})"),
        (b"\xff\xfe\x00", "skipped (a binary file)"),
        (b"\x00\n" * 5000, "skipped (a binary file)"),
        ("\u00e9".encode() * 5, "skipped (text that is no lines of JSON)"),
    ):
        path.write_bytes(content)
        assert read_rows(path).skipped == f"{path}: {said}"
        assert read_rows(path).rows == []


def test_of_repeated_rows_the_last_counts() -> None:
    rows = [row_of(row(test_accuracy=a)) for a in (0.1, 0.2)] + [row_of(row(seed=1))]
    kept, dropped = without_repeats([r for r in rows if r is not None])
    assert [r.test_accuracy for r in kept] == [0.2, 0.5]
    assert dropped == 1


def test_of_a_cell_only_runs_with_the_settings_of_its_newest_are_kept() -> None:
    older = [row_of(row(seed=seed, config={"epochs": 500})) for seed in range(5)]
    rows = [r for r in [*older, row_of(row(config={"epochs": 3}, test_accuracy=0.1))] if r]
    kept, dropped = without_repeats(rows)
    assert [(r.seed, r.test_accuracy, r.left_out) for r in kept] == [(0, 0.1, 4)]
    assert dropped == 1  # seed 0, with 500 epochs
    kept, dropped = without_repeats(rows[::-1])
    assert [(r.seed, r.test_accuracy, r.left_out) for r in kept] == [
        (seed, 0.5, 0) for seed in (4, 3, 2, 1, 0)
    ]
    assert dropped == 1


def test_origins_count_rows() -> None:
    rows = [r for r in (row_of(row()), row_of(row(provenance={"commit": "abc"}))) if r is not None]
    found = origins(rows)
    assert found["commit"] == "0000000 (1 row); abc (1 row)"
    assert found["versions"] == "graphglow 0, torch 0 (1 row)"
