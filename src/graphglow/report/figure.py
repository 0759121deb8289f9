"""Charts as Plotly figures that a page can show: plain text in them, no colours of a theme."""

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from graphglow.errors import InputError
from graphglow.report.theme import LOW_TO_HIGH, THEMES

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'
NAME_LENGTH = 40


@dataclass(frozen=True)
class Chart:
    """A figure with its words. ``figure`` is a ``plotly.graph_objects.Figure``."""

    title: str
    alt: str
    """What the chart shows, for those who do not see it."""
    caption: str
    figure: Any


def require_plotly() -> None:
    """Raise one sentence that says how to install Plotly if it is not there."""
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise InputError(
            "a page with charts needs Plotly; got a Python without it "
            '(pip install "graphglow[report]")'
        ) from error


def plotly_script() -> str:
    """Plotly's JavaScript, to be embedded once in a page."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


def chart_text(value: object, length: int = NAME_LENGTH) -> str:
    """``value`` as text in a chart, where Plotly would read tags; cut where it is long."""
    text = " ".join(str(value).split())
    if len(text) > length:
        text = text[: length - 1] + "\u2026"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def translucent(colour: str, share: float) -> str:
    """``#rrggbb`` with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def template(theme: str) -> dict[str, Any]:
    """Plotly's template for a theme: all that must change when the page turns dark."""
    colours = THEMES[theme]
    axis = {
        "gridcolor": colours["line"],
        "linecolor": colours["line"],
        "zerolinecolor": colours["line"],
        "tickcolor": colours["line"],
        "tickfont": {"color": colours["soft"], "size": 12},
        "title": {"font": {"color": colours["soft"], "size": 12.5}, "standoff": 8},
        "automargin": True,
    }
    scale = [list(stop) for stop in LOW_TO_HIGH[theme]]
    small = {"color": colours["soft"], "size": 12}
    bar = {"tickfont": small, "title": {"font": small}, "outlinewidth": 0}
    return {
        "layout": {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": FONT, "size": 13, "color": colours["ink"]},
            "xaxis": axis,
            "yaxis": axis,
            "legend": {"font": {"color": colours["ink"], "size": 12}, "bgcolor": "rgba(0,0,0,0)"},
            "hoverlabel": {
                "bgcolor": colours["card"],
                "bordercolor": colours["soft"],
                "font": {"family": FONT, "size": 13, "color": colours["ink"]},
                "align": "left",
            },
            "modebar": {
                "bgcolor": "rgba(0,0,0,0)",
                "color": colours["soft"],
                "activecolor": colours["glow"],
            },
        },
        "data": {"heatmap": [{"type": "heatmap", "colorscale": scale, "colorbar": bar}]},
    }


def embedded(value: Any) -> str:
    """JSON for a script element: no character in it can end the element or start a comment."""
    return _inert(json.dumps(value, allow_nan=False))


def embedded_figures(charts: dict[str, Chart]) -> str:
    """All figures by id, as :func:`embedded` JSON."""
    parts = []
    for name, chart in charts.items():
        chart.figure.update_layout(template=None)  # the page brings its own, by theme
        parts.append(f"{json.dumps(name)}: {chart.figure.to_json()}")
    return _inert("{" + ",\n".join(parts) + "}")


def _inert(text: str) -> str:
    for character in "<>&\u2028\u2029":  # in JSON they stand in strings only
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def script_hash(script: str) -> str:
    """What a content security policy calls a script by: only those that it names may run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
