import pytest
from synthetic_rows import row, sweep_rows

from graphglow.lab.runs.rows import ResultRow, row_of
from graphglow.report.comparison import Cell
from graphglow.report.curves import Sweep, meaning, measured_graphs, sweeps
from graphglow.report.frame import OURS, Chart
from graphglow.report.results import experiment_sections, page_styles
from graphglow.report.row_charts import sweep_chart


def read(*records: dict[str, object]) -> list[ResultRow]:
    return [found for record in records if (found := row_of(record)) is not None]


def only(found: list[Sweep]) -> Sweep:
    assert len(found) == 1
    return found[0]


def cells(sweep: Sweep, at: int = 0) -> list[Cell]:
    return sweep.curves.lines[at].scored


def chart_of(*records: dict[str, object]) -> Chart:
    (section,) = experiment_sections(read(*records))
    return sweep_chart(section.sweeps[0], page_styles([section]))


def test_curves_have_means_and_spreads() -> None:
    sweep = only(
        sweeps(
            read(
                row(cell="a", x=0.2, seed=0, test_accuracy=0.5),
                row(cell="a", x=0.2, seed=1, test_accuracy=0.7),
                row(cell="b", x=0.1, test_accuracy=0.9),
                row(cell="c", label="MLP", method="mlp", test_accuracy=0.3),  # for the table
            )
        )
    )
    assert sweep.curves.columns == (0.1, 0.2)
    assert cells(sweep)[1].mean == pytest.approx(0.6)
    assert cells(sweep)[1].std == pytest.approx(0.1 * 2**0.5)
    assert [line.name for line in sweep.curves.lines] == ["GCN"]


def test_what_is_swept_is_named_and_kept_apart() -> None:
    found = sweeps(read(*(r for r in sweep_rows() if r["experiment"] == "sensitivity")))
    assert [sweep.axis for sweep in found] == ["weight of the input graph (lambda)", "pivots (P)"]
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
    assert sweep.curves.columns == (0, 5, 10)
    assert [cell.mean for cell in cells(sweep)] == pytest.approx([0.2, 0.5, 0.4])
    assert [cell.runs for cell in cells(sweep)] == [2, 1, 2]
    assert (sweep.quantity, sweep.axis) == ("homophily", "epoch")
    given = only(sweeps(read(row(metrics={"h": [3, 2], "input_h": 1.5, "input_other": 2}))))
    level = given.curves.lines[1]
    assert (level.name, [cell.mean for cell in level.scored]) == ("input graph", [1.5, 1.5])
    assert only(sweeps(read(row(metrics={"loss": [3, 2]})))).curves.columns == (1, 2)
    assert sweeps(read(row(metrics={"loss": [None, None]}))) == []


def test_a_chart_has_a_line_in_a_band() -> None:
    records = [
        row(cell=f"{x}", x=x, seed=seed, test_accuracy=0.5 + seed / 10)
        for x in (1, 2)
        for seed in (0, 1)
    ]
    sections = experiment_sections(read(*records))
    styles = page_styles(sections)
    band, line = sweep_chart(sections[0].sweeps[0], styles).figure["data"]
    assert line["y"] == pytest.approx([55, 55])
    assert band["fill"] == "toself"
    assert band["y"] == pytest.approx([62.0711, 62.0711, 47.9289, 47.9289])
    assert line["line"]["color"] == styles["GCN"].colour


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
    chart = chart_of(*records)
    assert "GCN from 80 to 70" in chart.alt
    assert not chart.figure["layout"]["showlegend"]
    axis = chart.figure["layout"]["xaxis"]
    assert axis["type"] == "log"  # a factor of 40
    assert axis["ticktext"] == ["50", "100", "2000"]
    assert "1 curve: " in chart.alt


def test_few_values_are_the_ticks_and_of_many_on_a_log_scale_plotly_chooses() -> None:
    few = [row(cell=f"l{n}", x=n / 10, series="lambda") for n in range(1, 10)]
    axis = chart_of(*few).figure["layout"]["xaxis"]
    assert axis["tickvals"] == [n / 10 for n in range(1, 10)]
    swept = (50, 100, 200, 400, 800, 1000, 1200, 1400, 2000)
    axis = chart_of(*(row(cell=f"p{p}", x=p, series="pivots") for p in swept)).figure["layout"][
        "xaxis"
    ]
    assert axis["type"] == "log"
    assert "tickvals" not in axis


def test_rows_without_a_score_are_in_the_table_of_a_sweep_and_not_in_its_chart() -> None:
    records = [row(cell=f"{x}", x=x, test_accuracy=a) for x, a in ((1, 0.5), (2, None), (3, 0.6))]
    failed = [row(cell=f"f{x}", x=x, label="F", test_accuracy=None) for x in (1, 2)]
    sweep = only(sweeps(read(*records, *failed)))
    assert [[cell and cell.mean for cell in line.cells] for line in sweep.curves.lines] == [
        [0.5, None, 0.6],
        [None, None, None],
    ]
    (line,) = chart_of(*records, *failed).figure["data"]
    assert line["x"] == [1, 3]


def test_learned_graphs_share_a_chart_with_the_input_graph_and_are_compared_with_it() -> None:
    metrics = {"homophily": [0.1, 0.02], "pivot_homophily": [0.1, 0.4], "input_homophily": 0.05}
    rows = read(*(row(seed=s, metrics=metrics | {"epoch": [0, 5], "n": 1}) for s in (0, 1)))
    sweep = only(sweeps(rows))
    assert (sweep.quantity, sweep.axis) == ("homophily", "epoch")
    ends = {line.name: line.scored[-1].mean for line in sweep.curves.lines}
    known = {"learned, two steps": 0.02, "input graph": 0.05, "learned, to pivots": 0.4}
    assert ends == pytest.approx(known)
    found = measured_graphs(rows)
    assert found.columns == ("input graph", "learned, two steps", "learned, to pivots")
    (line,) = found.lines
    assert line.name == "cora, class-insensitive homophily"
    assert [(cell.mean, cell.runs) for cell in line.scored] == [(0.05, 2), (0.02, 2), (0.4, 2)]
    (section,) = experiment_sections(rows)
    assert section.metrics.columns == ("n",)  # the input graph's stand in the other table


def test_what_learned_graphs_mean_is_said_by_the_figures() -> None:
    def said(learned: float, weight: float) -> str:
        lists = {"homophily": [0.5, learned], "pivot_homophily": [0.5, 0.04]}
        metrics = lists | {"input_homophily": 0.06, "epoch": [0, 5]}
        ours = {"method": "graphglow", "config": {"input_weight": weight}}
        return " ".join(meaning(measured_graphs(read(row(metrics=metrics, **ours)))))

    assert "two steps on 0 of 1, to pivots on 0 of 1 targets." in said(0.001, 0.5)
    assert "two steps on 1 of 1, to pivots on 0 of 1 targets." in said(0.3, 0.5)
    assert "lambda" not in said(0.3, 0.5)
    assert "In these runs lambda = 1 won on validation" in said(0.001, 1.0)
    assert meaning(measured_graphs(read(row()))) == []
