"""The tables of the docs are what ``benchmarks/tables.py`` makes of the rows."""

import pandas as pd
import pytest

import make_pretrained
import tables
from graphglow.lab.config import RunsConfig
from graphglow.lab.row_files import as_line, read_rows
from graphglow.lab.runs import run_cells


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of rows; returns what writes a file of them."""
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    return lambda name, rows: (tmp_path / name).write_text("\n".join(map(as_line, rows)))


def test_no_page_is_stale(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tables.py", "--check"])
    assert tables.main() == 0, "run python benchmarks/tables.py"


def test_tables_are_put_between_their_markers(monkeypatch):
    monkeypatch.setitem(tables.TABLES, "one", lambda: "new\n")
    page = "a\n<!-- table: one -->\n{}<!-- end of table -->\nb\n"
    assert tables.filled(page.format("old\n")) == page.format("new\n")


def scored(target, condition, accuracy, control=False):
    given = {"prediction": accuracy, "mean": accuracy - 0.1}
    return {"experiment": "predictor", "target": target, "condition": condition, "seed": 0,
            "control": control, "accuracy": given}  # fmt: skip


def test_predict_is_compared_on_the_cells_that_both_have(results):
    rows = [
        scored("a", "as it is", 0.1), scored("a", "as it is", 0.9), scored("b", "as it is", 0.7),
        scored("a", "as it is", 0.5, control=True), scored("b", "3 labels per class", 0.4),
        {"experiment": "instant 0.2, pool", "target": "a", "condition": "as it is", "seed": 0,
         "accuracy": {"instant": 0.8}},
    ]  # fmt: skip
    results("predictor.jsonl", rows)
    lines = tables.predict_table(tables.SHORT, tables.predict_scores()).splitlines()
    assert lines[2] == "| few labels (1, 3, 5 per class) | 1 | 40.0 |  | 30.0 |  |"
    assert lines[3] == (
        "| as it is | 2 | 80.0 | 50.0 (1; predict 90.0) | 70.0 | 80.0 (1; predict 90.0) |"
    )
    assert lines[4].startswith("| all | 3 | 66.7 | 50.0 (1; predict 90.0) |")


def test_a_check_has_means_by_target_and_method():
    rows = [("a", 0, "predict", 0.5), ("a", 1, "predict", 0.7), ("a", 0, "gcn", 0.4)]
    rows = pd.DataFrame(rows, columns=["target", "seed", "method", "accuracy"])
    text = tables.check_table("exam", rows)
    assert text.splitlines()[2] == "| a: accuracy, % | 60.0 | 40.0 |"


def competitor(line, target, seed, accuracy, date="2026-01-01"):
    return {"experiment": "competitors", "cell": f"{line}/{target}", "method": line.split()[0],
            "target": target, "seed": seed, "test_accuracy": accuracy,
            "provenance": {"date": date}}  # fmt: skip


def test_competitors_are_judged_by_the_newest_row_of_each_run(results):
    rows = [
        competitor("gcn", "cora", 0, 0.82),
        competitor("gcn", "cora", 1, 0.84, "2026-02-01"),
        competitor("gcn", "cora", 1, 0.10),
        competitor("gat", "cora", 0, 0.819),
        competitor("random-theta (linkx)", "reed98", 0, 0.71),
    ]
    results("competitors.jsonl", rows)
    text = tables.competitors(["cora"])
    assert "| gcn | 83.0 +- 1.4 (2), paper 81.6 |" in text
    assert "| gat | 81.9 (1), paper 83.0 **no** |" in text
    assert "| random-theta (linkx) |  | 71.0 (1) |" in tables.competitors(["cora", "reed98"])


def test_the_newest_measurement_of_a_case_counts(results):
    row = {"part": "refine", "target": "1000", "nodes": 1000, "stage": "all", "device": "cpu",
           "threads": 2, "peak_bytes": 5e9}  # fmt: skip
    rows = [row | {"seconds": 9.0}, row | {"seconds": 4.0}, row | {"seconds": 1.0, "stage": "a"}]
    results("bench_refine.jsonl", rows)
    text = tables.TABLES["measured"]()
    assert text.splitlines()[2:] == ["| random | 1,000 | CPU, 2 threads | 4 s, 5,000 MB |"]


def test_an_audit_is_compared_with_the_best_heuristic_of_each_condition(results):
    others = dict.fromkeys(tables.HEURISTICS, 0.5) | {"untrained": 0.6, "regression, uniform": 0.7}
    row = {"condition": "random 30", "seed": 0, "auditor": "fold 0", "low": None, "auc": 0.9}
    exam = {"target": "cora", "auditor": "exam", "low": 0.2, "high": 0.4, "estimate": 0.25,
            "false_share": 0.3, "ece": 0.1, "precision_1": 1.0}  # fmt: skip
    one, two = others | {"jaccard": 0.8}, others | {"jaccard": 0.6, "adamic-adar": 0.7}
    rows = [row | {"target": "a", "others": one}, row | {"target": "b", "others": two}]
    rows += [row | exam | {"others": two | {"GAE": 0.4}}]
    results("audit.jsonl", rows)
    lines = tables.audit().splitlines()
    assert lines[1] == "| AUC | random 30 |"
    assert lines[3:5] == ["| **auditor** | 0.900 |", "| best heuristic | 0.700, jaccard |"]
    assert lines[5:7] == ["| untrained | 0.600 |", "| the graph's own regression | 0.700 |"]
    assert "| AUC | cora, random 30 |" in lines
    assert "| GAE | 0.400 |" in lines
    assert lines[-1] == "| cora, random | 5.0 | 100 | 0.100 | 1.000 |"


def test_held_out_graphs_play_no_part_and_controls_stand_beside(tmp_path, monkeypatch):
    small = {"num_pivots": 8, "refinements": 1, "episodes": 1, "epochs": 2}
    monkeypatch.setattr(make_pretrained, "SOURCES", ("wine", "synthetic-small"))
    monkeypatch.setattr(make_pretrained, "SETTINGS", small)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    config = RunsConfig(seeds=1, epochs=2, device="cpu", workers=1)
    out = tmp_path / "pretrained.jsonl"
    run_cells([*make_pretrained.cells(["wine"])], out, config, {})
    rows = {row["method"]: row for row in read_rows(out)}
    assert {*rows} == {"graphglow", "random-theta", "gcn"}
    assert rows["graphglow"]["sources"] == ["synthetic-small"]
    assert rows["gcn"]["config"]["hidden"] == 64
    lines = tables.held_out().splitlines()
    assert lines[0] == "| learner | method | wine |"
    assert [line.split(" | ")[1] for line in lines[2:]] == ["gcn", "graphglow", "random-theta"]
