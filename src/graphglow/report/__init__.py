"""Pages: self-contained HTML files that open offline and run no script.

Everything that comes from data is escaped, and the content security policy forbids scripts.
"""

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from graphglow.storage import atomic_path
from graphglow.version import __version__

FOLDER = Path(__file__).parent
GENERATOR = "graphglow report"
PAGES = (".html", ".htm")


def write_page(path: str | Path, template: str, **values: Any) -> None:
    """Fill a template and write it, whole or not at all; an existing file is replaced."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"percent": in_percent, "amount": amount, "cell": cell}
    page = environment.get_template(template).render(
        generator=f"{GENERATOR} {__version__}",
        style=Markup((FOLDER / "style.css").read_text()),
        **values,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def is_report(path: str | Path) -> bool:
    """Whether ``path`` is a page of ours, which another report may replace."""
    try:
        with Path(path).open("rb") as file:
            return f'<meta name="generator" content="{GENERATOR}'.encode() in file.read(1000)
    except OSError:
        return False


def in_percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def amount(value: float) -> str:
    """A part of a score, with its sign."""
    return "-" if math.isnan(value) else f"{value:+.3f}".replace("-", "\u2212")


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None or value != value:  # NaN
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
