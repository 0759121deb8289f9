"""The drawing of a pair of nodes and what surrounds them, and bars of what a score is made of.

The macros of ``pair.html.j2`` draw it as SVG, without scripts, in light and dark.
"""

import math
from typing import NamedTuple

from graphglow.explain import Explanation, Surroundings

WIDTH, HEIGHT = 320.0, 190.0
"""Size of the drawing, in its own units."""


class Mark(NamedTuple):
    """A node of the drawing: an ``end`` of the pair, in ``common``, or an ``other`` neighbour."""

    name: str
    x: float
    y: float
    kind: str


class Bar(NamedTuple):
    """One contribution; the length is in percent of half the width."""

    name: str
    value: float
    length: float


class Picture(NamedTuple):
    """What the macros draw: marks and lines are of a pair, whose ends are the first two marks."""

    why: Explanation
    bars: list[Bar]
    marks: list[Mark]
    lines: list[tuple[Mark, Mark]]


def picture(why: Explanation) -> Picture:
    """Lay out an explanation: bars, and for a pair the two nodes and what surrounds them."""
    widest = max((abs(one.value) for one in why.contributions), default=0.0) or 1.0
    bars = [
        Bar(str(one.name), one.value, 50 * abs(one.value) / widest) for one in why.contributions
    ]
    drawn = ([], []) if why.surroundings is None else _laid_out(why, why.surroundings)
    return Picture(why, bars, *drawn)


def _laid_out(why: Explanation, around: Surroundings) -> tuple[list[Mark], list[tuple[Mark, Mark]]]:
    """The two at the sides, neighbours in common between them, others around."""
    middle, u, v = HEIGHT / 2, why.facts["u"], why.facts["v"]
    ends = [Mark(str(u), 78, middle, "end"), Mark(str(v), WIDTH - 78, middle, "end")]
    place, lines = {u: ends[0], v: ends[1]}, []
    count = len(around.common)
    even = _spread(count + count % 2, 24, HEIGHT - 24)  # none on the line itself
    for name, y in zip(around.common, even, strict=False):
        place[name] = Mark(str(name), WIDTH / 2, y, "common")
        lines += [(end, place[name]) for end in ends]
    for end, side, names in ((ends[0], -1, around.of_u), (ends[1], 1, around.of_v)):
        for name, angle in zip(names, _spread(len(names), -62, 62), strict=True):
            x, y = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            place[name] = Mark(str(name), end.x + side * 62 * x, middle + 84 * y, "other")
            lines.append((end, place[name]))
    lines += [(place[a], place[b]) for a, b in around.edges]
    return list(place.values()), lines


def _spread(count: int, low: float, high: float) -> list[float]:
    """Even places from ``low`` to ``high``; one alone is in the middle."""
    if count == 1:
        return [(low + high) / 2]
    return [low + (high - low) * i / (count - 1) for i in range(count)]
