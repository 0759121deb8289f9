"""``graphglow report``: results as one page that opens offline."""

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
    """Show results as one page that opens offline: tables, charts, learned structures.

    Example: graphglow report results/reproduce/*.jsonl* cora.safetensors --out report.html

    Args:
        results: What to show, in any mix: files of result rows (JSON lines, from graphglow
            reproduce or benchmarks/), and saved transfers (.safetensors, from graphglow transfer
            --out). Lines of other kinds, and damaged ones, are skipped and counted; of several
            rows about one run the newest is shown.
        out: Where to write the page; an older report is replaced.
        title: Heading of the page.
        overwrite: Replace outputs that exist.
        json: Print JSON.
    """
    if not results:
        raise InputError("graphglow report needs at least one file of results")

    from graphglow.commands.output import (
        TENSOR_SUFFIXES,
        check_output,
        print_json,
        print_text,
        warn,
    )
    from graphglow.commands.progress import spinner
    from graphglow.lab.runs.rows import RowFile, by_date, counted, read_rows, without_repeats
    from graphglow.lab.settings import SETTINGS, read_settings
    from graphglow.report.page import PAGES, is_report, require_plotly
    from graphglow.report.results import write_results
    from graphglow.storage import existing_file
    from graphglow.training.result import TransferResult

    replace = overwrite or is_report(out.expanduser())
    out = check_output(out, overwrite=replace, suffixes=PAGES, inputs=results)
    require_plotly()
    files: list[RowFile] = []
    transfers: list[tuple[Path, TransferResult]] = []
    skipped: list[str] = []  # a sentence for each file of which something is not shown
    for path in dict.fromkeys(path.expanduser() for path in results):
        existing_file(path, "a results file")  # a name that is wrong is not skipped
        with spinner(f"reading {path.name}"):
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
            f"a report needs at least one row, or a saved transfer; got {'; '.join(skipped)}"
        )
    for sentence in skipped:
        warn(sentence)
    with spinner("drawing"):
        settings = read_settings(SETTINGS)  # where there is none, nothing is marked
        experiments = write_results(files, transfers, out, title=title, settings=settings)
    shown, replaced = without_repeats(by_date(files))
    left_out = sum({(row.experiment, row.cell): row.left_out for row in shown}.values())
    if json:
        names = [result.graph.name for _, result in transfers]
        facts = {"command": "report", "out": out, "bytes": out.stat().st_size, "runs": len(shown)}
        facts |= {"experiments": experiments, "left_out": left_out, "skipped": skipped}
        damaged = sum(len(file.damaged) for file in files)
        print_json({**facts, "transfers": names, "damaged_lines": damaged})
        return
    parts = {
        f"{counted(len(shown), 'run')} of {', '.join(experiments)}": shown,
        f"{counted(replaced, 'older row')} replaced": replaced,
        f"{counted(left_out, 'run')} of other settings left out": left_out,
        counted(len(transfers), "saved transfer"): transfers,
    }
    print_text(f"shown: {'; '.join(text for text, there in parts.items() if there)}")
    print_text(f"report: {out.absolute()} ({out.stat().st_size / 1e6:.1f} MB)")
