"""``graphglow pretrain`` and ``transfer``: the two algorithms."""

import time
from functools import partial
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff

import graphglow
from graphglow.checkpoint import Checkpoint
from graphglow.commands import files, flags
from graphglow.commands.files import TENSOR_SUFFIXES, check_output
from graphglow.commands.options import answer, asked
from graphglow.commands.terminal import epoch_bar, job_bar, say, tell, waiting
from graphglow.device import peak_memory_bytes, resolve_device
from graphglow.errors import InputError
from graphglow.evidence.pretraining import EvidencePretrainConfig
from graphglow.graph.write import prediction_file
from graphglow.pretrained import (
    UNIVERSAL,
    Learner,
    check_learner,
    is_paper,
    learner_file,
    load_learner,
)
from graphglow.settings import PaperConfig, PretrainConfig, TransferConfig
from graphglow.training.evidence import INPUT_WEIGHTS
from graphglow.training.result import TransferResult


def choose(name: str, arguments: list[str]) -> flags.Command:
    """The command with the flags that it has here, by the kind of learner that is asked for."""
    if name == "transfer":
        paper = asks_for_paper(name, arguments)
        return transfer_for(PaperConfig if paper else TransferConfig)
    return pretrain_paper if asked("--kind", arguments) == "paper" else pretrain


def asks_for_paper(name: str, arguments: list[str]) -> bool:
    """Whether ``--learner`` is of the paper's kind, by its file, so that other flags count."""
    learner = asked("--learner", arguments)
    if learner is None:
        return False
    check_learner(learner)  # a mistyped name is said, and not its flags
    paper = is_paper(learner)
    answer(f"{name} --learner paper" if paper else name, arguments)
    return paper


Sources = Annotated[tuple[str, ...], flags.said(None, "NAME|FILE ...")]
Kind = Annotated[
    Literal["evidence", "paper"],
    flags.said("What to train: an evidence learner, or one of the paper's kind (own flags)."),
]


def pretrain(  # noqa: D417 (the flags and the config say the rest)
    sources: Sources,
    out: flags.File,
    reading: flags.ReadingMany,
    config: Annotated[EvidencePretrainConfig, flags.by_heading(EvidencePretrainConfig)],
    kind: Kind = "evidence",
    workers: Annotated[int | None, flags.said(None, "INT", "(default: this process)")] = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Train a learner of your own on source graphs and random ones.

    All labels of the sources are used, whatever their splits. graphglow pretrain --kind paper
    --help shows the flags of the paper's Algorithm 2.

    Example: graphglow pretrain --sources digits wine --out learner.safetensors

    Args:
        sources: The source graphs: names (see graphglow datasets) or files.
        out: Where to write the learner, as safetensors.
        workers: Processes that draw the episodes, on CPU cores; on a CPU the learner is the same.
    """
    began = time.perf_counter()
    out = check_output(out, overwrite=overwrite, suffixes=TENSOR_SUFFIXES, inputs=sources)
    with waiting("loading graphs"):
        graphs = reading.read_all(sources)
    with job_bar() as move:
        learner = graphglow.pretrain(
            graphs,
            config,
            on_progress=lambda stage, done, total: move(stage, done, total),
            workers=workers,
        )
    learner.save(out)
    device = resolve_device(config.device)
    facts = {
        "command": "pretrain",
        "kind": kind,
        "sources": learner.provenance["sources"],
        "out": out,
        "train_seconds": learner.provenance["seconds"],
        "episode_seconds": learner.provenance["seconds_for_episodes"],
        "total_seconds": time.perf_counter() - began,
        "peak_memory_bytes": peak_memory_bytes(device),
        "device": device.type,
        "seed": config.seed,
    }
    tell("Pre-trained learner", facts, json=json)
    if not json:
        say(f"next: graphglow transfer --learner {out} --target NAME|FILE")


def pretrain_paper(  # noqa: D417 (the flags and the config say the rest)
    sources: Sources,
    out: flags.File,
    reading: flags.ReadingMany,
    config: Annotated[PretrainConfig, flags.by_heading(PretrainConfig)],
    checkpoints: files.Checkpointing,
    kind: Kind = "paper",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Train the paper's structure learner on the source graphs (Algorithm 2).

    A run that is stopped or killed at any moment goes on with --resume, and ends as it would have.

    Example: graphglow pretrain --kind paper --sources digits synthetic --out learner.safetensors

    Args:
        sources: The source graphs: names (see graphglow datasets) or files.
        out: Where to write the learner, as safetensors.
    """
    began = time.perf_counter()
    out = check_output(out, overwrite=overwrite, suffixes=TENSOR_SUFFIXES, inputs=sources)
    kept = checkpoints.checkpoint(out)
    assert kept is not None
    with waiting("loading graphs"):
        graphs = reading.read_all(sources)
    train_began = time.perf_counter()
    with epoch_bar("pre-training", config.epochs, config.episodes * len(graphs)) as on_epoch:
        learner = graphglow.pretrain(graphs, config, on_epoch=on_epoch, checkpoint=kept)
    train_seconds = time.perf_counter() - train_began
    made = learner.provenance
    made["splits"] = [data.split for data in graphs]
    learner.save(out)
    kept.remove()
    device = resolve_device(config.device)
    facts: dict[str, Any] = {
        "command": "pretrain",
        "kind": kind,
        **{name: made[name] for name in ("sources", "splits", "visit_scores")},
        "out": out,
        "val_accuracy": made["validation_accuracy"],
        "train_seconds": train_seconds + kept.seconds_before,
        "total_seconds": time.perf_counter() - began + kept.seconds_before,
        "resumed": kept.resumed,
        "peak_memory_bytes": peak_memory_bytes(device),
        "device": device.type,
        "seed": config.seed,
    }
    tell("Pre-trained structure learner", facts, json=json)
    if not json:
        say(f"next: graphglow transfer --learner {out} --target NAME|FILE")


def transfer_for(kind: type[TransferConfig | PaperConfig]) -> flags.Command:
    """``transfer`` with the settings of ``kind`` as flags."""

    def transfer(  # noqa: D417 (the flags and the config say the rest)
        target: flags.GraphName,
        reading: flags.Reading,
        config: Annotated[TransferConfig | PaperConfig, flags.by_heading(kind)],
        checkpoints: files.Checkpointing,
        learner: flags.LearnerFlag = UNIVERSAL,
        out: flags.OptionalFile = None,
        predictions: flags.OptionalFile = None,
        controls: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
        overwrite: flags.Overwrite = False,
        json: flags.Json = False,
    ) -> None:
        """Train a small GNN on a new graph under a frozen learner.

        The graph is refined first, without training; then the GNN is trained over the input graph
        and the refined one, whose shares are chosen by validation. Under a learner of the paper's
        kind (--learner paper, which has flags of its own) this is Algorithm 3. With --out, a run
        that is stopped or killed at any moment goes on with --resume, and ends as it would have.

        Example: graphglow transfer --target breast_cancer --json

        Args:
            out: Where to write the trained result, as safetensors, for graphglow refine, explain
                and predict --result.
            predictions: Where to write every node's id, predicted class, probabilities, known
                class and split (.csv or .parquet).
            controls: Do not train an MLP and a GCN on the same split to compare with.
        """
        inputs = (learner_file(learner), target, reading.split_file)
        new = partial(check_output, overwrite=overwrite, inputs=inputs)
        out = out and new(out, suffixes=TENSOR_SUFFIXES)
        predictions = predictions and new(prediction_file(predictions))
        theta = load_learner(learner, seed=config.seed)
        kept = checkpoints.checkpoint(out)
        if kind is TransferConfig:
            if checkpoints.resume:
                raise InputError("--resume must go with a learner of the paper's kind")
            kept = None
        result, split = transferred(theta, target, reading, config, kept)
        files.write_each((out, result.save), (predictions, result.write_predictions))
        if kept is not None:
            kept.remove()
        more: dict[str, Any] = {"target_was_source": was_source(result)}
        if controls:
            with waiting("training controls"):
                more["controls"] = result.controls()
        more["metrics"] = result.metrics()
        facts = {**result.summary(), "learner": learner, "split": split, "out": out, **more}
        facts |= {"predictions": predictions, "resumed": kept is not None and kept.resumed}
        tell("Transfer", facts, json=json)

    return transfer


def transferred(
    theta: Learner,
    target: str,
    reading: flags.GraphFlags,
    config: TransferConfig | PaperConfig,
    kept: Checkpoint | None = None,
) -> tuple[TransferResult, str]:
    """Read the target and train in this process; also say which split was used."""
    with waiting(f"loading {target}"):
        data, split = reading.read(target)
    visits = 1 if config.input_weight is not None else len(INPUT_WEIGHTS)
    with epoch_bar("training", config.epochs, visits) as on_epoch:
        return graphglow.transfer(data, theta, config, on_epoch=on_epoch, checkpoint=kept), split


def was_source(result: TransferResult) -> bool:
    """Whether the learner was pre-trained on a graph of the target's name: then it has seen it."""
    return result.graph.name in (result.provenance.get("sources") or ())
