"""``graphglow report``."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from graphglow.commands.files import TENSOR_SUFFIXES, check_output
from graphglow.commands.flags import UNUSED, Json, OutFile, Overwrite
from graphglow.commands.terminal import print_json, say, waiting
from graphglow.errors import InputError
from graphglow.report import is_report
from graphglow.report.figure import require_plotly
from graphglow.report.result_rows import RowFile, read_rows
from graphglow.report.results_page import write_results
from graphglow.training import TransferResult
from graphglow.training.config import Device


def report(  # noqa: D417 (flags.py says the rest)
    results: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")],
    out: OutFile = Path("report.html"),
    title: str = "graphglow results",
    overwrite: Overwrite = False,
    json: Json = False,
    seed: Annotated[int, arg(help=UNUSED)] = 0,
    device: Annotated[Device, arg(help=UNUSED)] = "auto",
    data_root: Annotated[
        Path | None, arg(metavar="FOLDER", help=UNUSED, help_behavior_hint="")
    ] = None,
) -> None:
    """Show results as one page that opens offline: tables, charts, learned structures.

    Example: graphglow report results/reproduce.jsonl cora.safetensors --out report.html

    Args:
        results: What to show, in any mix: files of result rows (JSON lines, from graphglow
            reproduce or benchmarks/), and saved transfers (.safetensors, from graphglow transfer
            --out).
        out: Where to write the page; an older report is replaced.
        title: Heading of the page.
    """
    if not results:
        raise InputError("graphglow report needs at least one file of results; got none")
    out = check_output(
        out,
        overwrite=overwrite or is_report(out.expanduser()),
        suffixes=(".html", ".htm"),
        inputs=results,
    )
    require_plotly()
    files, transfers = _read([path.expanduser() for path in results])
    with waiting("drawing"):
        experiments = write_results(files, transfers, out, title=title)
    facts = {
        "command": "report",
        "out": out,
        "bytes": out.stat().st_size,
        "experiments": experiments,
        "runs": sum(len(file.rows) for file in files),
        "transfers": [result.graph.name for _, result in transfers],
        "damaged_lines": sum(len(file.damaged) for file in files),
    }
    if json:
        print_json(facts)
        return
    for file in files:
        for line in file.damaged:
            say(f"left out of {file.path}: {line}")
    say(f"{facts['runs']} runs, {len(transfers)} transfers: {', '.join(experiments) or 'no rows'}")
    say(f"report: {out.absolute()} ({out.stat().st_size / 1e6:.1f} MB)")


def _read(paths: list[Path]) -> tuple[list[RowFile], list[tuple[Path, TransferResult]]]:
    files: list[RowFile] = []
    transfers: list[tuple[Path, TransferResult]] = []
    for path in dict.fromkeys(paths):
        with waiting(f"reading {path.name}"):
            if path.suffix.lower() in TENSOR_SUFFIXES:
                transfers.append((path, TransferResult.load(path)))
            else:
                files.append(read_rows(path))
    return files, transfers
