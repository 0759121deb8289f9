"""``graphglow refine``, ``predict`` and ``explain``: what is made of a trained transfer."""

from dataclasses import asdict
from typing import Annotated

from torch_geometric.data import Data
from tyro.conf import FlagCreatePairsOff, arg

from graphglow.checks import at_least
from graphglow.commands import flags
from graphglow.commands.files import check_output, read_learner
from graphglow.commands.terminal import print_json, say, tell, waiting
from graphglow.commands.train import transferred, was_source
from graphglow.errors import InputError
from graphglow.graphs import write_graph
from graphglow.graphs.write import WRITERS, prediction_file
from graphglow.pretrained import learner_file
from graphglow.training import TransferConfig, TransferResult

Shared = Annotated[flags.NoEffect, arg(name="")]
Class = Annotated[str | None, flags.said(None, "CLASS", "(optional)")]


def refine(  # noqa: D417 (the flags and the config say the rest)
    out: flags.File,
    reading: flags.Reading,
    config: Annotated[TransferConfig, flags.by_heading(TransferConfig)],
    learner: Annotated[str | None, flags.said(None, "NAME|FILE", "(with --target)")] = None,
    target: Annotated[str | None, flags.said(flags.GRAPH, "NAME|FILE", "(with --learner)")] = None,
    result: flags.OptionalFile = None,
    top_k: int = 16,
    self_loops: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
    embedding_size: flags.EmbeddingSize = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Transfer, then write the learned graph to a file.

    Either --learner and --target, or --result: a file that graphglow transfer --out wrote.

    Example: graphglow refine --learner universal --target wine --out refined.csv

    Args:
        out: Where to write. The suffix is the format: .pt, .npz and .graphml hold the whole graph;
            .csv and .parquet hold its edges (source, target, weight) with your own node ids. All
            say how much of a weight came by the input graph and how much was learned.
        learner: The structure learner, as in graphglow transfer: universal, a file, or untrained.
        result: A saved transfer, instead of --learner and --target; it has its own settings.
        top_k: Strongest incoming edges kept for each node.
        self_loops: Leave out what a node passes to itself.
    """
    from graphglow.experiments.structure_metrics import graph_facts

    inputs = (learner and learner_file(learner), target, result, reading.split_file)
    out = check_output(out, overwrite=overwrite, suffixes=tuple(WRITERS), inputs=inputs)
    at_least("top_k", top_k, 1)
    split = None
    if result is not None:
        given = {"learner": learner, "target": target, "embedding_size": embedding_size}
        given |= vars(reading) | vars(config)
        plain = vars(flags.GraphFlags()) | vars(TransferConfig())
        plain |= {"device": config.device, "data_root": reading.data_root}  # these do no harm
        if others := [name for name, value in given.items() if value != plain.get(name)]:
            named = ", ".join(f"--{name.replace('_', '-')}" for name in others)
            raise InputError(f"--result has its own settings and must come alone; got {named} too")
        trained = TransferResult.load(result.expanduser())
    elif learner is None or target is None:
        raise InputError(
            "refine needs --learner and --target, or --result; see graphglow refine --help"
        )
    else:
        theta = read_learner(learner, embedding_size, config.seed)
        trained, split = transferred(theta, target, reading, config)
    with waiting("refining"):
        graph = trained.refined_graph(top_k, self_loops=self_loops)
        write_graph(graph, out)
    before, after = graph_facts(trained.data, undirected=True), graph_facts(graph)
    facts = {
        **trained.summary(),
        "split": split,
        "target_was_source": was_source(trained),
        "out": out,
        "top_k": top_k,
        "self_loops": self_loops,
        "nodes": trained.graph.num_nodes,
        "input_edges": before.edges,
        "refined_edges": after.edges,
        "input_homophily": before.homophily,
        "refined_homophily": after.homophily,
        "refined_homophily_by_weight": _by_weight(graph),
    }
    tell("Refined graph", facts, json=json)


def _by_weight(graph: Data) -> float | None:
    """The share of the weight between labelled nodes that joins nodes of one class."""
    source, target = graph.edge_index
    y, weight = graph.y, graph.edge_weight.double()
    known = (y[source] >= 0) & (y[target] >= 0) & (source != target)
    same = known & (y[source] == y[target])
    whole = float(weight[known].sum())
    return float(weight[same].sum()) / whole if whole > 0 else None


def predict(  # noqa: D417 (flags.py says the rest)
    result: flags.SavedTransfer,
    nodes: flags.File,
    out: flags.File,
    shared: Shared,
    edges: flags.OptionalFile = None,
    columns: flags.Columns = (),
    skip_unknown_edges: flags.SkipUnknownEdges = False,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Predict the classes of nodes added after training, without training again.

    Example: graphglow predict --result people.safetensors --nodes new_nodes.csv
    --edges new_edges.csv --out predictions.csv

    Args:
        nodes: The new nodes (.csv or .parquet): ids that are new, and the columns of the nodes
            table that the graph was loaded from. A label and a split are passed over. What was
            said by --columns at the transfer holds here too.
        edges: Their edges (.csv or .parquet): source and target, ids of old or new nodes, each
            with a new end, and optionally weight. Without it the nodes have no edges, or, where
            the graph was made of nearest neighbours, those to their nearest nodes.
        out: Where to write ids, predicted classes and probabilities (.csv or .parquet).
    """
    out = check_output(prediction_file(out), overwrite=overwrite, inputs=(result, nodes, edges))
    trained = TransferResult.load(result.expanduser())
    with waiting("predicting"):
        found = trained.predict_new_tables(
            nodes, edges, columns=flags.read_columns(columns), skip_unknown_edges=skip_unknown_edges
        )
        found.write(out)
    frame, target = found.to_frame(), trained.graph.name
    counts = {str(name): int(count) for name, count in frame["predicted"].value_counts().items()}
    facts = {"command": "predict", "target": target, "nodes": len(frame), "predicted": counts}
    tell("Predictions for new nodes", {**facts, "out": out}, json=json)


def explain(  # noqa: D417 (flags.py says the rest)
    result: flags.SavedTransfer,
    node: Annotated[str, arg(metavar="ID")],
    shared: Shared,
    out: flags.OptionalFile = None,
    top_k: int = 10,
    label: Class = None,
    against: Class = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
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
    from graphglow.report import is_report
    from graphglow.report.explanation import summary, write_explanation
    from graphglow.report.page import PAGES, require_plotly

    if out is not None:
        replace = overwrite or is_report(out.expanduser())
        suffixes = (*PAGES, ".csv", ".parquet")
        out = check_output(out, overwrite=replace, suffixes=suffixes, inputs=(result,))
        if out.suffix.lower() in PAGES:
            require_plotly()
    trained = TransferResult.load(result.expanduser())
    with waiting("explaining"):
        why = trained.explain(node, top_k, label=label, against=against)
        if out is not None:
            write_explanation(why, out)
    if json:
        print_json({"command": "explain", **asdict(why), "out": out})
        return
    say(summary(why))
    columns = ["id", "label", "input_part", "latent_part", "contribution", "share"]
    say(why.to_frame()[columns].to_string(index=False, na_rep="-", float_format="{:+.4f}".format))
    others = f"{why.others_input + why.others_latent:+.4f} by {why.num_others} others"
    rest = f"{others}, {why.own:+.4f} without a message, {why.bias:+.4f} for all nodes alike"
    say(f"score: {why.score:+.4f}, the sum of these and {rest}")
    if out is not None:
        say(f"written to: {out.absolute()}")
