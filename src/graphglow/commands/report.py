"""``graphglow demo`` and ``report``: results as one page that opens offline."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from graphglow.commands import flags, terminal
from graphglow.commands.files import TENSOR_SUFFIXES, check_output, write_each
from graphglow.commands.terminal import percent, print_json, say, waiting
from graphglow.errors import InputError
from graphglow.report.page import PAGES, is_report, require_plotly
from graphglow.settings import Device
from graphglow.storage import existing_file
from graphglow.training.result import TransferResult

if TYPE_CHECKING:
    from graphglow.lab.demo import Summary

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
    from graphglow.lab.demo import DEMO, LABELS, METHODS, run_demo, summarise
    from graphglow.report.demo import headline, write_picture, write_report

    out = check_output(out, overwrite=overwrite or is_report(out.expanduser()))
    if picture is not None:
        picture = check_output(picture, overwrite=overwrite, suffixes=(".svg",))
    with terminal.job_bar() as told:
        result = run_demo(DEMO, seed=seed, device=device, told=told)
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
    if (audited := refined.audited) is not None:
        say(
            f"Its audit, without labels: {percent(audited.injected)} of the {audited.worst:,} most "
            f"doubtful edges are injected ones (AUC {audited.auc:.3f})."
        )
    say(f"\nreport: {out.absolute()} ({result.seconds:.0f} s in all){NEXT}")


def _score(line: "Summary | None") -> str:
    if line is None or line.mean is None:
        return "-"
    return percent(line.mean) + ("" if line.std is None else f" +- {100 * line.std:.1f}")


def report(  # noqa: D417 (flags.py says the rest)
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
    """
    from graphglow.lab.runs.rows import (
        RowFile,
        by_date,
        counted,
        read_rows,
        without_repeats,
    )
    from graphglow.lab.settings import SETTINGS, read_settings
    from graphglow.report.results import write_results

    if not results:
        raise InputError("graphglow report needs at least one file of results; got none")
    replace = overwrite or is_report(out.expanduser())
    out = check_output(out, overwrite=replace, suffixes=PAGES, inputs=results)
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
        found = "; ".join(skipped)
        raise InputError(f"a report needs at least one row, or a saved transfer; got {found}")
    for sentence in skipped:
        terminal.note(sentence)
    with waiting("drawing"):
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
    say(f"shown: {'; '.join(text for text, there in parts.items() if there)}")
    say(f"report: {out.absolute()} ({out.stat().st_size / 1e6:.1f} MB)")
