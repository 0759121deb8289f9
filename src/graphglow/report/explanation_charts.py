"""The two pictures of an explanation: contributions as bars, and the nodes around the one."""

import math

import plotly.graph_objects as go

from graphglow.inference.explanation import Contribution, Explanation
from graphglow.report.explanation import class_text, towards
from graphglow.report.figure import Chart, chart_text, translucent
from graphglow.report.learned_structure import UNLABELLED, unique_names
from graphglow.report.theme import OURS, series_styles

INPUT = "#7a8699"
BY_INPUT, BY_LEARNED = "by the input graph", "by the learned graph"


def bar_chart(explanation: Explanation) -> Chart:
    """A bar for each node, in two parts; to the right what speaks for the class."""
    e = explanation
    names = [_name(e, one, 28) for one in e.contributions]
    parts = [(one.input_part, one.latent_part) for one in e.contributions]
    if e.num_others:
        names.append(f"all {e.num_others:,} others")
        parts.append((e.others_input, e.others_latent))
    names = unique_names(names)
    figure = go.Figure()
    for name, values, colour in (
        (BY_INPUT, [part[0] for part in parts], INPUT),
        (BY_LEARNED, [part[1] for part in parts], OURS),
    ):
        figure.add_bar(
            x=values,
            y=names,
            orientation="h",
            name=name,
            marker={"color": colour},
            hovertemplate="%{y}<br>%{x:+.4f} %{fullData.name}<extra></extra>",
        )
    figure.update_layout(
        height=150 + 30 * len(names),
        barmode="relative",
        bargap=0.3,
        margin={"l": 10, "r": 10, "t": 12, "b": 50},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        xaxis={"title": {"text": _scale(e)}, "zeroline": True},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    said = "; ".join(
        f"{name} {one:+.3f} by the input graph and {two:+.3f} by the learned graph"
        for name, (one, two) in zip(names, parts, strict=True)
    )
    caption = (
        f"What each node adds to the score for {towards(e)}: to the right it speaks for it, to the "
        "left against it."
    )
    return Chart("Contributions", f"Bars: {said}.", caption, figure)


def star_chart(explanation: Explanation) -> Chart:
    """The node in the middle and those that contributed most around it, the strongest on top."""
    e = explanation
    around = [one for one in e.contributions if one.node != e.node]
    places = [_on_circle(number, len(around)) for number in range(len(around))]
    strongest = max((abs(one.contribution) for one in around), default=1.0) or 1.0
    figure = go.Figure()
    kinds = (
        ("mostly by the input graph, for", INPUT, "solid", False, True),
        ("mostly by the learned graph, for", OURS, "solid", True, True),
        ("mostly by the input graph, against", INPUT, "dot", False, False),
        ("mostly by the learned graph, against", OURS, "dot", True, False),
    )
    for name, colour, dash, learned, speaks_for in kinds:
        shown = False
        for one, (x, y) in zip(around, places, strict=True):
            kind = abs(one.latent_part) > abs(one.input_part), one.contribution >= 0
            if kind == (learned, speaks_for):
                width = 1 + 9 * abs(one.contribution) / strongest
                figure.add_scatter(
                    x=[0, x],
                    y=[0, y],
                    mode="lines",
                    name=name,
                    legendgroup=name,
                    showlegend=not shown,
                    hoverinfo="skip",
                    line={"color": translucent(colour, 0.75), "width": width, "dash": dash},
                )
                shown = True
    _add_nodes(figure, e, around, places)
    hidden = {"visible": False, "automargin": False}
    figure.update_layout(
        height=480,
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
        xaxis={**hidden, "range": [-1.6, 1.6]},
        yaxis={**hidden, "range": [-1.2, 1.2], "scaleanchor": "x"},
        hovermode="closest",
        dragmode="pan",
        legend={"orientation": "h", "yanchor": "top", "y": -0.01, "x": 0},
    )
    apart = sum(not one.input_edge for one in around)
    return Chart(
        "The node and those it listens to",
        f"Node {e.id} in the middle of {len(around)} nodes that contributed most; the input graph "
        f"joins it to {len(around) - apart} of them.",
        "Lines as wide as the contribution; dotted ones speak against the class. Nodes are "
        f"coloured by predicted class. {apart} of {len(around)} are not neighbours in the input "
        "graph.",
        figure,
    )


def _add_nodes(
    figure: go.Figure,
    e: Explanation,
    around: list[Contribution],
    places: list[tuple[float, float]],
) -> None:
    classes = sorted({e.predicted, *(one.predicted for one in around)})
    styles = series_styles(classes)
    own = next((one for one in e.contributions if one.node == e.node), None)
    for name in classes:
        at = [i for i, one in enumerate(around) if one.predicted == name]
        middle = e.predicted == name
        figure.add_scatter(
            x=[places[i][0] for i in at] + [0.0] * middle,
            y=[places[i][1] for i in at] + [0.0] * middle,
            mode="markers+text",
            name=chart_text(f"predicted {class_text(name)}"),
            text=[chart_text(around[i].id, 14) for i in at] + [""] * middle,
            textposition=[_beside(places[i]) for i in at] + ["middle right"] * middle,
            textfont={"size": 12},
            cliponaxis=False,
            customdata=[_told(around[i]) for i in at] + [_told_middle(e, own)] * middle,
            hovertemplate="%{customdata}<extra></extra>",
            marker={
                "size": [14] * len(at) + [28] * middle,
                "color": styles[name].colour,
                "symbol": styles[name].symbol,
                "opacity": 1,
                "line": {"width": 1.5, "color": "rgba(255,255,255,0.85)"},
            },
        )


def _on_circle(number: int, count: int) -> tuple[float, float]:
    """Places around the middle, clockwise from the top."""
    angle = math.pi / 2 - 2 * math.pi * number / max(1, count)
    return math.cos(angle), math.sin(angle)


def _beside(place: tuple[float, float]) -> str:
    x, y = place
    if abs(x) < 0.3:
        return "top center" if y > 0 else "bottom center"
    return "middle right" if x > 0 else "middle left"


def _name(e: Explanation, one: Contribution, length: int) -> str:
    if one.node == e.node:
        return chart_text(f"{one.id} (itself)", length)
    known = f"predicted {class_text(one.predicted)}" if one.label is None else class_text(one.label)
    return chart_text(f"{one.id} ({known})", length)


def _told(one: Contribution) -> str:
    return (
        f"<b>{chart_text(one.id, 60)}</b><br>{_known(one.label)}<br>predicted "
        f"{chart_text(class_text(one.predicted))}<br>{one.input_part:+.4f} {BY_INPUT}<br>"
        f"{one.latent_part:+.4f} {BY_LEARNED}"
    )


def _told_middle(e: Explanation, own: Contribution | None) -> str:
    if own is not None:
        return _told(own)
    return f"<b>{chart_text(e.id, 60)}</b><br>{_known(e.label)}"


def _known(label: str | None) -> str:
    return UNLABELLED if label is None else f"known to be {chart_text(class_text(label))}"


def _scale(e: Explanation) -> str:
    return chart_text(f"contribution to the score for {towards(e)}", 80)
