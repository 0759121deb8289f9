"""The commands that run experiments: demo, compare and reproduce; and datasets, their graphs."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from graphglow.commands import flags
from graphglow.commands.output import (
    check_output,
    percent,
    print_json,
    print_note,
    print_table,
    print_text,
    progress_bar,
    spinner,
)
from graphglow.errors import InputError, one_of
from graphglow.lab.config import RunsConfig, read_settings

NEXT = """
next, on tables of your own (of nodes: id, label, columns; of edges: source, target):
        graphglow predict --target nodes.csv+edges.csv --out classes.csv
        graphglow audit --target nodes.csv+edges.csv --out audit.html
        graphglow refine --target nodes.csv+edges.csv --out better.csv"""
Folder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(optional)")]
Methods = Annotated[
    tuple[str, ...] | None, arg(metavar="NAME ...", help_behavior_hint="(default: usual ones)")
]


def demo(
    out: flags.File = Path("demo_report.html"),
    seed: int = 0,
    device: flags.Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Show the main job in about a minute, on graphs that come with the package.

    The package's network, frozen, on graphs that it has never seen: Cora with few labels, Cora with
    as many false edges as true ones, and a table; beside its controls. Nothing is downloaded.

    Args:
        out: Where to write the report, one HTML page; an older report is replaced.
        seed: The first of the seeds; each draws labels, false edges and weights.
    """
    from graphglow.demo import run_demo
    from graphglow.report import is_report
    from graphglow.report.results import write_report

    out = check_output(out, overwrite=overwrite or is_report(out.expanduser()))
    with progress_bar() as move:
        result = run_demo(seed=seed, device=device, progress=move)
    write_report(result, out)
    if json:
        lines = {name: of.records() for name, of in result.comparisons.items()}
        facts = {"command": "demo", "report": out, "seed": seed, "comparisons": lines}
        return print_json(facts | {"refined": vars(result.refined), "versions": result.versions})
    for name, comparison in result.comparisons.items():
        print_text(f"{name}\n{comparison.table()}\n")
    refined = result.refined
    before, after = (percent(one["homophily"]) for one in (refined.before, refined.after))
    print_text(
        f"Refined graph of {refined.target}: {after} of its edges join nodes of one class; "
        f"{before} of the input's do. Dropped are {percent(refined.dropped_injected)} of the "
        f"injected edges and {percent(refined.dropped_own)} of its own."
    )
    print_text(f"\nreport: {out.absolute()} ({result.seconds:.0f} s in all){NEXT}")


def datasets(data_root: flags.DataRoot = None, json: flags.Json = False) -> None:
    """List the graphs, and the pre-trained learners, that are known by name.

    Any other graph is given by a path: two tables as people.csv+relations.csv (or .parquet), a
    folder with nodes.csv and edges.csv, or a .pt, .npz or .graphml file.
    """
    from graphglow.graph import DATASETS
    from graphglow.graph.load import data_folder
    from graphglow.pretrained import PRETRAINED

    root = data_folder(data_root)
    present = {path.parent.parent.name.lower() for path in root.glob("*/raw/*")}
    names = ("name", "kind", "nodes", "edges", "classes", "features", "needs_data", "description")
    rows, lines = [], []
    for one in DATASETS.values():
        found = not one.needs_data or one.name in present
        files = "not needed" if not one.needs_data else "found" if found else "missing"
        counts = (f"{count:,}" for count in (one.nodes, one.edges, one.classes))
        lines.append((one.name, one.kind, *counts, files))
        rows.append({name: getattr(one, name) for name in names} | {"found": found})
    if json:
        learners = [{"name": name, "what": what} for name, what in PRETRAINED.items()]
        facts = {"data_root": root.absolute(), "datasets": rows, "learners": learners}
        return print_json(facts)
    print_table((*names[:5], "raw files"), lines)
    print_text(f"raw files are looked for in {root.absolute()} (--data-root or GRAPHGLOW_DATA)")
    print_text("pre-trained learners, for --learner:")
    for name, what in PRETRAINED.items():
        print_text(f"  {name:<9}  {what}")


def compare(
    target: flags.GraphName,
    reading: flags.Reading,
    methods: Methods = None,
    learner: flags.LearnerName = "universal",
    seeds: int = 3,
    seed: int = 0,
    device: flags.Device = "auto",
    json: flags.Json = False,
) -> None:
    """Run graphglow and others on your graph, and say which to use and how sure that is.

    predict has training and validation labels at work, and is estimated by leave-one-out; methods
    that train are estimated by validation. The highest estimate is recommended, and test nodes say
    how good it is. Every method has the setting that it has in the open-world suite, the same for
    all graphs. A graph without a split of its own is split anew by each seed; without test nodes,
    labelled ones are tested in turn.

    Example: graphglow compare --target people.csv+relations.csv

    Args:
        methods: Which to run: gcn mlp linkx gpr h2gcn knn jaccard paper bag-gcn bag-gpr untrained
            transfer predict.
        seeds: Runs of each method.
        seed: The first of the seeds.
    """
    if reading.split_seed is not None:
        raise InputError("--split-seed has no effect: compare draws a split by each --seed")

    from graphglow.compare import DEFAULT_METHODS
    from graphglow.compare import compare as compare_methods
    from graphglow.lab.open_methods import METHOD_TITLES

    if methods == ():
        raise InputError(f"--methods needs names: {', '.join(METHOD_TITLES)}")
    for method in methods or ():
        one_of("--methods", method, METHOD_TITLES)
    with spinner(f"loading {target}"):
        data, _ = reading.read(target, tell_split=False)  # other splits are drawn
    with progress_bar() as move:
        table = compare_methods(
            data, methods or DEFAULT_METHODS, seeds=seeds, seed=seed, learner=learner,
            device=device, progress=move,
        )  # fmt: skip
    if json:
        facts = {"command": "compare", "target": data.name, "seed": seed, **vars(table)}
        facts |= {"lines": table.records(), "recommended": table.recommended.method}
        return print_json(facts | {"verdict": table.verdict})
    for method, why in table.failed.items():
        print_note(f"{METHOD_TITLES[method]} could not run: {why}")
    print_text(f"{data.name}\n{table!r}")


def reproduce(
    experiment: Annotated[str, Positional, arg(metavar="EXPERIMENT")],
    config: OmitArgPrefixes[RunsConfig],
    methods: flags.Names = (),
    targets: flags.Names = (),
    conditions: flags.Names = (),
    out: Annotated[Path | None, arg(metavar="FOLDER|FILE.jsonl")] = None,
    settings: Annotated[str, arg(metavar="tuned|defaults|FILE.json")] = "tuned",
    learners: Folder = None,
    dry_run: flags.Switch = False,
    table: flags.Switch = False,
    pictures: Folder = None,
    data_root: flags.DataRoot = None,
    json: flags.Json = False,
) -> None:
    """Run a table or figure of the paper, or the open-world suite, as far as it is missing.

    Experiments: table1 (within a domain), table2 (across domains), time (against other structure
    learning), ablation, edges (damaged graphs), homophily (of the learned graph), sensitivity
    (lambda and P), encoder (GCN against MLP), or all; and open-world: many graphs under many
    conditions, one setting per method.

    Each run is a row. There is no --resume, since it always resumes: a rerun makes only the runs
    that have no row yet, or whose settings have changed. GraphGLOW needs learners, which are
    pre-trained first; --dry-run says which, and about how long that takes. In a log there is a line
    every few seconds. Then the table is printed as Markdown, or with --json the accuracies.
    The paper's graphs must be there: see --data-root.

    Example: graphglow reproduce table1 --targets reed98 --methods gcn graphglow --seeds 3

    Args:
        experiment: Which table or figure, all, or open-world.
        methods: Only these methods or lines (graphglow-on).
        targets: Only these target graphs.
        conditions: Of open-world, only these, by their names in rows: "as it is".
        out: A folder for rows, with a file for each experiment, or one file (.jsonl) for all; by
            default results/reproduce, or results/open_world.jsonl.
        settings: tuned are those of the tables in the docs, method by method and graph by graph;
            defaults are the package's; or a file in the form of graphglow/lab/settings.json.
        learners: Of open-world, the folder of learners of held-out families, which
            benchmarks/predictor.py --train FOLDER makes; beside the rows by default.
        dry_run: Say what is missing, and run nothing: no data is needed.
        table: Print the table of the rows that there are, and run nothing.
        pictures: Write pictures of the rows, as .svg, to this folder.
    """
    from graphglow.graph.load import data_folder
    from graphglow.lab import figures, markdown, runs
    from graphglow.lab import open_suite as suite
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
    tuned = read_settings(settings)
    learners = (learners or out.with_name(f"{out.stem}_learners")).expanduser()
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    facts: dict[str, Any] = {"command": "reproduce", "experiment": experiment, "out": out}
    if not table:
        asked: Any = (targets, conditions, methods)
        cells = [] if whole else select_cells(experiment, methods, targets)
        if whole:
            root = data_folder(data_root)
            plan = suite.plan_suite(out, config, learners, root, *asked)
        else:
            plan = runs.plan_cells(cells, rows_in(out, names), config, tuned)
        first = [] if whole else [one.about for one in runs.missing_learners(plan, out)]
        counts = {name: dict(found) for name, found in plan.counts.items()}
        if json and dry_run:
            return print_json(facts | {"dry_run": True, "counts": counts, "pretraining": first})
        tell = print_text if dry_run else print_note
        for name, found in counts.items():
            tell(f"{name}: {', '.join(f'{count:,} {what}' for what, count in found.items())}")
        for what, count in Counter(first).items():
            tell(f"pre-trained first: {count} of {what} (each)")
        if dry_run:
            return None
        with progress_bar(in_logs=True) as move:
            if whole:
                outcome = suite.run_suite(out, config, learners, root, *asked, progress=move)
            else:
                outcome = runs.run_cells(
                    cells, out, config, tuned, data_root=data_root, progress=move
                )
        facts |= outcome._asdict()
        for error, count in outcome.errors.items():
            print_note(f"{count} failed: {error}")
        if not json:
            said = f"{outcome.made:,} rows made, {outcome.failed:,} failed, {outcome.left:,} left"
            print_text(f"{said}, in {outcome.seconds:.0f} s; rows: {out}\n")
    rows = rows_in(out, names)
    if pictures is not None:
        paths = [figures.write_figure(name, rows, pictures.expanduser()) for name in names]
        print_note(f"pictures: {', '.join(map(str, filter(None, paths))) or 'none'}")
    if json:
        scores = {} if whole else {n: markdown.cell_scores(n, rows, tuned) for n in names}
        means = {n: {one.key: one.mean for one in s.itertuples()} for n, s in scores.items()}
        return print_json(facts | {"accuracies": means})
    for name in names:
        made = markdown.standings_table(rows) if whole else markdown.tables_of(name, rows, tuned)
        title = f"## {name}\n\n" if len(names) > 1 else ""
        print_text(f"{title}{made}")
