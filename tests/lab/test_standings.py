"""Standings and curves say what the rows say."""

import random
import statistics
from pathlib import Path

import pytest

from graphglow.lab.markdown import (
    AXES,
    BEST,
    METHOD_LABELS,
    NO_ROWS,
    curve,
    standings,
    standings_table,
    suite_scores,
)
from graphglow.lab.open_methods import METHOD_TITLES, NEED_FEATURES
from graphglow.lab.open_suite import CONDITIONS, NO_FEATURES
from graphglow.lab.row_files import rows_in

TARGETS = ("dblp", "wine", "reed98", "airports-brazil")
AHEAD = {"predict": 0.08, "untrained": 0.05, "transfer": 0.06, "mlp": -0.05}
RESULTS = Path(__file__).parents[2] / "results"


def row(target, condition, method, seed, accuracy, **more):
    return {
        "experiment": "open-world", "cell": f"{method}/{target}/{condition}", "target": target,
        "series": condition, "method": method, "seed": seed, "test_accuracy": accuracy,
        "val_accuracy": accuracy,
    } | more  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    draw = random.Random(0)
    return [
        row(target, name, method, seed, 0.6 + AHEAD.get(method, 0) + draw.gauss(0, 0.01))
        for target in TARGETS
        for name in CONDITIONS
        for method in METHOD_TITLES
        for seed in range(2)
        if not (method in NEED_FEATURES and name == NO_FEATURES)
    ]


def by_method(rows):
    return {line.Index: line for line in standings(suite_scores(rows)).itertuples()}


def test_leads_are_paired_and_count_each_target_once(rows):
    line = by_method(rows)["gcn"]
    score = {(r["target"], r["series"], r["method"], r["seed"]): r["test_accuracy"] for r in rows}
    leads = {
        (t, c): statistics.mean(score[t, c, "predict", s] - score[t, c, "gcn", s] for s in (0, 1))
        for t in TARGETS
        for c in CONDITIONS
    }
    each = [statistics.mean(leads[t, c] for c in CONDITIONS) for t in TARGETS]
    assert line.ahead == pytest.approx(statistics.mean(each))
    assert line.error == pytest.approx(statistics.stdev(each) / 2)
    assert line.worst == pytest.approx(min(leads.values()))
    assert line.wins == sum(lead >= 0.01 for lead in leads.values())
    assert line.wins + line.ties + line.losses == len(leads)


def test_seeds_that_only_one_has_do_not_count():
    made = [row("a", "as it is", "predict", s, x) for s, x in enumerate((0.9, 0.5))]
    made += [row("a", "as it is", "gcn", 0, 0.8)]
    assert by_method(made)["gcn"].ahead == pytest.approx(0.1)


def test_the_best_of_others_is_by_validation_and_ties_are_averaged():
    made = [row("a", "as it is", "predict", 0, 0.9)]
    for method, val, test in (("gcn", 0.8, 0.5), ("mlp", 0.8, 0.7), ("gpr", 0.7, 0.9)):
        made.append(row("a", "as it is", method, 0, test, val_accuracy=val))
    assert suite_scores(made)[BEST].tolist() == [pytest.approx(0.6)]


def test_the_last_row_of_a_run_counts_and_failures_are_left_out():
    made = [row("a", "as it is", "predict", 0, 0.1), row("a", "as it is", "predict", 0, 0.9)]
    failed = row("a", "as it is", "gcn", 0, 0, error="no luck")
    del failed["test_accuracy"]
    found = suite_scores([*made, failed])
    assert (list(found), found["predict"].tolist()) == (["predict"], [0.9])


def test_means_are_over_cells_that_all_methods_have(rows):
    lacking = [r for r in rows if (r["target"], r["method"]) != ("wine", "gcn")]
    whole, fewer = (standings(suite_scores(some)).loc["mlp"] for some in (rows, lacking))
    mine = [r for r in rows if (r["method"], r["series"]) == ("mlp", "as it is")]
    kept = [r["test_accuracy"] for r in mine if r["target"] != "wine"]
    assert fewer["as it is"] == pytest.approx(statistics.mean(kept))
    assert whole["as it is"] != fewer["as it is"]


def test_the_table_names_ours_in_bold(rows):
    table = standings_table(rows)
    assert "| **predict** | **pool** |" in table
    assert "predict ahead by" in table
    assert table.count("\n") == 2 + len(METHOD_TITLES) + 1
    assert standings_table([]) == NO_ROWS
    rivals = [row for row in rows if row["method"] in ("gcn", "mlp")]
    assert "best of these, by validation ahead by" in standings_table(rivals)


def test_a_sweep_is_of_targets_that_have_every_point(rows):
    found = curve(suite_scores(rows), "false edges")
    assert found.index.unique("x").tolist() == [0.0, 0.5, 1.0, 2.0]
    assert {*found.index.unique("target")} == {*TARGETS}
    lacking = [r for r in rows if (r["target"], r["series"]) != ("wine", "false edges 2x")]
    kept = curve(suite_scores(lacking), "false edges").index.unique("target")
    assert {*kept} == {*TARGETS} - {"wine"}


@pytest.mark.skipif(not RESULTS.exists(), reason="needs the repository")
def test_our_rows_have_names_and_curves():
    rows = rows_in(RESULTS / "open_world.jsonl", ["open-world"])
    assert len(rows) > 7000
    scores = suite_scores(rows)
    assert {row["method"] for row in rows} | {BEST} == {*scores} <= {*METHOD_LABELS}
    assert all(len(curve(scores, axis)) for axis in AXES)
