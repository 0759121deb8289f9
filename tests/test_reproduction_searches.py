"""How the settings of each method came about, as docs/reproduction.md tells it."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphglow.lab.paper import GRAPHS
from reproduction_folder import ORIGIN, Folder, cells, five, generator


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, generator(monkeypatch))


def study(method: str, target: str, accuracy: float | None, **changes: Any) -> dict[str, Any]:
    """The row of a search."""
    row = {"experiment": "search", "method": method, "target": target, "val_accuracy": accuracy}
    row |= {"sources": None, "budget": 30, "trials": 30, "seeds_per_trial": 2, "failed": 0}
    row |= {"settings": {"dropout": 0.5}, "trial_seconds": 1800.0, "device": "cuda"}
    return row | {"provenance": ORIGIN} | changes


def test_the_search_is_told_by_method_and_sources(folder):
    other, same = list(GRAPHS[:4]), ["pubmed", "citeseer"]
    rows = [
        study("gcn", "cora", 0.1, trials=4),
        study("gcn", "cora", 0.801),
        study("gcn", "reed98", 0.7, budget=12, trials=9, seeds_per_trial=1),
        study("lds", "pubmed", None, failed=30),
        study("lds", "cora", None, trials=0),
        study("graphglow", "cora", 0.81, sources=same),
        study("graphglow", "cora", 0.82, sources=other),
        study("graphglow-backbone", "cora", 0.83, sources=other),
    ]
    folder.write("search.jsonl", rows)
    with (folder.root / "search.jsonl").open("a") as file:
        file.write('{"experiment": "sea')
    table = folder.block("search")
    assert table.startswith("7 searches: 159 trials, 30 of them failed, 3.5 hours on NVIDIA H200. ")
    start = "| GCN | - | - | - |"
    assert f"{start} 70.0 (9 of 12 x 1) | 80.1 (30 x 2) | - | - |" in table
    assert "| LDS | - | - | - | - | none (0 of 30 x 2) | - | all failed (30 x 2) |" in table
    assert "| GraphGLOW, in-domain | - | - | - | - | 81.0 (30 x 2) | - | - |" in table
    assert "| GraphGLOW, cross-domain | - | - | - | - | 82.0 (30 x 2) | - | - |" in table
    assert "| GraphGLOW, best backbone, cross-domain | - | - | - | - | 83.0 (30 x 2) |" in table


def test_settings_that_were_not_searched_say_where_they_come_from(folder):
    plain = {"experiment": "search", "sources": None, "settings": {}, "provenance": ORIGIN}
    rows = [
        plain | {"method": "random-theta", "target": "pubmed", "borrowed_from": "citeseer"},
        plain | {"method": "gat", "target": "cora", "taken_from": "earlier.jsonl", "drawn": 48},
        plain | {"method": "gat", "target": "pubmed", "taken_from": "earlier.jsonl", "drawn": 0},
    ]
    folder.write("search.jsonl", rows)
    table = folder.block("search")
    assert "Entries borrowed: 1; taken: 2." in table
    empty = "| - | - | - | - |"
    assert f"| random theta {empty} - | - | of CiteSeer |" in table
    assert f"| GAT {empty} taken (48) | - | taken (not searched) |" in table


def test_finals_say_how_many_ran_again_and_whose_trial_won(folder):
    ran = [{"val_accuracies": [0.7, 0.8, 0.9]}, {"val_accuracies": None}]
    final = {"experiment": "search", "sources": None, "settings": {}, "provenance": ORIGIN}
    final |= {"trials": 70, "finalists": ran, "val_accuracy": 0.8}
    rows = [
        study("random-theta", "cora", 0.7),
        final | {"method": "random-theta", "target": "cora", "found_by": "graphglow"},
        final | {"method": "random-on", "target": "cora", "found_by": "random-theta"},
        final | {"method": "gcn", "target": "cora", "found_by": "held before", "finalists": None},
    ]
    folder.write("search.jsonl", rows)
    table = folder.block("search")
    empty = "| - | - | - | - |"
    assert f"| random theta {empty} 80.0 (70; 2 x 3; graphglow) |" in table
    assert f"| random theta, lambda < 1 {empty} 80.0 (70; 2 x 3) |" in table
    assert f"| GCN {empty} 80.0 (70; held before) |" in table


def test_cells_made_before_their_settings_were_changed_are_marked(folder):
    gcn, dot, ours = cells("table2", "gcn/cora", "graphglow-dot/cora", "graphglow/cora")
    (swept,) = cells("sensitivity", "lambda/0.1/cora")
    rows = five(gcn, 0.8, config={"dropout": 0.5}) + five(dot, 0.8, config={"input_weight": 0.3})
    rows += five(ours, 0.8, config={"input_weight": 0.5, "patience": 100})
    rows += five(swept, 0.8, config={"input_weight": 0.1})
    folder.write("reproduce/rows.jsonl", rows)
    held = {"gcn": {"cora": {"dropout": 0.2}}, "random-theta": {"cora": {"input_weight": 1.0}}}
    held["graphglow"] = {"cora": {"transfer": {"input_weight": 0.5}}}
    (folder.root / "settings.json").write_text(json.dumps(held))
    assert (
        "- made before their settings or learners were changed: 2 cells, marked\n"
        in folder.block("rows")
    )
    table = folder.block("table2")
    assert table.count("80.0 +- 1.0** &Dagger;") == 2
    assert table.endswith("\n- &Dagger; made before its settings or its learner were changed\n")
    held["gcn"]["cora"]["dropout"], held["random-theta"]["cora"]["input_weight"] = 0.5, 0.3
    (folder.root / "settings.json").write_text(json.dumps(held))
    assert "made before" not in folder.block("rows")
    assert "&Dagger;" not in folder.block("table2")
