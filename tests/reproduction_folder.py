"""Rows of experiments, and the generator of docs/reproduction.md on copies of its pages."""

import importlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from graphglow.lab.paper.cells import EXPERIMENTS, Cell
from graphglow.lab.runs.run import cell_facts

REPO = Path(__file__).parents[1]
PAGES = ("README.md", "docs/reproduction.md")
ORIGIN = {
    "date": "2026-01-01T00:00:00+00:00",
    "commit": "abc1234",
    "machine": {"cpu": "x86_64", "cores": 2, "gpu": "NVIDIA H200"},
    "versions": {"torch": "2.13.0", "cuda": "13.0"},
}
SPREAD = (-0.01, 0.01, 0.0, -0.01, 0.01)
"""Of five seeds around a mean: the standard deviation is exactly 0.01."""

Main = Callable[[list[str]], int]


def generator(patch: pytest.MonkeyPatch) -> Main:
    """The generator's command; scripts in benchmarks/ import each other by name."""
    patch.syspath_prepend(str(REPO / "benchmarks"))
    command: Main = importlib.import_module("reproduction_tables").main
    return command


class Folder:
    """Copies of the pages, and rows beside them."""

    def __init__(self, root: Path, main: Main) -> None:
        self.root, self.main = root, main
        for page in PAGES:
            (root / page).parent.mkdir(exist_ok=True)
            (root / page).write_text((REPO / page).read_text())

    def write(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, *words: str) -> int:
        return self.main([*words, "--results", str(self.root), "--root", str(self.root)])

    def block(self, name: str) -> str:
        """Of either page, made anew."""
        assert self.run() == 0
        text = "".join((self.root / page).read_text() for page in PAGES)
        return text.split(f"<!-- table: {name} -->\n")[1].split("<!-- end of table -->")[0]


def cells(experiment: str, *keys: str) -> list[Cell]:
    found = {cell.key: cell for cell in EXPERIMENTS[experiment]()}
    return [found[key] for key in keys]


def row(cell: Cell, seed: int = 0, accuracy: float | None = 0.7, **changes: Any) -> dict[str, Any]:
    measured = {"test_accuracy": accuracy, "val_accuracy": 0.7, "train_seconds": 2.0}
    measured |= {"peak_memory_bytes": 5e8, "device": "cuda", "timed": cell.timed, "threads": 1}
    facts = {"method": cell.method, "sources": list(cell.sources) or None, "target": cell.target}
    facts |= {"split": cell.split, "seed": seed, "config": {}, "pretraining": None, "metrics": {}}
    nothing = {"error": None, "provenance": ORIGIN, "damage": None, "observe_every": None}
    return {**cell_facts(cell), **facts, **measured, **nothing, **changes}


def five(cell: Cell, mean: float, **changes: Any) -> list[dict[str, Any]]:
    """A whole cell, with a standard deviation of one point."""
    return [row(cell, seed, round(mean + s, 6), **changes) for seed, s in enumerate(SPREAD)]
