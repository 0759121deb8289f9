"""Tables say what the rows say; ours stand beside the paper's figures and their controls."""

import statistics
from pathlib import Path

import pytest

from graphglow.lab.config import RunsConfig, read_settings
from graphglow.lab.markdown import NO_ROWS, spread, tables_of
from graphglow.lab.paper_tables import EXPERIMENTS
from graphglow.lab.row_files import rows_in
from graphglow.lab.runs import run_of

RESULTS = Path(__file__).parents[2] / "results"


def rows_of(experiment, key, accuracies, **more):
    cell = next(cell for cell in EXPERIMENTS[experiment]() if cell.key == key)
    run = run_of(cell, 0, {}, RunsConfig())
    made = {"provenance": {"machine": {"cpu": "x"}}, "threads": 1, "device": "cpu"}
    return [
        run.facts | made | {"seed": seed, "test_accuracy": accuracy} | more
        for seed, accuracy in enumerate(accuracies)
    ]


def lines(table):
    return {line.split(" | ")[0].strip("| "): line for line in table.splitlines() if "|" in line}


def test_a_table_has_means_deviations_the_papers_figures_and_the_best_in_bold():
    rows = rows_of("table2", "gcn/cora", (0.80, 0.82, 0.81, 0.81, 0.81))
    rows += rows_of("table2", "graphglow/cora", (0.9, 0.7)) + rows_of(
        "table2", "mlp/reed98", (0.5,)
    )
    found = lines(tables_of("table2", rows, {}))
    assert found["method"] == "| method | Reed98 | Cora |"
    assert found["GCN"] == "| GCN | - | **81.0 +- 0.7** (paper 81.6) |"
    assert found["GraphGLOW"] == "| GraphGLOW | - | 80.0 +- 14.1 (2 seeds; paper 83.2) |"
    assert found["MLP"] == "| MLP | **50.0** (1 seed) | - |"
    assert tables_of("table1", rows, {}) == NO_ROWS


def test_marks_say_what_is_switched_off_failed_or_of_other_settings():
    off = {"config": {"input_weight": 1.0, "backbone": "gcn"}}
    rows = rows_of("table2", "graphglow/cora", (0.8,) * 5, **off)
    rows += rows_of("table2", "gcn/cora", (0.7,) * 5, setup="older")
    rows += rows_of("table2", "mlp/cora", (None, 0.6), error="no room")
    table = tables_of("table2", rows, {})
    found = lines(table)
    assert "&dagger;" in found["GraphGLOW"]
    assert "&Dagger;" in found["GCN"]
    assert "(1 seed; 1 failed)" in found["MLP"]
    assert "- &dagger; the tuned lambda is 1" in table
    assert "- &Dagger; made with other settings" in table


def test_an_ablation_is_told_as_a_difference():
    rows = rows_of("ablation", "full/cora", (0.8,) * 5)
    rows += rows_of("ablation", "no-iteration/cora", (0.75,) * 5)
    assert "75.0 +- 0.0 (-5.0) |" in lines(tables_of("ablation", rows, {}))["no iteration"]


def test_times_are_beside_accuracies_as_ratios_too():
    timed = {"timed": True, "train_seconds": 2.0}
    rows = rows_of("time", "graphglow/johnshopkins55", (0.7,) * 5, **timed)
    rows += rows_of("time", "idgl/johnshopkins55", (0.6,), **timed | {"train_seconds": 9.0})
    rows += rows_of("time", "gcn/johnshopkins55", (0.6,))
    found = lines(tables_of("time", rows, {}))
    assert "| **70.0 +- 0.0** (2.00 +- 0.00 s) |" in found["GraphGLOW"]
    assert "| 60.0 (1 seed; 9.00 s, 4.5x, paper 6x) |" in found["IDGL"]
    assert "| 60.0 (1 seed) |" in found["GCN"]  # not timed


def test_spread_is_mean_and_sample_deviation():
    assert spread([0.5, 0.7]) == f"60.0 +- {100 * statistics.stdev([0.5, 0.7]):.1f}"
    assert spread([0.5]) == "50.0"


@pytest.mark.skipif(not RESULTS.exists(), reason="needs the repository")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_our_rows_make_every_table(name):
    tuned = read_settings()
    table = tables_of(name, rows_in(RESULTS / "reproduce", [name]), tuned)
    assert table.count("\n") > 3
