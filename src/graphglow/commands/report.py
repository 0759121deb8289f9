"""``graphglow report``: saved transfers as one page that opens offline."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from graphglow.commands import flags
from graphglow.errors import InputError


def report(
    results: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")],
    out: flags.File = Path("report.html"),
    title: str = "graphglow results",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Show saved transfers as one page that opens offline: what was learned, in tables and charts.

    Example: graphglow report cora.safetensors --out report.html

    Args:
        results: Saved transfers (.safetensors, from graphglow transfer --out).
        out: Where to write the page; an older report is replaced.
        title: Heading of the page.
        overwrite: Replace outputs that exist.
        json: Print JSON.
    """
    if not results:
        raise InputError("graphglow report needs at least one saved transfer")

    from graphglow.commands.output import check_output, print_json, print_text
    from graphglow.commands.progress import spinner
    from graphglow.report.page import PAGES, is_report, require_plotly
    from graphglow.report.transfer import write_transfers
    from graphglow.training.result import TransferResult

    paths = list(dict.fromkeys(path.expanduser() for path in results))
    replace = overwrite or is_report(out.expanduser())
    out = check_output(out, overwrite=replace, suffixes=PAGES, inputs=paths)
    require_plotly()
    with spinner("drawing"):
        transfers = [(path, TransferResult.load(path)) for path in paths]
        write_transfers(transfers, out, title=title)
    if json:
        names = [result.graph.name for _, result in transfers]
        facts = {"command": "report", "out": out, "bytes": out.stat().st_size}
        print_json(facts | {"transfers": names})
        return
    print_text(f"report: {out.absolute()} ({out.stat().st_size / 1e6:.1f} MB)")
