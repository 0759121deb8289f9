"""``graphglow explain``."""

from dataclasses import asdict
from typing import Annotated

from tyro.conf import arg

from graphglow.checks import at_least
from graphglow.commands.files import check_output
from graphglow.commands.flags import (
    Json,
    OptionalFile,
    Overwrite,
    SavedTransfer,
    UnusedDataRoot,
    UnusedDevice,
    UnusedSeed,
)
from graphglow.commands.terminal import percent, print_json, say, show_facts, waiting
from graphglow.graphs.table_file import require_pyarrow
from graphglow.inference.explanation import Explanation
from graphglow.report import is_report
from graphglow.report.explanation import summary, write_explanation
from graphglow.report.page import PAGES, require_plotly
from graphglow.training import TransferResult

OptionalClass = Annotated[str | None, arg(metavar="CLASS", help_behavior_hint="(optional)")]


def explain(  # noqa: D417 (flags.py says the rest)
    result: SavedTransfer,
    node: Annotated[str, arg(metavar="ID")],
    out: OptionalFile = None,
    top_k: int = 10,
    label: OptionalClass = None,
    against: OptionalClass = None,
    overwrite: Overwrite = False,
    json: Json = False,
    seed: UnusedSeed = 0,
    device: UnusedDevice = "auto",
    data_root: UnusedDataRoot = None,
) -> None:
    """Show which nodes carried a decision, over your edges or over learned ones.

    Example: graphglow explain --result wine.safetensors --node 4 --out why.html

    Args:
        node: The node's own id; its index where the graph has no ids.
        out: Where to write: .html is a page with pictures that opens offline, .csv and .parquet
            are the table. Without it the table is only printed.
        top_k: Nodes listed, those that contributed most.
        label: The class to explain; by default the predicted one.
        against: Explain the lead over this class instead of the score itself.
    """
    at_least("top_k", top_k, 1)
    if out is not None:
        page = out.suffix.lower() in PAGES
        out = check_output(
            out,
            overwrite=overwrite or (page and is_report(out.expanduser())),
            suffixes=(*PAGES, ".csv", ".parquet"),
            inputs=(result,),
        )
        if page:
            require_plotly()
        elif out.suffix.lower() == ".parquet":
            require_pyarrow()
    trained = TransferResult.load(result.expanduser())
    with waiting("explaining"):
        why = trained.explain(node, top_k, label=label, against=against)
        if out is not None:
            write_explanation(why, out)
    if json:
        print_json({"command": "explain", **asdict(why), "out": out})
        return
    say(summary(why))
    show_facts("Contributions", _readable(why))
    if out is not None:
        say(f"written to: {out.absolute()}")


def _readable(why: Explanation) -> dict[str, str]:
    shown = {
        f"{one.id} ({one.label or 'unlabelled'})": f"{one.contribution:+.4f} = "
        f"{one.input_part:+.4f} by the input graph {one.latent_part:+.4f} by the learned graph, "
        f"share {percent(one.share)}"
        for one in why.contributions
    }
    if why.num_others:
        shown[f"{why.num_others} others"] = (
            f"{why.others_input + why.others_latent:+.4f} = {why.others_input:+.4f} by the input "
            f"graph {why.others_latent:+.4f} by the learned graph"
        )
    if why.own:
        shown["without a message"] = f"{why.own:+.4f}"
    shown["the same for all nodes"] = f"{why.bias:+.4f}"
    shown["score"] = f"{why.score:+.4f}"
    return shown
