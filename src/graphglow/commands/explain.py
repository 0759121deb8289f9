"""``graphglow explain``: why a node has its class, or which evidence speaks about a pair."""

from typing import Annotated

from tyro.conf import arg

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_json, print_text
from graphglow.commands.progress import spinner
from graphglow.errors import InputError

NodeId = Annotated[str | None, arg(metavar="ID", help_behavior_hint="(or --pair)")]
TwoIds = Annotated[tuple[str, str] | None, arg(metavar="ID ID", help_behavior_hint="(or --node)")]


def explain(
    target: flags.GraphName,
    reading: flags.Reading,
    node: NodeId = None,
    pair: TwoIds = None,
    label: flags.OptionalClass = None,
    learner: flags.LearnerName = "universal",
    out: flags.OptionalFile = None,
    seed: int = 0,
    device: flags.Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Say why: what carried a node's class, or what speaks for and against a pair.

    Nothing is trained. Of a node, the class is that of graphglow predict. Of a pair, joined or not,
    it is how likely the two are of one class, and what graphglow refine does with their edge.

    Example: graphglow explain --target wine --pair 4 7 --out why.html

    Args:
        node: A node's own id; its index where the graph has no ids.
        pair: The ids of two nodes.
        label: The class to explain; by default the predicted one (with --node).
        out: Where to write: .html is a page with pictures that opens offline, .csv and .parquet
            are the table. Without it the table is only printed.
        seed: Seeds the random projections, and --learner untrained.
    """
    if (node is None) == (pair is None):
        raise InputError("explain needs either --node ID or --pair ID ID")
    if pair and label is not None:
        raise InputError("--label goes with --node: a pair has no class")

    from graphglow.explain import explain_pair
    from graphglow.predict import predict
    from graphglow.report import PAGES

    if out is not None:
        inputs, suffixes = (target, learner, reading.split_file), (*PAGES, ".csv", ".parquet")
        out = check_output(out, overwrite=overwrite, suffixes=suffixes, inputs=inputs)
    with spinner("explaining"):
        data, _ = reading.read(target, need_labels=False, draw=pair is not None)
        if pair is not None:
            why = explain_pair(data, pair[0], pair[1], learner, seed=seed, device=device)
        else:
            why = predict(data, learner, seed=seed, device=device).explain(node, label)
    if out is not None:
        why.write(out)
    if json:
        print_json({"command": "explain", **why.to_dict(), "out": out})
        return
    print_text(why.text())
    if out is not None:
        print_text(f"written to: {out.absolute()}")
