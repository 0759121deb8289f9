"""Charts of result rows: accuracy against training time, and curves with their spread."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphglow.lab.runs.rows import counted
from graphglow.report import frame
from graphglow.report.comparison import Cell, Comparison
from graphglow.report.curves import ACCURACY, GIVEN, LEARNED, Sweep, measure
from graphglow.report.frame import Chart, SeriesStyle, Trace, chart_text

SMALLEST, PER_POINT = 9.0, 5.0
"""Diameter in pixels: of a method without spread, and for each point of standard deviation."""
MOST_TICKS = 9
"""Up to this many swept values are the ticks of their axis."""
LOG_FROM = 10
"""Swept values whose greatest is so many times their least have a log scale."""
LOG = {"type": "log", "tickformat": "~g", "dtick": "D2"}
TOGETHER = 8
"""Up to this many curves are told of at once where the mouse is."""
DENSE = 25
"""Curves of more points have no marks."""

Styles = Mapping[str, SeriesStyle]


def time_charts(table: Comparison, styles: Styles) -> list[Chart]:
    """Accuracy against training time, one chart per target, as the paper draws it."""
    charts = []
    for at, target in enumerate(table.columns):
        shown = [(cell.seconds, line.name, cell) for line, cell in table.scored(at) if cell.seconds]
        if len(shown) < 2:
            continue
        chart = frame.chart(
            target,
            [_method(name, seconds, cell, styles[name]) for seconds, name, cell in shown],
            alt=f"Accuracy against training time on {target} for {len(shown)} methods; the fastest "
            f"is {min(shown)[1]}. The table has the figures.",
            height=340 + 22 * (len(shown) // 3),
            x=frame.axis("training, s (log scale)", **LOG),
            y=frame.axis("test accuracy, %", nticks=6),
            legend="below",
        )
        charts.append(chart)
    return charts


def _method(name: str, seconds: float, cell: Cell, style: SeriesStyle) -> Trace:
    mark = {
        "size": SMALLEST + PER_POINT * 100 * (cell.std or 0.0),
        "color": frame.translucent(style.colour, 0.45),
        "line": {"color": style.colour, "width": 2},
    }
    spread = f" \u00b1 {100 * (cell.std or 0.0):.1f}, {counted(cell.runs, 'run')}"
    hover = f"<b>%{{meta}}</b><br>%{{y:.1f}} %{spread}<br>%{{x:.3s}} s<extra></extra>"
    place, meta = ([seconds], [100 * (cell.mean or 0.0)]), chart_text(name, 80)
    return frame.scatter(name, place, "markers", style, hover=hover, marker=mark, meta=meta)


def sweep_chart(sweep: Sweep, styles: Styles) -> Chart:
    """Means as lines, standard deviations as bands; the input graph is a level line."""
    unit, factor = (", %", 100.0) if sweep.quantity == ACCURACY else ("", 1.0)
    swept, traces, said = list(sweep.curves.columns), list[Trace](), list[str]()
    for line in sweep.curves.lines:
        at = [x for x, cell in zip(swept, line.cells, strict=True) if cell and cell.scores]
        level = frame.INPUT_STYLE._replace(dash="dash")
        if at:
            style = level if line.name == GIVEN else styles[line.name]
            traces += _curve(line.name, at, line.scored, style, factor)
            ends = [factor * (line.scored[end].mean or 0.0) for end in (0, -1)]
            said.append("{} from {:.3g} to {:.3g}".format(line.name, *ends))
    quantity, count = measure(sweep.quantity), len(said)
    return frame.chart(
        f"{sweep.target}: {quantity} by {sweep.axis}",
        traces,
        alt=f"{quantity} on {sweep.target} over {sweep.axis}, {counted(count, 'curve')}: "
        f"{'; '.join(said)}.",
        height=350 + 22 * (count // 4) if count > 1 else 310,
        x=frame.axis(sweep.axis, **_ticks(swept)),
        y=frame.axis(f"{quantity}{unit}", nticks=6),
        legend="below" if count > 1 else None,
        hovermode="x unified" if count <= TOGETHER else "closest",
    )


def _ticks(swept: list[float]) -> dict[str, Any]:
    """At the swept values, where they are few; of many, at round ones."""
    log = LOG if swept[0] > 0 and swept[-1] / swept[0] >= LOG_FROM else {"nticks": 8}
    few = len(swept) <= MOST_TICKS - (2 if log is LOG else 0)  # which lie closer to each other
    return {**log, **(frame.ticks_at(swept, [f"{value:g}" for value in swept]) if few else {})}


def _curve(
    name: str, x: list[float], cells: Sequence[Cell], style: SeriesStyle, factor: float
) -> list[Trace]:
    """A line in its band, hidden and shown together."""
    y = [round(factor * (cell.mean or 0.0), 4) for cell in cells]
    spread = [factor * (cell.std or 0.0) for cell in cells]
    told = [
        [f" \u00b1 {std:.2g}" if std else "", counted(cell.runs, "run")]
        for std, cell in zip(spread, cells, strict=True)
    ]
    line = frame.scatter(
        *(name.removeprefix(LEARNED), (x, y), "lines" if len(x) > DENSE else "lines+markers"),
        style,
        hover="%{y:.4~g}%{customdata[0]} (%{customdata[1]})",
        customdata=told,
        marker={"size": 7},
        legendgroup=chart_text(name, 300),
    )
    if len(x) < 2 or not any(spread):
        return [line]
    return [frame.band(x, y, spread, style, legendgroup=line["legendgroup"]), line]
