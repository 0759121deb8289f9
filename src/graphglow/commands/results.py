"""``graphglow refine``: a better graph, instant or of a trained transfer."""

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from torch_geometric.data import Data
from tyro.conf import FlagCreatePairsOff

from graphglow.checks import at_least, in_unit_interval
from graphglow.commands import flags
from graphglow.commands.files import WorkerFlags, Working, check_output, write_each
from graphglow.commands.terminal import note, tell, waiting
from graphglow.commands.train import asks_for_paper, transferred, was_source
from graphglow.errors import InputError
from graphglow.graph import write_graph
from graphglow.graph.write import WRITERS, prediction_file
from graphglow.pretrained import PAPER, UNIVERSAL, learner_file, paper_learner
from graphglow.refine import input_edges, usual_top_k
from graphglow.refine import refine as refine_graph
from graphglow.settings import Device, PaperConfig
from graphglow.training.result import TransferResult
from graphglow.training.verdict import NO_PAIRS, homophily, verdict_of

TopK = Annotated[int | None, flags.said(None, "INT", "(default: as the graph has)")]


def choose(name: str, arguments: list[str]) -> flags.Command:
    """The command with the flags that it has here, by the kind of learner that is asked for."""
    return refine_paper if asks_for_paper(name, arguments) else refine


def refine(  # noqa: D417 (the flags and the config say the rest)
    out: flags.File,
    reading: flags.Reading,
    working: Working,
    target: Annotated[str | None, flags.said(flags.GRAPH, "NAME|FILE", "(or --result)")] = None,
    learner: flags.LearnerFlag = UNIVERSAL,
    predictions: flags.OptionalFile = None,
    min_probability: float = 0.0,
    add: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
    drop: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
    top_k: TopK = None,
    result: flags.OptionalFile = None,
    self_loops: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
    seed: int = 0,
    device: Device = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Write a better graph to a file, in seconds and with nothing trained.

    The frozen learner says of each edge, and of pairs without one, how likely they are of one
    class, and keeps the strongest of both that are above chance: as many as the graph has edges,
    unless flags say otherwise. --workers and --ray share the work out. With --result, a file that
    graphglow transfer --out wrote, the graph is that of the trained GNN's messages.
    --learner paper has flags of its own.

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
        seed: Of the random projections, and of --learner untrained.
        device: Where to compute: auto takes the GPU if there is one.
    """
    inputs = (learner_file(learner), target, result, reading.split_file)
    out = check_output(out, overwrite=overwrite, suffixes=tuple(WRITERS), inputs=inputs)
    instant: dict[str, Any] = {
        **vars(working),
        "learner": learner,
        "target": target,
        "predictions": predictions,
        "seed": seed,
        "min_probability": min_probability,
        "no_add": not add,
        "no_drop": not drop,
    }
    plain: dict[str, Any] = vars(flags.GraphFlags()) | vars(WorkerFlags())
    plain |= {"seed": 0, "min_probability": 0.0}
    plain |= {"no_add": False, "no_drop": False, "learner": UNIVERSAL}
    plain |= {"data_root": reading.data_root}
    if result is not None:
        if named := flags.differing(instant | vars(reading), plain):
            raise InputError(f"--result has its own settings and must come alone; got {named} too")
        trained = TransferResult.load(result.expanduser())
        _write_refined(trained, None, out, top_k, self_loops=self_loops, json=json)
        return
    if target is None:
        raise InputError("refine needs --target, or --result; see graphglow refine --help")
    if not self_loops:
        raise InputError("--no-self-loops must go with --result or --learner paper; got neither")
    if top_k is not None:
        at_least("top_k", top_k, 1)
    at_least("seed", seed, 0)
    in_unit_interval("min_probability", min_probability)
    if predictions is not None:
        prediction_file(predictions)
        if predictions.expanduser().absolute() == out.absolute():
            raise InputError(f"--predictions must be another file than --out; got {out}")
        predictions = check_output(predictions, overwrite=overwrite, inputs=inputs)
    with waiting("loading the graph"):
        data, split = reading.read(target, need_labels=False)
    began = time.perf_counter()
    with waiting("refining"):
        refined = refine_graph(
            data,
            learner,
            top_k=top_k,
            min_probability=min_probability,
            add=add,
            drop=drop,
            seed=seed,
            device=device,
            workers=working.workers,
            ray=working.ray,
        )
    seconds = time.perf_counter() - began
    if predictions is not None and refined.predict_proba() is None:
        raise InputError(f"--predictions needs labels to learn from; got none in {target}")
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
    tell("Refined graph", facts, json=json)


def refine_paper(  # noqa: D417 (the flags and the config say the rest)
    target: flags.GraphName,
    out: flags.File,
    reading: flags.Reading,
    config: Annotated[PaperConfig, flags.by_heading(PaperConfig)],
    learner: flags.LearnerFlag = PAPER,
    top_k: TopK = None,
    self_loops: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Write a better graph to a file: that of a GNN trained under the paper's learner.

    Example: graphglow refine --learner paper --target wine --out better.csv

    Args:
        out: Where to write. The suffix is the format: .pt, .npz and .graphml hold nodes and edges;
            .csv and .parquet hold the edges with your own node ids: source, target, weight, and
            input_weight and latent_weight: how much of the weight came by the input graph, and how
            much was learned.
        top_k: Strongest incoming edges kept for each node; by default about as many as a node of
            the graph has, and its own.
        self_loops: Leave out what a node passes to itself.
    """
    inputs = (learner_file(learner), target, reading.split_file)
    out = check_output(out, overwrite=overwrite, suffixes=tuple(WRITERS), inputs=inputs)
    if top_k is not None:
        at_least("top_k", top_k, 1)
    trained, split = transferred(paper_learner(learner), target, reading, config)
    _write_refined(trained, split, out, top_k, self_loops=self_loops, json=json)


def _write_refined(
    trained: TransferResult,
    split: str | None,
    out: Path,
    top_k: int | None,
    *,
    self_loops: bool,
    json: bool,
) -> None:
    from graphglow.lab.structure_metrics import graph_facts

    top_k = usual_top_k(trained.data) + self_loops if top_k is None else top_k
    with waiting("refining"):
        graph = trained.refined_graph(top_k, self_loops=self_loops)
        write_graph(graph, out)
    verdict = verdict_of(homophily(trained.data, graph.edge_index), None, unknown=NO_PAIRS)
    verdict.warn()
    before, after = graph_facts(trained.data), graph_facts(graph)
    if after.edges == 0:
        note("validation chose no graph, so that no message crosses an edge; graphglow refine "
             "--target writes the refined graph itself")  # fmt: skip
    facts = {
        **trained.summary(),
        "verdict": verdict.sentence,
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
