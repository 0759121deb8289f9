"""Charts of result rows: accuracy against training time, and curves with their spread."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from graphglow.experiments.runs.rows import counted
from graphglow.report import frame
from graphglow.report.comparison import Comparison, Line
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


class Point(NamedTuple):
    """What a curve has at ``x``, as it is drawn."""

    x: float
    y: float
    std: float | None
    runs: int
    paper: float | None


def time_charts(table: Comparison, styles: Styles) -> list[Chart]:
    """Accuracy against training time, one chart per target, as the paper draws it."""
    charts = [_time_chart(table, at, target, styles) for at, target in enumerate(table.columns)]
    return [chart for chart in charts if chart is not None]


def _time_chart(table: Comparison, at: int, target: str, styles: Styles) -> Chart | None:
    shown = [(cell.seconds, line.name, cell) for line, cell in table.scored(at) if cell.seconds]
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
    unit, factor = (", %", 100.0) if sweep.quantity == ACCURACY else ("", 1.0)
    swept: list[float] = list(sweep.curves.columns)
    found = {line.name: _points(line, swept, factor) for line in sweep.curves.lines}
    curves = {name: points for name, points in found.items() if points}
    traces = [
        trace for name, points in curves.items() for trace in _curve(name, points, styles[name])
    ]
    for line in sweep.levels.lines:
        ends = [p._replace(x=x) for x in (swept[0], swept[-1]) for p in _points(line, [0], factor)]
        traces.append(_line(line.name, ends, styles[line.name]._replace(dash="dash"), "lines"))
    quantity, count = measure(sweep.quantity), len(curves) + len(sweep.levels.lines)
    said = [f"{name} from {p[0].y:.3g} to {p[-1].y:.3g}" for name, p in curves.items()]
    named = sum(trace.get("showlegend", True) for trace in traces) > 1
    caption = ""
    if not named:
        ranked = sorted((point.y, point.x) for points in curves.values() for point in points)
        (low, low_at), (high, high_at) = ranked[0], ranked[-1]
        caption = f"Highest mean {high:.3g} at {high_at:g}, lowest {low:.3g} at {low_at:g}."
    return frame.chart(
        f"{sweep.target}: {quantity} by {sweep.axis}",
        traces,
        alt=f"{quantity} on {sweep.target} over {sweep.axis}, {counted(count, 'curve')}: "
        f"{'; '.join(said)}.",
        caption=caption,
        height=350 + 22 * (count // 4) if named else 310,
        x=frame.axis(sweep.axis, **_ticks(swept)),
        y=frame.axis(f"{quantity}{unit}", nticks=6),
        legend="below" if named else None,
        hovermode="x unified" if count <= TOGETHER else "closest",
    )


def _ticks(swept: list[float]) -> dict[str, Any]:
    """At the swept values, where they are few; of many, at round ones."""
    log = LOG if swept[0] > 0 and swept[-1] / swept[0] >= LOG_FROM else {"nticks": 8}
    few = len(swept) <= MOST_TICKS - (2 if log is LOG else 0)  # which lie closer to each other
    return {**log, **(frame.ticks_at(swept, [f"{value:g}" for value in swept]) if few else {})}


def _points(line: Line, swept: list[float], factor: float) -> list[Point]:
    def scaled(value: float | None) -> float | None:
        return None if value is None else factor * value

    return [
        Point(x, factor * cell.mean, scaled(cell.std), cell.runs, scaled(cell.paper))
        for x, cell in zip(swept, line.cells, strict=True)
        if cell is not None and cell.mean is not None
    ]


def _curve(name: str, points: list[Point], style: SeriesStyle) -> list[Trace]:
    """A line in its band, hidden and shown together, and the paper's line."""
    mode = "lines" if len(points) > DENSE else "lines+markers"
    parts = [_line(name.removeprefix(LEARNED), points, style, mode)]
    wide = [(p.x, p.y, p.std) for p in points if p.std is not None]
    if len(wide) > 1:
        around = [(x, y + std) for x, y, std in wide] + [(x, y - std) for x, y, std in wide[::-1]]
        band = frame.scatter(name, _x_and_y(around), "lines", style, line={"width": 0})
        band |= {"fill": "toself", "fillcolor": frame.translucent(style.colour, 0.16)}
        parts.insert(0, band | {"showlegend": False})
    parts = [part | {"legendgroup": chart_text(name, 300)} for part in parts]
    paper = [(p.x, p.paper) for p in points if p.paper is not None]
    if paper:
        faint = SeriesStyle(style.colour, f"{style.symbol}-open", "dot")
        place, mode = _x_and_y(paper), "lines+markers"
        parts.append(frame.scatter(f"{name}, the paper", place, mode, faint, hover="%{y:.4~g}"))
    return parts


def _line(name: str, points: list[Point], style: SeriesStyle, mode: str) -> Trace:
    told = [
        ["" if p.std is None else f" \u00b1 {p.std:.2g}", counted(p.runs, "run")] for p in points
    ]
    place, mark = _x_and_y([(p.x, p.y) for p in points]), {"size": 7}
    hover = "%{y:.4~g}%{customdata[0]} (%{customdata[1]})"
    return frame.scatter(name, place, mode, style, hover=hover, customdata=told, marker=mark)


def _x_and_y(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [round(y, 4) for _, y in pairs]
