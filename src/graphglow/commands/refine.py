"""``graphglow refine``: a better graph, in seconds and with nothing trained."""

import time
import warnings
from functools import partial
from typing import Annotated, Literal

from tyro.conf import arg

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_facts, write_each
from graphglow.commands.progress import spinner
from graphglow.errors import InputError, InputWarning


def refine(
    target: flags.GraphName,
    out: flags.File,
    reading: flags.Reading,
    working: flags.Working,
    learner: flags.LearnerName = "universal",
    predictions: flags.OptionalFile = None,
    min_probability: float = 0.0,
    edges: Literal["auto", "keep", "augment", "prune", "replace"] = "auto",
    top_k: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: as the graph has)")
    ] = None,
    seed: int = 0,
    device: flags.Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Write a better graph to a file, in seconds and with nothing trained.

    The frozen learner gives each edge, and each promising pair without one, the probability that
    both ends are of one class. Leave-one-out on your labels chooses whether your edges are kept,
    added to, or replaced, unless --edges says it.

    Example: graphglow refine --target wine --out better.csv --predictions classes.csv

    Args:
        out: Where to write. The suffix is the format: .pt, .npz and .graphml hold nodes and edges;
            .csv and .parquet hold the edges with your own node ids: source, target, weight, and
            probability and in_input.
        predictions: Where to write every node's class and probabilities too, made in closed form
            (.csv or .parquet).
        min_probability: Leave out edges below this probability; where your own are kept, new ones.
        edges: replace: the strongest pairs, joined or not, as many as the graph has edges. augment:
            these and all of your edges. prune: those of your edges that are among them. keep: your
            edges, with their probabilities. auto: keep, augment or replace, by leave-one-out.
        top_k: Edges kept for each node, the strongest, and those that its neighbours keep. By
            default as many are kept in all as the graph has, each node's strongest first.
        seed: Seeds the random projections, and --learner untrained.
    """
    from graphglow.graph import write_graph
    from graphglow.graph.write import WRITERS, prediction_file
    from graphglow.refine import WORDS, input_edges
    from graphglow.refine import refine as refine_graph

    inputs = (learner, target, reading.split_file)
    out = check_output(out, overwrite=overwrite, suffixes=tuple(WRITERS), inputs=inputs)
    if predictions is not None:
        path = prediction_file(predictions)
        predictions = check_output(path, overwrite=overwrite, inputs=inputs)
        if predictions.absolute() == out.absolute():
            raise InputError(f"--predictions and --out are one file, {out}: name different ones")
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
            edges=edges,
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
        "edges": refined.choice if json else f"{refined.choice} ({WORDS[refined.choice]})",
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
