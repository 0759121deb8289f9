"""Charts of result rows: accuracy against training time, and curves with their spread."""

from collections.abc import Mapping
from typing import Any

from graphglow.experiments.wording import counted
from graphglow.report import frame
from graphglow.report.comparison import Cell, Comparison
from graphglow.report.curves import ACCURACY, LEARNED, Sweep, measure
from graphglow.report.frame import Chart, SeriesStyle, Trace, chart_text

SMALLEST, PER_POINT = 9.0, 5.0
"""Diameter in pixels: of a method without spread, and for each point of standard deviation."""
MOST_TICKS = 9
"""Up to this many swept values are the ticks of their axis."""
LOG_FROM = 10
"""Swept values whose greatest is so many times their least have a log scale."""
LOG = {"type": "log", "tickformat": "~g", "nticks": 7}
TOGETHER = 8
"""Up to this many curves are told of at once where the mouse is."""
DENSE = 25
"""Curves of more points have no marks."""
HOVER = "<b>%{meta[0]}</b><br>%{y:.1f} % %{meta[1]}<br>%{x:.3s} s<extra></extra>"

Styles = Mapping[str, SeriesStyle]

Points = list[tuple[float, Cell]]
"""What a curve has at which x."""


def time_charts(table: Comparison, styles: Styles) -> list[Chart]:
    """Accuracy against training time, one chart per target, as the paper draws it."""
    charts = [_time_chart(table, at, target, styles) for at, target in enumerate(table.columns)]
    return [chart for chart in charts if chart is not None]


def _time_chart(table: Comparison, at: int, target: str, styles: Styles) -> Chart | None:
    shown = [
        (cell.seconds, line.name, cell)
        for line in table.lines
        if (cell := line.cells[at]) is not None and cell.scores and cell.seconds
    ]
    if len(shown) < 2:
        return None
    traces = []
    for seconds, name, cell in shown:
        style, place = styles[name], ([seconds], [100 * (cell.mean or 0.0)])
        said = "no std: one run" if cell.std is None else f"\u00b1 {100 * cell.std:.1f}"
        meta = [chart_text(name, 80), f"{said}, {counted(cell.runs, 'run')}"]
        mark = {
            "size": SMALLEST + PER_POINT * 100 * (cell.std or 0.0),
            "color": frame.translucent(style.colour, 0.45),
            "line": {"color": style.colour, "width": 2},
        }
        traces.append(
            frame.scatter(name, place, "markers", style, hover=HOVER, marker=mark, meta=meta)
        )
    return frame.chart(
        target,
        traces,
        alt=f"Accuracy against training time on {target} for {len(shown)} methods; the fastest is "
        f"{min(shown)[1]}. The table has the figures.",
        height=340 + 22 * (len(shown) // 3),
        x=frame.axis("training, s (log scale)", **LOG),
        y=frame.axis("test accuracy, %", nticks=6),
        legend="below",
    )


def sweep_chart(sweep: Sweep, styles: Styles) -> Chart:
    """Means as lines, standard deviations as bands; what is not swept is a level line."""
    factor = 100.0 if sweep.quantity == ACCURACY else 1.0
    swept: list[float] = list(sweep.curves.columns)
    traces: list[Trace] = []
    ends_of = []
    for line in sweep.curves.lines:
        cells = zip(swept, line.cells, strict=True)
        points = [(x, cell) for x, cell in cells if cell is not None and cell.scores]
        if not points:
            continue
        traces += _curve(line.name, points, styles[line.name], factor)
        first, last = (factor * (cell.mean or 0.0) for _, cell in (points[0], points[-1]))
        ends_of.append(f"{line.name} from {first:.3g} to {last:.3g}")
    for line in sweep.levels.lines:
        ends = [(x, cell) for x in (swept[0], swept[-1]) for cell in line.scored]
        style = styles[line.name]._replace(dash="dash")
        traces.append(_line(line.name, ends, style, factor, "lines"))
    quantity, count = measure(sweep.quantity), len(ends_of) + len(sweep.levels.lines)
    named = sum(trace.get("showlegend", True) for trace in traces) > 1
    return frame.chart(
        f"{sweep.target}: {quantity} by {sweep.axis}",
        traces,
        alt=f"{quantity} on {sweep.target} over {sweep.axis}, {counted(count, 'curve')}: "
        f"{'; '.join(ends_of)}.",
        caption="" if named else _extremes(points, factor),
        height=350 + 22 * (count // 4) if named else 310,
        x=frame.axis(sweep.axis, **_ticks(swept)),
        y=frame.axis(f"{quantity}{', %' if factor == 100 else ''}", nticks=6),
        legend="below" if named else None,
        hovermode="x unified" if count <= TOGETHER else "closest",
    )


def _ticks(swept: list[float]) -> dict[str, Any]:
    """At the swept values, where they are few; of many, at round ones."""
    log = LOG if swept[0] > 0 and swept[-1] / swept[0] >= LOG_FROM else {"nticks": 8}
    few = len(swept) <= MOST_TICKS - (2 if log is LOG else 0)  # which lie closer to each other
    return {**log, **(frame.ticks_at(swept, [f"{value:g}" for value in swept]) if few else {})}


def _extremes(points: Points, factor: float) -> str:
    ranked = sorted((factor * (cell.mean or 0.0), x) for x, cell in points)
    (low, low_at), (high, high_at) = ranked[0], ranked[-1]
    return f"Highest mean {high:.3g} at {high_at:g}, lowest {low:.3g} at {low_at:g}."


def _curve(name: str, points: Points, style: SeriesStyle, factor: float) -> list[Trace]:
    """A line in its band, hidden and shown together, and the paper's line."""
    mode = "lines" if len(points) > DENSE else "lines+markers"
    parts = [_line(name.removeprefix(LEARNED), points, style, factor, mode)]
    wide = [(x, cell.mean or 0.0, cell.std) for x, cell in points if cell.std is not None]
    if len(wide) > 1:
        above = [(x, round(factor * (mean + std), 4)) for x, mean, std in wide]
        below = [(x, round(factor * (mean - std), 4)) for x, mean, std in wide]
        band = frame.scatter(name, _x_and_y(above + below[::-1]), "lines", style, line={"width": 0})
        band |= {"fill": "toself", "fillcolor": frame.translucent(style.colour, 0.16)}
        parts.insert(0, band | {"showlegend": False})
    parts = [part | {"legendgroup": chart_text(name, 300)} for part in parts]
    paper = [(x, round(factor * cell.paper, 4)) for x, cell in points if cell.paper is not None]
    if paper:
        faint = SeriesStyle(style.colour, f"{style.symbol}-open", "dot")
        place, mode = _x_and_y(paper), "lines+markers"
        parts.append(frame.scatter(f"{name}, the paper", place, mode, faint, hover="%{y:.4~g}"))
    return parts


def _line(name: str, points: Points, style: SeriesStyle, factor: float, mode: str) -> Trace:
    place = _x_and_y([(x, round(factor * (cell.mean or 0.0), 4)) for x, cell in points])
    told = [
        ["" if cell.std is None else f" \u00b1 {factor * cell.std:.2g}", counted(cell.runs, "run")]
        for _, cell in points
    ]
    hover = "%{y:.4~g}%{customdata[0]} (%{customdata[1]})"
    mark = {"size": 7}
    return frame.scatter(name, place, mode, style, hover=hover, customdata=told, marker=mark)


def _x_and_y(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]
