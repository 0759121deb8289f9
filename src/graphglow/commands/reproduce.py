"""``graphglow reproduce``."""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from tyro.conf import FlagCreatePairsOff, Positional, arg

from graphglow.commands import terminal
from graphglow.commands.files import check_output
from graphglow.commands.flags import DataRoot, Json
from graphglow.commands.notes import note
from graphglow.errors import InputError
from graphglow.experiments import reproduce as experiments
from graphglow.experiments.cell_rows import Found, find_rows
from graphglow.experiments.cells import EXPERIMENTS
from graphglow.experiments.learner_files import without_files
from graphglow.experiments.plan import Plan, ReproduceConfig
from graphglow.experiments.reproduce import Interrupted, OnProgress, Outcome, Progress
from graphglow.experiments.schedule import Schedule
from graphglow.experiments.search.settings import Settings, check_settings, read_settings
from graphglow.experiments.selection import select_cells
from graphglow.experiments.wording import counted, shortened
from graphglow.graphs.load import data_folder
from graphglow.storage import existing_file

ALL = "all"
ERRORS_SHOWN = 5
SETTINGS = Path("results/settings.json")

Names = Annotated[tuple[str, ...], arg(metavar="NAME ...", help_behavior_hint="(default: all)")]


def reproduce(  # noqa: D417 (flags.py and the config say the rest)
    experiment: Annotated[str, Positional, arg(metavar="EXPERIMENT")],
    config: Annotated[ReproduceConfig, arg(name="")],
    methods: Names = (),
    targets: Names = (),
    sources: Names = (),
    out: Annotated[Path, arg(metavar="FILE.jsonl")] = Path("results/reproduce.jsonl"),
    settings: Annotated[
        Path | None,
        arg(metavar="FILE.json", help_behavior_hint=f"(default: {SETTINGS}, if there is one)"),
    ] = None,
    dry_run: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Run the tables and figures of the paper, as far as they are missing.

    Experiments: table1 (in-domain), table2 (cross-domain), time (against other structure
    learning), ablation, edges (damaged graphs), homophily (of the learned graph), sensitivity
    (lambda and P), degree (lambda by degree), encoder (GCN against MLP); or all.

    Each run is a row in the file. A rerun makes only the runs that have none, or whose settings
    have changed; runs that several experiments ask for are made once. There is no --resume, since
    it always resumes: Ctrl-C or a kill keeps what is done, and the same command goes on.
    The paper's graphs must be there: see --data-root.

    Example: graphglow reproduce table1 --targets reed98 --methods gcn graphglow --seeds 3

    Args:
        experiment: Which table or figure, or all.
        methods: Only these methods.
        targets: Only these target graphs.
        sources: Pre-train on these graphs only, of those that the paper names as sources. That is
            less than the paper does; rows say so.
        out: The file of rows; learners lie in a folder beside it.
        settings: The tuned settings that graphglow search wrote; defaults where it has none.
        dry_run: Say what is missing, graphs' raw files too, and run nothing: no data is needed.
            "From others" are rows that are there for another cell, "with others" runs that are made
            for another cell; the missing ones add up to the runs that are to be made.
    """
    names = _named(experiment)
    cells, left_out = select_cells(names, methods, targets, sources)
    out = check_output(out, overwrite=True, suffixes=(".jsonl",))  # rows are added, not lost
    found = find_rows(out)
    tuned = _tuned(settings)
    _say_damage(found, out)
    if left_out:
        said = shortened(
            dict.fromkeys(f"{c.label} on {c.target} ({c.experiment})" for c in left_out)
        )
        note(
            f"{counted(len(left_out), 'cell')} left out, without a source among those given: {said}"
        )
    if dry_run:
        plan = experiments.planned(cells, out, config, tuned)
        schedule = Schedule(
            plan.jobs(batch_seeds=config.batch_seeds), experiments.learner_folder(out)
        )
        absent = without_files(schedule.graphs(), data_root)
        _say_plan(plan, len(schedule.lessons), absent, out, json=json)
        if absent:
            note(
                f"the raw files of {', '.join(absent)} are not all in {data_folder(data_root)}; "
                "runs need them: see --data-root"
            )
        return
    try:
        with _bar() as on_progress:
            outcome = experiments.reproduce(
                cells, out, config, tuned, data_root=data_root, on_progress=on_progress
            )
    except Interrupted as stopped:
        note(f"{counted(stopped.rows, 'row')} written to {out} and kept; the same command goes on "
             "from there")  # fmt: skip
        raise
    if json:
        terminal.print_json(
            {"command": "reproduce", "experiments": names, "out": out, **outcome._asdict()}
        )
    else:
        _say(outcome, out)


def _named(experiment: str) -> list[str]:
    if experiment == ALL:
        return list(EXPERIMENTS)
    if experiment in EXPERIMENTS:
        return [experiment]
    near = difflib.get_close_matches(experiment, [*EXPERIMENTS, ALL], n=2)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    known = ", ".join([*EXPERIMENTS, ALL])
    raise InputError(f"the experiment must be one of {known}; got {experiment!r}{hint}")


def _tuned(path: Path | None) -> Settings:
    """The settings of a file; without one that was named, of the usual one if it is there."""
    if path is None:
        path = SETTINGS
        if not path.exists():
            note(f"there is no {path}: every method runs with its default settings")
            return Settings()
    path = existing_file(path.expanduser(), "the settings file")
    tuned = read_settings(path)
    for sentence in check_settings(tuned, path):
        note(sentence)
    return tuned


def _say_damage(found: Found, out: Path) -> None:
    damaged = found.damaged
    if damaged:
        lines = counted(len(damaged), "line is no usable row", "lines are no usable rows")
        first = ", the first" if len(damaged) > 1 else ""
        begun, all_of_it = (
            ("the first ", "they and the rest, which is not read,") if found.cut else ("", "they")
        )
        note(
            f"{begun}{lines} in {out}{first}: {damaged[0]}; "
            f"{all_of_it} are left alone and count for nothing"
        )


def _say_plan(plan: Plan, learners: int, absent: list[str], out: Path, *, json: bool) -> None:
    if json:
        runs = [
            {"experiment": cell.experiment, "cell": cell.key, "seed": wanted.configs.run.seed}
            for wanted in plan.wanted.values()
            for cell in wanted.cells
        ]
        terminal.print_json(
            {
                "command": "reproduce",
                "dry_run": True,
                "out": out,
                "counts": plan.counts,
                "runs": len(plan.wanted),
                "learners": learners,
                "graphs_without_files": absent,
                "missing": runs,
            }
        )
        return
    table = Table(title=f"Rows in {escape(str(out))}", title_justify="left")
    table.add_column("experiment")
    for name in ("done", "failed", "from others", "with others", "missing"):
        table.add_column(name, justify="right")
    for experiment, counts in plan.counts.items():
        table.add_row(experiment, *(f"{count:,}" for count in counts.values()))
    terminal.show(table)
    missing: dict[str, list[str]] = {}
    for wanted in plan.wanted.values():
        cell = wanted.cells[0]
        missing.setdefault(cell.method, []).append(cell.target)
    for method, on in missing.items():
        terminal.say(f"{len(on):6,}  {method} on {', '.join(dict.fromkeys(on))}")
    told = counted(len(plan.wanted), "run is", "runs are")
    before = f", and {counted(learners, 'learner')} pre-trained first" if learners else ""
    terminal.say(f"{told} to be made{before}")


def _say(outcome: Outcome, out: Path) -> None:
    failed = f" ({outcome.failed:,} failed)" if outcome.failed else ""
    copied = counted(outcome.copied, "row taken", "rows taken")
    also = f", {copied} from other experiments" if outcome.copied else ""
    if outcome.made or outcome.copied:
        runs = counted(outcome.made, "run")
        terminal.say(f"{runs} made{failed}{also}, in {_duration(outcome.seconds)}")
    else:
        terminal.say("nothing was missing")
    for error, count in sorted(outcome.errors.items(), key=lambda item: -item[1])[:ERRORS_SHOWN]:
        terminal.say(terminal.printable(f"failed {counted(count, 'time')}: {error}"))
    if outcome.failed:
        terminal.say("--retry-failed makes these again")
    terminal.say(f"rows: {out}\nnext: graphglow report {out} --out report.html")


@contextmanager
def _bar() -> Iterator[OnProgress | None]:
    """Yield what moves a bar over the jobs, or None where nobody watches."""
    if not terminal.interactive():
        yield None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[facts]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reproducing", total=None, facts="")

        def on_progress(now: Progress) -> None:
            facts = _facts(now)
            bar.update(task, total=now.total, completed=now.done, facts=escape(facts))

        yield on_progress


def _facts(now: Progress) -> str:
    left = "" if now.seconds_left is None else f"about {_duration(now.seconds_left)} left  "
    failed = f"{now.failed} failed  " if now.failed else ""
    return left + failed + _some(now.running)


def _some(running: Sequence[str]) -> str:
    more = f" and {len(running) - 1} more" if len(running) > 1 else ""
    return running[0] + more if running else ""


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
