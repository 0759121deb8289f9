"""``graphglow transfer``."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from graphglow import training
from graphglow.commands.across_ranks import transfer_across_ranks, under_torchrun
from graphglow.commands.files import TENSOR_SUFFIXES, check_output, learner_file, read_learner
from graphglow.commands.flags import (
    EmbeddingSize,
    GraphName,
    Json,
    LearnerName,
    Log,
    OptionalFile,
    Overwrite,
)
from graphglow.commands.graph_flags import GraphFlags
from graphglow.commands.resuming import CheckpointSeconds, Resume, checkpointed, may_replace
from graphglow.commands.terminal import epochs_shown, percent, print_json, show_facts, waiting
from graphglow.experiments.wording import by_degree
from graphglow.graphs.write import prediction_file
from graphglow.training import TransferConfig, TransferResult
from graphglow.training.checkpoint import Checkpoints
from graphglow.training.distributed import is_shard_folder, world_size

PredictionsPlace = Annotated[
    Path | None, arg(metavar="FILE|FOLDER", help_behavior_hint="(optional)")
]


def transfer(  # noqa: D417 (the flags and the config say the rest)
    learner: LearnerName,
    target: GraphName,
    reading: Annotated[GraphFlags, arg(name="")],
    config: Annotated[TransferConfig, arg(name="")],
    embedding_size: EmbeddingSize = None,
    out: OptionalFile = None,
    predictions: PredictionsPlace = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    checkpoint_seconds: CheckpointSeconds = 10.0,
    log: Log = None,
    json: Json = False,
) -> None:
    """Train a GNN on a new graph under a frozen structure learner (Algorithm 3).

    With --out, a run that is stopped or killed at any moment goes on with --resume, and ends as it
    would have; on several processes, with --predictions FOLDER.

    Example: graphglow transfer --learner universal --target breast_cancer --json

    Args:
        learner: The structure learner: citation, social, universal or sharp (for graphs whose edges
            are mostly wrong), which come with the package; a file from graphglow pretrain
            (./universal, if that is its name); or random, one that was never trained, as a control.
            graphglow fit has the other controls.
        target: The target graph: a name (see graphglow datasets) or a file.
        out: Where to write the trained result, as safetensors, for graphglow refine, explain and
            predict --result.
        predictions: Where to write every node's id, predicted class, probabilities, known class
            and split (.csv or .parquet). On several processes, or from a folder of shards: a
            FOLDER that gets the nodes and probabilities of each process as arrays, and beside
            which its checkpoints lie.
    """
    alone = world_size() == 1 and not is_shard_folder(target)
    folder = predictions is not None and not predictions.suffix
    if not alone or (folder and under_torchrun()):
        spread = transfer_across_ranks(
            learner,
            target,
            reading,
            config,
            embedding_size=embedding_size,
            out=out,
            predictions=predictions,
            overwrite=overwrite,
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            log=log,
        )
        if spread is not None:  # rank 0 speaks
            print_json(spread) if json else show_facts("Transfer", readable(spread))
        return
    inputs = (learner_file(learner), target, reading.split_file)
    replace = may_replace(out, resume=resume, overwrite=overwrite)
    if out is not None:
        out = check_output(out, overwrite=replace, suffixes=TENSOR_SUFFIXES, inputs=inputs)
    if predictions is not None:
        predictions = prediction_file(predictions)
        predictions = check_output(predictions, overwrite=replace, inputs=inputs)
    with checkpointed(out, resume=resume, seconds=checkpoint_seconds) as checkpoints:
        result, split = run_transfer(
            learner,
            target,
            reading,
            config,
            embedding_size=embedding_size,
            log=log,
            checkpoints=checkpoints,
        )
        if out is not None:
            result.save(out)
        if predictions is not None:
            result.write_predictions(predictions)
    facts = {**result.summary(), "learner": learner, "split": split, "out": out}
    facts["predictions"] = predictions
    facts["target_was_source"] = was_source(result)
    facts["resumed"] = checkpoints is not None and checkpoints.resumed
    if json:
        print_json(facts)
    else:
        show_facts("Transfer", readable(facts))


def run_transfer(
    learner: str,
    target: str,
    reading: GraphFlags,
    config: TransferConfig,
    *,
    embedding_size: int | None,
    log: str | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[TransferResult, str]:
    """Load what the flags name and train, with a progress bar; also say which split was used."""
    theta = read_learner(learner, embedding_size, config.seed)
    with waiting(f"loading {target}"):
        data, split = reading.read(target)
    with epochs_shown("training", config, log) as watch:
        result = training.transfer(
            theta, data, config, on_epoch=watch.on_epoch, checkpoints=checkpoints
        )
        watch.ended(result.summary())
    return result, split


def was_source(result: TransferResult) -> bool:
    """Whether the learner was pre-trained on a graph of the target's name: then it has seen it."""
    sources = result.learner.provenance.get("sources")
    return isinstance(sources, list) and result.graph.name in sources


def readable(facts: dict[str, Any]) -> dict[str, str]:
    """The facts of a run as people read them."""
    method, backbone = facts["method"], facts["backbone"]
    shown = {
        "target": facts["target"],
        "method": method if backbone in (None, method) else f"{method} ({backbone} backbone)",
        **_delta(facts),
        **_lambda(facts),
        "split": facts["split"],
        "test accuracy": percent(facts["test_accuracy"]),
        "validation accuracy": percent(facts["val_accuracy"]),
        "epochs": str(facts["epochs"]),
        "seconds": f"{facts['train_seconds']:.1f} training, {facts['total_seconds']:.1f} in all",
        "peak memory": f"{facts['peak_memory_bytes'] / 2**20:.0f} MiB on {facts['device']}",
    }
    if facts.get("message_backend") is not None:
        shown["learned graph by"] = f"{facts['message_backend']} backend"
    if facts.get("target_was_source"):
        shown["mind"] = "the learner was pre-trained on a graph of this name"
    if facts.get("out") is not None:
        shown["written to"] = str(facts["out"])
    if facts.get("predictions") is not None:
        shown["predictions in"] = str(facts["predictions"])
    return shown


def _lambda(facts: dict[str, Any]) -> dict[str, str]:
    """How much the input graph weighs, where it goes by degree."""
    c = facts.get("latent_degree")
    return {} if c is None else {"input weight": by_degree(c)}


def _delta(facts: dict[str, Any]) -> dict[str, str]:
    """What is made of similarities, where it is not the usual."""
    if facts.get("delta") is None:
        return {}
    kappa = f", kappa {facts['kappa']:.3g}" if facts.get("kappa") is not None else ""
    return {"delta": f"{facts['delta']}{kappa}"}
