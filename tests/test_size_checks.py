"""What measures training and the ways of large graphs runs on tiny ones, and becomes tables."""

import json
from functools import partial

import pytest
import torch

import graphglow
import scaling_tables
import size_checks
import train_scale
from graphglow.experiments.open_world.targets import few_labels
from graphglow.graphs import synthetic_graph
from scaling_tables import NO_ROWS

TABLES = {
    "lists": ("recall", "instant"),
    "link": ("link",),
    "sign": ("sign",),
    "bytes": ("bytes",),
    "pairs": ("pairs",),
}


def test_training_at_size_is_measured(tmp_path):
    row = train_scale.measured(400, "sign", 64, 2)
    assert row["epochs_of_all"] == 10
    classes = [train_scale.drawn(400, share, 4, width).y for share, width in ((0.3, 9), (0.6, 1))]
    assert torch.equal(*classes)
    line = json.dumps(row | {"device": "cpu", "threads": 1})
    (tmp_path / "train_scale.jsonl").write_text(line)
    assert "| 400 | sign | 64 |" in scaling_tables.tables(tmp_path)["training"]


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
    name = "600" if part in ("bytes", "pairs") else "tiny"
    rows = [
        {"part": part, "target": name, "seed": 0} | row
        for row in check(name, 0, torch.device("cpu"))
    ]
    (tmp_path / "size_checks.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    made = scaling_tables.tables(tmp_path)
    for table in TABLES.get(part, ()):
        assert made[table] != NO_ROWS
        assert "nan" not in made[table]
