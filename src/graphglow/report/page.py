"""One builder for every page: a self-contained HTML file that opens offline.

Everything that comes from data is escaped. A page runs the scripts that its content security policy
names by their hashes, Plotly and ``page.js``, or none at all where it has no charts.
"""

import base64
import hashlib
import html
import json
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from graphglow.errors import InputError
from graphglow.report.frame import Chart
from graphglow.storage import atomic_path
from graphglow.version import __version__

FOLDER = Path(__file__).parent
GENERATOR = "graphglow report"
PAGES = (".html", ".htm")


def write_page(path: str | Path, template: str, *, charts: bool = True, **values: Any) -> None:
    """Fill a template that extends ``base.html.j2`` and write it, whole or not at all.

    A value that the template lacks is an error; an existing file is replaced.

    Args:
        path: Where to write.
        template: Its name; it shows a chart by the macro ``figure`` of ``parts.html.j2``.
        charts: Whether the page has charts, which take Plotly.
        values: What else the template shows.
    """
    placed: dict[str, Chart] = {}

    def place(chart: Chart) -> str:
        """Give a chart the id of its element."""
        name = f"chart-{len(placed) + 1}"
        placed[name] = chart
        return name

    scripts = []
    if charts:
        require_plotly()
        from plotly.offline import get_plotlyjs

        plotly = get_plotlyjs().replace("</script", "<\\/script")
        scripts = [plotly, (FOLDER / "page.js").read_text()]
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "signed": signed, "amount": amount, "cell": cell}
    environment.globals["place"] = place
    page = environment.get_template(template).render(
        generator=f"{GENERATOR} {__version__}",
        style=Markup((FOLDER / "style.css").read_text()),
        scripts=[Markup(script) for script in scripts],
        policy=Markup(" ".join(map(_script_hash, scripts)) or "'none'"),
        figures=lambda: Markup(embedded({name: one.figure for name, one in placed.items()})),
        **values,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def is_report(path: str | Path) -> bool:
    """Whether ``path`` is a page of ours, which another report may replace."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(1000)
    except OSError:
        return False
    return f'<meta name="generator" content="{GENERATOR}'.encode() in head


def plotly_figure(chart: Chart) -> Any:
    """The chart by itself, as a notebook shows it."""
    require_plotly()
    import plotly.graph_objects as go

    figure = go.Figure(chart.figure)
    return figure.update_layout(title=html.escape(chart.title, quote=False), margin={"t": 90})


def require_plotly() -> None:
    """Raise one sentence that says how to install Plotly if it is not there."""
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise InputError(
            "a page with charts needs Plotly; got a Python without it "
            '(pip install "graphglow[report]")'
        ) from error


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def signed(difference: float) -> str:
    """A difference of shares in points, with its sign: a minus as wide as a plus."""
    return f"{100 * difference:+.1f}".replace("-", "\u2212")


def amount(value: float) -> str:
    """A part of a score, with its sign."""
    return "-" if math.isnan(value) else f"{value:+.3f}".replace("-", "\u2212")


def cell(value: object) -> str:
    """Return a value as a table shows it."""
    if value is None or value != value:  # NaN
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def embedded(value: Any) -> str:
    """JSON for a script element: no character in it can end the element or start a comment.

    Arrays are lists in it, and what is no finite number is null.
    """
    from plotly.utils import PlotlyJSONEncoder

    text = json.dumps(value, cls=PlotlyJSONEncoder, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # in JSON they stand in strings only
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _script_hash(script: str) -> str:
    """What a content security policy calls a script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
