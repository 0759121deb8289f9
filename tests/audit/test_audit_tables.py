"""The page of the audit has the tables of its rows."""

import importlib
import json
from pathlib import Path

REPO = Path(__file__).parents[2]


def test_the_tables_of_the_page_are_those_of_the_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(REPO / "benchmarks"))
    bench = importlib.import_module("audit_open")
    lines = (REPO / "results" / "audit.jsonl").read_text().splitlines()
    page = (REPO / "docs" / "audit.md").read_text()
    start, end = (page.index(mark) for mark in bench.MARKS)
    written = page[start + len(bench.MARKS[0]) : end].strip()
    assert written == bench.all_tables([json.loads(line) for line in lines])
