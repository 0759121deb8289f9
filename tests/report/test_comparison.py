import pytest
from synthetic_rows import row

from graphglow.report.comparison import compare, target_column, verdict_table, verdicts, welch
from graphglow.report.result_rows import ResultRow, row_of


def rows(method: str, scores: list[float | None], **changes: object) -> list[ResultRow]:
    found = []
    for seed, score in enumerate(scores):
        plain = {"cell": f"{method}/cora", "label": method, "method": method}
        read = row_of(row(**(plain | {"seed": seed, "test_accuracy": score} | changes)))
        assert read is not None
        found.append(read)
    return found


def test_welch_is_that_of_a_worked_example() -> None:
    # t = -1 / sqrt(1/3 + 4/3) = -0.7746 with (5/3)^2 / ((1/9 + 16/9) / 2) = 2.941 degrees
    assert welch([1, 2, 3], [1, 3, 5]) == pytest.approx(0.49607, abs=1e-4)
    assert welch([0.5], [0.1, 0.2]) is None  # one run says nothing about spread
    assert welch([0.5, 0.5], [0.1, 0.1]) is None
    assert welch([0.5, 0.5], [0.1, 0.2]) is not None


def test_mean_deviation_and_distance_to_the_paper() -> None:
    table = compare(rows("gcn", [0.5, 0.7, None], paper=0.55, paper_std=0.01), lambda r: r.target)
    cell = table.lines[0].cells[0]
    assert cell is not None
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
    gcn, mlp, ours = (line.cells[0] for line in table.lines)
    assert ours is not None
    assert ours.best
    assert ours.versus is not None
    assert ours.versus.control == "mlp"
    assert ours.versus.difference == pytest.approx(0.1)
    assert ours.versus.verdict == "higher"
    assert gcn is not None
    assert mlp is not None
    assert (gcn.best, mlp.best) == (False, False)
    assert gcn.versus is None
    assert (
        "highest mean on 1 of 1 target. Against the best control of each it is significantly"
        in (verdicts(table)[0])
    )


def test_a_lead_within_the_spread_is_no_verdict_and_ties_are_both_best() -> None:
    table = compare(
        [*rows("gcn", [0.5, 0.7]), *rows("graphglow", [0.55, 0.65])], lambda r: r.target
    )
    gcn, ours = (line.cells[0] for line in table.lines)
    assert gcn is not None
    assert ours is not None
    assert gcn.best
    assert ours.best
    assert ours.versus is not None
    assert ours.versus.verdict == ""


def test_missing_cells_are_none() -> None:
    other = rows("mlp", [0.5], target="reed98", cell="mlp/reed98")
    table = compare([*rows("gcn", [0.5]), *other], lambda r: r.target)
    assert table.columns == ("cora", "reed98")
    assert [[cell is None for cell in line.cells] for line in table.lines] == [
        [False, True],
        [True, False],
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
    table = compare(rows("graphglow", [0.5, 0.6], paper=0.6), lambda r: r.target)
    assert verdicts(table) == [
        "graphglow is 5.0 points below the paper's figures on average over 1 target."
    ]


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
    found = verdict_table(table)
    assert found is not None
    assert (found.ours, found.controls) == ("GraphGLOW", ["gcn", "random theta"])
    (cora, (gcn, theta)), (reed, others) = found.rows
    assert (cora, reed, others) == ("cora", "reed98", [None, None])
    assert gcn is not None
    assert theta is not None
    assert gcn.difference == pytest.approx(0.2)
    assert (gcn.verdict, theta.verdict) == ("higher", "")
    assert theta.p == welch([0.80, 0.81, 0.82], [0.80, 0.82])


def test_without_ours_or_a_control_there_is_no_verdict() -> None:
    assert verdict_table(compare(rows("gcn", [0.5]), lambda r: r.target)) is None
    only = [*rows("graphglow", [0.5]), *rows("mlp", [0.5])]
    assert verdict_table(compare(only, lambda r: r.target)) is None
    star = compare([*rows("graphglow-star", [0.5]), *rows("gcn", [0.4])], lambda r: r.target)
    found = verdict_table(star)
    assert found is not None
    (_, (single,)) = found.rows[0]
    assert single is not None
    assert (found.ours, single.p) == ("graphglow-star", None)
