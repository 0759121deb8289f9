"""``graphglow demo`` and ``datasets``: what there is before one has anything of one's own."""

from dataclasses import asdict
from pathlib import Path

from graphglow.commands import flags
from graphglow.commands.files import check_output
from graphglow.commands.terminal import epoch_bar, percent, print_json, say, show_rows
from graphglow.graphs import DATASETS
from graphglow.graphs.load import data_folder
from graphglow.pretrained import PRETRAINED
from graphglow.training.config import Device


def demo(  # noqa: D417 (flags.py says the rest)
    out: flags.File = Path("demo_report.html"),
    seed: int = 0,
    device: Device = "auto",
    overwrite: flags.Overwrite = False,
    data_root: flags.UnusedDataRoot = None,
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
    from graphglow.report import is_report, write_report
    from graphglow.report.demo import verdicts

    out = check_output(out, overwrite=overwrite or is_report(out.expanduser()))
    result = run_demo(DEMO, seed=seed, device=device, watch=epoch_bar)
    write_report(
        result.rows,
        out,
        title="graphglow demo",
        pretraining=result.pretraining,
        settings=result.settings,
        versions=result.versions,
        refined=result.refined,
    )
    if json:
        print_json({"command": "demo", "report": out, "seed": seed, **asdict(result)})
        return
    made = result.pretraining
    rows = [
        (target, method, *map(_in_percent, (line.mean, line.std)), f"{line.seconds:.2f}")
        for target, methods in summarise(result.rows).items()
        for method, line in methods.items()
    ]
    title = (
        f"Test accuracy in %. graphglow: the learner {made['name']}, frozen, pre-trained on "
        f"{', '.join(made['sources'])}"
    )
    show_rows(("target", "method", "mean", "std", "training, s"), rows, title)
    for sentence in verdicts(result.rows):
        say(sentence)
    before, after = result.refined.before.homophily, result.refined.after.homophily
    say(
        f"Refined graph of {result.refined.target}: {percent(after)} of its edges join nodes of "
        f"one class; {percent(before)} of the input graph's do."
    )
    say(f"\nreport: {out.absolute()} ({result.seconds:.0f} s in all)")
    say("next:   graphglow transfer --learner universal --target wine --predictions wine.csv")
    say("        graphglow refine --learner universal --target wine --out refined.csv")
    say("        graphglow pretrain --sources wine digits --num-pivots 100 --out own.safetensors")


def _in_percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def datasets(
    data_root: flags.DataRoot = None,
    json: flags.Json = False,
    seed: flags.UnusedSeed = 0,
    device: flags.UnusedDevice = "auto",
) -> None:
    """List the graphs that are known by name.

    Any other graph is given by a path: two tables as people.csv+relations.csv (or .parquet), a
    folder with nodes.csv and edges.csv, or a .pt, .npz or .graphml file. The pre-trained structure
    learners that come with the package are listed too.
    """
    root = data_folder(data_root)
    present = {path.parent.parent.name.lower() for path in root.glob("*/raw/*")}
    names = ("name", "kind", "nodes", "edges", "classes", "features", "needs_data", "description")
    rows = [
        {name: getattr(info, name) for name in names}
        | {"found": not info.needs_data or info.name in present}
        for info in DATASETS.values()
    ]
    if json:
        learners = [{"name": name, "sources": list(of)} for name, of in PRETRAINED.items()]
        print_json({"data_root": root.absolute(), "datasets": rows, "learners": learners})
        return
    columns = ("name", "kind", "nodes", "edges", "classes", "data files")
    lines = []
    for row in rows:
        files = "not needed" if not row["needs_data"] else "found" if row["found"] else "missing"
        counts = [f"{row[key]:,}" for key in columns[2:5]]
        lines.append((row["name"], row["kind"], *counts, files))
    show_rows(columns, lines)
    say(f"data root: {root.absolute()} (set it by --data-root or GRAPHGLOW_DATA)")
    say("pre-trained structure learners, for --learner:")
    for name, sources in PRETRAINED.items():
        say(f"  {name:<9}  {', '.join(sources)}")
