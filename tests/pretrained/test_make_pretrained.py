"""benchmarks/make_pretrained.py on two tiny sources: files, rows, restarts, tables."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from graphglow.lab.runs import learners
from graphglow.lab.runs.rows import ResultRow, read_rows
from graphglow.paper import StructureLearner

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TINY = '{"num_pivots": 8, "refinements": 1, "episodes": 1, "learner": {"embedding_size": 4}}'


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("make_pretrained")


class Bench:
    def __init__(self, script: ModuleType, folder: Path) -> None:
        self.script, self.folder, self.rows_file = script, folder, folder / "rows.jsonl"
        self.file = folder / "paper.safetensors"

    def __call__(self, *words: str) -> list[ResultRow]:
        places = ["--folder", self.folder, "--out", self.rows_file, "--page", self.folder / "p.md"]
        shared = ["--epochs", "2", "--set", TINY, "--device", "cpu"]
        assert self.script.main([*map(str, places), *shared, *words]) == 0
        return read_rows(self.rows_file).rows if self.rows_file.exists() else []


@pytest.fixture
def bench(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(script, "SOURCES", ("wine", "synthetic-small"))
    monkeypatch.setattr(script, "TRANSFER", {"num_pivots": 8, "refinements": 1})
    return Bench(script, tmp_path)


def test_a_file_is_made_once_and_says_how(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench()
    made = StructureLearner.load(bench.file).provenance
    assert made["sources"] == ["wine", "synthetic-small"]
    assert made["splits"] == ["random seed 0", "random seed 0"]
    assert (made["name"], made["seed"], made["config"]["epochs"]) == ("paper", 0, 2)
    assert {"command", "commit", "machine", "versions"} <= made["provenance"].keys()
    before = bench.file.read_bytes()
    monkeypatch.setattr(learners, "pretrain", None)  # it is there
    bench()
    assert bench.file.read_bytes() == before


def test_held_out_graphs_play_no_part_and_controls_stand_beside(bench: Bench) -> None:
    words = ("--hold-out", "--seeds", "2")
    rows = bench(*words)
    assert not bench.file.exists()
    methods = ("graphglow", "random-theta", "gcn")
    assert sorted((row.target, row.method, row.seed) for row in rows) == sorted(
        (target, method, seed)
        for target in ("wine", "synthetic-small")
        for method in methods
        for seed in (0, 1)
    )
    for row in rows:
        assert row.target not in row.sources
        assert len(row.sources) == (row.method == "graphglow")
        assert row.test_accuracy is not None
        assert (row.split, row.config["epochs"]) == ("random seed 0", 2)
        if row.method == "gcn":
            assert row.config["hidden"] == 4
    assert bench(*words) == rows


def test_a_graph_that_is_no_source_gets_the_whole_learner_and_tables_show_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = bench.folder / "p.md"
    text = "<!-- table: made -->\n<!-- end of table -->\n<!-- table: held_out -->\n{}"
    page.write_text(text.format("old\n<!-- end of table -->\n"))
    bench()
    monkeypatch.setattr(learners, "pretrain", None)
    rows = bench("--hold-out", "--targets", "breast_cancer", "--seeds", "2")
    assert {row.sources for row in rows} == {("wine", "synthetic-small"), ()}
    words = ["--tables", "--folder", str(bench.folder), "--out", str(bench.rows_file)]
    words += ["--page", str(page)]
    assert bench.script.main([*words, "--check"]) == 1
    assert bench.script.main(words) == 0
    assert bench.script.main([*words, "--check"]) == 0
    assert "| `paper` | wine, synthetic-small | " in page.read_text()
    (line,) = (line for line in page.read_text().splitlines() if "| breast_cancer | " in line)
    assert line.startswith("| `paper`, ")  # not made as the one in the package is
    assert "num_pivots 8" in line
    assert " +- " in line
    assert "old" not in page.read_text()


def test_the_page_is_not_stale(script: ModuleType) -> None:
    stale = script.main(["--tables", "--check"])
    assert not stale, "run python benchmarks/make_pretrained.py --tables"
