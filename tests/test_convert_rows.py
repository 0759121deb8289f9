"""benchmarks/convert_rows.py on a file as earlier versions wrote it."""

import json
from pathlib import Path

import pandas

from graphglow.experiments.runs.rows import read_rows

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "convert_rows.py"


def test_rows_of_earlier_versions_become_rows_of_today(tmp_path, run_script):
    config = {"epochs": 500, "dropout": 0.5, "latent_degree": None}
    before = {"epochs": 80, "learner": {"num_heads": 4, "delta": "truncate", "sharpness": 10.0}}
    sharp = {"epochs": 80, "learner": {"num_heads": 4, "delta": "exp", "sharpness": 10.0}}
    about = {"experiment": "table2", "cell": "graphglow/cora", "label": "GraphGLOW"}
    about |= {"method": "graphglow", "target": "cora", "split": "public", "timed": False}
    about |= {"sources": ["reed98"], "config": {"as": "c"}, "provenance": {"as": "p"}}
    lines = [
        {"as": "c", "value": config},
        {"as": "p", "value": {"commit": "abc"}},
        {"as": "b", "value": before},
        {"as": "s", "value": sharp},
        {"as": "r", "value": about | {"pretraining": {"as": "b", "seed": 0}}},
        {"as": "q", "value": about | {"pretraining": {"as": "s", "seed": 0}, "cell": "sharp/cora"}},
        *({"as": "r", "seed": seed, "test_accuracy": 0.8 + seed / 100} for seed in (0, 1)),
        {"as": "q", "seed": 0, "test_accuracy": 0.1},
        {"benchmark": "competitors", "kind": "run", "method": "gcn", "target": "cora",
         "split": "public", "seed": 0, "test_accuracy": 0.5, "config": {"epochs": 3}},
        {"benchmark": "competitors", "kind": "trial", "method": "gcn", "target": "cora"},
    ]  # fmt: skip
    old, folder, rest = tmp_path / "old.jsonl", tmp_path / "rows", tmp_path / "rest.jsonl"
    old.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_script(SCRIPT, old, folder, "--archive", rest) == 0
    table = read_rows(folder / "table2.jsonl").rows
    assert [(row.seed, row.test_accuracy) for row in table] == [(0, 0.8), (1, 0.81)]
    assert [row.config for row in table] == [
        {"epochs": 500, "dropout": 0.5, "seed": seed} for seed in (0, 1)
    ]
    assert table[0].pretraining == {
        "epochs": 80, "learner": {"num_heads": 4, "delta": "truncate"}, "seed": 0,
    }  # fmt: skip
    assert (table[0].sources, table[0].provenance) == (("reed98",), {"commit": "abc"})
    assert pandas.read_json(folder / "table2.jsonl", lines=True)["test_accuracy"].mean() == 0.805
    (row,) = read_rows(folder / "competitors.jsonl").rows
    assert (row.label, row.cell, row.experiment) == ("GCN", "gcn/cora", "competitors")
    kept = [json.loads(line) for line in rest.read_text().splitlines()]
    assert [one.get("cell") for one in kept] == ["sharp/cora", None]  # and the trial


def test_the_rows_of_the_repository_are_whole():
    results = SCRIPT.parents[1] / "results"
    for path in (*results.glob("reproduce/*"), *results.glob("archive/*.gz")):
        assert path.stat().st_size < 2**20, path
        file = read_rows(path)
        assert {line.partition(": ")[2] for line in file.damaged} <= {"no row of a run"}, path
        assert file.rows or "archive" in str(path), path
