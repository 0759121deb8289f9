"""Pages from templates: everything that comes from data is escaped; the looks are shared."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from graphglow.report.theme import css_variables
from graphglow.version import __version__

FOLDER = Path(__file__).parent
GENERATOR = "graphglow report"


def render(template: str, **values: Any) -> str:
    """Fill a template that extends ``base.html.j2``; a value it lacks is an error."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["signed"] = signed
    return environment.get_template(template).render(
        generator=f"{GENERATOR} {__version__}",
        light=Markup(css_variables("light")),
        dark=Markup(css_variables("dark")),
        style=Markup((FOLDER / "style.css").read_text(encoding="utf-8")),
        **values,
    )


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def signed(difference: float) -> str:
    """A difference of shares in points, with its sign: a minus as wide as a plus."""
    return f"{100 * difference:+.1f}".replace("-", "\u2212")


def is_report(path: str | Path) -> bool:
    """Whether ``path`` is a page of ours, and so may be replaced."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(1000)
    except OSError:
        return False
    return f'<meta name="generator" content="{GENERATOR}'.encode() in head
