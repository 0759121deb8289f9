"""``graphglow explain``: who carried a node's class, or which evidence speaks about a pair."""

from typing import Annotated, Any

from tyro.conf import arg

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_json, print_text
from graphglow.commands.progress import spinner
from graphglow.errors import InputError

NodeId = Annotated[str | None, arg(metavar="ID", help_behavior_hint="(or --pair)")]
TwoIds = Annotated[tuple[str, str] | None, arg(metavar="ID ID", help_behavior_hint="(or --node)")]


def explain(
    reading: flags.Reading,
    node: NodeId = None,
    pair: TwoIds = None,
    result: flags.OptionalFile = None,
    target: flags.OptionalGraph = None,
    learner: flags.LearnerName = "universal",
    nodes: flags.OptionalFile = None,
    edges: flags.OptionalFile = None,
    out: flags.OptionalFile = None,
    top_k: int = 10,
    label: flags.OptionalClass = None,
    against: flags.OptionalClass = None,
    seed: int = 0,
    device: flags.Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Say why: who carried a node's class, or what speaks for and against a pair.

    Of a pair, joined or not, nothing need be trained: the learner says how likely the two are of
    one class, and which evidence speaks for it and against it. Of a node, whose class a saved
    transfer predicts, it is the nodes whose messages it received, over your edges or over learned
    ones; with --nodes it may be one that came after training.

    Example: graphglow explain --target wine --pair 4 7 --out why.html

    Args:
        node: A node's own id; its index where the graph has no ids. Needs --result.
        pair: The ids of two nodes.
        result: A saved transfer, from graphglow transfer --out, with its graph and learner.
        nodes: New nodes, as of graphglow predict, which --node and --pair may name too (with
            --result).
        edges: Their edges (with --nodes).
        out: Where to write: .html is a page with pictures that opens offline, .csv and .parquet
            are the table. Without it the table is only printed.
        top_k: Nodes listed, those that contributed most (with --node).
        label: The class to explain; by default the predicted one (with --node).
        against: Explain the lead over this class instead of the score itself (with --node).
        seed: As of graphglow refine, with --target.
        device: Where to compute, with --target: auto takes the GPU if there is one.
    """
    if (node is None) == (pair is None):
        raise InputError("explain needs either --node ID or --pair ID ID")
    if (result is None) == (target is None):
        raise InputError("explain needs either --target or --result")
    if node is not None and result is None:
        raise InputError("--node needs --result, a saved transfer; --pair goes with --target")
    if (nodes and result is None) or (edges and nodes is None):
        raise InputError("--nodes goes with --result, and --edges goes with --nodes")
    if pair:
        flags.refuse_beside("--pair", explain, top_k=top_k, label=label, against=against)
    if result:
        given: dict[str, Any] = {"split_file": reading.split_file, "split_seed": reading.split_seed}
        if nodes is None:  # else they are about the tables of new nodes
            given |= {"columns": reading.columns, "skip_unknown_edges": reading.skip_unknown_edges}
        flags.refuse_beside("--result", explain, learner=learner, **given)

    from graphglow.explain import explain_pair
    from graphglow.report import PAGES
    from graphglow.result import TransferResult

    if out is not None:
        inputs = (result, target, learner, reading.split_file, nodes, edges)
        suffixes = (*PAGES, ".csv", ".parquet")
        out = check_output(out, overwrite=overwrite, suffixes=suffixes, inputs=inputs)
    with spinner("explaining"):
        if result is None:
            assert target is not None
            assert pair is not None
            data, _ = reading.read(target, need_labels=False)
            why = explain_pair(data, pair[0], pair[1], learner, seed=seed, device=device)
        else:
            trained = TransferResult.load(result.expanduser())
            if nodes is not None:
                trained = trained.predict_new_tables(nodes, edges, **reading.of_tables).result
            if node is not None:
                why = trained.explain(node, top_k, label=label, against=against)
            else:
                assert pair is not None
                why = trained.explain_pair(*pair)
    if out is not None:
        why.write(out)
    if json:
        print_json({"command": "explain", **why.to_dict(), "out": out})
        return
    print_text(why.text())
    if out is not None:
        print_text(f"written to: {out.absolute()}")
