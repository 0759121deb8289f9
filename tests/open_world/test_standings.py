"""Standings, curves, the table, the pictures and the page say what the rows say."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from suite_rows import TARGETS, made_rows

from graphglow.cli import main
from graphglow.lab.open_world.standings import (
    BEST,
    HISTORY,
    Found,
    standings,
    sweeps,
)
from graphglow.lab.open_world.suite import compact
from graphglow.report.open_world import markdown, section, write_pictures


@pytest.fixture(scope="module")
def rows():
    return made_rows()


def test_leads_are_paired_and_count_each_target_once(rows):
    lines = {line.method: line for line in standings(Found(rows))}
    assert lines["gcn"].lead == pytest.approx(0.08, abs=0.01)
    assert (lines["gcn"].wins, lines["gcn"].ties, lines["gcn"].losses) == (56, 0, 0)
    assert lines["gcn"].p < 0.01
    assert lines["knn"].cells == 52  # none without features
    assert lines["predict"].ties == 56
    assert lines["mlp"].worst[0] > 0.1


def test_the_best_of_others_is_chosen_by_validation(rows):
    first = [row for row in rows if row.target == "wine" and row.series == "as it is"]
    misled = [replace(row, val_accuracy=float(row.method == "mlp")) for row in first]
    found = Found(misled)
    cell = ("wine", "as it is")
    assert found.mean(cell, BEST) == found.mean(cell, "mlp")


def test_a_later_row_replaces_an_earlier_one(rows):
    again = replace(rows[0], test_accuracy=0.123)
    found = Found([*rows, again])
    assert found.scores[rows[0].target, rows[0].series][rows[0].method][0] == 0.123


def test_curves_have_the_same_targets_at_every_point(rows):
    lacking = [row for row in rows if (row.target, row.series) != ("wine", "false edges 2x")]
    found = {sweep.axis: sweep for sweep in sweeps(Found(lacking))}
    assert {*found} == {"false edges", "lost edges", "labels per class"}
    assert {*found["false edges"].targets} == {*TARGETS} - {"wine"}
    assert found["labels per class"].curves[0].x == [1, 3, 5, 10, 20]
    half = [row for row in rows if row.series != "lost edges 90%" or row.target == "wine"]
    kept = {sweep.axis: sweep for sweep in sweeps(Found(half))}
    assert kept["lost edges"].curves[0].x == [0, 0.3, 0.6]


def test_rows_of_older_methods_stand_beside_the_new_ones(rows):
    names = {"untrained": "untrained-0.2", "transfer": "graphglow", "vote": "instant"}
    old = [
        replace(row, method=names[row.method] if row.method != "untrained" else "untrained",
                test_accuracy=row.test_accuracy - 0.02, config={"learner": "fold0"})
        for row in rows if row.method in names
    ]  # fmt: skip
    lines = {line.method: line for line in standings(Found([*rows, *old]))}
    assert {*HISTORY} <= {*lines}
    assert lines["untrained-0.2"].lead == pytest.approx(lines["untrained"].lead + 0.02)
    shown = markdown(Found([*rows, *old]))
    assert "| transfer 0.2 (five GNNs) | split |" in shown
    assert "| instant 0.2 | train only |" in shown
    assert "| bag of 5 GCNs | pool |" in shown
    before = [row for row in old if row.method == "graphglow"]
    assert Found(before).ours == "graphglow"  # where nothing newer is there


def test_the_table_the_pictures_and_the_page(rows, tmp_path, capsys):
    found = Found(rows)
    assert markdown(found).splitlines()[-1].startswith("| **predict** | **pool** | **")
    for path in write_pictures(found, tmp_path):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert len(section(rows).charts) == 3
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(compact, rows)))
    assert main(["reproduce", "open-world", "--out", str(file), "--table"]) == 0
    assert "wins / ties / losses" in capsys.readouterr().out
    assert main(["report", str(file), "--out", str(tmp_path / "page.html")]) == 0
    assert "you do not know what kind of graph" in (tmp_path / "page.html").read_text()
