"""Rows: what is read of files that anybody may have written, and which rows a cell is made of."""

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_cells import cell, rows, run

from graphglow.errors import InputError
from graphglow.lab.runs import rows as row_module
from graphglow.lab.runs.rows import (
    RowFile,
    by_date,
    line_of,
    origins,
    read_rows,
    row_of,
    same_settings,
    without_repeats,
)
from graphglow.storage import append_line

PLAIN = {
    "experiment": "table1", "cell": "gcn/cora", "label": "GCN", "method": "gcn", "target": "cora",
    "split": "public", "seed": 0, "test_accuracy": 0.5, "val_accuracy": 0.5, "train_seconds": 1.0,
    "provenance": {"commit": "0000000", "versions": {"graphglow": "0", "torch": "0"}},
}  # fmt: skip
GLOW = row_of(PLAIN | {
    "experiment": "e", "cell": "graphglow/cora", "method": "graphglow", "sources": ["a", "b"],
    "config": {"epochs": 500, "seed": 0}, "pretraining": {"epochs": 80, "seed": 0},
})  # fmt: skip


def row(**changes):
    return PLAIN | changes


def write_rows(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def changed(**parts):
    """``GLOW`` with other fields; what is in its settings is merged."""
    merged = {
        name: getattr(GLOW, name) | value if isinstance(getattr(GLOW, name), dict) else value
        for name, value in parts.items()
    }
    return replace(GLOW, **merged)


def test_a_row_is_read_as_it_was_written(tmp_path):
    given = row(sources=["a", "b"], x=3, paper=0.6, metrics={"m": 1, "l": [1, None]})
    read = row_of(given)
    assert read.sources == ("a", "b")
    assert (read.x, read.paper, read.test_accuracy) == (3.0, 0.6, 0.5)
    assert read.metrics == {"m": 1.0, "l": (1.0, None)}
    append_line(tmp_path / "rows.jsonl", line_of(read))
    assert read_rows(tmp_path / "rows.jsonl").rows == [read]
    (tmp_path / "packed.jsonl.gz").write_bytes(
        gzip.compress((tmp_path / "rows.jsonl").read_bytes())
    )
    assert read_rows(tmp_path / "packed.jsonl.gz").rows == [read]
    (line,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(line)["error"] is None  # what is empty is null


def test_seconds_that_were_not_taken_with_care_are_none():
    assert row_of(row()).seconds == 1
    assert row_of(row(timed=True)).seconds == 1
    assert row_of(row(timed=False)).seconds is None


def test_other_kinds_are_skipped(tmp_path):
    trial = {"benchmark": "competitors", "kind": "trial", "val_accuracy": [0.5]}
    bench = {"benchmark": "op", "nodes": 3}
    path = write_rows(tmp_path / "rows.jsonl", [trial, row(), bench, {"anything": 1}])
    file = read_rows(path)
    assert len(file.rows) == 1
    assert file.skipped == f"{path}: 3 lines skipped (the first: line 1: no row of a run)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_accuracy": "0.5"}, "test_accuracy must be of type int or float; got '0.5'"),
        ({"train_seconds": [1]}, "train_seconds must be of type int or float"),
        ({"seed": 1.5}, "seed must be of type int; got 1.5"),
        ({"seed": True}, "seed must be of type int"),
        ({"seed": None}, "seed must be of type int; got None"),
        ({"timed": 1}, "timed must be of type bool"),
        ({"target": None}, "target must be of type str"),
        ({"config": [1]}, "config must be of type dict"),
        ({"metrics": [1]}, "metrics must be of type dict"),
        ({"metrics": {"m": "high"}}, "metrics must be numbers or lists of them"),
        ({"metrics": {"m": [[1]]}}, "metrics must be numbers or lists of them"),
        ({"metrics": {"m": [10**400]}}, "metrics must be numbers or lists of them"),
        ({"sources": "cora"}, "sources must be of type list"),
    ],
)
def test_a_damaged_row_is_left_out_and_named(tmp_path, changes, said):
    file = read_rows(write_rows(tmp_path / "rows.jsonl", [row(), row(**changes)]))
    assert len(file.rows) == 1
    (damaged,) = file.damaged
    assert damaged.startswith("line 2: ")
    assert said in damaged


def test_lines_that_are_no_objects_are_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    deep = "[" * 100_000 + "]" * 100_000
    nan = json.dumps(row(test_accuracy=float("nan")))
    path.write_text(f'{{"cut": \n\n{json.dumps(row())}\n[1]\n{deep}\n{nan}\n')
    file = read_rows(path)
    assert [one.test_accuracy for one in file.rows] == [0.5, None]
    assert file.damaged == [
        "line 1: not JSON",
        "line 4: no row of a run",
        "line 5: not JSON",
    ]


def test_files_without_rows_are_said_for_what_they_are(tmp_path):
    with pytest.raises(InputError, match="must exist"):
        read_rows(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="folder"):
        read_rows(tmp_path)
    path = tmp_path / "rows.jsonl"
    for content, said in (
        (b"", "skipped (no rows in it)"),
        (b'{"a": 1}\n', "1 line skipped (no rows in it; line 1: no row of a run)"),
        (b'{"cut\n' * 2, "2 lines skipped (no rows in it; the first: line 1: not JSON)"),
        (b"\xff\xfe\x00", "1 line skipped (no rows in it; line 1: not JSON)"),
    ):
        path.write_bytes(content)
        assert read_rows(path).skipped == f"{path}: {said}"
        assert read_rows(path).rows == []


def test_a_packed_file_is_not_unpacked_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(row_module, "MOST_BYTES", 5000)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 10_000))
    with pytest.raises(InputError, match="it holds more than 5,000 bytes"):
        read_rows(path)
    path.write_bytes(gzip.compress(json.dumps(row()).encode())[:-9])
    with pytest.raises(InputError, match="must be readable"):
        read_rows(path)


@pytest.mark.parametrize(
    "parts",
    [
        {"seed": 1, "config": {"seed": 1}, "pretraining": {"seed": 1}},
        {"config": {"device": "cuda"}, "pretraining": {"device": "cuda"}},
        {"config": {"capture": False}, "pretraining": {"capture": False}},
        {"config": {"backend": "triton"}, "pretraining": {"backend": "chunked"}},
        {"config": {"dropout": 0.5}, "pretraining": {"learner": {"num_heads": 4}}},  # the defaults
        {"config": {"weight_decay": 5e-4, "teleport": 0.1, "steps": 10.0}},  # equal numbers
        {"sources": ("b", "a")},
        {"device": "cuda", "runs_at_once": 5, "processes": 2, "provenance": {"commit": "b"}},
        {"timed": False, "threads": 1, "copied_from": "other", "observe_every": 5},
    ],
    ids=str,
)
def test_what_runs_of_one_cell_may_differ_in(parts):
    assert same_settings(changed(**parts)) == same_settings(GLOW)


@pytest.mark.parametrize(
    "parts",
    [
        {"config": {"epochs": 3}},
        {"config": {"patience": 100}},
        {"config": {"precision": "bfloat16"}},
        {"pretraining": {"objective": {"entropy": 0.5}}},
        {"pretraining": {"epochs": 3}},
        {"pretraining": {"learner": {"delta": "affine"}}},
        {"sources": ("a",)},
        {"split": "random seed 0"},
        {"damage": {"kind": "delete", "ratio": 0.1}},
    ],
    ids=str,
)
def test_what_makes_another_setting(parts):
    assert same_settings(changed(**parts)) != same_settings(GLOW)
    assert same_settings(replace(GLOW, pretraining={})) != same_settings(GLOW)


def test_rows_of_others_are_compared_as_they_are():
    def theirs(**config):
        return same_settings(row_of(row(method="mine", config=config)))

    assert theirs(width=3) == theirs(width=3, seed=1)
    assert theirs(width=3) != theirs(width=4)


def test_of_repeated_rows_the_last_counts():
    kept, dropped = without_repeats([row_of(row(test_accuracy=a)) for a in (0.1, 0.2)])
    assert ([one.test_accuracy for one in kept], dropped) == ([0.2], 1)


def test_of_several_files_the_latest_date_counts_whatever_their_order():
    def made(*days):
        dates = [{"date": f"2026-11-{day}T00:00:00+00:00"} if day else {} for day in days]
        found = [
            row_of(row(test_accuracy=float(d), provenance=p))
            for d, p in zip(days, dates, strict=True)
        ]
        return RowFile(Path("a"), found)

    files = [made(12, 14), made(13), made(0)]
    for order in (files, files[::-1]):
        kept, dropped = without_repeats(by_date(order))
        assert ([one.test_accuracy for one in kept], dropped) == ([14.0], 3)
    taken_back = by_date([made(14, 12), made(13)])  # the older row was written again
    assert [one.test_accuracy for one in taken_back] == [13.0, 14.0, 12.0]


def test_of_a_cell_only_runs_with_the_settings_of_its_newest_are_kept():
    older = [row_of(row(seed=seed, config={"epochs": 500})) for seed in range(5)]
    made = [*older, row_of(row(config={"epochs": 3}, test_accuracy=0.1))]
    kept, dropped = without_repeats(made)
    assert [(one.seed, one.test_accuracy, one.left_out) for one in kept] == [(0, 0.1, 4)]
    assert dropped == 1  # seed 0, with 500 epochs
    kept, dropped = without_repeats(made[::-1])
    assert [(one.seed, one.left_out) for one in kept] == [(seed, 0) for seed in (4, 3, 2, 1, 0)]
    assert dropped == 1


def test_a_short_run_does_not_mix_with_long_ones(tmp_path):
    out = tmp_path / "rows.jsonl"
    run([cell(), cell("mlp")], out, seeds=3, epochs=4)
    run([cell()], out, seeds=1, epochs=2)
    kept, _ = without_repeats(rows(out))
    assert [(one.method, one.epochs, one.left_out) for one in kept] == [
        *[("mlp", 4, 0)] * 3, ("gcn", 2, 2),
    ]  # fmt: skip
    assert run([cell()], out, seeds=3, epochs=4).made == 0  # seed 0 is taken back
    kept, _ = without_repeats(rows(out))
    assert [(one.epochs, one.left_out) for one in kept] == [(4, 0)] * 6


def test_comparing_thousands_is_fast():
    many = [changed(seed=seed, config={"seed": seed}) for seed in range(3000)]
    began = time.process_time()
    assert without_repeats(many) == (many, 0)
    assert time.process_time() - began < 3  # 0.2 s on a core of its own


def test_origins_count_rows():
    found = origins([row_of(row()), row_of(row(provenance={"commit": "abc"}))])
    assert found["commit"] == "0000000 (1 row); abc (1 row)"
    assert found["versions"] == "graphglow 0, torch 0 (1 row)"
