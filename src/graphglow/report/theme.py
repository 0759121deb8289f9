"""How every page looks: one table of colours for the style sheet and for the charts."""

from collections.abc import Iterable
from typing import NamedTuple

THEMES: dict[str, dict[str, str]] = {
    "light": {
        "page": "#f7f7f5",
        "card": "#ffffff",
        "ink": "#1b222d",
        "soft": "#576172",
        "line": "#e2e5ea",
        "wash": "#f1f2f4",
        "glow": "#a94e07",
        "halo": "#fdf3e3",
        "up": "#0b6e4f",
        "down": "#b3261e",
    },
    "dark": {
        "page": "#0e1218",
        "card": "#151b24",
        "ink": "#e8ecf2",
        "soft": "#a3aebd",
        "line": "#2a3340",
        "wash": "#1c242f",
        "glow": "#fbbf5d",
        "halo": "#2b2214",
        "up": "#5fd3a5",
        "down": "#ff9c92",
    },
}
"""Colours by name; text on ``page``, ``card``, ``wash`` and ``halo`` keeps a contrast of 4.5."""

OURS = "#d97706"
"""The method that the page is about, and new edges."""

SERIES = (
    "#2f7fd6",
    "#0d9488",
    "#8b5cf6",
    "#dd4477",
    "#55902b",
    "#0e8fb8",
    "#a5673f",
    "#6675e8",
    "#c04ecf",
    "#7a8699",
)
"""Everything else: a contrast of 3 on both cards, so that one colour serves both themes."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")

LOW_TO_HIGH = {
    "light": ((0.0, "#fffdf8"), (0.35, "#f8d596"), (0.7, "#d97706"), (1.0, "#6b2f06")),
    "dark": ((0.0, "#171d26"), (0.35, "#6b3d0c"), (0.7, "#d98a1f"), (1.0, "#fff0c9")),
}
"""Colour scales that begin at the card's colour: nothing looks like nothing."""


class SeriesStyle(NamedTuple):
    """How one method, or one class, is drawn wherever it appears on a page."""

    colour: str
    symbol: str
    dash: str


def series_styles(names: Iterable[str], ours: Iterable[str] = ()) -> dict[str, SeriesStyle]:
    """A style for each name, in order; where colours run out, symbols and dashes differ.

    Args:
        names: Methods or classes; the same list gives the same styles.
        ours: Those drawn in the page's own colour, told apart by symbol and dash.
    """
    own = set(ours)
    seen = {True: 0, False: 0}
    styles: dict[str, SeriesStyle] = {}
    for name in dict.fromkeys(names):
        number = seen[name in own]
        seen[name in own] += 1
        turn = number if name in own else number // len(SERIES)
        colour = OURS if name in own else SERIES[number % len(SERIES)]
        styles[name] = SeriesStyle(colour, SYMBOLS[turn % len(SYMBOLS)], DASHES[turn % len(DASHES)])
    return styles


def css_variables(theme: str) -> str:
    """The colours of a theme as CSS declarations."""
    return " ".join(f"--{name}: {colour};" for name, colour in THEMES[theme].items())
