"""``graphglow pretrain`` and ``transfer`` under torchrun: every rank works, rank 0 speaks."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from graphglow.commands.files import read_graph, read_learner
from graphglow.commands.terminal import Watch, epochs_shown
from graphglow.errors import InputError
from graphglow.structure import StructureLearner
from graphglow.training import PretrainConfig, TransferConfig
from graphglow.training.config import RunConfig
from graphglow.training.device import peak_memory_bytes
from graphglow.training.distributed import (
    GraphArrays,
    Ranks,
    Shard,
    is_shard_folder,
    join,
    pretrain_together,
    read_shard,
    transfer_shard,
    write_shards,
)


def transfer_across_ranks(
    learner: str,
    target: str,
    config: TransferConfig,
    *,
    embedding_size: int | None,
    split_file: Path | None,
    split_seed: int,
    data_root: Path | None,
    predictions: Path | None,
    log: str | None,
    columns: Sequence[str] = (),
    skip_unknown_edges: bool = False,
    overwrite: bool = False,
) -> dict[str, Any] | None:
    """Train on this rank's shard of the target; the facts of the run on rank 0, None on others.

    A target that is no folder of shards is loaded and cut by every rank, so it must fit in memory.

    Args:
        learner: As in ``graphglow transfer``.
        target: A folder that ``graphglow shard`` wrote, or a name or file.
        config: Model and schedule.
        embedding_size: Of a random learner.
        split_file: Not with a folder of shards, which has its split.
        split_seed: As in ``graphglow transfer``.
        columns: As in ``graphglow transfer``; not with a folder of shards.
        skip_unknown_edges: As in ``graphglow transfer``.
        data_root: As in ``graphglow transfer``.
        predictions: A folder; each rank writes those of its nodes.
        overwrite: Whether predictions that are there may be replaced.
        log: As in ``graphglow transfer``; rank 0 logs.
    """
    theta = read_learner(learner, embedding_size, config.seed)
    if predictions is not None:
        predictions = predictions.expanduser()
        if predictions.suffix:
            raise InputError(
                "predictions of several processes must go to a folder, an array for each; "
                f"got {predictions}"
            )
        if not overwrite and predictions.exists():
            raise InputError(
                f"the folder for predictions must not exist; got {predictions} "
                "(--overwrite writes there all the same)"
            )
    with join(config.device) as ranks:
        if is_shard_folder(target):
            if split_file is not None or columns:
                raise InputError(
                    "a folder of shards must keep its split and columns; "
                    "got --split-file or --columns too"
                )
            shard, split = read_shard(target, ranks), "own"
        else:
            data, split = read_graph(
                target,
                columns=columns,
                skip_unknown_edges=skip_unknown_edges,
                data_root=data_root,
                split_file=split_file,
                split_seed=split_seed,
            )
            shard = _cut(data, ranks)
        with _watched("training", config, log, ranks) as watch:
            result = transfer_shard(theta, shard, config, ranks, on_epoch=watch.on_epoch)
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
        }


def pretrain_across_ranks(
    sources: Sequence[str],
    config: PretrainConfig,
    *,
    split_seed: int,
    data_root: Path | None,
    log: str | None,
    columns: Sequence[str] = (),
    skip_unknown_edges: bool = False,
) -> tuple[StructureLearner, dict[str, Any]] | None:
    """Train a learner on this rank's sources; on rank 0, the learner and what to print of it.

    Args:
        sources: Names or files; every rank loads all of them and keeps its own.
        config: Its schedule must be ``together``.
        columns: As in ``graphglow pretrain``.
        skip_unknown_edges: As in ``graphglow pretrain``.
        split_seed: As in ``graphglow pretrain``.
        data_root: As in ``graphglow pretrain``.
        log: As in ``graphglow pretrain``; rank 0 logs.
    """
    if config.schedule != "together":
        raise InputError(
            f"--schedule must be together on several processes; got {config.schedule!r}"
        )
    with join(config.device) as ranks:
        graphs = [
            read_graph(
                n,
                columns=columns,
                skip_unknown_edges=skip_unknown_edges,
                data_root=data_root,
                split_seed=split_seed,
            )
            for n in sources
        ]
        began = time.perf_counter()
        visits = config.episodes + len(graphs) - 1  # step 1 is heard once of every source
        with _watched("pre-training", config, log, ranks, visits=visits) as watch:
            learner = pretrain_together(
                [data for data, _ in graphs], config, ranks, on_epoch=watch.on_epoch
            )
        learner.provenance["splits"] = [split for _, split in graphs]
        facts = {
            "train_seconds": time.perf_counter() - began,
            "peak_memory_bytes": peak_memory_bytes(ranks.device),
            "device": ranks.device.type,
            "ranks": ranks.size,
        }
        return (learner, facts) if ranks.rank == 0 else None


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


def _cut(data: Data, ranks: Ranks) -> Shard:
    """This rank's shard of a graph that all of them have."""
    with tempfile.TemporaryDirectory() as folder:
        write_shards(GraphArrays.of_data(data), Path(folder) / "shards", ranks.size)
        return read_shard(Path(folder) / "shards", ranks)
