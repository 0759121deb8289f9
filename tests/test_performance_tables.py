"""docs/performance.md is what its generator makes of the rows."""

import json
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
SCRIPT = REPO / "benchmarks" / "performance_tables.py"
PROVENANCE = {
    "date": "2026-01-01T00:00:00+00:00",
    "commit": "abc1234",
    "machine": {"cpu": "x86_64", "cores": 2, "gpu": "NVIDIA H200"},
    "versions": {"torch": "2.13.0", "cuda": "13.0"},
}


def test_the_page_is_not_stale(run_script):
    assert run_script(SCRIPT, "--check") == 0, "run python benchmarks/performance_tables.py"


@pytest.fixture
def folder(tmp_path):
    """A copy of the page, and rows of two machines with an older row of the same case."""
    (tmp_path / "page.md").write_text((REPO / "docs" / "performance.md").read_text())
    row = {"benchmark": "op", "nodes": 20_000, "pivots": 1000, "width": 256, "features": 64}
    row |= {"precision": "float32", "threads": 2, "provenance": PROVENANCE}
    linear = row | {"backend": "linear", "device": "cpu", "both_ms": 77.0}
    old = linear | {"speedup_over_eager": 3.0, "both_ms": 555.0}
    old["provenance"] = PROVENANCE | {"date": "2025-01-01T00:00:00+00:00"}
    rows = [
        linear | {"speedup_over_eager": 9.0},
        old,
        row | {"backend": "eager", "device": "cuda", "both_ms": None, "out_of_memory": True},
    ]
    (tmp_path / "bench_op.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    fit = {"benchmark": "scale", "kind": "fit", "exponent": 1.2, "refinements": 2, "device": "cuda"}
    fit |= {"delta": "truncate", "precision": "float32", "threads": 2, "provenance": PROVENANCE}
    (tmp_path / "bench_scale.jsonl").write_text(json.dumps(fit) + "\n")
    return tmp_path


def test_tables_are_made_of_the_newest_rows(folder, run_script):
    where = ("--results", folder, "--page", folder / "page.md")
    assert run_script(SCRIPT, *where, "--check") == 1
    assert run_script(SCRIPT, *where) == 0
    assert run_script(SCRIPT, *where, "--check") == 0
    page = (folder / "page.md").read_text()
    assert "2 threads of a x86_64 CPU, torch 2.13.0; commit abc1234:" in page
    assert "NVIDIA H200, CUDA 13.0, torch 2.13.0; commit abc1234:" in page
    assert "| 20,000 | 1,000 | float32 | linear | 77 | 9.00x |" in page
    assert "555" not in page
    assert "| 20,000 | 1,000 | float32 | eager | out of memory |" in page
    assert "P = 1000 on 2 CPU cores | >= 8.00x |  | 9.00x | yes |" in page
    assert "exponent | <= 1.05 |  | 1.20 | **no** |" in page
    assert "not measured" in page
