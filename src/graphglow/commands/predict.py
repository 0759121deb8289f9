"""``graphglow predict``: classes of all nodes of a graph, or of new ones under a saved transfer."""

import time
from typing import Literal

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_facts
from graphglow.commands.progress import spinner
from graphglow.errors import InputError

SHOWN = 3
"""Channels that are printed, the best first."""


def predict(
    reading: flags.Reading,
    working: flags.Working,
    target: flags.OptionalGraph = None,
    out: flags.OptionalFile = None,
    labels: Literal["train", "train+val"] = "train",
    coverage: flags.OptionalFloat = None,
    learner: flags.LearnerName = "universal",
    result: flags.OptionalFile = None,
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
    known labels of one that has none. With --result and --nodes, the classes of nodes added after
    a transfer; graphglow explain --result FILE --nodes FILE --node ID says why.

    Example: graphglow predict --target wine --out predictions.csv

    Args:
        out: Where to write ids, predicted classes and probabilities (.csv or .parquet).
        labels: Which labels are given: train, or train+val, those of validation nodes too.
        coverage: Also write a set of classes for each node that holds the true one with this
            probability, such as 0.9.
        result: A saved transfer, from graphglow transfer --out, instead of --target; with --nodes.
        nodes: The new nodes (.csv or .parquet): ids that are new, and the columns of the nodes
            table that the graph was loaded from. A label and a split are passed over. What was
            said by --columns at the transfer holds here too.
        edges: Their edges (.csv or .parquet): source and target, ids of old or new nodes, each
            with a new end, and optionally weight. Without it the nodes have no edges, or, where
            the graph was made of nearest neighbours, those to their nearest nodes.
        seed: Seeds the random projections, and --learner untrained.
    """
    if (target is None) == (result is None):
        raise InputError("predict needs either --target or --result")
    if result is None and (nodes or edges):
        raise InputError("--nodes and --edges are of new nodes: they go with --result")
    if result is not None:
        split = {"split_file": reading.split_file, "split_seed": reading.split_seed}
        given = {"learner": learner, "labels": labels, "coverage": coverage, "seed": seed}
        flags.refuse_beside("--result", predict, **given, **split, **vars(working))
        if nodes is None or out is None:
            raise InputError("--result needs --nodes, the new nodes, and --out")

    from graphglow.device import resolve_device
    from graphglow.graph.write import prediction_file
    from graphglow.predict import predict as predict_graph
    from graphglow.result import TransferResult

    if out is not None:
        inputs = (learner, target, reading.split_file, result, nodes, edges)
        out = check_output(prediction_file(out), overwrite=overwrite, inputs=inputs)
    if result is not None:
        assert nodes is not None
        assert out is not None
        trained = TransferResult.load(result.expanduser())
        with spinner("predicting"):
            predicted = trained.predict_new_tables(nodes, edges, **reading.of_tables)
            predicted.write(out)
        counts = predicted.to_frame()["predicted"].value_counts()
        facts = {"command": "predict", "target": trained.graph.name, "nodes": int(counts.sum())}
        facts["predicted"] = {str(name): int(count) for name, count in counts.items()}
        print_facts("Predictions for new nodes", {**facts, "out": out}, json=json)
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
    if out is not None:
        prediction.write(out)
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
