"""What measures the ways of large graphs runs on tiny ones, and becomes tables."""

import json
from functools import partial

import pytest
import torch

import graphglow
import scaling_tables
import size_checks
from graphglow.graph import synthetic_graph
from graphglow.lab.open_world.targets import few_labels
from scaling_tables import NO_ROWS

TABLES = {
    "lists": ("recall", "instant"),
    "link": ("link",),
    "pairs": ("pairs",),
}


@pytest.mark.parametrize("part", sorted(size_checks.PARTS))
def test_every_check_gives_rows_that_become_lines(part, tmp_path, monkeypatch):
    data = synthetic_graph(num_nodes=300, num_classes=3, num_features=12)
    data = few_labels(data, 10, 0)
    monkeypatch.setattr(size_checks, "graph", lambda name, seed: data)
    monkeypatch.setattr(size_checks, "LABELS", 10)
    monkeypatch.setattr(size_checks, "PAIRS", 64)
    monkeypatch.setattr(size_checks, "SECONDS", 0.01)
    monkeypatch.setattr(graphglow, "transfer", partial(graphglow.transfer, epochs=2))
    check, _ = size_checks.PARTS[part]
    name = "600" if part == "pairs" else "tiny"
    rows = [
        {"part": part, "target": name, "seed": 0} | row
        for row in check(name, 0, torch.device("cpu"))
    ]
    (tmp_path / "size_checks.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    made = scaling_tables.tables(tmp_path)
    for table in TABLES.get(part, ()):
        assert made[table] != NO_ROWS
        assert "nan" not in made[table]
