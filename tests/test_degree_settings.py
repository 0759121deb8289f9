"""c of the lines with lambda by degree: by validation accuracy, in the runs of the figure."""

import json
import sys
from pathlib import Path

from graphglow.experiments.cell_config import Protocol, configs_of
from graphglow.experiments.paper import of_the_other_kind
from graphglow.experiments.settings import Settings, read_settings, write_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import degree_settings
from reproduction_folder import Folder, cells, five, generator

SOURCES = of_the_other_kind("cora")
ON = {"transfer": {"input_weight": 0.3, "dropout": 0.2}}


def swept(method: str, scores: dict[str, float]) -> list[dict]:
    """Five runs for each c; the more they score in validation, the less on test nodes."""
    return [
        row
        for c, score in scores.items()
        for cell in cells("degree", f"{c}/{method}/cora")
        for row in five(cell, 1 - score, val_accuracy=score)
    ]


def settle(root: Path, rows: list[dict]) -> Settings:
    (root / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = root / "settings.json"
    write_settings(path, Settings().having("graphglow-on", "cora", ON, SOURCES))
    degree_settings.main([f"--rows={root / 'rows.jsonl'}", f"--settings={path}"])
    return read_settings(path)


def test_the_best_on_validation_wins_and_the_rest_is_as_with_one_lambda(tmp_path, capsys):
    rows = swept("graphglow", {"0.5": 0.71, "2": 0.73, "4": 0.72})
    settings = settle(tmp_path, rows + swept("random-theta", {"0.25": 0.6, "1": 0.5}))
    assert capsys.readouterr().out.splitlines() == [
        "graphglow-degree on cora: c = 2, 0.7300",
        "random-degree on cora: c = 0.25, 0.6000",
    ]
    (cell,) = cells("table2", "graphglow-degree/cora")
    run = configs_of(cell, 0, settings, Protocol()).run
    assert (run.latent_degree, run.input_weight, run.dropout) == (2.0, 0.7, 0.2)
    assert settings.of("random-degree", "cora") == {"latent_degree": 0.25, "input_weight": 0.7}
    assert settings.of("graphglow-degree", "pubmed", of_the_other_kind("pubmed")) == {}


def test_what_was_compared_is_a_row_and_stands_on_the_page(tmp_path, monkeypatch):
    settle(tmp_path, swept("graphglow", {"0.5": 0.71, "2": 0.73}))
    (row,) = map(json.loads, (tmp_path / "search.jsonl").read_text().splitlines())
    assert row["by_latent_degree"] == {"0.5": [0.71] * 5, "2.0": [0.73] * 5}
    table = Folder(tmp_path, generator(monkeypatch)).block("search")
    assert "| GraphGLOW, by degree, cross-domain | - | - | - | - | 73.0 (c = 2) | - | - |" in table
