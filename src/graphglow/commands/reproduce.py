"""``graphglow reproduce``."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from graphglow.checks import one_of
from graphglow.commands import output
from graphglow.commands.flags import DataRoot, Json, Names
from graphglow.commands.output import check_output, warn
from graphglow.commands.progress import progress_bar
from graphglow.graph.load import data_folder
from graphglow.lab.paper.cells import EXPERIMENTS, select_cells
from graphglow.lab.runs import reproduce as runs
from graphglow.lab.runs.config import ReproduceConfig
from graphglow.lab.runs.learners import without_files
from graphglow.lab.runs.reproduce import Plan, found_rows, learner_folder, make_plan
from graphglow.lab.runs.rows import counted, shortened
from graphglow.lab.settings import SETTINGS, check_settings, read_settings
from graphglow.storage import existing_file

ERRORS_SHOWN = 5
OPEN_WORLD = "open-world"


def reproduce(  # noqa: D417
    experiment: Annotated[str, Positional, arg(metavar="EXPERIMENT")],
    config: Annotated[ReproduceConfig, arg(name="")],
    methods: Names = (),
    targets: Names = (),
    sources: Names = (),
    out: Annotated[Path, arg(metavar="FOLDER|FILE.jsonl")] = Path("results/reproduce"),
    settings: Annotated[
        Path | None,
        arg(metavar="FILE.json", help_behavior_hint=f"(default: {SETTINGS}, if there is one)"),
    ] = None,
    dry_run: Annotated[bool, arg(help_behavior_hint="")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Run the tables and figures of the paper, as far as they are missing.

    Experiments: table1 (in-domain), table2 (cross-domain), time (against other structure
    learning), ablation, edges (damaged graphs), homophily (of the learned graph), sensitivity
    (lambda and P), encoder (GCN against MLP); or all.

    And open-world, the suite beyond the paper: graphglow reproduce open-world --help.

    Each run is a row. A rerun makes only the runs that have none, or whose settings have changed;
    runs that several experiments ask for are made once. There is no --resume, since it always
    resumes: Ctrl-C or a kill keeps what is done, and the same command goes on.
    The paper's graphs must be there: see --data-root.

    Example: graphglow reproduce table1 --targets reed98 --methods gcn graphglow --seeds 3

    Args:
        experiment: Which table or figure, or all.
        methods: Only these: methods (all their lines), lines (graphglow-on), or labels of rows.
        targets: Only these target graphs.
        sources: Pre-train on these graphs only, of those that the paper names as sources. That is
            less than the paper does; rows say so.
        out: A folder for rows, with a file for each experiment, or one file (.jsonl) for all;
            learners lie in a folder beside it.
        settings: The tuned settings that graphglow search wrote; defaults where it has none.
        dry_run: Say what is missing, graphs' raw files too, and run nothing: no data is needed.
            "From others" are rows that are there for another cell, "with others" runs that are made
            for another cell; the missing ones add up to the runs that are to be made.
    """
    one_of("the experiment", experiment, (*EXPERIMENTS, "all", OPEN_WORLD))
    cells, left_out = select_cells([experiment], methods, targets, sources)
    out = out.expanduser()
    if out.suffix or out.is_file():
        out = check_output(out, overwrite=True, suffixes=(".jsonl",))
    files = found_rows(out)
    if settings is None and not SETTINGS.exists():
        warn(f"there is no {SETTINGS}: every method runs with its default settings")
    elif settings is not None:
        existing_file(settings.expanduser(), "the settings file")
    tuned = read_settings(settings or SETTINGS)
    for sentence in check_settings(tuned, settings or SETTINGS):
        warn(sentence)
    for sentence in [file.skipped for file in files if file.damaged]:
        warn(sentence)
    if left_out:
        said = shortened(f"{c.label} on {c.target} ({c.experiment})" for c in left_out)
        where = "left out, without a source among those given"
        warn(f"{counted(len(left_out), 'cell')} {where}: {said}")
    if dry_run:
        rows = [row for file in files for row in file.rows]
        plan = make_plan(cells, config, tuned, rows, learner_folder(out))
        absent = without_files(plan.graphs, data_root)
        _say_plan(plan, out, absent, json=json)
        if absent:
            where = f"are not all in {data_folder(data_root)}; runs need them: see --data-root"
            warn(f"the raw files of {', '.join(absent)} {where}")
        return
    try:
        with progress_bar() as told:
            outcome = runs.reproduce(cells, out, config, tuned, data_root=data_root, told=told)
    except KeyboardInterrupt:
        warn(f"the rows written to {out} are kept; the same command goes on from there")
        raise
    if json:
        names = list(dict.fromkeys(cell.experiment for cell in cells))
        facts = {"command": "reproduce", "experiments": names, "out": out}
        output.print_json(facts | outcome._asdict())
        return
    failed = f" ({outcome.failed:,} failed)" if outcome.failed else ""
    copied = counted(outcome.copied, "row taken", "rows taken")
    also = f", {copied} from other experiments" if outcome.copied else ""
    made = f"{counted(outcome.made, 'run')} made{failed}{also}, in {outcome.seconds:.0f} s"
    output.print_text(made if outcome.made or outcome.copied else "nothing was missing")
    for error, count in Counter(outcome.errors).most_common(ERRORS_SHOWN):
        output.print_text(output.printable(f"failed {counted(count, 'time')}: {error}"))
    if outcome.failed:
        output.print_text("--retry-failed makes these again")
    shown = out if out.suffix else out / "*.jsonl*"
    output.print_text(f"rows: {out}\nnext: graphglow report {shown} --out report.html")


def _say_plan(plan: Plan, out: Path, absent: list[str], *, json: bool) -> None:
    if json:
        missing = [
            {"experiment": run.cell.experiment, "cell": run.cell.key, "seed": run.config.seed}
            for twins in plan.runs
            for run in twins
        ]
        facts = {"command": "reproduce", "dry_run": True, "out": out, "counts": plan.counts}
        facts |= {"runs": len(plan.runs), "learners": len(plan.lessons)}
        output.print_json(facts | {"graphs_without_files": absent, "missing": missing})
        return
    columns = ("experiment", "done", "failed", "from others", "with others", "missing")
    rows = [(name, *(f"{n:,}" for n in counts.values())) for name, counts in plan.counts.items()]
    output.print_table(columns, rows, f"Rows in {out}")
    on: dict[str, list[str]] = {}
    for first, *_ in plan.runs:
        on.setdefault(first.cell.method, []).append(first.cell.target)
    for method, targets in on.items():
        output.print_text(f"{len(targets):6,}  {method} on {', '.join(dict.fromkeys(targets))}")
    learners = counted(len(plan.lessons), "learner")
    before = f", and {learners} pre-trained first" if plan.lessons else ""
    output.print_text(f"{counted(len(plan.runs), 'run is', 'runs are')} to be made{before}")
