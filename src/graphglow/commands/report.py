"""``graphglow demo`` and ``report``: results as one page that opens offline."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from graphglow.commands import flags, terminal
from graphglow.commands.files import TENSOR_SUFFIXES, check_output
from graphglow.commands.terminal import percent, print_json, say, waiting
from graphglow.errors import InputError
from graphglow.report import is_report, write_report
from graphglow.report.page import PAGES, require_plotly
from graphglow.storage import existing_file
from graphglow.training import TransferResult
from graphglow.training.config import Device

NEXT = """
next:   graphglow transfer --learner universal --target wine --predictions wine.csv
        graphglow refine --target wine --out better.csv --predictions classes.csv
        graphglow pretrain --sources wine digits --num-pivots 100 --out own.safetensors"""


def demo(  # noqa: D417 (flags.py says the rest)
    out: flags.File = Path("demo_report.html"),
    seed: int = 0,
    device: Device = "auto",
    overwrite: flags.Overwrite = False,
    data_root: Annotated[Path | None, flags.said(flags.UNUSED, "FOLDER", "")] = None,
    json: flags.Json = False,
) -> None:
    """Show the main job in about a minute, on graphs that come with the package.

    Transfers the package's pre-trained structure learner, frozen, to graphs that it has never
    seen, and sets it beside its controls. Nothing is downloaded.

    Args:
        out: Where to write the report, one HTML page; an older report is replaced.
        seed: The first of the seeds; each draws labels, weights and pivots.
        device: Where to compute: auto takes the GPU if there is one.
    """
    from graphglow.experiments.demo import DEMO, run_demo, summarise
    from graphglow.report.demo import verdicts

    out = check_output(out, overwrite=overwrite or is_report(out.expanduser()))
    result = run_demo(DEMO, seed=seed, device=device, watch=terminal.epoch_bar)
    parts = ("pretraining", "settings", "versions", "refined")
    made = {name: getattr(result, name) for name in parts}
    write_report(result.rows, out, title="graphglow demo", **made)
    if json:
        print_json({"command": "demo", "report": out, "seed": seed, **asdict(result)})
        return
    rows = [
        (target, method, percent(line.mean), percent(line.std), f"{line.seconds:.2f}")
        for target, methods in summarise(result.rows).items()
        for method, line in methods.items()
    ]
    learner, refined = result.pretraining, result.refined
    sources = ", ".join(learner["sources"])
    title = f"graphglow: the learner {learner['name']}, frozen, pre-trained on {sources}"
    terminal.show_rows(("target", "method", "test accuracy", "std", "training, s"), rows, title)
    for sentence in verdicts(result.rows):
        say(sentence)
    say(
        f"Refined graph of {refined.target}: {percent(refined.after.homophily)} of its edges join "
        f"nodes of one class; {percent(refined.before.homophily)} of the input graph's do."
    )
    say(f"\nreport: {out.absolute()} ({result.seconds:.0f} s in all){NEXT}")


def report(  # noqa: D417 (flags.py says the rest)
    results: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")],
    shared: Annotated[flags.NoEffect, arg(name="")],
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
            --out). Lines of other kinds, and damaged ones, are skipped and counted.
        out: Where to write the page; an older report is replaced.
        title: Heading of the page.
    """
    from graphglow.experiments.runs.rows import RowFile, counted, read_rows, without_repeats
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
        experiments = write_results(files, transfers, out, title=title)
    shown, replaced = without_repeats([row for file in files for row in file.rows])
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
