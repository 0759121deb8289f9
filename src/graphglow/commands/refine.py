"""``graphglow refine``: a better graph, instant or of a trained transfer."""

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_facts, print_note, write_each
from graphglow.commands.progress import spinner
from graphglow.errors import InputError, InputWarning


def refine(
    out: flags.File,
    reading: flags.Reading,
    working: flags.Working,
    target: flags.GraphOrResult = None,
    learner: flags.LearnerName = "universal",
    predictions: flags.OptionalFile = None,
    min_probability: float = 0.0,
    add: flags.Switch = True,
    drop: flags.Switch = True,
    top_k: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: as the graph has)")
    ] = None,
    result: flags.OptionalFile = None,
    self_loops: flags.Switch = True,
    seed: int = 0,
    device: flags.Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Write a better graph to a file, in seconds and with nothing trained.

    The frozen learner says of each edge, and of pairs without one, how likely they are of one
    class, and keeps the strongest of both that are above chance: as many as the graph has edges,
    unless flags say otherwise. With --result, a file that graphglow transfer --out wrote, the graph
    is that of the trained GNN's messages.

    Example: graphglow refine --target wine --out better.csv --predictions classes.csv

    Args:
        out: Where to write. The suffix is the format: .pt, .npz and .graphml hold nodes and edges;
            .csv and .parquet hold the edges with your own node ids: source, target, weight, and
            probability and in_input, or, with --result, input_weight and latent_weight: how much
            of the weight came by the input graph, and how much was learned.
        predictions: Where to write every node's class and probabilities too, made in closed form
            (.csv or .parquet; not with --result).
        min_probability: Leave out edges below this probability, with --no-drop only new ones
            (not with --result).
        add: Add no edge: only leave some of the graph's out (not with --result).
        drop: Leave no edge of the graph out: only add some (not with --result).
        top_k: Edges kept for each node, the strongest, and those that its neighbours keep. By
            default as many are kept in all as the graph has, each node's strongest first (with
            --result: incoming ones of each node, about as many as a node has, and its own).
        result: A file that graphglow transfer --out wrote, instead of --target: its graph, its
            settings.
        self_loops: With --result, leave out what a node passes to itself.
        seed: Seeds the random projections, and --learner untrained.
    """
    if (target is None) == (result is None):
        raise InputError("refine needs either --target or --result")
    if result is not None:
        without = "learner predictions min_probability add drop seed device"
        given = {name: value for name, value in locals().items() if name in without.split()}
        flags.refuse_beside("--result", refine, **given, **vars(reading), **vars(working))
    elif not self_loops:
        raise InputError("--no-self-loops goes with --result")

    from graphglow.graph import write_graph
    from graphglow.graph.write import WRITERS, prediction_file
    from graphglow.refine import input_edges
    from graphglow.refine import refine as refine_graph

    inputs = (learner, target, result, reading.split_file)
    out = check_output(out, overwrite=overwrite, suffixes=tuple(WRITERS), inputs=inputs)
    if predictions is not None:
        path = prediction_file(predictions)
        predictions = check_output(path, overwrite=overwrite, inputs=inputs)
        if predictions.absolute() == out.absolute():
            raise InputError(f"--predictions and --out are one file, {out}: name different ones")
    if result is not None:
        _refine_result(result, out, top_k, self_loops=self_loops, json=json)
        return
    assert target is not None
    with spinner("loading the graph"):
        data, split = reading.read(target, need_labels=False)
    began = time.perf_counter()
    with spinner("refining"), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "worse|cannot tell|.*edges are left out", InputWarning
        )  # printed below
        refined = refine_graph(
            data,
            learner,
            top_k=top_k,
            min_probability=min_probability,
            add=add,
            drop=drop,
            seed=seed,
            device=device,
            **vars(working),
        )
    seconds = time.perf_counter() - began
    if predictions is not None and refined.predict_proba() is None:
        raise InputError(f"--predictions needs labels to learn from, and {target} has none")
    write_each((out, partial(write_graph, refined)), (predictions, refined.write_predictions))
    edges_in, edges_out = input_edges(data), refined.edge_index.shape[1] // 2
    kept = int(refined.edge_in_input.sum()) // 2
    facts = {
        "command": "refine",
        "target": data.name,
        "learner": learner,
        "split": split,
        "verdict": refined.verdict,
        "nodes": data.num_nodes,
        "edges_in": edges_in,
        "edges_out": edges_out,
        "added": edges_out - kept,
        "dropped": edges_in - kept,
        "val_accuracy": refined.accuracy("val"),
        "test_accuracy": refined.accuracy("test"),
        "search": refined.search,
        "seconds": seconds,
        "out": out,
        "predictions": predictions,
        "seed": seed,
    }
    print_facts("Refined graph", facts, json=json)


def _refine_result(
    result: Path, out: Path, top_k: int | None, *, self_loops: bool, json: bool
) -> None:
    """Write the graph of a trained GNN's messages."""
    from graphglow.graph import write_graph
    from graphglow.graph.load import describe
    from graphglow.refine import usual_top_k
    from graphglow.result import TransferResult

    trained = TransferResult.load(result.expanduser())
    top_k = usual_top_k(trained.data) + self_loops if top_k is None else top_k
    with spinner("refining"):
        graph = trained.refined_graph(top_k, self_loops=self_loops)
        write_graph(graph, out)
    before, after = describe(trained.data), describe(graph)
    if after["edges"] == 0:
        print_note(
            "validation chose no graph, so that no message crosses an edge; graphglow refine "
            "--target writes the refined graph itself"
        )
    facts = {
        **trained.summary(),
        "out": out,
        "top_k": top_k,
        "self_loops": self_loops,
        "nodes": trained.graph.num_nodes,
        "input_edges": before["edges"],
        "refined_edges": after["edges"],
        "input_homophily": before["homophily"],
        "refined_homophily": after["homophily"],
    }
    print_facts("Refined graph", facts, json=json)
