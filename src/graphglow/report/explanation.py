"""One explanation as a page: its contributions as bars and as a table."""

from pathlib import Path

from graphglow.explain import Explanation
from graphglow.report.page import write_page
from graphglow.report.pair import evidence_bars, pair_picture, short


def write_explanation(why: Explanation, path: str | Path) -> None:
    """Write a self-contained page without scripts; an existing file is replaced.

    ``why.write("why.html")`` is the same.
    """
    parts = {str(one.name): one.value for one in why.contributions}
    around, facts = why.surroundings, why.facts
    picture = None
    if around is not None:
        picture = pair_picture(
            facts["u"],
            facts["v"],
            probability=why.probability,
            contributions=parts,
            joined=facts["input_edge"],
            common=around.common,
            of_source=around.of_u,
            of_target=around.of_v,
            edges=around.edges,
            left_out=around.left_out,
        )
    write_page(
        path,
        "explanation.html.j2",
        charts=False,
        title=why.title,
        why=why,
        facts={name: value for name, value in facts.items() if not isinstance(value, dict | list)},
        bars=evidence_bars([(one.name, one.value) for one in why.contributions]),
        rows=why.to_frame().astype(object).to_dict("records"),
        picture=picture,
        short=short,
    )
