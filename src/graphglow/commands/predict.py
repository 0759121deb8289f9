"""``graphglow predict``: classes of all nodes of a graph, or of new ones under a saved result."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from graphglow import predict as of_package
from graphglow.commands import flags
from graphglow.commands.files import check_output
from graphglow.commands.terminal import percent, print_json, say, show_rows, tell, waiting
from graphglow.device import resolve_device
from graphglow.errors import InputError
from graphglow.graph.write import prediction_file
from graphglow.predict import Prediction, Scores
from graphglow.pretrained import UNIVERSAL, learner_file
from graphglow.settings import Device
from graphglow.training.result import TransferResult

BEST = 3  # channels that are shown


def predict(  # noqa: D417 (flags.py says the rest)
    reading: flags.Reading,
    target: Annotated[str | None, flags.said(flags.GRAPH, "NAME|FILE", "(or --result)")] = None,
    out: flags.OptionalFile = None,
    labels: Literal["train", "train+val"] = "train",
    coverage: Annotated[float | None, flags.said(None, "SHARE", "(optional)")] = None,
    learner: flags.LearnerFlag = UNIVERSAL,
    result: flags.OptionalFile = None,
    nodes: flags.OptionalFile = None,
    edges: flags.OptionalFile = None,
    seed: int = 0,
    device: Device = "auto",
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
        device: Where to compute: auto takes the GPU if there is one.
    """
    if (target is None) == (result is None):
        got = "both" if target else "none"
        raise InputError(
            f"predict needs either --target or --result; got {got}; see graphglow predict --help"
        )
    if out is not None:
        inputs = (learner_file(learner), target, reading.split_file, result, nodes, edges)
        out = check_output(prediction_file(out), overwrite=overwrite, inputs=inputs)
    if result is not None:
        plain = vars(flags.GraphFlags()) | {"learner": UNIVERSAL, "labels": "train", "seed": 0}
        for name in ("columns", "skip_unknown_edges", "data_root"):
            plain[name] = getattr(reading, name)
        given = {"learner": learner, "labels": labels, "coverage": coverage, "seed": seed}
        if named := flags.differing(given | vars(reading), plain):
            raise InputError(f"--result has its own settings and must come without {named}")
        if nodes is None or out is None:
            raise InputError("--result needs --nodes, the new nodes, and --out; got one alone")
        _predict_new(result, nodes, edges, out, reading, json=json)
        return
    if nodes is not None or edges is not None:
        raise InputError("--nodes and --edges are of new nodes and go with --result, not --target")
    assert target is not None
    with waiting("loading the graph"):
        data, _ = reading.read(target, need_labels=False, draw=False)
    began = time.perf_counter()
    with waiting("predicting"):
        found = of_package(
            data, learner, labels=labels, coverage=coverage, seed=seed, device=device
        )
    seconds = time.perf_counter() - began
    if out is not None:
        found.write(out)
    facts = _facts(found, seconds, str(data.get("name") or target), out)
    facts |= {"learner": learner, "device": resolve_device(device).type, "seed": seed}
    if json:
        print_json(facts)
    else:
        _report(found, facts)


def _facts(found: Prediction, seconds: float, target: str, out: Path | None) -> dict[str, Any]:
    accuracy, test, nodes = found.accuracy, _test(found), len(found.labelled)
    best = found.channels.head(BEST)
    return {
        "command": "predict",
        "target": target,
        "method": "predict",
        "leave_one_out_accuracy": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "test_accuracy": test and test.accuracy,
        "auroc": test and test.auroc,
        "average_precision": test and test.average_precision,
        "majority": test and test.majority,
        "nodes": nodes,
        "labels": int(found.labelled.sum()),
        "classes": len(found.data.y[found.labelled].unique()),
        "coverage": found.coverage,
        "set_size": None if found.sets is None else float(found.sets.sum()) / nodes,
        "best_channels": dict(zip(best.channel, best.accuracy, strict=True)),
        "seconds": seconds,
        "out": out,
    }


def _test(found: Prediction) -> Scores | None:
    mask = found.data.get("test_mask")
    if mask is None or not bool((mask.cpu() & (found.data.y >= 0)).any()):
        return None
    return found.score("test")


def _report(found: Prediction, facts: dict[str, Any]) -> None:
    """Print what a person wants to know."""
    what = f"{facts['nodes']:,} nodes, {facts['labels']:,} labels, {facts['classes']} classes"
    rows = [("target", facts["target"]), ("", what), ("accuracy", str(found.accuracy))]
    test = _test(found)
    if test is not None:
        more = f"{percent(test.accuracy)} of {test.nodes:,} nodes"
        rows.append(("test accuracy", f"{more}; the majority class is {percent(test.majority)}"))
    if test is not None and facts["classes"] == 2:
        numbers = (test.auroc, test.average_precision)
        words = ["-" if value is None else f"{value:.3f}" for value in numbers]
        rows.append(("AUROC, average precision", ", ".join(words)))
    if found.coverage is not None:
        rows.append(("sets of classes", f"{facts['set_size']:.2f} classes on average for "
                     f"{found.coverage:.0%} coverage"))  # fmt: skip
    best = found.channels.head(BEST)
    lines = [f"{a} {percent(v)}" for a, v in zip(best.about, best.accuracy, strict=True)]
    rows += [("best channels" if i == 0 else "", line) for i, line in enumerate(lines)]
    rows.append(("seconds", f"{facts['seconds']:.1f}"))
    show_rows(("", ""), rows, "Prediction, nothing trained")
    if facts["out"] is not None:
        say(f"written to: {facts['out'].absolute()}")


def _predict_new(
    result: Path,
    nodes: Path,
    edges: Path | None,
    out: Path,
    reading: flags.GraphFlags,
    *,
    json: bool,
) -> None:
    """Predict nodes added after a transfer that was saved."""
    trained = TransferResult.load(result.expanduser())
    with waiting("predicting"):
        found = trained.predict_new_tables(
            nodes,
            edges,
            columns=flags.read_columns(reading.columns),
            skip_unknown_edges=reading.skip_unknown_edges,
        )
        found.write(out)
    frame, target = found.to_frame(), trained.graph.name
    counts = {str(name): int(count) for name, count in frame["predicted"].value_counts().items()}
    facts = {"command": "predict", "target": target, "nodes": len(frame), "predicted": counts}
    tell("Predictions for new nodes", {**facts, "out": out}, json=json)
