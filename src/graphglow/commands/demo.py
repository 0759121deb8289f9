"""``graphglow demo``."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from tyro.conf import arg

from graphglow.commands.files import check_output
from graphglow.commands.flags import UNUSED, Json, OutFile, Overwrite
from graphglow.commands.terminal import epoch_bar, percent, print_json, say, show
from graphglow.experiments.demo import DEMO, DemoResult, run_demo, summarise
from graphglow.pretrained import PRETRAINED, load_pretrained
from graphglow.report import is_report, write_report
from graphglow.report.demo import verdicts
from graphglow.training.config import Device


def demo(  # noqa: D417 (flags.py and the config say the rest)
    out: OutFile = Path("demo_report.html"),
    seed: int = 0,
    device: Device = "auto",
    overwrite: Overwrite = False,
    data_root: Annotated[
        Path | None, arg(metavar="FOLDER", help=UNUSED, help_behavior_hint="")
    ] = None,
    json: Json = False,
) -> None:
    """Show the main job in about a minute, on graphs that come with the package.

    Transfers the package's pre-trained structure learner, frozen, to graphs that it has never
    seen, and sets it beside its controls. Nothing is downloaded.

    Args:
        out: Where to write the report, one HTML page; an older report is replaced.
        seed: The first of the seeds; each draws labels, weights and pivots.
        device: Where to compute: auto takes the GPU if there is one.
    """
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
    show(_table(result))
    for sentence in verdicts(result.rows):
        say(sentence)
    before, after = result.refined.before.homophily, result.refined.after.homophily
    say(
        f"Refined graph of {result.refined.target}: {percent(after)} of its edges join nodes of "
        f"one class; {percent(before)} of the input graph's do."
    )
    say(f"\nreport: {out.absolute()} ({result.seconds:.0f} s in all)")
    say(_advice(result.pretraining))
    say("next:   graphglow transfer --learner universal --target wine --predictions wine.csv")
    say("        graphglow refine --learner universal --target wine --out refined.csv")
    say("        graphglow pretrain --sources wine digits --num-pivots 100 --out own.safetensors")


def _advice(made: Mapping[str, Any]) -> str:
    """What the learner that was run is for, and which of the same sources is for the rest."""
    uses = {True: "with few labels and mostly wrong edges", False: "whose edges you trust"}
    sharp = made["delta"] == "exp"
    others = [
        name
        for name, sources in PRETRAINED.items()
        if list(sources) == made["sources"]
        and (load_pretrained(name).config.delta == "exp") != sharp
    ]
    rest = f"; {others[0]} is for those {uses[not sharp]}" if others else ""
    return f"{made['name']} (delta {made['delta']}) is for graphs {uses[sharp]}{rest}."


def _table(result: DemoResult) -> Table:
    made = result.pretraining
    title = (
        f"Test accuracy in %. graphglow: the learner {made['name']}, frozen, pre-trained on "
        f"{', '.join(made['sources'])}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("target")
    table.add_column("method")
    for column in ("mean", "std", "training, s"):
        table.add_column(column, justify="right")
    for target, methods in summarise(result.rows).items():
        best = max(s.mean for s in methods.values() if s.mean is not None)
        for position, (method, summary) in enumerate(methods.items()):
            table.add_row(
                "" if position else target,
                method,
                "-" if summary.mean is None else f"{100 * summary.mean:.1f}",
                "-" if summary.std is None else f"{100 * summary.std:.1f}",
                f"{summary.seconds:.2f}",
                style="bold" if summary.mean == best else None,
                end_section=position == len(methods) - 1,
            )
    return table
