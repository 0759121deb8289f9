"""The drawing of a pair of nodes and what surrounds them, and bars of what a score is made of.

Plain data: the macros of ``pair.html.j2`` draw it as SVG, without scripts, in light and dark.
"""

import math
from typing import NamedTuple

from graphglow.explain import Explanation, Surroundings

WIDTH, HEIGHT = 320.0, 190.0
"""Of the drawing, in its own units."""


class Mark(NamedTuple):
    """A node of the drawing."""

    name: str
    x: float
    y: float
    kind: str
    """``end`` of the pair, neighbour in ``common``, or ``other`` neighbour."""


class Bar(NamedTuple):
    """One contribution; the length is percent of the widest bar's half."""

    name: str
    value: float
    length: float


class Picture(NamedTuple):
    """What the macros draw."""

    why: Explanation
    bars: list[Bar]
    marks: list[Mark]
    """The two nodes first; none where the explanation is not of a pair."""
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
    place = {u: ends[0], v: ends[1]}
    count = len(around.common)
    even = _spread(count + count % 2, 24, HEIGHT - 24)  # none on the line itself
    for name, y in zip(around.common, even, strict=False):
        place[name] = Mark(str(name), WIDTH / 2, y, "common")
    for side, names in ((0, around.of_u), (1, around.of_v)):
        for name, angle in zip(names, _spread(len(names), -62, 62), strict=True):
            turn = math.radians(angle)
            x = ends[side].x + (62 if side else -62) * math.cos(turn)
            place[name] = Mark(str(name), x, middle + 84 * math.sin(turn), "other")
    lines = [(end, place[name]) for name in around.common for end in ends]
    lines += [(ends[0], place[name]) for name in around.of_u]
    lines += [(ends[1], place[name]) for name in around.of_v]
    lines += [(place[a], place[b]) for a, b in around.edges]
    return list(place.values()), lines


def _spread(count: int, low: float, high: float) -> list[float]:
    """``count`` places between two, in the middle where there is one."""
    if count == 1:
        return [(low + high) / 2]
    return [low + (high - low) * i / (count - 1) for i in range(count)]
