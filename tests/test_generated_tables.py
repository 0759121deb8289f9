"""The tables of the docs are what scripts make of the rows."""

import importlib
import json

import pytest

import competitor_tables
import make_pretrained
import open_world
import reproduction_tables
import size_tables
from graphglow.lab.config import RunsConfig
from graphglow.lab.rows import read_rows
from graphglow.lab.runs import reproduce
from marked_page import RESULTS, rewrite

SCRIPTS = {
    "docs/competitors.md": competitor_tables,
    "docs/open_world.md": open_world,
    "docs/performance.md and docs/scaling.md": size_tables,
    "docs/pretrained.md": make_pretrained,
    "docs/reproduction.md": reproduction_tables,
}


@pytest.mark.parametrize("page", SCRIPTS)
def test_a_page_is_not_stale(page, monkeypatch):
    script = SCRIPTS[page]
    name = script.__name__
    if script in (competitor_tables, reproduction_tables):
        monkeypatch.setattr("sys.argv", [name, "--check"])
        stale = importlib.import_module("marked_page").write_page(page, script.tables, ["--check"])
    else:
        words = ["--tables", "--check"] if script is make_pretrained else ["--check"]
        stale = script.main(words)
    assert not stale, f"run python benchmarks/{name}.py"


def test_blocks_are_put_between_their_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: one -->\nold\n<!-- end of table -->\nb\n")
    assert rewrite(page, {"one": "new\n"}, check=True) == 1
    assert rewrite(page, {"one": "new\n"}) == 0
    assert page.read_text() == "a\n<!-- table: one -->\nnew\n<!-- end of table -->\nb\n"
    with pytest.raises(ValueError, match="has the blocks"):
        rewrite(page, {"two": ""})


def competitor(line, target, seed, accuracy, date="2026-01-01", **changes):
    return {
        "experiment": "competitors", "cell": f"{line}/{target}", "method": line.split()[0],
        "target": target, "seed": seed, "epochs": 500, "test_accuracy": accuracy,
        "train_seconds": 2.0, "peak_memory_bytes": 5e8, "device": "cpu",
        "provenance": {"date": date, "commit": "abc", "machine": {"gpu": None}},
    } | changes  # fmt: skip


def test_competitors_are_judged_by_the_newest_row_of_each_run(tmp_path):
    rows = [
        competitor("gcn", "cora", 0, 0.82),
        competitor("gcn", "cora", 1, 0.84, "2026-02-01"),
        competitor("gcn", "cora", 1, 0.10),
        competitor("gat", "cora", 0, 0.819),
        competitor("random-theta (linkx)", "reed98", 0, 0.71),
    ]
    (tmp_path / "competitors.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = competitor_tables.tables(tmp_path)
    assert "| gcn | 83.0 +- 1.4 (2), paper 81.6 |" in made["citation"]
    assert "| gat | 81.9 (1), paper 83.0 **no** |" in made["citation"]
    assert "| random-theta (linkx) |  |  | 71.0 (1) |" in made["social"]
    assert "| gcn | cora | 500 | 2.0 | 500 | CPU | abc |" in made["cost"]


def test_held_out_graphs_play_no_part_and_controls_stand_beside(tmp_path, monkeypatch):
    small = {"num_pivots": 8, "refinements": 1, "episodes": 1, "epochs": 2}
    monkeypatch.setattr(make_pretrained, "SOURCES", ("wine", "synthetic-small"))
    monkeypatch.setattr(make_pretrained, "SETTINGS", small)
    config = RunsConfig(seeds=1, epochs=2, device="cpu", workers=1)
    out = tmp_path / "rows.jsonl"
    reproduce([*make_pretrained.cells(["wine"])], out, config, {})
    rows = {row["method"]: row for row in read_rows(out)}
    assert {*rows} == {"graphglow", "random-theta", "gcn"}
    assert rows["graphglow"]["sources"] == ["synthetic-small"]
    assert rows["gcn"]["config"]["hidden"] == 64
    assert "| `paper` | wine | " in make_pretrained.hold_out_table(out)


def test_a_refinement_is_told_with_its_slowest_stage():
    made = {"part": "refine", "device": "cpu", "target": "1000", "nodes": 1000, "peak_bytes": 5e9,
            "threads": 2, "provenance": {"machine": {"cpu": "x"}}}  # fmt: skip
    rows = [made | {"stage": s, "seconds": t} for s, t in (("views", 1.0), ("all", 4.0))]
    table = size_tables.measured_table(rows)
    line = "| refine | random | 1,000 | 2 threads of a x CPU | 4.00 | 5.0 | views, 25 % |"
    assert line in table
    assert RESULTS.name == "results"
