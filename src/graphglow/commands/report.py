"""``graphglow report``."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from graphglow.commands.files import TENSOR_SUFFIXES, check_output
from graphglow.commands.flags import File, Json, NoEffect, Overwrite
from graphglow.commands.terminal import note, print_json, say, waiting
from graphglow.errors import InputError
from graphglow.experiments.runs.rows import RowFile, counted, read_rows, without_repeats
from graphglow.report import is_report
from graphglow.report.page import require_plotly
from graphglow.report.results import write_results
from graphglow.storage import existing_file
from graphglow.training import TransferResult


def report(  # noqa: D417 (flags.py says the rest)
    results: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")],
    shared: Annotated[NoEffect, arg(name="")],
    out: File = Path("report.html"),
    title: str = "graphglow results",
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show results as one page that opens offline: tables, charts, learned structures.

    Example: graphglow report results/reproduce/*.jsonl cora.safetensors --out report.html

    Args:
        results: What to show, in any mix: files of result rows (JSON lines, from graphglow
            reproduce or benchmarks/), and saved transfers (.safetensors, from graphglow transfer
            --out). Lines of other kinds, and damaged ones, are skipped and counted.
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
    files: list[RowFile] = []
    transfers: list[tuple[Path, TransferResult]] = []
    skipped: list[str] = []  # a sentence for each file of which something is not shown
    for path in dict.fromkeys(path.expanduser() for path in results):
        existing_file(path, "a results file")  # a name that is wrong is not skipped
        with waiting(f"reading {path.name}"):
            if path.suffix.lower() not in TENSOR_SUFFIXES:
                files.append(read_rows(path))
                skipped += filter(None, [files[-1].skipped])
                continue
            try:
                transfers.append((path, TransferResult.load(path)))
            except InputError as error:
                skipped.append(f"{path}: skipped ({error})")
    if not transfers and not any(file.rows for file in files):
        raise InputError(
            "a report needs at least one row of a run, or a saved transfer; "
            f"got {'; '.join(skipped)}"
        )
    for sentence in skipped:
        note(sentence)
    with waiting("drawing"):
        experiments = write_results(files, transfers, out, title=title)
    shown, replaced = without_repeats([row for file in files for row in file.rows])
    runs = len(shown)
    left_out = sum({(row.experiment, row.cell): row.left_out for row in shown}.values())
    if json:
        facts: dict[str, Any] = {
            "command": "report",
            "out": out,
            "bytes": out.stat().st_size,
            "runs": runs,
        }
        facts |= {"experiments": experiments, "left_out": left_out, "skipped": skipped}
        facts["transfers"] = [result.graph.name for _, result in transfers]
        facts["damaged_lines"] = sum(len(file.damaged) for file in files)
        print_json(facts)
        return
    parts = [f"{counted(runs, 'run')} of {', '.join(experiments)}"] if runs else []
    parts += [f"{counted(replaced, 'older row')} replaced"] if replaced else []
    parts += [f"{counted(left_out, 'run')} of other settings left out"] if left_out else []
    parts += [counted(len(transfers), "saved transfer")] if transfers else []
    say(f"shown: {'; '.join(parts)}")
    say(f"report: {out.absolute()} ({out.stat().st_size / 1e6:.1f} MB)")
