"""``graphglow reproduce open-world``: its flags are its own."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from graphglow.commands import flags, output
from graphglow.commands.flags import Names
from graphglow.commands.output import check_output
from graphglow.commands.progress import progress_bar
from graphglow.errors import InputError
from graphglow.graph.load import data_folder
from graphglow.lab.open_world.suite import (
    EXPERIMENT,
    Plan,
    SuiteConfig,
    plan_suite,
    run_suite,
)
from graphglow.lab.runs.rows import counted

Folder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(optional)")]


def open_world(  # noqa: D417
    experiment: Annotated[str, Positional, arg(metavar=EXPERIMENT)],
    config: Annotated[SuiteConfig, arg(name="")],
    targets: Names = (),
    conditions: Names = (),
    methods: Names = (),
    out: flags.File = Path("results/open_world.jsonl"),
    learners: Folder = None,
    dry_run: Annotated[bool, arg(help_behavior_hint="")] = False,
    table: Annotated[bool, arg(help_behavior_hint="")] = False,
    pictures: Folder = None,
    data_root: flags.DataRoot = None,
    json: flags.Json = False,
) -> None:
    """Run the open-world suite: many graphs, many conditions, one setting per method.

    Targets are the paper's graphs and those in the folder open of the data root, as far as they are
    there, and tables of the package. The learner of an open graph has seen none of its family.
    Conditions: as it is; false edges 0.5x, 1x, 2x; lost edges 30%, 60%, 90%; 1, 3, 5, 10, 20 labels
    per class (and as many for validation); half the features noise; no features; metattack.

    Methods that train split the labels: training nodes train, validation nodes choose. Others have
    the pool of both: predict and its controls untrained, mean and vote; bags of five.

    Each run is a row, a rerun makes only what is missing, and a stop leaves a whole picture.

    Args:
        targets: Only these graphs.
        conditions: Only these, by their names in rows: "as it is", "false edges 1x".
        methods: Only these: gcn mlp linkx gpr h2gcn knn jaccard paper bag-gcn bag-gpr untrained
            mean vote transfer predict.
        out: The file of rows.
        learners: The folder of held-out learners, fold0.safetensors and so on, which
            benchmarks/predictor.py --train FOLDER makes; beside the rows by default.
        dry_run: Say how many runs are missing, and make none. Some conditions leave nothing to run
            on some graphs, so that these are the most.
        table: Only print the table of the rows that there are.
        pictures: Only write pictures of the rows that there are, as .svg, to this folder.
    """
    from graphglow.lab.open_world.standings import Found
    from graphglow.lab.runs.reproduce import found_rows
    from graphglow.report.open_world import counts, markdown, write_pictures

    if experiment != EXPERIMENT:
        raise InputError(f"these flags go with {EXPERIMENT}; got {experiment!r}")
    out = out.expanduser()
    folder = (learners or out.with_name(f"{out.stem}_learners")).expanduser()
    if dry_run:
        root, given = data_folder(data_root), (targets, conditions, methods)
        _say_plan(plan_suite(out, config, folder, root, *given), out, folder, json=json)
        return
    out = check_output(out, overwrite=True, suffixes=(".jsonl",))
    if not table and pictures is None:
        with progress_bar() as told:
            outcome = run_suite(
                out,
                config,
                learners=folder,
                data_root=data_root,
                targets=targets,
                conditions=conditions,
                methods=methods,
                told=told,
            )
        if json:
            output.print_json({"command": "reproduce", "out": out, **outcome._asdict()})
            return
        made = f"{counted(outcome.made, 'run')} made, {outcome.failed} failed"
        output.print_text(
            f"{made}, {counted(outcome.left, 'job')} left, in {outcome.seconds:.0f} s"
        )
        for error, count in outcome.errors.items():
            output.print_text(f"failed {counted(count, 'time')}: {error}")
    found = Found([row for file in found_rows(out) for row in file.rows])
    if not found.rows:
        raise InputError(f"there must be rows of {EXPERIMENT} to show; got none in {out}")
    if pictures is not None:
        for path in write_pictures(found, pictures.expanduser()):
            output.print_text(f"picture: {path}")
    if json:
        output.print_json({"command": "reproduce", "out": out, **counts(found)})
    elif table or pictures is None:
        output.print_text(markdown(found))


def _say_plan(plan: Plan, out: Path, folder: Path, *, json: bool) -> None:
    missing: Counter[str] = Counter()
    for job in plan.jobs:
        missing[job.condition] += len(job.methods)
    learners, graphs = len(plan.absent), len({job.target.name for job in plan.jobs})
    if json:
        facts = {"command": "reproduce", "dry_run": True, "out": out, "runs": missing.total()}
        facts |= {"graphs": graphs, "learners": learners, "missing": dict(missing)}
        output.print_json(facts)
        return
    rows = [(condition, f"{count:,}") for condition, count in missing.items()]
    output.print_table(("condition", "missing runs"), rows, f"Rows in {out}")
    make = f"; first: python benchmarks/predictor.py --train {folder}" if learners else ""
    on = f" on {counted(graphs, 'graph')}" if graphs else ""
    runs = counted(missing.total(), "run is", "runs are")
    output.print_text(f"{runs} to be made{on}{make}")
