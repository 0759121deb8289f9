"""``graphglow reproduce``."""

from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from graphglow.commands.flags import DataRoot, Json, Names, Switch
from graphglow.commands.output import check_output, print_json, print_note, print_text
from graphglow.commands.progress import progress_bar
from graphglow.errors import InputError
from graphglow.lab.config import RunsConfig

SETTINGS = Path("results/settings.json")
Folder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(optional)")]


def reproduce(
    experiment: Annotated[str, Positional, arg(metavar="EXPERIMENT")],
    config: OmitArgPrefixes[RunsConfig],
    methods: Names = (),
    targets: Names = (),
    conditions: Names = (),
    out: Annotated[Path | None, arg(metavar="FOLDER|FILE.jsonl")] = None,
    settings: Annotated[Path, arg(metavar="FILE.json")] = SETTINGS,
    learners: Folder = None,
    dry_run: Switch = False,
    table: Switch = False,
    pictures: Folder = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Run a table or figure of the paper, or the open-world suite, as far as it is missing.

    Experiments: table1 (within a domain), table2 (across domains), time (against other structure
    learning), ablation, edges (damaged graphs), homophily (of the learned graph), sensitivity
    (lambda and P), encoder (GCN against MLP), or all; and open-world: many graphs under many
    conditions, one setting per method.

    Each run is a row. There is no --resume, since it always resumes: a rerun makes only the runs
    that have no row yet, or whose settings have changed. Then the table is printed as Markdown.
    The paper's graphs must be there: see --data-root.

    Example: graphglow reproduce table1 --targets reed98 --methods gcn graphglow --seeds 3

    Args:
        experiment: Which table or figure, all, or open-world.
        methods: Only these methods or lines (graphglow-on).
        targets: Only these target graphs.
        conditions: Of open-world, only these, by their names in rows: "as it is".
        out: A folder for rows, with a file for each experiment, or one file (.jsonl) for all; by
            default results/reproduce, or results/open_world.jsonl.
        settings: The tuned settings; defaults where it has none.
        learners: Of open-world, the folder of learners of held-out families, which
            benchmarks/predictor.py --train FOLDER makes; beside the rows by default.
        dry_run: Say what is missing, and run nothing: no data is needed.
        table: Print the table of the rows that there are, and run nothing.
        pictures: Write pictures of the rows, as .svg, to this folder.
    """
    from graphglow.errors import one_of
    from graphglow.graph.load import data_folder
    from graphglow.lab import figures, markdown, runs
    from graphglow.lab import open_suite as suite
    from graphglow.lab.config import read_settings
    from graphglow.lab.paper_tables import EXPERIMENTS, select_cells
    from graphglow.lab.row_files import rows_in

    one_of("the experiment", experiment, (*EXPERIMENTS, "all", suite.EXPERIMENT))
    whole = experiment == suite.EXPERIMENT
    if conditions and not whole:
        raise InputError(f"--conditions goes with {suite.EXPERIMENT} alone. Leave it out.")
    out = out or Path("results/open_world.jsonl" if whole else "results/reproduce")
    out = out.expanduser()
    if out.suffix or out.is_file() or whole:
        out = check_output(out, overwrite=True, suffixes=(".jsonl",))
    tuned = read_settings(settings) if settings.exists() or settings != SETTINGS else {}
    learners = (learners or out.with_name(f"{out.stem}_learners")).expanduser()
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    facts = {"command": "reproduce", "experiment": experiment, "out": out}
    if dry_run:
        if whole:
            root = data_folder(data_root)
            plan = suite.plan_suite(out, config, learners, root, targets, conditions, methods)
        else:
            cells = select_cells(experiment, methods, targets)
            plan = runs.plan_cells(cells, rows_in(out, names), config, tuned)
        counts = {name: dict(found) for name, found in plan.counts.items()}
        if json:
            print_json(facts | {"dry_run": True, "counts": counts})
            return
        for name, found in counts.items():
            said = ", ".join(f"{count:,} {what}" for what, count in found.items())
            print_text(f"{name}: {said}")
        return
    if not table:
        with progress_bar() as bar:
            if whole:
                outcome = suite.run_suite(
                    out,
                    config,
                    learners=learners,
                    data_root=data_root,
                    targets=targets,
                    conditions=conditions,
                    methods=methods,
                    progress=bar,
                )
            else:
                cells = select_cells(experiment, methods, targets)
                outcome = runs.run_cells(
                    cells, out, config, tuned, data_root=data_root, progress=bar
                )
        facts |= outcome._asdict()
        for error, count in outcome.errors.items():
            print_note(f"{count} failed: {error}")
        if not json:
            said = f"{outcome.made:,} rows made, {outcome.failed:,} failed, {outcome.left:,} left"
            print_text(f"{said}, in {outcome.seconds:.0f} s; rows: {out}\n")
    rows = rows_in(out, names)
    if pictures is not None:
        for name in names:
            path = figures.write_figure(name, rows, pictures.expanduser())
            if path is not None:
                print_note(f"picture: {path}")
    if json:
        print_json(facts)
        return
    for name in names:
        title = f"## {name}\n\n" if len(names) > 1 else ""
        made = markdown.standings_table(rows) if whole else markdown.tables_of(name, rows, tuned)
        print_text(f"{title}{made}")
