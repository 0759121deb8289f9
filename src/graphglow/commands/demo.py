"""``graphglow demo``: the main job in about a minute."""

from dataclasses import asdict
from pathlib import Path

from graphglow.commands import flags
from graphglow.commands.output import (
    check_output,
    percent,
    print_json,
    print_table,
    print_text,
)
from graphglow.commands.progress import progress_bar

NEXT = """
next:   graphglow predict --target wine --out wine.csv
        graphglow refine --target wine --out better.csv"""


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
    from graphglow.demo import LABELS, METHODS, run_demo, summarise
    from graphglow.report import is_report
    from graphglow.report.results import headline, write_report

    out = check_output(out, overwrite=overwrite or is_report(out.expanduser()))
    with progress_bar() as move:
        result = run_demo(seed=seed, device=device, progress=move)
    write_report(result, out)
    if json:
        print_json({"command": "demo", "report": out, "seed": seed, **asdict(result)})
        return
    scores = summarise(result.rows)
    rows = []
    for method in METHODS:
        lines = [target.get(method) for target in scores.values()]
        means = [percent(line and line.mean) for line in lines]
        spreads = [f" +- {100 * ln.std:.1f}" if ln and ln.std is not None else "" for ln in lines]
        rows.append((LABELS[method], *map("".join, zip(means, spreads, strict=True))))
    print_table(("", *scores), rows, "Test accuracy, mean and deviation over the seeds")
    refined = result.refined
    before, after = (percent(one["homophily"]) for one in (refined.before, refined.after))
    sentences = [
        *headline(result),
        f"Refined graph of {refined.target}: {after} of its edges join nodes of one class; "
        f"{before} of the input's do. Dropped are {percent(refined.dropped_injected)} of the "
        f"injected edges and {percent(refined.dropped_own)} of its own.",
    ]
    if refined.audit_auc is not None:
        sentences.append(
            "Its audit, without labels, tells injected edges from others with an AUC of "
            f"{refined.audit_auc:.3f}."
        )
    print_text("\n".join(sentences))
    print_text(f"\nreport: {out.absolute()} ({result.seconds:.0f} s in all){NEXT}")
