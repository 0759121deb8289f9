"""``graphglow pretrain``."""

import time
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from graphglow import training
from graphglow.commands.across_ranks import pretrain_across_ranks
from graphglow.commands.files import TENSOR_SUFFIXES, check_output
from graphglow.commands.flags import Json, Log, OutFile, Overwrite
from graphglow.commands.graph_flags import ManyGraphFlags
from graphglow.commands.resuming import CheckpointSeconds, Resume, checkpointed, may_replace
from graphglow.commands.terminal import (
    epochs_shown,
    percent,
    print_json,
    say,
    show_facts,
    waiting,
)
from graphglow.structure import StructureLearner
from graphglow.training import PretrainConfig
from graphglow.training.device import peak_memory_bytes, resolve_device
from graphglow.training.distributed import world_size


def pretrain(  # noqa: D417 (the flags and the config say the rest)
    sources: Annotated[tuple[str, ...], arg(metavar="NAME|FILE ...")],
    out: OutFile,
    reading: Annotated[ManyGraphFlags, arg(name="")],
    config: Annotated[PretrainConfig, arg(name="")],
    overwrite: Overwrite = False,
    resume: Resume = False,
    checkpoint_seconds: CheckpointSeconds = 10.0,
    log: Log = None,
    json: Json = False,
) -> None:
    """Train the shared structure learner on the source graphs (Algorithm 2).

    A run that is stopped or killed at any moment goes on with --resume, and ends as it would have,
    in one process or, with --schedule together, in several.

    Example: graphglow pretrain --sources digits synthetic --out learner.safetensors

    Args:
        sources: The source graphs: names (see graphglow datasets) or files.
        out: Where to write the learner, as safetensors.
    """
    if world_size() > 1 or config.schedule == "together":
        spread = pretrain_across_ranks(
            sources,
            out,
            reading,
            config,
            overwrite=overwrite,
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            log=log,
        )
        if spread is not None:  # rank 0 speaks
            _show(spread[0], out.expanduser(), spread[1], json)
        return
    began = time.perf_counter()
    replace = may_replace(out, resume=resume, overwrite=overwrite)
    out = check_output(out, overwrite=replace, suffixes=TENSOR_SUFFIXES, inputs=sources)
    device = resolve_device(config.device)
    with checkpointed(out, resume=resume, seconds=checkpoint_seconds) as checkpoints:
        assert checkpoints is not None  # there is an output
        with waiting("loading graphs"):
            graphs = [reading.read(name) for name in sources]
        visits = config.episodes * len(graphs)
        with epochs_shown("pre-training", config, log, visits=visits) as watch:
            train_began = time.perf_counter()
            learner = training.pretrain(
                [data for data, _ in graphs],
                config,
                on_epoch=watch.on_epoch,
                checkpoints=checkpoints,
            )
            train_seconds = time.perf_counter() - train_began + checkpoints.seconds_before
        learner.provenance["splits"] = [split for _, split in graphs]
        learner.save(out)
    measured = {
        "train_seconds": train_seconds,
        "total_seconds": time.perf_counter() - began + checkpoints.seconds_before,
        "resumed": checkpoints.resumed,
        "peak_memory_bytes": peak_memory_bytes(device),
        "device": device.type,
    }
    _show(learner, out, measured, json)


def _show(learner: StructureLearner, out: Path, measured: dict[str, Any], json: bool) -> None:
    """Print what was trained, on what, and what it took."""
    made = learner.provenance
    facts: dict[str, Any] = {
        "command": "pretrain",
        "sources": made["sources"],
        "splits": made["splits"],
        "out": out,
        "val_accuracy": made["validation_accuracy"],
        "visit_scores": made["visit_scores"],
        **measured,
        "seed": made["config"]["seed"],
    }
    if json:
        print_json(facts)
        return
    show_facts(
        "Pre-trained structure learner",
        {
            "sources": ", ".join(facts["sources"]),
            "split": ", ".join(dict.fromkeys(facts["splits"])),
            "validation accuracy, mean": percent(facts["val_accuracy"]),
            "seconds": f"{facts['train_seconds']:.1f} on {facts['device']}",
            "learner": out,
        },
    )
    unseen = next(n for n in ("wine", "breast_cancer", "NAME|FILE") if n not in facts["sources"])
    say(f"next: graphglow transfer --learner {out} --target {unseen}")
