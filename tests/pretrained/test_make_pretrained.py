"""benchmarks/make_pretrained.py on two tiny sources: files, rows, restarts, tables."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphglow.structure import StructureLearner

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "make_pretrained.py"
sys.path.insert(0, str(SCRIPT.parent))
TINY = '{"num_pivots": 8, "refinements": 1, "episodes": 1, "learner": {"embedding_size": 4}}'


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pretrained", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = loaded()
    monkeypatch.setattr(module, "PRETRAINED", {"citation": ("wine", "synthetic-small")})
    monkeypatch.setattr(module, "TRANSFER", {"num_pivots": 8, "refinements": 1})
    return module


class Bench:
    def __init__(self, script: ModuleType, folder: Path) -> None:
        self.script, self.folder, self.rows_file = script, folder, folder / "rows.jsonl"

    def __call__(self, *words: str) -> list[dict[str, Any]]:
        places = ["--folder", self.folder, "--learners", self.folder / "kept"]
        places += ["--out", self.rows_file, "--page", self.folder / "page.md"]
        shared = ["--epochs", "2", "--set", TINY, "--device", "cpu"]
        assert self.script.main([*map(str, places), *shared, *words]) == 0
        rows: list[dict[str, Any]] = self.script.read(self.rows_file)
        return rows


@pytest.fixture
def bench(script: ModuleType, tmp_path: Path) -> Bench:
    return Bench(script, tmp_path)


def test_a_file_is_made_once_with_its_row(bench: Bench) -> None:
    (row,) = bench()
    path = bench.folder / "citation.safetensors"
    made = StructureLearner.load(path).provenance
    assert row == {"benchmark": "pretrained", "kind": "pretrain", **made}
    assert made["sources"] == ["wine", "synthetic-small"]
    assert made["splits"] == ["random seed 0", "random seed 0"]
    assert (made["name"], made["seed"], made["config"]["epochs"]) == ("citation", 0, 2)
    assert {"command", "commit", "machine", "versions"} <= made["provenance"].keys()
    before = path.read_bytes()
    assert bench() == [row]
    assert path.read_bytes() == before
    assert len(bench("--learner-seed", "1")) == 2
    assert path.read_bytes() != before


def test_held_out_graphs_play_no_part_and_controls_stand_beside(bench: Bench) -> None:
    rows = bench("--hold-out", "--seeds", "2")
    assert not (bench.folder / "citation.safetensors").exists()
    cells = [(row["held_out"], row["method"], row["seed"]) for row in rows]
    methods = ("graphglow", "random-theta", "gcn")
    wanted = {(t, m, s) for t in ("wine", "synthetic-small") for m in methods for s in (0, 1)}
    assert len(cells) == len(wanted)
    assert set(cells) == wanted
    for row in rows:
        assert row["held_out"] not in row["sources"]
        assert len(row["sources"]) == 1
        assert row["split"] == "random seed 0"
        assert 0 <= row["test_accuracy"] <= 1
        assert row["config"]["epochs"] == 2
        if row["method"] == "gcn":
            assert row["config"]["hidden"] == 4


def test_a_graph_that_is_no_source_gets_the_whole_learner(bench: Bench) -> None:
    rows = bench("--hold-out", "--targets", "breast_cancer", "--seeds", "1")
    assert all(row["sources"] == ["wine", "synthetic-small"] for row in rows)
    assert len(list((bench.folder / "kept").glob("*.safetensors"))) == 1


def test_only_missing_rows_are_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--hold-out", "--targets", "wine", "--seeds", "2")
    whole = bench(*words)
    lines = bench.rows_file.read_text().splitlines(keepends=True)
    bench.rows_file.write_text("".join([lines[0], *lines[2:-1], lines[-1][:40]]))
    monkeypatch.setattr(bench.script, "make_learner", None)  # the learner was kept
    again = bench(*words)
    assert again[:4] == [whole[0], *whole[2:5]]
    made = [(row["method"], row["seed"], row["test_accuracy"]) for row in again[4:]]
    lost = [(row["method"], row["seed"], row["test_accuracy"]) for row in (whole[1], whole[5])]
    assert made == lost
    assert bench(*words) == again


def test_settings_of_targets(bench: Bench) -> None:
    tuned = {
        "graphglow": {"wine": {"pretrain": {"episodes": 9}, "transfer": {"input_weight": 0.25}}},
        "gcn": {"wine": {"hidden": 5}},
    }
    path = bench.folder / "settings.json"
    path.write_text(json.dumps(tuned))
    words = ("--hold-out", "--targets", "wine", "--seeds", "1")
    rows = bench(*words, "--settings", str(path))
    for row in rows:
        assert row["pretraining"]["episodes"] == 1  # a learner for many targets has its own
        if row["method"] == "gcn":
            assert row["config"]["hidden"] == 5
        else:
            assert row["config"]["input_weight"] == 0.25
    assert len(bench(*words)) == 2 * len(rows)  # other settings are other runs


def test_tables_are_made_of_the_newest_rows(bench: Bench) -> None:
    page = bench.folder / "page.md"
    text = "<!-- table: made -->\n<!-- end of table -->\n<!-- table: held_out -->\n{}"
    page.write_text(text.format("old\n<!-- end of table -->\n"))
    bench()
    bench("--hold-out", "--targets", "breast_cancer", "--seeds", "2")
    words = ["--tables", "--out", str(bench.rows_file), "--page", str(page)]
    assert bench.script.main([*words, "--check"]) == 1
    assert bench.script.main(words) == 0
    assert bench.script.main([*words, "--check"]) == 0
    assert "| `citation` | wine, synthetic-small | " in page.read_text()
    (line,) = (line for line in page.read_text().splitlines() if "| breast_cancer | " in line)
    assert line.startswith("| `citation`, ")  # not made as the one in the package is
    assert "num_pivots 8" in line
    assert " +- " in page.read_text()
    assert "old" not in page.read_text()


def test_the_page_is_not_stale() -> None:
    stale = loaded().main(["--tables", "--check"])
    assert not stale, "run python benchmarks/make_pretrained.py --tables"
