"""Charts of result rows: accuracy against training time, and curves with their spread."""

import math
from collections.abc import Mapping

import plotly.graph_objects as go

from graphglow.experiments.wording import counted
from graphglow.report.comparison import Comparison
from graphglow.report.figure import Chart, chart_text, translucent
from graphglow.report.sweeps import LEARNED, Curve, Sweep, measure
from graphglow.report.theme import SeriesStyle

LABELLED = 8
LONGEST_LABEL = 16
"""With more methods, or longer names, a legend names them instead of labels in the chart."""
SMALLEST, PER_POINT = 9.0, 5.0
"""Diameter in pixels: of a method without spread, and for each point of standard deviation."""
ABOUT_A_MARK = "<b>%{meta[0]}</b><br>%{y:.1f} % %{meta[1]}<br>%{x:.3s} s<extra></extra>"
WIDTH, HEIGHT, CHARACTER = 210.0, 210.0, 6.5
"""Pixels of the part of a small chart that marks are in, and of a character of a label."""
MOST_TICKS = 7
"""Of an axis with a log scale."""
MOST_VALUES = 9
"""Up to this many swept values are the ticks of their axis."""
LOG_FROM = 10
"""Swept values whose greatest is so many times their least have a log scale."""
BELOW = {"orientation": "h", "yanchor": "top", "y": -0.24, "xanchor": "left", "x": -0.17}

Styles = Mapping[str, SeriesStyle]


def time_charts(table: Comparison, styles: Styles) -> list[Chart]:
    """Accuracy against training time, one chart per target, as the paper draws it."""
    return [
        chart
        for number, target in enumerate(table.columns)
        if (chart := _time_chart(table, number, target, styles)) is not None
    ]


def _time_chart(table: Comparison, number: int, target: str, styles: Styles) -> Chart | None:
    shown = [
        (line.name, cell, cell.mean, cell.seconds)
        for line in table.lines
        if (cell := line.cells[number]) is not None
        and cell.mean is not None
        and cell.seconds is not None
        and cell.seconds > 0
    ]
    if len(shown) < 2:
        return None
    labels = [chart_text(name, 24) for name, *_ in shown]
    sizes = [SMALLEST + PER_POINT * 100 * (cell.std or 0.0) for _, cell, *_ in shown]
    where = label_places([(math.log(s), mean) for *_, mean, s in shown], labels, sizes)
    few = len(shown) <= LABELLED and max(map(len, labels)) <= LONGEST_LABEL
    labelled = few and None not in where
    figure = go.Figure()
    for (name, cell, mean, seconds), label, place, size in zip(
        shown, labels, where, sizes, strict=True
    ):
        said = "no std: one run" if cell.std is None else f"\u00b1 {100 * cell.std:.1f}"
        figure.add_scatter(
            x=[seconds],
            y=[100 * mean],
            name=chart_text(name),
            text=[label],
            mode="markers+text" if labelled else "markers",
            textposition=place or "top center",
            textfont={"size": 12},
            cliponaxis=False,
            marker=_mark(styles[name], size),
            meta=[chart_text(name, 80), f"{said}, {counted(cell.runs, 'run')}"],
            hovertemplate=ABOUT_A_MARK,
        )
    figure.update_layout(
        height=320 if labelled else 340 + 22 * (len(shown) // 3),
        margin={"l": 50, "r": 30, "t": 24, "b": 46},
        showlegend=not labelled,
        legend=BELOW | {"itemsizing": "constant"},
        xaxis={
            "type": "log",
            "title": {"text": "training, s (log scale)"},
            **log_ticks(min(s for *_, s in shown), max(s for *_, s in shown)),
        },
        yaxis={"title": {"text": "test accuracy, %"}, "nticks": 6},
    )
    fastest = min(shown, key=lambda found: found[3])[0]
    return Chart(
        title=target,
        alt=f"Accuracy against training time on {target} for {len(shown)} methods; the fastest is "
        f"{fastest}. The table has the figures.",
        caption="",
        figure=figure,
    )


def _mark(style: SeriesStyle, size: float) -> dict[str, object]:
    return {
        "size": size,
        "color": translucent(style.colour, 0.45),
        "symbol": style.symbol,
        "line": {"color": style.colour, "width": 2},
    }


def log_ticks(low: float, high: float) -> dict[str, object]:
    """Ticks at 1, 2, 5, 10, 20, 50 .. in the range; at powers of ten only if that is many."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**e for e in exponents for step in steps]
        ticks = [tick for tick in ticks if low / 1.3 <= tick <= 1.3 * high]
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) < 2:
        return {"nticks": 4}
    return {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def label_places(
    points: list[tuple[float, float]], labels: list[str], sizes: list[float] | None = None
) -> list[str | None]:
    """Where each label goes so that it covers no other and no mark; None if nowhere.

    In pixels of a small chart; ``sizes`` are the diameters of the marks.
    """
    axes = list(zip(*points, strict=True))
    low, size = [min(axis) for axis in axes], [max(max(a) - min(a), 1e-9) for a in axes]
    at = [(WIDTH * (x - low[0]) / size[0], HEIGHT * (y - low[1]) / size[1]) for x, y in points]
    radii = [diameter / 2 + 2 for diameter in sizes or [SMALLEST] * len(points)]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(at, radii, strict=True)]
    places: list[str | None] = []
    for (x, y), r, label in zip(at, radii, labels, strict=True):
        wide, high = CHARACTER * len(label), 2 * CHARACTER
        options = {
            "top center": (x - wide / 2, y + r, x + wide / 2, y + r + high),
            "bottom center": (x - wide / 2, y - r - high, x + wide / 2, y - r),
            "middle right": (x + r, y - high / 2, x + r + wide, y + high / 2),
            "middle left": (x - r - wide, y - high / 2, x - r, y + high / 2),
        }
        free = [p for p, box in options.items() if not any(_overlap(box, t) for t in taken)]
        places.append(free[0] if free else None)
        taken += [options[free[0]]] if free else []
    return places


Box = tuple[float, float, float, float]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def sweep_chart(sweep: Sweep, styles: Styles) -> Chart:
    """Means as lines, standard deviations as bands; what is not swept is a level line."""
    figure = go.Figure()
    factor = 100.0 if sweep.quantity == "test accuracy" else 1.0
    every = [point.x for curve in sweep.curves for point in curve.points]
    for curve in sweep.curves:
        style = styles[curve.name]
        if curve.level is not None:
            _add_level(figure, curve, style, (min(every), max(every)), factor)
            continue
        _add_band(figure, curve, style, factor)
        _add_line(figure, curve, style, factor)
        _add_paper(figure, curve, style, factor)
    unit = ", %" if factor == 100 else ""
    quantity = measure(sweep.quantity)
    named = len(sweep.curves) > 1 or any(point.paper for point in sweep.curves[0].points)
    figure.update_layout(
        height=350 + 22 * (len(sweep.curves) // 4) if named else 310,
        margin={"l": 50, "r": 16, "t": 16, "b": 46},
        hovermode="x unified" if len(sweep.curves) <= LABELLED else "closest",
        legend=BELOW,
        showlegend=named,
        xaxis={"title": {"text": chart_text(sweep.axis, 60)}, **_ticks(every)},
        yaxis={"title": {"text": chart_text(f"{quantity}{unit}", 60)}, "nticks": 6},
    )
    return Chart(
        title=f"{sweep.target}: {quantity} by {sweep.axis}",
        alt=f"{quantity} on {sweep.target} over {sweep.axis}, "
        f"{counted(len(sweep.curves), 'curve')}: {_ends(sweep, factor)}.",
        caption="" if named else _extremes(sweep.curves[0], factor),
        figure=figure,
    )


def _ticks(values: list[float]) -> dict[str, object]:
    """At the swept values, where they are few; of many on a log scale, at round ones."""
    swept = sorted(set(values))
    low, high = swept[0], swept[-1]
    if low > 0 and high / low >= LOG_FROM:
        if len(swept) > MOST_TICKS:
            return {"type": "log", **log_ticks(low, high)}
        text = [f"{value:g}" for value in swept]
        return {"type": "log", "tickmode": "array", "tickvals": swept, "ticktext": text}
    if len(swept) <= MOST_VALUES:
        return {"tickmode": "array", "tickvals": swept}
    return {"nticks": 8}


def _extremes(curve: Curve, factor: float) -> str:
    ranked = sorted(curve.points, key=lambda point: point.mean)
    high, low = ranked[-1], ranked[0]
    return (
        f"Highest mean {factor * high.mean:.3g} at {high.x:g}, "
        f"lowest {factor * low.mean:.3g} at {low.x:g}."
    )


def _ends(sweep: Sweep, factor: float) -> str:
    parts = [
        f"{curve.name} from {factor * curve.points[0].mean:.3g} to "
        f"{factor * curve.points[-1].mean:.3g}"
        for curve in sweep.curves
        if curve.points
    ]
    return "; ".join(parts)


def _add_line(figure: go.Figure, curve: Curve, style: SeriesStyle, factor: float) -> None:
    dense = len(curve.points) > 25
    figure.add_scatter(
        x=[point.x for point in curve.points],
        y=[round(factor * point.mean, 4) for point in curve.points],
        name=chart_text(curve.name.removeprefix(LEARNED)),
        legendgroup=curve.name,
        mode="lines" if dense else "lines+markers",
        line={"color": style.colour, "width": 2.2, "dash": style.dash},
        marker={"color": style.colour, "symbol": style.symbol, "size": 7},
        customdata=[
            [_spread(point.std, factor), counted(point.runs, "run")] for point in curve.points
        ],
        hovertemplate="%{y:.4~g}%{customdata[0]} (%{customdata[1]})",
    )


def _spread(std: float | None, factor: float) -> str:
    return "" if std is None else f" \u00b1 {factor * std:.2g}"


def _add_band(figure: go.Figure, curve: Curve, style: SeriesStyle, factor: float) -> None:
    spread = [point for point in curve.points if point.std is not None]
    if len(spread) < 2:
        return
    above = [round(factor * (p.mean + (p.std or 0.0)), 4) for p in spread]
    below = [round(factor * (p.mean - (p.std or 0.0)), 4) for p in spread]
    x = [point.x for point in spread]
    figure.add_scatter(
        x=x + x[::-1],
        y=above + below[::-1],
        fill="toself",
        fillcolor=translucent(style.colour, 0.16),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        legendgroup=curve.name,
        name=chart_text(curve.name),
    )


def _add_paper(figure: go.Figure, curve: Curve, style: SeriesStyle, factor: float) -> None:
    points = [point for point in curve.points if point.paper is not None]
    if points:
        figure.add_scatter(
            x=[point.x for point in points],
            y=[round(factor * (point.paper or 0.0), 4) for point in points],
            name=chart_text(f"{curve.name}, the paper"),
            mode="lines+markers",
            line={"color": style.colour, "width": 1, "dash": "dot"},
            marker={"color": style.colour, "symbol": f"{style.symbol}-open", "size": 9},
            hovertemplate="%{y:.4~g}",
        )


def _add_level(
    figure: go.Figure,
    curve: Curve,
    style: SeriesStyle,
    ends: tuple[float, float],
    factor: float,
) -> None:
    assert curve.level is not None
    mean = round(factor * curve.level.mean, 4)
    figure.add_scatter(
        x=list(ends),
        y=[mean, mean],
        name=chart_text(curve.name),
        mode="lines",
        line={"color": style.colour, "width": 1.6, "dash": "dash"},
        customdata=[[_spread(curve.level.std, factor), counted(curve.level.runs, "run")]] * 2,
        hovertemplate="%{y:.4~g}%{customdata[0]} (%{customdata[1]})",
    )
