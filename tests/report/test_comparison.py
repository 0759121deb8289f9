from dataclasses import replace

import pytest
from synthetic_rows import row

from graphglow.lab.paper import NAMES
from graphglow.lab.runs.rows import ResultRow, row_of
from graphglow.report.comparison import (
    Comparison,
    Versus,
    against,
    compare,
    judged,
    target_column,
    welch,
)


def rows(method: str, scores: list[float | None], **changes: object) -> list[ResultRow]:
    found = []
    for seed, score in enumerate(scores):
        plain = {"cell": f"{method}/cora", "label": method, "method": method}
        read = row_of(row(**(plain | {"seed": seed, "test_accuracy": score} | changes)))
        assert read is not None
        found.append(read)
    return found


def versus_controls(table: Comparison, number: int, at: int) -> list[Versus | None]:
    """A judged line against its controls, in one column."""
    ours, controls = judged(table)[number]
    return [against(ours.cells[at], control.name, control.cells[at]) for control in controls]


def names(table: Comparison) -> list[tuple[str, list[str]]]:
    return [(ours.name, [control.name for control in of]) for ours, of in judged(table)]


def test_welch_is_that_of_a_worked_example() -> None:
    # t = -1 / sqrt(1/3 + 4/3) = -0.7746 with (5/3)^2 / ((1/9 + 16/9) / 2) = 2.941 degrees
    assert welch([1, 2, 3], [1, 3, 5]) == pytest.approx(0.49607, abs=1e-4)
    assert welch([0.5], [0.1, 0.2]) is None  # one run says nothing about spread
    assert welch([0.5, 0.5], [0.1, 0.1]) is None
    assert welch([0.5, 0.5], [0.1, 0.2]) is not None


def test_mean_deviation_and_distance_to_the_paper() -> None:
    table = compare(rows("gcn", [0.5, 0.7, None], paper=0.55, paper_std=0.01), lambda r: r.target)
    (cell,) = table.cells
    assert cell.mean == pytest.approx(0.6)
    assert cell.std == pytest.approx(0.1 * 2**0.5)
    assert cell.runs == 3
    assert cell.from_paper == pytest.approx(0.05)
    assert not cell.best  # alone
    assert cell.versus is None


def test_ours_is_tested_against_the_best_control() -> None:
    table = compare(
        [
            *rows("gcn", [0.60, 0.61, 0.62]),
            *rows("mlp", [0.70, 0.71, 0.72]),
            *rows("graphglow", [0.80, 0.81, 0.82]),
        ],
        lambda r: r.target,
    )
    gcn, mlp, ours = table.cells
    assert (gcn.best, mlp.best, ours.best) == (False, False, True)
    assert gcn.versus is None
    assert ours.versus is not None
    assert (ours.versus.control, ours.versus.verdict) == ("mlp", "higher")
    assert ours.versus.difference == pytest.approx(0.1)


def test_a_lead_within_the_spread_is_no_verdict_and_ties_are_both_best() -> None:
    table = compare(
        [*rows("gcn", [0.5, 0.7]), *rows("graphglow", [0.55, 0.65])], lambda r: r.target
    )
    gcn, ours = table.cells
    assert (gcn.best, ours.best) == (True, True)
    assert ours.versus is not None
    assert ours.versus.verdict == ""


def test_missing_cells_are_none() -> None:
    other = rows("mlp", [0.5], target="reed98", cell="mlp/reed98")
    table = compare([*rows("gcn", [0.5]), *other], lambda r: r.target)
    assert table.columns == ("reed98", "cora")
    assert [[cell is None for cell in line.cells] for line in table.lines] == [
        [True, False],
        [False, True],
    ]


def test_splits_are_told_apart_and_so_are_labels_that_clash() -> None:
    one = rows("gcn", [0.5], cell="a")
    column = target_column([*one, *rows("gcn", [0.5], cell="b", split="own")])
    assert column(one[0]) == "cora (public)"
    table = compare(
        [
            *one,
            *rows("gcn", [0.6], cell="b"),
            *rows("mlp", [0.7], cell="c", sources=["x"]),
            *rows("mlp", [0.7], cell="d", sources=["y", "z"]),
        ],
        lambda r: r.target,
    )
    assert [line.name for line in table.lines] == [
        "gcn [a]",
        "gcn [b]",
        "mlp from x",
        "mlp from y + z",
    ]


def test_the_paper_is_summed_up() -> None:
    found = [*rows("graphglow", [0.5, 0.6], paper=0.6), *rows("gcn", [0.5])]
    ours, gcn = compare(found, lambda r: r.target).lines
    assert (ours.from_paper, gcn.from_paper) == (pytest.approx(-0.05), None)


def test_columns_are_in_the_order_of_the_paper_and_others_come_last() -> None:
    made = [
        row_of(row(target=target, cell=f"gcn/{target}"))
        for target in ("wine", "cora", "digits", "reed98", "cornell5")
    ]
    table = compare([one for one in made if one is not None], lambda r: r.target)
    assert table.columns == ("cornell5", "reed98", "cora", "wine", "digits")


def test_ours_is_judged_against_gcn_and_random_theta_in_every_column() -> None:
    other = {"target": "reed98", "cell": "gcn/reed98"}
    table = compare(
        [
            *rows("mlp", [0.9, 0.9]),
            *rows("gcn", [0.60, 0.61, 0.62]),
            *rows("random-theta", [0.80, 0.82], label="random theta"),
            *rows("graphglow-star", [0.1, 0.2], label="GraphGLOW*"),
            *rows("graphglow", [0.80, 0.81, 0.82], label="GraphGLOW"),
            *rows("graphglow", [0.5, 0.5], label="no iteration", cell="variant"),
            *rows("gcn", [0.5, 0.6], **other),
        ],
        lambda r: r.target,
    )
    assert names(table) == [("GraphGLOW", ["gcn", "random theta"])]
    assert table.columns == ("reed98", "cora")
    assert versus_controls(table, 0, 0) == [None, None]
    gcn, theta = versus_controls(table, 0, 1)
    assert gcn is not None
    assert theta is not None
    assert gcn.difference == pytest.approx(0.2)
    assert (gcn.verdict, theta.verdict) == ("higher", "")
    assert theta.p == welch([0.80, 0.81, 0.82], [0.80, 0.82])


def test_a_chosen_backbone_is_judged_against_the_control_that_chooses_too() -> None:
    wide = "GraphGLOW, best backbone", "random theta, best backbone"
    table = compare(
        [
            *rows("gcn", [0.60, 0.61], label="GCN"),
            *rows("graphglow", [0.70, 0.71], label="GraphGLOW"),
            *rows("random-theta", [0.80, 0.81], label="random theta"),
            *rows("graphglow", [0.90, 0.91], label=wide[0], cell="graphglow-backbone/cora"),
            *rows("random-theta", [0.95, 0.96], label=wide[1], cell="random-backbone/cora"),
        ],
        lambda r: r.target,
    )
    expected = [("GraphGLOW", ["GCN", "random theta"]), (wide[0], ["GCN", wide[1]])]
    assert names(table) == expected
    differences = [
        test and test.difference for line in (0, 1) for test in versus_controls(table, line, 0)
    ]
    assert differences == pytest.approx([0.1, -0.1, 0.3, -0.05])
    without = [line for line in table.lines if line.name != "random theta"]
    first, _ = names(replace(table, lines=tuple(without)))
    assert first == ("GraphGLOW", ["GCN"])  # the other control is not one for this line


def test_evidence_learners_are_judged_against_the_untrained_one() -> None:
    table = compare(
        [
            *rows("gcn", [0.60, 0.61], label="GCN"),
            *(
                row
                for method, score in (("evidence", 0.7), ("evidence-universal", 0.8))
                for row in rows(method, [score, score + 0.01], label=NAMES[method])
            ),
            *rows("evidence-untrained", [0.65, 0.66], label=NAMES["evidence-untrained"]),
        ],
        lambda r: r.target,
    )
    controls = ["GCN", NAMES["evidence-untrained"]]
    ours = [NAMES["evidence"], NAMES["evidence-universal"]]
    assert names(table) == [(name, controls) for name in ours]
    assert [line.ours for line in table.lines] == [False, True, True, False]
    (_, best, *_) = table.cells
    assert best.versus is not None
    assert best.versus.control == NAMES["evidence-untrained"]


def test_two_backbones_alone_are_level_whatever_their_figures() -> None:
    off, linkx = {"input_weight": 1.0, "backbone": "gcn"}, {"input_weight": 1, "backbone": "linkx"}
    ours = rows("graphglow", [0.90, 0.91, 0.92], label="GraphGLOW", config=off)
    gcn = rows("gcn", [0.5, 0.51, 0.52], config={"input_weight": 1.0})
    for config, both in ((off, True), (linkx, False), ({"input_weight": 0.9}, False), ({}, False)):
        theta = rows("random-theta", [0.70, 0.71, 0.72], label="random theta", config=config)
        table = compare([*ours, *theta, *gcn], lambda r: r.target)
        against_gcn, against_theta = versus_controls(table, 0, 0)
        assert against_theta is not None
        assert against_gcn is not None
        assert against_theta.both_alone == both
        assert against_theta.verdict == ("" if both else "higher")
        assert against_gcn.verdict == "higher"  # GCN has no learned graph to switch off
        assert [cell.alone for cell in table.cells] == ["gcn", theta[0].alone, ""]


def test_a_cell_is_alone_only_if_all_its_runs_are() -> None:
    mixed = [
        *rows("graphglow-dot", [0.5], config={"input_weight": 1.0}),
        *rows("graphglow-dot", [None, 0.6], config={"input_weight": 0.5})[1:],
    ]
    (cell,) = compare(mixed, lambda r: r.target).cells
    assert (mixed[0].alone, cell.alone) == ("gcn", "")


def test_without_ours_or_a_control_there_is_no_verdict() -> None:
    assert judged(compare(rows("gcn", [0.5]), lambda r: r.target)) == []
    only = [*rows("graphglow", [0.5]), *rows("mlp", [0.5])]
    assert judged(compare(only, lambda r: r.target)) == []
    star = compare([*rows("graphglow-star", [0.5]), *rows("gcn", [0.4])], lambda r: r.target)
    (single,) = versus_controls(star, 0, 0)
    assert single is not None
    assert (names(star)[0][0], single.p) == ("graphglow-star", None)
