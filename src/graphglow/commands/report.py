"""``graphglow demo`` and ``report``: results as one page that opens offline."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from graphglow.commands import flags, terminal
from graphglow.commands.files import check_output, write_each
from graphglow.commands.terminal import percent, print_json, say, waiting
from graphglow.errors import InputError
from graphglow.report.page import PAGES, is_report, require_plotly
from graphglow.settings import Device
from graphglow.training import TransferResult

if TYPE_CHECKING:
    from graphglow.demo import Summary

NEXT = """
next:   graphglow predict --target wine --out wine.csv
        graphglow refine --target wine --out better.csv"""


def demo(  # noqa: D417 (flags.py says the rest)
    out: flags.File = Path("demo_report.html"),
    picture: flags.OptionalFile = None,
    seed: int = 0,
    device: Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Show the main job in about a minute, on graphs that come with the package.

    The package's network, frozen, on graphs that it has never seen: Cora with few labels, Cora with
    as many false edges as true ones, and a table; beside its controls. Nothing is downloaded.

    Args:
        out: Where to write the report, one HTML page; an older report is replaced.
        picture: Where to write a picture too, an .svg: edges around a node before and after.
        seed: The first of the seeds; each draws labels, false edges and weights.
        device: Where to compute: auto takes the GPU if there is one.
    """
    from graphglow.demo import LABELS, METHODS, run_demo, summarise
    from graphglow.report.demo import headline, write_picture, write_report

    out = check_output(out, overwrite=overwrite or is_report(out.expanduser()))
    if picture is not None:
        picture = check_output(picture, overwrite=overwrite, suffixes=(".svg",))
    with terminal.job_bar() as told:
        result = run_demo(seed=seed, device=device, progress=told)
    write_each((out, partial(write_report, result)), (picture, partial(write_picture, result)))
    if json:
        print_json({"command": "demo", "report": out, "seed": seed, **asdict(result)})
        return
    found = summarise(result.rows)
    rows = [
        (LABELS[method], *(_score(lines.get(method)) for lines in found.values()))
        for method in METHODS
    ]
    terminal.show_rows(("", *found), rows, "Test accuracy, mean and deviation over the seeds")
    refined = result.refined
    say(
        "\n".join(headline(result)) + f"\nRefined graph of {refined.target}: "
        f"{percent(refined.after.homophily)} of its edges join nodes of one class; "
        f"{percent(refined.before.homophily)} of the input's do. Dropped are "
        f"{percent(refined.dropped_injected)} of the injected edges and "
        f"{percent(refined.dropped_own)} of its own."
    )
    if refined.audit_auc is not None:
        say(
            "Its audit, without labels, tells injected edges from others with an AUC of "
            f"{refined.audit_auc:.3f}."
        )
    say(f"\nreport: {out.absolute()} ({result.seconds:.0f} s in all){NEXT}")


def _score(line: "Summary | None") -> str:
    if line is None:
        return "-"
    return percent(line.mean) + ("" if line.std is None else f" +- {100 * line.std:.1f}")


def report(  # noqa: D417 (flags.py says the rest)
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
    """
    from graphglow.report.transfer import write_transfers

    if not results:
        raise InputError("graphglow report needs at least one saved transfer; got none")
    paths = list(dict.fromkeys(path.expanduser() for path in results))
    replace = overwrite or is_report(out.expanduser())
    out = check_output(out, overwrite=replace, suffixes=PAGES, inputs=paths)
    require_plotly()
    with waiting("drawing"):
        transfers = [(path, TransferResult.load(path)) for path in paths]
        write_transfers(transfers, out, title=title)
    if json:
        names = [result.graph.name for _, result in transfers]
        facts = {"command": "report", "out": out, "bytes": out.stat().st_size}
        print_json(facts | {"transfers": names})
        return
    say(f"report: {out.absolute()} ({out.stat().st_size / 1e6:.1f} MB)")
