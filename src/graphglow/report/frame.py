"""The one frame that all charts share: colours, axes, legend, hover, words.

A chart is plain data in Plotly's format, which ``page.js`` draws in the colours of ``style.css``:
no Plotly is needed to make one, and text in it has no tags. What is coloured here can be seen on
light and dark alike.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

OURS = "#d97706"
"""The method that the page is about, and all that was learned."""
GREY = "#7a8699"
"""What was given."""
SERIES = (
    *("#2f7fd6", "#0d9488", "#8b5cf6", "#dd4477", "#55902b"),
    *("#0e8fb8", "#a5673f", "#6675e8", "#c04ecf", GREY),
)
"""Everything else: a contrast of 3 on both cards, so that one colour serves both themes."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
LEGENDS = {
    "above": {"yanchor": "bottom", "y": 1.0, "x": 0},
    "below": {"yanchor": "top", "y": -0.24, "x": -0.17, "itemsizing": "constant"},
    "foot": {"yanchor": "top", "y": -0.01, "x": 0},
}
"""Where a legend stands; ``foot`` is for a drawing, which has no axis below it."""

Trace = dict[str, Any]


class SeriesStyle(NamedTuple):
    """How one method, or one class, is drawn wherever it appears on a page."""

    colour: str
    symbol: str
    dash: str


INPUT_STYLE = SeriesStyle(GREY, SYMBOLS[0], DASHES[0])
LEARNED_STYLE = SeriesStyle(OURS, SYMBOLS[0], DASHES[0])


class Chart(NamedTuple):
    """A figure with its words; ``alt`` says what it shows to those who do not see it."""

    title: str
    alt: str
    caption: str
    figure: dict[str, Any]


def chart(
    title: str,
    traces: Sequence[Trace],
    *,
    alt: str,
    caption: str = "",
    height: int = 380,
    x: Mapping[str, Any] | None = None,
    y: Mapping[str, Any] | None = None,
    legend: str | None = "above",
    **layout: Any,
) -> Chart:
    """Put traces into the frame, with a heading above and a caption below it.

    ``x`` and ``y`` come from :func:`axis`; without them it is a drawing, which can be moved.
    ``legend`` is a place of ``LEGENDS``, or None; all else is as Plotly's layout has it.
    """
    margin = {"l": 50, "r": 16, "t": 16, "b": 46}
    if x is None or y is None:
        margin = dict.fromkeys("lrtb", 4)
        layout = {"hovermode": "closest", "dragmode": "pan"} | layout
    hidden = {"visible": False, "automargin": False}
    shown: dict[str, Any] = {"showlegend": False}
    if legend is not None:
        shown = {"showlegend": True, "legend": {"orientation": "h", **LEGENDS[legend]}}
    frame = {"height": height, "margin": margin, "xaxis": x or hidden, "yaxis": y or hidden}
    return Chart(title, alt, caption, {"data": list(traces), "layout": frame | shown | layout})


def scatter(
    name: str, place: Any, mode: str, style: SeriesStyle, *, hover: str = "", **more: Any
) -> Trace:
    """Lines or marks at ``place``, x and y; without ``hover`` a mouse finds nothing there.

    ``mode`` and all else are Plotly's; ``line`` and ``marker`` change what the style says.
    """
    line = {"color": style.colour, "width": 2, "dash": style.dash, **more.pop("line", {})}
    marker = {"color": style.colour, "symbol": style.symbol, **more.pop("marker", {})}
    told = {"hovertemplate": hover} if hover else {"hoverinfo": "skip"}
    drawn = {"type": "scatter", "mode": mode, "name": chart_text(name), "line": line}
    x, y = place
    return {**drawn, "marker": marker, "x": x, "y": y, **told, **more}


def band(
    x: list[float], y: list[float], spread: Sequence[float], style: SeriesStyle, **more: Any
) -> Trace:
    """What lies within ``spread`` of a line, filled; all else is Plotly's."""
    high, low = ([a + sign * b for a, b in zip(y, spread, strict=True)] for sign in (1, -1))
    around = x + x[::-1], [round(value, 4) for value in high + low[::-1]]
    filled = {"fill": "toself", "fillcolor": translucent(style.colour, 0.15), "showlegend": False}
    return scatter("", around, "lines", style, line={"width": 0}, **more) | filled


def two_bars(
    names: Iterable[str], labels: list[str], values: Any, *, hover: str, lying: bool = False
) -> list[Trace]:
    """For each label what was given, in grey, and what was learned."""
    bars = []
    for name, of, colour in zip(names, values, (GREY, OURS), strict=True):
        places = {"x": of, "y": labels, "orientation": "h"} if lying else {"x": labels, "y": of}
        looks = {"marker": {"color": colour}, "hovertemplate": hover}
        bars.append({"type": "bar", "name": name, **places, **looks})
    return bars


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with a title, and whatever else Plotly is told about it."""
    return {"title": {"text": chart_text(title, 80)}, **more}


def ticks_at(places: Iterable[object], names: Iterable[str]) -> dict[str, Any]:
    """Ticks at these places only."""
    return {"tickmode": "array", "tickvals": list(places), "ticktext": list(names)}


def chart_text(value: object, length: int = 40) -> str:
    """``value`` as text in a chart, where Plotly would read tags; cut where it is long."""
    text = " ".join(str(value).split())
    if len(text) > length:
        text = text[: length - 1] + "\u2026"
    return html.escape(text, quote=False)


def class_text(name: str) -> str:
    """A class as people say it: a bare number would not say that it is one."""
    return f"class {name}" if name.isdigit() else name


def unique_names(names: Iterable[str]) -> list[str]:
    """The same names, with a number where one comes again: an axis of categories needs that."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return unique


def translucent(colour: str, share: float) -> str:
    """``#rrggbb`` with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def series_styles(names: Iterable[str], ours: Sequence[str] = ()) -> dict[str, SeriesStyle]:
    """A style for each name, in order; where colours run out, symbols and dashes differ.

    Those in ``ours`` have the page's own colour.
    """
    every = dict.fromkeys(names)
    mine = [name for name in every if name in ours]
    others = [name for name in every if name not in ours]
    places = {name: (OURS, turn) for turn, name in enumerate(mine)}
    places |= {n: (SERIES[i % len(SERIES)], i // len(SERIES)) for i, n in enumerate(others)}
    return {
        name: SeriesStyle(colour, SYMBOLS[turn % len(SYMBOLS)], DASHES[turn % len(DASHES)])
        for name, (colour, turn) in places.items()
    }
