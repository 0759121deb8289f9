"""One decision as a page: who spoke for a node's class, or what for two nodes being of one."""

from dataclasses import replace
from pathlib import Path

from graphglow.errors import InputError
from graphglow.graph.write import TABLES
from graphglow.inference.explain import Contribution, Explanation
from graphglow.inference.explain_pair import MEANINGS, OUTCOMES, PairExplanation
from graphglow.report import frame
from graphglow.report.frame import Chart, chart_text, class_text
from graphglow.report.page import PAGES, amount, percent, write_page
from graphglow.report.pair import pair_picture, short

BY_INPUT, BY_LEARNED = "by the input graph", "by the learned graph"


def write_explanation(explanation: Explanation, path: str | Path) -> None:
    """Write a self-contained page with a chart (``.html``), or the table (``.csv``, ``.parquet``).

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
        picture=bar_chart(explanation),
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


def _name(e: Explanation, one: Contribution) -> str:
    known = f"predicted {class_text(one.predicted)}" if one.label is None else class_text(one.label)
    return chart_text(f"{one.id} ({'itself' if one.node == e.node else known})", 28)
