"""``graphglow predict``: classes of all nodes of a graph, or of new ones by a saved prediction."""

import time
from functools import partial
from typing import Literal

from graphglow.commands import flags
from graphglow.commands.output import TENSOR_SUFFIXES, check_output, print_facts, write_each
from graphglow.commands.progress import spinner
from graphglow.errors import InputError

SHOWN = 3
"""Channels that are printed, the best first."""


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
    seed: int = 0,
    device: flags.Device = "auto",
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
        seed: Seeds the random projections, and --learner untrained.
    """
    if (target is None) == (saved is None):
        raise InputError("predict needs either --target or --saved")
    if saved is None and (nodes or edges):
        raise InputError("--nodes and --edges are of new nodes: they go with --saved")
    if saved is not None:
        split = {"split_file": reading.split_file, "split_seed": reading.split_seed, "save": save}
        given = {"learner": learner, "labels": labels, "coverage": coverage, "seed": seed}
        flags.refuse_beside("--saved", predict, **given, **split, **vars(working))
        if nodes is None or out is None:
            raise InputError("--saved needs --nodes, the new nodes, and --out")

    from graphglow.device import resolve_device
    from graphglow.graph.write import prediction_file, write_table
    from graphglow.predict import Prediction
    from graphglow.predict import predict as predict_graph

    new = partial(
        check_output,
        overwrite=overwrite,
        inputs=(learner, target, reading.split_file, saved, nodes, edges),
    )
    out = out and new(prediction_file(out))
    save = save and new(save, suffixes=TENSOR_SUFFIXES)
    if saved is not None:
        assert out is not None
        with spinner("predicting"):
            prediction = Prediction.load(saved.expanduser(), str(resolve_device(device)))
            frame = prediction.predict_new_tables(nodes, edges, **reading.of_tables)
            write_table(frame, out, "a predictions file")
        counts = {str(name): int(count) for name, count in frame.predicted.value_counts().items()}
        facts = {"command": "predict", "target": str(prediction.data.name), "nodes": len(frame)}
        print_facts(
            "Predictions for new nodes", {**facts, "predicted": counts, "out": out}, json=json
        )
        return
    assert target is not None
    with spinner("loading the graph"):
        data, _ = reading.read(target, need_labels=False, draw=False)
    began = time.perf_counter()
    with spinner("predicting"):
        prediction = predict_graph(
            data, learner, labels=labels, coverage=coverage, seed=seed, device=device,
            **vars(working),
        )  # fmt: skip
    seconds = time.perf_counter() - began
    write_each((out, prediction.write), (save, prediction.save))
    mask, count = prediction.data.get("test_mask"), len(prediction.labelled)
    judged = mask is not None and bool((mask.cpu() & (prediction.data.y >= 0)).any())
    test = prediction.score("test") if judged else None
    best = prediction.channels.head(SHOWN)
    facts = {
        "command": "predict",
        "target": str(data.get("name") or target),
        "method": "predict",
        "leave_one_out_accuracy": prediction.accuracy.value,
        "low": prediction.accuracy.low,
        "high": prediction.accuracy.high,
        "test_accuracy": test and test.accuracy,
        "auroc": test and test.auroc,
        "average_precision": test and test.average_precision,
        "majority": test and test.majority,
        "nodes": count,
        "labels": int(prediction.labelled.sum()),
        "classes": len(prediction.data.y[prediction.labelled].unique()),
        "coverage": coverage,
        "set_size": None if prediction.sets is None else float(prediction.sets.sum()) / count,
        "best_channels": dict(zip(best.channel, best.accuracy, strict=True)),
        "seconds": seconds,
        "out": out,
        "saved": save,
        "learner": learner,
        "device": resolve_device(device).type,
        "seed": seed,
    }
    if not json:
        facts |= {"leave_one_out_accuracy": str(prediction.accuracy), "low": None, "high": None}
        facts["best_channels"] = [
            f"{name} {share:.1%}" for name, share in zip(best.about, best.accuracy, strict=True)
        ]
        facts["set_size"] = facts["set_size"] and f"{facts['set_size']:.2f} classes on average"
    print_facts("Prediction, nothing trained", facts, json=json)
