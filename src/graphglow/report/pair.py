"""One pair of nodes as a picture: what surrounds the two, and what speaks for and against an edge.

Plain data in, plain SVG out, without scripts: the macro ``pair`` of ``pair.html.j2`` draws it on
any page, in light and dark.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

WIDTH, HEIGHT = 320.0, 190.0
"""Of the drawing, in its own units."""
LONGEST = 14  # letters of a name in the drawing


class Mark(NamedTuple):
    """A node of the drawing."""

    name: str
    x: float
    y: float
    kind: str
    """``end`` of the pair, neighbour in ``common``, or ``other`` neighbour."""


class Bar(NamedTuple):
    """One kind of evidence; lengths are percent of the widest bar's half."""

    name: str
    value: float
    length: float


@dataclass(frozen=True, kw_only=True)
class PairPicture:
    """What the macro draws."""

    source: str
    target: str
    joined: bool
    """Whether the graph has the edge."""
    probability: float
    log_odds: float
    """The sum of all bars."""
    verdict: str
    marks: list[Mark]
    lines: list[tuple[Mark, Mark]]
    bars: list[Bar]
    left_out: int
    """Neighbours that are not drawn."""


def pair_picture(
    source: object,
    target: object,
    *,
    probability: float,
    contributions: Mapping[str, float],
    joined: bool,
    common: Sequence[object] = (),
    of_source: Sequence[object] = (),
    of_target: Sequence[object] = (),
    edges: Sequence[tuple[object, object]] = (),
    left_out: int = 0,
    question: str = "a real edge",
) -> PairPicture:
    """Lay out a pair: the two at the sides, neighbours in common between them, others around.

    ``contributions`` of each kind of evidence add up to the log-odds of what the ``question`` asks;
    ``edges`` are those besides what follows from the three lists of neighbours, and ``left_out``
    neighbours are in none of these.
    """
    middle = HEIGHT / 2
    ends = [Mark(str(source), 78, middle, "end"), Mark(str(target), WIDTH - 78, middle, "end")]
    place = {source: ends[0], target: ends[1]}
    even = _spread(len(common) + len(common) % 2, 24, HEIGHT - 24)  # none on the line itself
    for name, y in zip(common, even, strict=False):
        place[name] = Mark(str(name), WIDTH / 2, y, "common")
    for side, names in ((0, of_source), (1, of_target)):
        for name, angle in zip(names, _spread(len(names), -62, 62), strict=True):
            turn = math.radians(angle)
            x = ends[side].x + (62 if side else -62) * math.cos(turn)
            place[name] = Mark(str(name), x, middle + 84 * math.sin(turn), "other")
    lines = [(end, place[name]) for name in common for end in ends]
    lines += [(ends[0], place[name]) for name in of_source]
    lines += [(ends[1], place[name]) for name in of_target]
    lines += [(place[a], place[b]) for a, b in edges if a in place and b in place]
    total = sum(contributions.values())
    ordered = sorted(contributions.items(), key=lambda one: one[1])
    likely = f"{100 * probability:.0f} % likely to be {question}"
    strongest = ordered[0] if probability < 0.5 else ordered[-1]
    side_word = "against" if strongest[1] < 0 else "for"
    return PairPicture(
        source=str(source),
        target=str(target),
        joined=joined,
        probability=probability,
        log_odds=total,
        verdict=f"{likely}; what speaks {side_word} it most: {strongest[0]}",
        marks=list(place.values()),
        lines=lines,
        bars=evidence_bars(ordered),
        left_out=left_out,
    )


def evidence_bars(parts: Sequence[tuple[object, float]]) -> list[Bar]:
    """Return a bar for each part of a score, in order."""
    widest = max((abs(value) for _, value in parts), default=0.0) or 1.0
    return [Bar(str(name), value, 50 * abs(value) / widest) for name, value in parts]


def short(name: str) -> str:
    """A name as the drawing has room for."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "\u2026"


def _spread(count: int, low: float, high: float) -> list[float]:
    """``count`` places between two, in the middle where there is one."""
    if count == 1:
        return [(low + high) / 2]
    return [low + (high - low) * i / (count - 1) for i in range(count)]
