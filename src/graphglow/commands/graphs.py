"""The commands that read a graph and train nothing: predict, refine, audit and explain."""

import time
import warnings
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from tyro.conf import arg

from graphglow.commands import flags
from graphglow.commands.output import (
    TENSOR_SUFFIXES,
    Outputs,
    print_facts,
    print_json,
    print_text,
    spinner,
)
from graphglow.errors import InputError, InputWarning

NodeId = Annotated[str | None, arg(metavar="ID", help_behavior_hint="(or --pair)")]
TwoIds = Annotated[tuple[str, str] | None, arg(metavar="ID ID", help_behavior_hint="(or --node)")]
TopK = Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: as the graph has)")]
SHOWN = 3
"""Channels of a prediction that are printed, the best first."""


def predict(
    reading: flags.Reading,
    working: flags.Working,
    target: flags.GraphOrSaved = None,
    out: flags.OptionalFile = None,
    labels: Literal["train", "train+val", "all"] = "train",
    coverage: flags.OptionalFloat = None,
    learner: flags.LearnerName = "universal",
    save: flags.OptionalFile = None,
    saved: flags.OptionalFile = None,
    nodes: flags.OptionalFile = None,
    edges: flags.OptionalFile = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Predict the class of every node, or of new nodes, with nothing trained.

    Every given label is used, and none is spent on validation: how good the predictions are is
    estimated by leave-one-out. Given are the training labels of a graph that has a split, and all
    known labels of one that has none. With --saved and --nodes, the classes of nodes that came
    after a prediction; nothing of the old nodes changes.

    Example: graphglow predict --target wine --out predictions.csv

    Args:
        out: Where to write ids, predicted classes and probabilities (.csv or .parquet).
        labels: Which labels are given: train; train+val, those of validation nodes too; or all.
        coverage: Also write a set of classes for each node that holds the true one with this
            probability, such as 0.9.
        save: Where to write the prediction (.safetensors), for new nodes to come.
        saved: A file of --save, instead of --target; with --nodes.
        nodes: The new nodes (.csv or .parquet): ids that are new, and the columns of the nodes
            table that the graph was loaded from. A label and a split are ignored. --columns of the
            prediction hold here too.
        edges: Their edges (.csv or .parquet): source and target, ids of old or new nodes, each
            with a new end, and optionally weight. Without it the nodes have no edges, or, where
            the graph was made of nearest neighbours, those to their nearest nodes.
    """
    if (target is None) == (saved is None):
        raise InputError("predict needs either --target or --saved")
    if saved is None and (nodes or edges):
        raise InputError("--nodes and --edges are of new nodes: they go with --saved")
    if saved is not None:
        split = {"split_file": reading.split_file, "split_seed": reading.split_seed, "save": save}
        given = {"learner": learner, "labels": labels, "coverage": coverage}
        given |= vars(replace(working, device="auto"))  # which counts here too
        flags.refuse_beside("--saved", predict, **given, **split)
        if nodes is None or out is None:
            raise InputError("--saved needs --nodes, the new nodes, and --out")

    from graphglow.device import resolve_device
    from graphglow.graph.write import TABLES, write_table
    from graphglow.predict import Prediction
    from graphglow.predict import predict as predict_graph

    inputs = (learner, target, reading.split_file, saved, nodes, edges)
    files = Outputs(overwrite, inputs, out=(out, TABLES), saved=(save, TENSOR_SUFFIXES))
    if saved is not None:
        with spinner("predicting"):
            prediction = Prediction.load(saved.expanduser(), str(resolve_device(working.device)))
            frame = prediction.predict_new_tables(
                nodes, edges, columns=flags.read_columns(reading.columns),
                skip_unknown_edges=reading.skip_unknown_edges,
            )  # fmt: skip
            files.write(out=lambda path: write_table(frame, path, "a predictions file"))
        counts = {str(name): int(count) for name, count in frame.predicted.value_counts().items()}
        facts = {"command": "predict", "target": str(prediction.data.name), "nodes": len(frame)}
        facts |= {"predicted": counts, "out": files.paths["out"]}
        return print_facts("Predictions for new nodes", facts, json=json)
    assert target is not None
    with spinner("loading the graph"):
        data, _ = reading.read(target, need_labels=False, draw=False)
    began = time.perf_counter()
    with spinner("predicting"):
        prediction = predict_graph(data, learner, labels=labels, coverage=coverage, **vars(working))
    seconds = time.perf_counter() - began
    files.write(out=prediction.write, saved=prediction.save)
    found, count = prediction.scores, len(prediction.labelled)
    test = found if prediction.tests else None
    shown = found if found is not None and found.skewed else test
    best = prediction.channels.head(SHOWN)
    facts = {
        "command": "predict",
        "target": str(data.get("name") or target),
        "method": "predict",
        "leave_one_out_accuracy": prediction.accuracy.value,
        "low": prediction.accuracy.low,
        "high": prediction.accuracy.high,
        "test_accuracy": test and test.accuracy,
        "auroc": shown and shown.auroc,
        "average_precision": shown and shown.average_precision,
        "majority": shown and shown.majority,
        "nodes": count,
        "labels": int(prediction.labelled.sum()),
        "classes": len(prediction.data.y[prediction.labelled].unique()),
        "coverage": coverage,
        "set_size": None if prediction.sets is None else float(prediction.sets.sum()) / count,
        "best_channels": dict(zip(best.channel, best.accuracy, strict=True)),
        "seconds": seconds,
        **files.paths,
        "learner": learner,
        "device": resolve_device(working.device).type,
        "seed": working.seed,
    }
    if not json:
        facts |= {"leave_one_out_accuracy": str(prediction.accuracy), "low": None, "high": None}
        facts["best_channels"] = [
            f"{name} {share:.1%}" for name, share in zip(best.about, best.accuracy, strict=True)
        ]
        facts["set_size"] = facts["set_size"] and f"{facts['set_size']:.2f} classes on average"
    print_facts("Prediction, nothing trained", facts, json=json)


def refine(
    target: flags.GraphName,
    out: flags.File,
    reading: flags.Reading,
    working: flags.Working,
    learner: flags.LearnerName = "universal",
    predictions: flags.OptionalFile = None,
    min_probability: float = 0.0,
    edges: Literal["auto", "keep", "augment", "prune", "replace"] = "auto",
    top_k: TopK = None,
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
    """
    from graphglow.graph import write_graph
    from graphglow.graph.write import TABLES, WRITERS
    from graphglow.refine import WORDS, input_edges
    from graphglow.refine import refine as refine_graph

    inputs = (learner, target, reading.split_file)
    files = Outputs(overwrite, inputs, out=(out, tuple(WRITERS)), predictions=(predictions, TABLES))
    with spinner("loading the graph"):
        data, split = reading.read(target, need_labels=False, draw=False)
    began = time.perf_counter()
    with spinner("refining"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "worse|cannot tell|.*are left out", InputWarning)
        refined = refine_graph(  # whose verdict is printed below
            data, learner, top_k=top_k, min_probability=min_probability, edges=edges,
            **vars(working),
        )  # fmt: skip
    seconds = time.perf_counter() - began
    files.write(out=partial(write_graph, refined), predictions=refined.write_predictions)
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
        **files.paths,
        "seed": working.seed,
    }
    print_facts("Refined graph", facts, json=json)


def audit(
    target: flags.GraphName,
    reading: flags.Reading,
    working: flags.Working,
    auditor: flags.AuditorName = "audit",
    suspects: flags.OptionalFile = None,
    missing: flags.OptionalFile = None,
    duplicates: flags.OptionalFile = None,
    out: flags.OptionalFile = None,
    top: flags.OptionalInt = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Say which edges of a graph look wrong and which are missing, with nothing trained.

    Labels are not needed; those of training nodes are evidence too. Edges count as undirected.

    Example: graphglow audit --target people.csv+relations.csv --suspects s.csv --out audit.html

    Args:
        suspects: Where to write every edge once, the most doubtful first (.csv or .parquet):
            source, target, probability_real, probability_same_class, against.
        missing: Where to write the pairs without an edge that look most like edges (.csv or
            .parquet).
        duplicates: Where to write pairs of nodes that may be one thing under two names (.csv or
            .parquet).
        out: Where to write a page with pictures (.html) that opens offline.
        top: How many missing pairs to write; by default as many as there are edges.
    """
    from graphglow.audit import audit as audit_graph
    from graphglow.graph.write import TABLES, write_table
    from graphglow.report import PAGES
    from graphglow.report.explanations import write_audit

    files = Outputs(
        overwrite, (target, auditor, reading.split_file), suspects=(suspects, TABLES),
        missing=(missing, TABLES), duplicates=(duplicates, TABLES), out=(out, PAGES),
    )  # fmt: skip
    with spinner("loading the graph"):
        data, split = reading.read(target, need_labels=False, draw=False)
    began = time.perf_counter()
    with spinner("auditing"):
        found = audit_graph(data, auditor, top=top, **vars(working))
    seconds = time.perf_counter() - began
    files.write(
        suspects=lambda path: write_table(found.suspects, path, "a table of suspects"),
        missing=lambda path: write_table(found.missing, path, "a table of pairs"),
        duplicates=lambda path: write_table(found.duplicates, path, "a table of pairs"),
        out=partial(write_audit, found),
    )
    facts = {
        "command": "audit",
        "target": data.name,
        "split": split,
        "nodes": data.num_nodes,
        "edges": found.edges.shape[1],
        "false_share": found.false_share.estimate if found.false_share.is_known else None,
        "false_share_low": found.false_share.low,
        "false_share_high": found.false_share.high,
        "doubtful_edges": int((found.probability_real < 0.5).sum()),
        "likely_missing": int((found.findings.pair_log_odds > 0).sum()),
        "seconds": seconds,
        **files.paths,
        "seed": working.seed,
    }
    print_facts("Audit", facts, json=json)
    if not json:
        print_text(found.verdict)


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

    inputs, suffixes = (target, learner, reading.split_file), (*PAGES, ".csv", ".parquet")
    files = Outputs(overwrite, inputs, out=(out, suffixes))
    with spinner("explaining"):
        data, _ = reading.read(target, need_labels=False, draw=False)
        if pair is not None:
            why = explain_pair(data, pair[0], pair[1], learner, seed=seed, device=device)
        else:
            why = predict(data, learner, seed=seed, device=device).explain(node, label)
    files.write(out=why.write)
    if json:
        return print_json({"command": "explain", **why.to_dict(), **files.paths})
    print_text(why.text() + ("" if out is None else f"\nwritten to: {out.expanduser().absolute()}"))
