"""``graphglow refine``, ``predict`` and ``explain``: what is made of a trained transfer."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

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
    target: Annotated[str | None, flags.said(flags.GRAPH, "NAME|FILE", "(or --result)")] = None,
    predictions: flags.OptionalFile = None,
    min_probability: float = 0.0,
    learner: Annotated[str | None, flags.said(None, "NAME|FILE", "(optional)")] = None,
    result: flags.OptionalFile = None,
    top_k: int = 16,
    self_loops: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
    embedding_size: flags.EmbeddingSize = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Write a better graph to a file, in seconds and with nothing trained.

    --target alone: the frozen evidence learner says of each edge how likely it joins nodes of one
    class, leaves out those below chance and adds pairs above it. With --learner a small GNN is
    trained under the paper's structure learner first, as graphglow transfer does, and --result is
    a file that graphglow transfer --out wrote: the graph is then that of the GNN's messages.

    Example: graphglow refine --target wine --out better.csv --predictions classes.csv

    Args:
        out: Where to write. The suffix is the format: .pt, .npz and .graphml hold nodes and edges;
            .csv and .parquet hold the edges with your own node ids: source, target, weight, and
            probability and in_input (of the evidence learner), or how much of the weight came by
            the input graph and how much was learned (of the paper's).
        predictions: Where to write every node's class and probabilities too, made in closed form
            (.csv or .parquet; without --learner).
        min_probability: Leave out edges below this probability (without --learner).
        learner: A structure learner of the paper's kind: universal, a file, or untrained.
        result: A saved transfer, instead of --learner and --target; it has its own settings.
        top_k: Strongest incoming edges kept for each node.
        self_loops: Leave out what a node passes to itself.
    """
    from graphglow.experiments.structure_metrics import graph_facts

    inputs = (learner and learner_file(learner), target, result, reading.split_file)
    out = check_output(out, overwrite=overwrite, suffixes=tuple(WRITERS), inputs=inputs)
    at_least("top_k", top_k, 1)
    if target is not None and learner is None and result is None:
        if predictions is not None:
            prediction_file(predictions)
            if predictions.expanduser().absolute() == out.absolute():
                raise InputError(f"--predictions must be another file than --out; got {out}")
            predictions = check_output(predictions, overwrite=overwrite, inputs=inputs)
        own = {"top_k": top_k, "self_loops": self_loops, "embedding_size": embedding_size}
        plain = {"top_k": 16, "self_loops": True, "embedding_size": None} | vars(TransferConfig())
        plain |= {"seed": config.seed, "device": config.device}  # of use here too
        if named := _others(own | vars(config), plain):
            raise InputError(f"{named} must go with --learner or --result; got neither")
        _refine_instantly(target, reading, config, out, predictions, min_probability, json)
        return
    if predictions is not None or min_probability:
        raise InputError(
            "--predictions and --min-probability of refine must go without --learner and --result; "
            "graphglow transfer --predictions writes those of a trained GNN"
        )
    split = None
    if result is not None:
        given = {"learner": learner, "target": target, "embedding_size": embedding_size}
        given |= vars(reading) | vars(config)
        plain = vars(flags.GraphFlags()) | vars(TransferConfig())
        plain |= {"device": config.device, "data_root": reading.data_root}  # these do no harm
        if named := _others(given, plain):
            raise InputError(f"--result has its own settings and must come alone; got {named} too")
        trained = TransferResult.load(result.expanduser())
    elif learner is None or target is None:
        raise InputError("refine needs --target, or --result; see graphglow refine --help")
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


def _others(given: dict[str, Any], plain: dict[str, Any]) -> str:
    """The flags of what differs from ``plain``."""
    others = [name for name, value in given.items() if value != plain.get(name)]
    return ", ".join(f"--{name.replace('_', '-')}" for name in others)


def _refine_instantly(
    target: str,
    reading: flags.GraphFlags,
    config: TransferConfig,
    out: Path,
    predictions: Path | None,
    min_probability: float,
    json: bool,
) -> None:
    """The evidence learner on a graph with or without labels; seconds are those of refining."""
    from graphglow.inference import refine as evidence

    with waiting("loading the graph"):
        data, split = reading.read(target, need_labels=False)
    began = time.perf_counter()
    with waiting("refining"):
        refined = evidence.refine(
            data, min_probability=min_probability, seed=config.seed, device=config.device
        )
    seconds = time.perf_counter() - began
    if predictions is not None and refined.predict_proba() is None:
        raise InputError(f"--predictions needs labels to learn from; got none in {target}")
    write_graph(refined, out)
    if predictions is not None:
        refined.write_predictions(predictions)
    edges_in, edges_out = evidence.input_edges(data), refined.edge_index.shape[1] // 2
    kept = int(refined.edge_in_input.sum()) // 2
    facts = {
        "command": "refine",
        "target": data.name,
        "learner": evidence.EVIDENCE,
        "split": split,
        "nodes": data.num_nodes,
        "edges_in": edges_in,
        "edges_out": edges_out,
        "added": edges_out - kept,
        "dropped": edges_in - kept,
        "val_accuracy": refined.accuracy("val"),
        "test_accuracy": refined.accuracy("test"),
        "seconds": seconds,
        "out": out,
        "predictions": predictions,
        "seed": config.seed,
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
