"""One decision as a page: who spoke for it, by which graph, in pictures and in numbers."""

import math
from pathlib import Path

from markupsafe import Markup

from graphglow.errors import InputError
from graphglow.graphs.write import TABLES
from graphglow.inference.explanation import Explanation
from graphglow.report.figure import (
    embedded,
    embedded_figures,
    plotly_script,
    require_plotly,
    script_hash,
    template,
)
from graphglow.report.results_page import PlacedCharts
from graphglow.report.template import FOLDER, percent, render
from graphglow.report.theme import THEMES
from graphglow.storage import atomic_path

PAGES = (".html", ".htm")


def write_explanation(explanation: Explanation, path: str | Path) -> None:
    """Write a self-contained page with pictures (``.html``), or the table (``.csv``, ``.parquet``).

    Whole or not at all; an existing file is replaced::

        graphglow.report.write_explanation(result.explain("ann"), "why.html")
    """
    path = Path(path).expanduser()
    if path.suffix.lower() in TABLES:
        explanation.write(path)
        return
    if path.suffix.lower() not in PAGES:
        raise InputError(
            f"an explanation must be {', '.join(PAGES)}, {' or '.join(TABLES)}; got {path}"
        )
    require_plotly()
    from graphglow.report.explanation_charts import bar_chart, star_chart  # they import Plotly

    placed = PlacedCharts()
    script = Markup((FOLDER / "page.js").read_text(encoding="utf-8"))
    plotly = Markup(plotly_script().replace("</script", "<\\/script"))

    def figures() -> Markup:
        templates = embedded({theme: template(theme) for theme in THEMES})
        return Markup(f'{{"templates": {templates}, "figures": {embedded_figures(placed.charts)}}}')

    page = render(
        "explanation.html.j2",
        title=_title(explanation),
        summary=summary(explanation),
        facts=_facts(explanation),
        parts=_parts(explanation),
        node=explanation.node,
        contributions=explanation.contributions,
        by_class=explanation.by_class,
        charts=[bar_chart(explanation), star_chart(explanation)],
        place=placed,
        figures=figures,
        plotly=plotly,
        script=script,
        hashes=Markup(" ".join(f"'{script_hash(text)}'" for text in (plotly, script))),
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def summary(explanation: Explanation) -> str:
    """The decision in two or three sentences."""
    e = explanation
    known = "its class is not known"
    if e.label is not None:
        known = f"its known class is {e.label}" + (" too" if e.label == e.predicted else "")
    said = [f"Node {e.id} of {e.target} is predicted to be {class_text(e.predicted)}; {known}."]
    whole = e.input_total + e.latent_total
    if e.input_total > 0 and e.latent_total > 0:
        said.append(
            f"Of what all nodes say for {towards(e)}, {percent(e.input_total / whole)} came by the "
            f"input graph and {percent(e.latent_total / whole)} by the learned graph."
        )
    else:
        said.append(
            f"All nodes together add {_signed(e.input_total)} by the input graph and "
            f"{_signed(e.latent_total)} by the learned graph to the score for {towards(e)}."
        )
    if e.contributions:
        first = e.contributions[0]
        who = "the node itself" if first.node == e.node else f"node {first.id}"
        said.append(f"The strongest voice is {who}, with {percent(abs(first.share))} of all.")
    return " ".join(said)


def class_text(name: str) -> str:
    """A class as a sentence has it: a bare number would not say that it is one."""
    return f"class {name}" if name.isdigit() else name


def towards(e: Explanation) -> str:
    """What the numbers speak for."""
    explained = class_text(e.explained)
    return explained if e.against is None else f"{explained} rather than {class_text(e.against)}"


def _title(e: Explanation) -> str:
    if e.against is not None:
        return f"Why node {e.id} is {towards(e)}"
    if e.explained != e.predicted:
        return f"What speaks for node {e.id} being {towards(e)}"
    return f"Why node {e.id} is predicted to be {towards(e)}"


def _facts(e: Explanation) -> dict[str, str]:
    return {
        "predicted": e.predicted,
        "known class": "unknown" if e.label is None else e.label,
        f"probability of {class_text(e.explained)}": percent(e.probability),
        "by the input graph": _signed(e.input_total),
        "by the learned graph": _signed(e.latent_total),
    }


def _parts(e: Explanation) -> dict[str, float]:
    parts = {"by the input graph": e.input_total, "by the learned graph": e.latent_total}
    if e.own != 0:
        parts["of the node itself, without a message"] = e.own
    return {**parts, "the same for all nodes": e.bias, f"score for {towards(e)}": e.score}


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.3f}".replace("-", "\u2212")
