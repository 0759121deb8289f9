"""docs/competitors.md is what its generator makes of METHODS and the rows."""

import json
from pathlib import Path

REPO = Path(__file__).parents[1]
SCRIPT = REPO / "benchmarks" / "competitor_tables.py"
ORIGIN = {
    "date": "2026-01-01T00:00:00+00:00",
    "commit": "abc1234",
    "machine": {"cpu": "x86_64", "cores": 2, "gpu": None},
}


def row(line, target, seed, accuracy, **changes):
    facts = {"experiment": "competitors", "cell": f"{line}/{target}", "label": line}
    facts |= {"method": line.split()[0], "target": target, "seed": seed, "epochs": 500}
    facts |= {"test_accuracy": accuracy, "train_seconds": 2.0, "peak_memory_bytes": 5e8}
    return facts | {"device": "cpu", "processes": 2, "provenance": ORIGIN} | changes


def test_the_page_is_not_stale(run_script):
    assert run_script(SCRIPT, "--check") == 0, "run python benchmarks/competitor_tables.py"


def test_tables_are_made_of_the_newest_row_of_each_run(tmp_path, run_script):
    later = ORIGIN | {"date": "2026-02-01T00:00:00+00:00"}
    rows = [
        row("gcn", "cora", 0, 0.82),
        row("gcn", "cora", 1, 0.10),
        row("gcn", "cora", 1, 0.84, provenance=later),
        row("gat", "cora", 0, 0.819),
        row("random-theta (linkx)", "reed98", 0, 0.71),
        {"kind": "trial", "method": "gcn", "target": "cora", "provenance": ORIGIN},
    ]
    file, page = tmp_path / "competitors.jsonl", tmp_path / "page.md"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    page.write_text((REPO / "docs" / "competitors.md").read_text())
    where = ("--results", tmp_path, "--page", page)
    assert run_script(SCRIPT, *where, "--check") == 1
    assert run_script(SCRIPT, *where) == 0
    assert run_script(SCRIPT, *where, "--check") == 0
    text = page.read_text()
    assert "| gcn | 83.0 +- 1.4 (2), paper 81.6 |" in text
    assert "| gat | 81.9 (1), paper 83.0 **no** |" in text
    assert "| random-theta (linkx) |  |  | 71.0 (1) |" in text
    assert "| gcn | cora | 500 | 2.0 | 500 | CPU | 2 | abc1234 |" in text
