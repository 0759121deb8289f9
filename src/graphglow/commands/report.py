"""``graphglow report``: results as one page that opens offline."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_json, print_text
from graphglow.commands.progress import spinner
from graphglow.errors import InputError


def report(
    results: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")],
    out: flags.File = Path("report.html"),
    title: str = "graphglow results",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Show saved transfers as one page that opens offline: what was learned, in tables and lines.

    Example: graphglow report cora.safetensors --out report.html

    Args:
        results: Saved transfers (.safetensors, from graphglow transfer --out).
        out: Where to write the page; an older report is replaced.
        title: Heading of the page.
    """
    if not results:
        raise InputError("graphglow report needs at least one saved transfer")

    from graphglow.report import PAGES, is_report
    from graphglow.report.results import write_transfers
    from graphglow.result import TransferResult

    paths = list(dict.fromkeys(path.expanduser() for path in results))
    replace = overwrite or is_report(out.expanduser())
    out = check_output(out, overwrite=replace, suffixes=PAGES, inputs=paths)
    with spinner("drawing"):
        transfers = [(path, TransferResult.load(path)) for path in paths]
        write_transfers(transfers, out, title=title)
    if json:
        names = [result.graph.name for _, result in transfers]
        print_json({"command": "report", "out": out, "transfers": names})
        return
    print_text(f"report: {out.absolute()}")
