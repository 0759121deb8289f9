"""``graphglow pretrain`` and ``transfer`` under torchrun: every rank works, rank 0 speaks."""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from graphglow.commands.files import TENSOR_SUFFIXES, check_output, read_learner
from graphglow.commands.graph_flags import GraphFlags
from graphglow.commands.resuming import checkpoint_folder, checkpointed, may_replace
from graphglow.commands.terminal import Watch, epochs_shown
from graphglow.errors import InputError
from graphglow.structure import StructureLearner
from graphglow.training import PretrainConfig, TransferConfig
from graphglow.training.checkpoint import Checkpoints
from graphglow.training.config import RunConfig
from graphglow.training.device import peak_memory_bytes
from graphglow.training.distributed import (
    GraphArrays,
    HeardError,
    Ranks,
    Shard,
    is_shard_folder,
    join,
    pretrain_together,
    read_shard,
    shards_info,
    transfer_shard,
    write_shards,
)
from graphglow.training.distributed.agreement import agree, data_identity, together


def under_torchrun() -> bool:
    """Whether torchrun has started this process, be it the only one."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def transfer_across_ranks(
    learner: str,
    target: str,
    reading: GraphFlags,
    config: TransferConfig,
    *,
    embedding_size: int | None,
    predictions: Path | None,
    log: str | None,
    out: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
) -> dict[str, Any] | None:
    """Train on this rank's shard of the target; the facts of the run on rank 0, None on others.

    A target that is no folder of shards is loaded and cut by every rank, so it must fit in memory.

    Args:
        learner: As in ``graphglow transfer``.
        target: A folder that ``graphglow shard`` wrote, or a name or file.
        reading: Of a name or file; a folder of shards has its split and columns.
        config: Model and schedule.
        embedding_size: Of a random learner.
        out: Refused: there is no file of a result across ranks.
        predictions: A folder; each rank writes those of its nodes. Rank 0 keeps checkpoints
            beside it.
        overwrite: Whether predictions that are there may be replaced.
        resume: Go on from the checkpoints beside ``predictions``.
        checkpoint_seconds: Between two of them.
        log: As in ``graphglow transfer``; rank 0 logs.
    """
    with _joined(config.device) as ranks:
        with together(ranks):
            if out is not None:
                raise InputError(
                    "a transfer of shards, or on several processes, must write --predictions "
                    f"FOLDER only; got --out {out}"
                )
            theta = read_learner(learner, embedding_size, config.seed)
            if resume and predictions is None:
                raise InputError(
                    "--resume must go with --predictions FOLDER on several processes, beside "
                    "which checkpoints lie; got no --predictions"
                )
            if predictions is not None:
                predictions = _check_folder(predictions, ranks, resume=resume, overwrite=overwrite)
            if is_shard_folder(target):
                _check_shard_flags(reading)
        agree(ranks, {"job": "transfer", "--predictions": predictions is not None})
        with _saved(predictions, ranks, resume=resume, seconds=checkpoint_seconds) as checkpoints:
            shard, split = _shard(target, ranks, reading)
            with _watched("training", config, log, ranks) as watch:
                result = transfer_shard(
                    theta, shard, config, ranks, on_epoch=watch.on_epoch, checkpoints=checkpoints
                )
                watch.ended(result.summary())
            if predictions is not None:
                result.write_predictions(predictions)
        if ranks.rank > 0:
            return None
        return {
            **result.summary(),
            "learner": learner,
            "split": split,
            "out": None,
            "predictions": predictions,
            "bytes_sent": result.bytes_sent,
            "resumed": checkpoints is not None and checkpoints.resumed,
        }


def pretrain_across_ranks(
    sources: Sequence[str],
    out: Path,
    reading: GraphFlags,
    config: PretrainConfig,
    *,
    log: str | None,
    overwrite: bool = False,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
) -> tuple[StructureLearner, dict[str, Any]] | None:
    """Train a learner on this rank's sources; rank 0 writes it, and returns it and its facts.

    Args:
        sources: Names or files; every rank loads all of them and keeps its own.
        out: Rank 0 writes the learner there, and keeps checkpoints beside it.
        reading: Of all sources.
        config: Its schedule must be ``together``.
        overwrite: Whether a learner that is there may be replaced.
        resume: Go on from the checkpoints beside ``out``.
        checkpoint_seconds: Between two of them.
        log: As in ``graphglow pretrain``; rank 0 logs.
    """
    began = time.perf_counter()
    with _joined(config.device) as ranks:
        with together(ranks):
            if config.schedule != "together":
                raise InputError(
                    f"--schedule must be together on several processes; got {config.schedule!r}"
                )
            if ranks.rank == 0:
                replace = may_replace(out, resume=resume, overwrite=overwrite)
                out = check_output(out, overwrite=replace, suffixes=TENSOR_SUFFIXES, inputs=sources)
        agree(ranks, {"job": "pretrain"})
        with _saved(out, ranks, resume=resume, seconds=checkpoint_seconds) as checkpoints:
            with together(ranks):
                graphs = [reading.read(name) for name in sources]
            train_began = time.perf_counter()
            visits = config.episodes + len(graphs) - 1  # step 1 is heard once of every source
            with _watched("pre-training", config, log, ranks, visits=visits) as watch:
                learner = pretrain_together(
                    [data for data, _ in graphs],
                    config,
                    ranks,
                    on_epoch=watch.on_epoch,
                    checkpoints=checkpoints,
                )
            train_seconds = time.perf_counter() - train_began
            learner.provenance["splits"] = [split for _, split in graphs]
            with together(ranks):
                if ranks.rank == 0:
                    learner.save(out)
        if checkpoints is None:  # not rank 0
            return None
        before = checkpoints.seconds_before
        return learner, {
            "train_seconds": train_seconds + before,
            "total_seconds": time.perf_counter() - began + before,
            "resumed": checkpoints.resumed,
            "peak_memory_bytes": peak_memory_bytes(ranks.device),
            "device": ranks.device.type,
            "ranks": ranks.size,
        }


@contextmanager
def _joined(device: str) -> Iterator[Ranks]:
    """Meet the other ranks; what another one says is not said again, the exit status is the same.

    Where one command follows another in an outer ``join``, they are ended by its exception.
    """
    try:
        with join(device) as ranks:
            yield ranks
    except HeardError as error:
        raise SystemExit(2) from error


def _saved(
    out: Path | None, ranks: Ranks, *, resume: bool, seconds: float
) -> AbstractContextManager[Checkpoints | None]:
    """Let rank 0 keep checkpoints beside what will be written."""
    if ranks.rank > 0:
        return nullcontext(None)
    return checkpointed(out, resume=resume, seconds=seconds)


@contextmanager
def _watched(
    label: str, config: RunConfig, log: str | None, ranks: Ranks, *, visits: int = 1
) -> Iterator[Watch]:
    """A progress bar and a log, on rank 0."""
    if ranks.rank > 0:
        yield Watch(None, lambda facts: None)
        return
    with epochs_shown(label, config, log, visits=visits) as watch:
        yield watch


def _check_folder(folder: Path, ranks: Ranks, *, resume: bool, overwrite: bool) -> Path:
    """The folder for predictions, tried on every rank; rank 0 says whether it may be there."""
    folder = folder.expanduser()
    if folder.suffix:
        raise InputError(
            f"predictions of several processes must go to a folder, an array for each; got {folder}"
        )
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"the folder for predictions must be a folder; got the file {folder}")
    if ranks.rank == 0 and folder.exists() and not overwrite:
        unfinished = Checkpoints(checkpoint_folder(folder)).files()
        if resume and not unfinished:
            raise InputError(
                f"--resume must have an unfinished run to go on with; got {folder}, which is "
                "there, and no checkpoints beside it: its run has ended (--overwrite makes it anew)"
            )
        if not resume:
            raise InputError(
                f"the folder for predictions must not exist; got {folder} "
                "(--overwrite writes there all the same)"
            )
    check_output(folder / f"nodes-{ranks.rank}.npy", overwrite=True)
    return folder


def _check_shard_flags(reading: GraphFlags) -> None:
    shards_have = ("split_file", "split_seed", "columns")
    given = [name for name in shards_have if getattr(reading, name) not in (None, ())]
    named = [f"--{name.replace('_', '-')}" for name in given]
    if named:
        raise InputError(
            "a folder of shards must keep its split and columns, which graphglow shard gave it; "
            f"got {' and '.join(named)} too"
        )


def _shard(target: str, ranks: Ranks, reading: GraphFlags) -> tuple[Shard, str]:
    """This rank's shard of the same graph, and its split in words."""
    with together(ranks):
        if is_shard_folder(target):
            data, split, identity = None, "own", shards_info(target).identity
        else:
            data, split = reading.read(target)
            identity = data_identity(data)["content"]
    kind = "a folder of shards" if data is None else "one graph"
    agree(ranks, {"kind of target": kind, "graph or split": identity})
    return (read_shard(target, ranks) if data is None else _cut(data, ranks)), split


def _cut(data: Data, ranks: Ranks) -> Shard:
    """This rank's shard of a graph that all of them have."""
    with tempfile.TemporaryDirectory() as folder:
        write_shards(GraphArrays.of_data(data), Path(folder) / "shards", ranks.size)
        return read_shard(Path(folder) / "shards", ranks)
