import pytest
from synthetic_rows import row, sweep_rows

from graphglow.report.measured_graphs import Measured, meaning, measured_graphs
from graphglow.report.result_rows import ResultRow, row_of
from graphglow.report.row_charts import label_places, log_ticks, sweep_chart
from graphglow.report.sections import experiment_sections, page_styles
from graphglow.report.sweeps import Sweep, sweeps
from graphglow.report.theme import OURS


def read(*records: dict[str, object]) -> list[ResultRow]:
    return [found for record in records if (found := row_of(record)) is not None]


def only(found: list[Sweep]) -> Sweep:
    assert len(found) == 1
    return found[0]


def test_curves_have_means_spreads_and_levels() -> None:
    sweep = only(
        sweeps(
            read(
                row(cell="a", x=0.2, seed=0, test_accuracy=0.5, paper=0.4),
                row(cell="a", x=0.2, seed=1, test_accuracy=0.7, paper=0.4),
                row(cell="b", x=0.1, test_accuracy=0.9),
                row(cell="c", label="MLP", method="mlp", test_accuracy=0.3),
            )
        )
    )
    curve, level = sweep.curves
    assert [point.x for point in curve.points] == [0.1, 0.2]
    assert curve.points[1].mean == pytest.approx(0.6)
    assert curve.points[1].std == pytest.approx(0.1 * 2**0.5)
    assert [point.paper for point in curve.points] == [None, 0.4]
    assert level.level is not None
    assert (level.name, level.level.mean) == ("MLP", 0.3)


def test_what_is_swept_is_named_and_kept_apart() -> None:
    found = sweeps(read(*(r for r in sweep_rows() if r["experiment"] == "sensitivity")))
    assert [sweep.axis for sweep in found] == ["weight of the input graph (lambda)", "pivots (P)"]
    by_setting = read(*(row(cell=f"p{p}", x=p, config={"num_pivots": p}) for p in (5, 10)))
    assert only(sweeps(by_setting)).axis == "pivots (P)"
    unknown = read(*(row(cell=f"p{p}", x=p) for p in (5, 10)))
    assert only(sweeps(unknown)).axis == "x"


def test_lists_are_histories_at_their_epochs() -> None:
    sweep = only(
        sweeps(
            read(
                row(metrics={"homophily": [0.1, None, 0.3], "epoch": [0, 5, 10], "note": 1}),
                row(seed=1, metrics={"homophily": [0.3, 0.5, 0.5], "epoch": [0, 5, 10]}),
            )
        )
    )
    points = only([sweep]).curves[0].points
    assert [point.x for point in points] == [0, 5, 10]
    assert [point.mean for point in points] == pytest.approx([0.2, 0.5, 0.4])
    assert [point.runs for point in points] == [2, 1, 2]
    assert (sweep.quantity, sweep.axis) == ("homophily", "epoch")
    given = only(sweeps(read(row(metrics={"h": [3, 2], "input_h": 1.5, "input_other": 2}))))
    assert [(c.name, c.level and c.level.mean) for c in given.curves[1:]] == [("input graph", 1.5)]
    plain = only(sweeps(read(row(metrics={"loss": [3, 2]}))))
    assert [point.x for point in plain.curves[0].points] == [1, 2]


def test_a_chart_has_a_line_a_band_and_the_paper() -> None:
    records = [
        row(cell=f"{x}", x=x, seed=seed, test_accuracy=0.5 + seed / 10, paper=0.6)
        for x in (1, 2)
        for seed in (0, 1)
    ]
    sections = experiment_sections(read(*records, row(cell="c", label="MLP", method="mlp")))
    styles = page_styles(sections)
    figure = sweep_chart(sections[0].sweeps[0], styles).figure
    band, line, paper, level = figure.data
    assert list(line.y) == pytest.approx([55, 55])
    assert band.fill == "toself"
    assert list(paper.y) == [60, 60]
    assert list(level.y) == [50, 50]
    assert line.line.color == styles["GCN"].colour


def test_one_method_has_one_colour_and_its_variants_have_others() -> None:
    sections = experiment_sections(
        read(
            row(experiment="a", cell="1", label="GraphGLOW", method="graphglow"),
            row(experiment="a", cell="2", label="no iteration", method="graphglow"),
            row(experiment="a", cell="3", label="GCN", method="gcn"),
            *(
                row(
                    experiment="b", cell=f"{m}{x}", label=f"{m}, deleted", method=m, x=x, target="t"
                )
                for m in ("graphglow", "gcn")
                for x in (0, 1)
            ),
        )
    )
    styles = page_styles(sections)
    assert styles["GraphGLOW"] == styles["graphglow, deleted"]
    assert styles["GraphGLOW"].colour == OURS
    assert styles["GCN"] == styles["gcn, deleted"]
    assert styles["no iteration"].colour not in (OURS, styles["GCN"].colour)


def test_a_method_keeps_its_colour_beside_a_line_that_is_named_after_it() -> None:
    chosen = {"label": "random theta, best backbone", "method": "random-theta"}
    damaged = [
        row(experiment="b", cell=f"d{x}", label="random theta, deleted", method="random-theta", x=x)
        for x in (0, 1)
    ]
    sections = experiment_sections(
        read(
            row(experiment="a", cell="1", label="random theta", method="random-theta"),
            row(experiment="a", cell="2", **chosen),
            *damaged,
        )
    )
    styles = page_styles(sections)
    assert styles["random theta"] == styles["random theta, deleted"]
    assert styles["random theta, best backbone"] != styles["random theta"]


def test_a_single_curve_needs_no_legend_and_says_its_ends() -> None:
    records = [
        row(cell=f"pivots/{p}/cora", x=p, series="pivots", method="graphglow", test_accuracy=a)
        for p, a in ((50, 0.8), (100, 0.9), (2000, 0.7))
    ]
    (section,) = experiment_sections(read(*records))
    chart = sweep_chart(section.sweeps[0], page_styles([section]))
    assert chart.caption == "Highest mean 90 at 100, lowest 70 at 2000."
    assert not chart.figure.layout.showlegend
    assert chart.figure.layout.xaxis.type == "log"  # a factor of 40
    assert list(chart.figure.layout.xaxis.ticktext) == ["50", "100", "2000"]
    assert "1 curve: " in chart.alt


def test_nine_values_of_lambda_are_the_ticks() -> None:
    records = [row(cell=f"l{n}", x=n / 10, series="lambda") for n in range(1, 10)]
    (section,) = experiment_sections(read(*records))
    axis = sweep_chart(section.sweeps[0], page_styles([section])).figure.layout.xaxis
    assert list(axis.tickvals) == [n / 10 for n in range(1, 10)]


def test_many_values_on_a_log_scale_have_round_ticks() -> None:
    swept = (50, 100, 200, 400, 800, 1000, 1200, 1400, 2000)
    records = [row(cell=f"p{p}", x=p, series="pivots") for p in swept]
    (section,) = experiment_sections(read(*records))
    axis = sweep_chart(section.sweeps[0], page_styles([section])).figure.layout.xaxis
    assert list(axis.ticktext) == ["50", "100", "200", "500", "1000", "2000"]


def test_labels_do_not_cover_each_other() -> None:
    assert label_places([(0, 0), (1, 1)], ["one", "other"]) == ["top center", "top center"]
    crowd = [(0.0, 0.0), (0.01, 0.01), (0.02, 0.0), (0.0, 0.02), (0.01, 0.0), (1.0, 1.0)]
    places = label_places(crowd, ["name"] * 6)
    assert None in places
    assert len({p for p in places[:5] if p}) == len([p for p in places[:5] if p])
    beside = [(0.0, 0.0), (0.2, 0.0), (1.0, 1.0)]
    assert label_places(beside, ["a"] * 3, [9, 9, 9])[0] == "top center"
    assert label_places(beside, ["a"] * 3, [9, 90, 9])[0] == "middle left"  # under a large mark


def test_ticks_of_a_log_axis_are_round_and_few() -> None:
    assert log_ticks(3, 40)["ticktext"] == ["5", "10", "20", "50"]
    assert log_ticks(0.9, 5000)["ticktext"] == ["1", "10", "100", "1000"]
    assert log_ticks(24, 36) == {"nticks": 4}


def test_learned_graphs_share_a_chart_with_the_input_graph_and_are_compared_with_it() -> None:
    metrics = {"homophily": [0.1, 0.02], "pivot_homophily": [0.1, 0.4], "input_homophily": 0.05}
    rows = read(*(row(seed=s, metrics=metrics | {"epoch": [0, 5], "n": 1}) for s in (0, 1)))
    sweep = only(sweeps(rows))
    assert (sweep.quantity, sweep.axis) == ("homophily", "epoch")
    assert [curve.name for curve in sweep.curves] == [
        "learned, two steps",
        "learned, to pivots",
        "input graph",
    ]
    assert [curve.points[-1].mean for curve in sweep.curves[:2]] == pytest.approx([0.02, 0.4])
    (found,) = measured_graphs(rows)
    assert (found.measure, found.given) == ("class-insensitive homophily", (0.05, 0.0))
    assert found.two_steps[0] == pytest.approx(0.02)
    assert found.to_pivots is not None
    assert found.to_pivots[0] == pytest.approx(0.4)
    assert found.difference == pytest.approx(-0.03)
    (section,) = experiment_sections(rows)
    assert section.metrics is not None
    assert section.metrics.metrics == ["n"]  # the input graph's stand in the other table


def test_what_learned_graphs_mean_is_said_by_the_figures() -> None:
    def said(learned: float, weight: float) -> str:
        lists = {"homophily": [0.5, learned], "pivot_homophily": [0.5, 0.04]}
        metrics = lists | {"input_homophily": 0.06, "epoch": [0, 5]}
        ours = {"method": "graphglow", "config": {"input_weight": weight}}
        return " ".join(meaning(measured_graphs(read(row(metrics=metrics, **ours)))))

    below = said(0.001, 0.5)
    assert "less homophilous than the input graph on these targets" in below
    assert "that of two steps is on 1 of 1, that to pivots on 1 of 1." in below
    assert "lambda" not in below
    assert "In these runs lambda = 1 won on validation" in said(0.001, 1.0)
    assert "more homophilous than the input graph on 1 of 1 targets, as" in said(0.3, 0.5)
    assert "that of two steps is on 0 of 1, that to pivots on 1 of 1." in said(0.3, 1.0)
    assert meaning([]) == []
    spread = Measured(
        "t", "l", "class-insensitive homophily", (0.06, 0.0), (0.0, 0.0), (0.05, 0.02)
    )
    assert "on 1 of 1 (1 within one standard deviation)." in meaning([spread])[0]
