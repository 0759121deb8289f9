"""docs/scaling.md: its tables follow the rows."""

import json
from pathlib import Path

import pytest

import scaling_tables


def test_the_page_is_not_stale(run_script):
    script = Path(scaling_tables.__file__)
    assert run_script(script, "--check") == 0, "run python benchmarks/scaling_tables.py"


def test_only_blocks_are_shared_out(tmp_path):
    row = {"part": "refine", "device": "cpu", "target": "1000", "nodes": 1000, "peak_bytes": 5000}
    row["threads"] = 2
    spent = {"views": 1.0, "candidates": 2.0, "scoring": 1.0, "all": 5.0}
    rows = [row | {"stage": stage, "seconds": seconds} for stage, seconds in spent.items()]
    (tmp_path / "bench_refine.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (one,) = scaling_tables.largest(tmp_path).values()
    assert scaling_tables.rates(one) == pytest.approx((2000, 3000))
    made = scaling_tables.tables(tmp_path)
    assert "| 1,000 | 2000.0 | 3000.0 |" in made["rates"]
    assert (
        "| refine | random | 1,000 | cpu, 2 threads | 5.00 | 0.0 | candidates, 40 % |"
        in made["measured"]
    )
