"""One decision as a page: who spoke for a node's class, or what for two nodes being of one."""

import math
from dataclasses import replace
from pathlib import Path

from graphglow.errors import InputError
from graphglow.graphs.write import TABLES
from graphglow.inference.explain import Contribution, Explanation
from graphglow.inference.explain_pair import MEANINGS, OUTCOMES, PairExplanation
from graphglow.report import frame
from graphglow.report.frame import Chart, Trace, chart_text, class_text
from graphglow.report.page import PAGES, amount, percent, write_page
from graphglow.report.pair import pair_picture, short

BY_INPUT, BY_LEARNED = "by the input graph", "by the learned graph"


def write_explanation(explanation: Explanation, path: str | Path) -> None:
    """Write a self-contained page with pictures (``.html``), or the table (``.csv``, ``.parquet``).

    Whole or not at all; an existing file is replaced::

        graphglow.report.write_explanation(result.explain("ann"), "why.html")
    """
    path = Path(path).expanduser()
    if not _is_page(path):
        explanation.write(path)
        return
    write_page(
        path,
        "explanation.html.j2",
        title=title(explanation),
        summary=summary(explanation),
        why=explanation,
        joined=[one for one in explanation.contributions if one.probability is not None],
        class_text=class_text,
        towards=towards(explanation),
        pictures=[bar_chart(explanation), star_chart(explanation)],
    )


def write_pair_explanation(why: PairExplanation, path: str | Path) -> None:
    """Write a self-contained page without scripts (``.html``), or the table::

    graphglow.report.write_pair_explanation(graphglow.explain_pair(data, "ann", "bob"), "why.html")
    """
    path = Path(path).expanduser()
    if not _is_page(path):
        why.write(path)
        return
    around = why.surroundings
    picture = pair_picture(
        why.u,
        why.v,
        probability=why.probability,
        contributions=why.contributions,
        joined=why.input_edge,
        common=around.common,
        of_source=around.of_u,
        of_target=around.of_v,
        edges=around.edges,
        left_out=around.left_out,
    )
    write_page(
        path,
        "pair_explanation.html.j2",
        charts=False,
        title=f"What speaks for {why.u} and {why.v} being of one class",
        why=why,
        said={
            "of one class": percent(why.probability),
            "two random nodes": percent(why.chance),
            "edge in the input": "yes" if why.input_edge else "no",
            "in the refined graph": why.outcome,
        },
        meanings={name: MEANINGS[name] for name in why.contributions if name in MEANINGS},
        picture=replace(picture, verdict=OUTCOMES[why.outcome].rstrip(".")),
        short=short,
    )


def _is_page(path: Path) -> bool:
    """Whether a page is to be written; False for a table."""
    suffix = path.suffix.lower()
    if suffix not in (*PAGES, *TABLES):
        raise InputError(
            f"an explanation must be {', '.join(PAGES)}, {' or '.join(TABLES)}; got {path}"
        )
    return suffix in PAGES


def summary(e: Explanation) -> str:
    """The decision in two or three sentences."""
    known = "its class is not known"
    if e.label is not None:
        known = f"it is known to be {class_text(e.label)}"
    said = [f"Node {e.id} of {e.target} is predicted to be {class_text(e.predicted)}; {known}."]
    said.append(
        f"All nodes together add {amount(e.input_total)} {BY_INPUT} and {amount(e.latent_total)} "
        f"{BY_LEARNED} to the score for {towards(e)}."
    )
    if e.contributions:
        first = e.contributions[0]
        who = "the node itself" if first.node == e.node else f"node {first.id}"
        said.append(f"The strongest voice is {who}, with {percent(abs(first.share))} of all.")
    return " ".join(said)


def title(e: Explanation) -> str:
    return f"What speaks for node {e.id} being {towards(e)}"


def towards(e: Explanation) -> str:
    """What the numbers speak for."""
    explained = class_text(e.explained)
    return explained if e.against is None else f"{explained} rather than {class_text(e.against)}"


def bar_chart(e: Explanation) -> Chart:
    """A bar for each node, in two parts; to the right what speaks for the class."""
    names = [_name(e, one) for one in e.contributions]
    parts = [(one.input_part, one.latent_part) for one in e.contributions]
    if e.num_others:
        names.append(f"all {e.num_others:,} others")
        parts.append((e.others_input, e.others_latent))
    names = frame.unique_names(names)
    values = [part[0] for part in parts], [part[1] for part in parts]
    hover = "%{y}<br>%{x:+.4f} %{fullData.name}<extra></extra>"
    said = "; ".join(
        f"{name} {one:+.3f} {BY_INPUT} and {two:+.3f} {BY_LEARNED}"
        for name, (one, two) in zip(names, parts, strict=True)
    )
    return frame.chart(
        "Contributions",
        frame.two_bars((BY_INPUT, BY_LEARNED), names, values, hover=hover, lying=True),
        alt=f"Bars: {said}.",
        caption=f"What each node adds to the score for {towards(e)}: to the right it speaks for "
        "it, to the left against it.",
        height=150 + 30 * len(names),
        x=frame.axis(f"contribution to the score for {towards(e)}", zeroline=True),
        y=frame.axis(type="category", autorange="reversed"),
        barmode="relative",
        bargap=0.3,
    )


def evidence_chart(why: PairExplanation) -> Chart:
    """A bar for each kind of evidence about a pair; to the right what speaks for one class."""
    names, values = list(why.contributions), list(why.contributions.values())
    said = "; ".join(f"{name} {value:+.2f}" for name, value in why.contributions.items())
    colours = [frame.OURS if value > 0 else frame.GREY for value in values]
    about = [MEANINGS.get(name, "") for name in names]
    bars = {"type": "bar", "orientation": "h", "x": values, "y": names, "customdata": about}
    hover = "%{customdata}<br>%{x:+.2f}<extra></extra>"
    return frame.chart(
        f"What speaks for {why.u} and {why.v} being of one class",
        [{**bars, "marker": {"color": colours}, "hovertemplate": hover}],
        alt=f"Bars: {said}.",
        height=150 + 24 * len(names),
        x=frame.axis("contribution to the log-odds", zeroline=True),
        y=frame.axis(type="category", autorange="reversed"),
        legend=None,
    )


def star_chart(e: Explanation) -> Chart:
    """The node in the middle and those that contributed most around it, the strongest on top."""
    around = [one for one in e.contributions if one.node != e.node]
    turn = 2 * math.pi / max(1, len(around))
    angles = [math.pi / 2 - turn * number for number in range(len(around))]  # clockwise
    places = [(math.cos(angle), math.sin(angle)) for angle in angles]
    apart = sum(not one.input_edge for one in around)
    return frame.chart(
        "The node and those it listens to",
        [*_rays(around, places), _nodes(e, around, places)],
        alt=f"Node {e.id} in the middle of {len(around)} nodes that contributed most; the input "
        f"graph joins it to {len(around) - apart} of them.",
        caption="Lines as wide as the contribution; dotted ones speak against the class. Nodes "
        f"are coloured by predicted class, which stands beside them. {apart} of {len(around)} are "
        "not neighbours in the input graph.",
        height=480,
        legend="foot",
        xaxis={"visible": False, "range": [-1.6, 1.6]},
        yaxis={"visible": False, "range": [-1.2, 1.2], "scaleanchor": "x"},
    )


def _rays(around: list[Contribution], places: list[tuple[float, float]]) -> list[Trace]:
    """A line to each node, named by which graph it is mostly heard over, and what it says."""
    strongest = max((abs(one.contribution) for one in around), default=1.0) or 1.0
    rays: list[Trace] = []
    for one, (x, y) in zip(around, places, strict=True):
        learned, speaks_for = abs(one.latent_part) > abs(one.input_part), one.contribution >= 0
        style = frame.LEARNED_STYLE if learned else frame.INPUT_STYLE
        style = style._replace(dash="solid" if speaks_for else "dot")
        name = f"mostly {BY_LEARNED if learned else BY_INPUT}, {'for' if speaks_for else 'against'}"
        width = 1 + 9 * abs(one.contribution) / strongest
        line = {"color": frame.translucent(style.colour, 0.75), "width": width}
        ray = frame.scatter(name, ([0, x], [0, y]), "lines", style, line=line, legendgroup=name)
        rays.append(ray | {"showlegend": name not in [other["name"] for other in rays]})
    return rays


def _nodes(e: Explanation, around: list[Contribution], places: list[tuple[float, float]]) -> Trace:
    """Marks in the colours of predicted classes; the node itself, larger, in the middle."""
    predicted = [e.predicted, *(one.predicted for one in around)]
    styles = frame.series_styles(sorted(set(predicted)))
    x, y = zip((0.0, 0.0), *places, strict=True)
    parts = (f"{one.input_part:+.4f} {BY_INPUT}<br>{one.latent_part:+.4f}" for one in around)
    return frame.scatter(
        *("", (x, y), "markers+text", frame.INPUT_STYLE),
        hover="%{customdata}<extra></extra>",
        customdata=["the node itself", *(f"{told} {BY_LEARNED}" for told in parts)],
        text=["", *(chart_text(f"{one.id} ({class_text(one.predicted)})", 28) for one in around)],
        textposition=[_beside(*place) for place in zip(x, y, strict=True)],
        textfont={"size": 12},
        cliponaxis=False,
        showlegend=False,
        marker={
            "size": [28] + [14] * len(around),
            "color": [styles[name].colour for name in predicted],
            "opacity": 1,
            "line": {"width": 1.5, "color": "rgba(255,255,255,0.85)"},
        },
    )


def _beside(x: float, y: float) -> str:
    if abs(x) < 0.3:
        return "top center" if y > 0 else "bottom center"
    return "middle right" if x > 0 else "middle left"


def _name(e: Explanation, one: Contribution) -> str:
    known = f"predicted {class_text(one.predicted)}" if one.label is None else class_text(one.label)
    return chart_text(f"{one.id} ({'itself' if one.node == e.node else known})", 28)
