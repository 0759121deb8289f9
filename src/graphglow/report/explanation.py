"""One explanation as a page: its contributions as bars and as a table."""

from pathlib import Path

from graphglow.explain import Explanation
from graphglow.report.page import write_page
from graphglow.report.pair import picture


def write_explanation(why: Explanation, path: str | Path) -> None:
    """Write a self-contained page; ``why.write("why.html")`` is the same."""
    facts = {name: value for name, value in why.facts.items() if not isinstance(value, dict | list)}
    rows = why.to_frame().astype(object).to_dict("records")
    write_page(
        path, "explanation.html.j2", title=why.title, facts=facts, rows=rows, picture=picture(why)
    )
