"""``graphglow explain``: who carried a node's class, or which evidence speaks about a pair."""

from pathlib import Path
from typing import Annotated

from graphglow.commands import flags
from graphglow.commands.files import check_output
from graphglow.commands.terminal import print_json, say, waiting
from graphglow.errors import InputError
from graphglow.explain import Explanation, explain_pair
from graphglow.pretrained import UNIVERSAL, learner_file
from graphglow.report import PAGES
from graphglow.settings import Device
from graphglow.training.result import TransferResult

Class = Annotated[str | None, flags.said(None, "CLASS", "(optional)")]


def explain(  # noqa: D417 (flags.py says the rest)
    reading: flags.Reading,
    node: Annotated[str | None, flags.said(None, "ID", "(or --pair)")] = None,
    pair: Annotated[tuple[str, ...], flags.said(None, "ID ID", "(or --node)")] = (),
    result: Annotated[Path | None, flags.said(None, "FILE", "(or --target)")] = None,
    target: Annotated[str | None, flags.said(flags.GRAPH, "NAME|FILE", "(or --result)")] = None,
    learner: flags.LearnerFlag = UNIVERSAL,
    nodes: flags.OptionalFile = None,
    edges: flags.OptionalFile = None,
    out: flags.OptionalFile = None,
    top_k: int = 10,
    label: Class = None,
    against: Class = None,
    seed: int = 0,
    device: Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Say why: who carried a node's class, or what speaks for and against a pair.

    Of a pair, joined or not, nothing need be trained: the learner says how likely the two are of
    one class, and which evidence speaks for it and against it. Of a node, whose class a saved
    transfer predicts, it is the nodes that were heard, over your edges or over learned ones; with
    --nodes it may be one that came after training.

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
    if (node is None) == (not pair):
        raise InputError(f"explain needs either --node or --pair; got {'both' if node else 'none'}")
    if pair and len(pair) != 2:
        raise InputError(f"--pair must be two ids; got {' '.join(pair)}")
    if (result is None) == (target is None):
        got = "both" if target else "none"
        raise InputError(f"explain needs either --target or --result; got {got}")
    if node is not None and result is None:
        raise InputError(
            f"--node must go with --result, a saved transfer; got --target {target} (--pair goes)"
        )
    of_node = {"top_k": top_k, "label": label, "against": against}
    if pair and (named := flags.differing(of_node, {"top_k": 10})):
        raise InputError(f"{named} must go with --node; got --pair")
    if (nodes and result is None) or (edges and nodes is None):
        raise InputError("--nodes must go with --result, and --edges with --nodes; got one alone")
    plain = vars(flags.GraphFlags()) | {"learner": UNIVERSAL, "data_root": reading.data_root}
    if nodes:  # these are tables
        plain |= {"columns": reading.columns, "skip_unknown_edges": reading.skip_unknown_edges}
    if result and (named := flags.differing({"learner": learner} | vars(reading), plain)):
        raise InputError(f"--result has its own settings and must come without {named}; got both")
    inputs = (result, target, learner_file(learner), reading.split_file, nodes, edges)
    if out is not None:
        suffixes = (*PAGES, ".csv", ".parquet")
        out = check_output(out, overwrite=overwrite, suffixes=suffixes, inputs=inputs)
    trained = None if result is None else TransferResult.load(result.expanduser())
    if trained and nodes:
        with waiting("predicting"):
            trained = trained.predict_new_tables(
                nodes,
                edges,
                columns=flags.read_columns(reading.columns),
                skip_unknown_edges=reading.skip_unknown_edges,
            ).result
    if pair:
        with waiting("explaining"):
            if trained is not None:
                why = trained.explain_pair(pair[0], pair[1])
            else:
                assert target is not None
                data, _ = reading.read(target, need_labels=False)
                why = explain_pair(data, pair[0], pair[1], learner, seed=seed, device=device)
        _tell(why, out, json=json)
        return
    assert trained is not None
    assert node is not None
    with waiting("explaining"):
        decision = trained.explain(node, top_k, label=label, against=against)
    _tell(decision, out, json=json)


def _tell(why: Explanation, out: Path | None, *, json: bool) -> None:
    if out is not None:
        why.write(out)
    if json:
        print_json({"command": "explain", **why.to_dict(), "out": out})
        return
    say(why.text())
    if out is not None:
        say(f"written to: {out.absolute()}")
