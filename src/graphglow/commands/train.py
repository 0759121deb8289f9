"""``graphglow pretrain`` and ``transfer``: the two algorithms, in one process or on several ranks.

Under torchrun every rank works; rank 0 keeps checkpoints, writes the learner and speaks. Ranks that
are None stand for a process that is alone.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from tyro.conf import FlagCreatePairsOff

from graphglow import training
from graphglow.commands import files, flags, topology
from graphglow.commands.files import TENSOR_SUFFIXES, check_output
from graphglow.commands.options import answer, asked
from graphglow.commands.terminal import epoch_bar, job_bar, say, tell, waiting
from graphglow.errors import InputError
from graphglow.evidence.pretrain import EvidencePretrainConfig
from graphglow.graphs.write import prediction_file
from graphglow.pretrained import (
    UNIVERSAL,
    Learner,
    check_learner,
    is_paper,
    learner_file,
    load_learner,
)
from graphglow.structure import StructureLearner
from graphglow.training import PaperConfig, PretrainConfig, TransferConfig, TransferResult
from graphglow.training.checkpoint import Checkpoints
from graphglow.training.device import peak_memory_bytes, resolve_device
from graphglow.training.evidence import LINES
from graphglow.training.pretrain import pretrain_structure

if TYPE_CHECKING:  # loaded only where there are several processes
    from graphglow.training.distributed import Ranks, ShardResult

T = TypeVar("T")


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
    """
    if topology() == "ranks":
        raise InputError("several processes must share a pretrain --kind paper; got kind evidence")
    began = time.perf_counter()
    out = check_output(out, overwrite=overwrite, suffixes=TENSOR_SUFFIXES, inputs=sources)
    with waiting("loading graphs"):
        graphs = [reading.read(name)[0] for name in sources]
    with job_bar() as move:
        learner = training.pretrain(
            graphs, config, on_progress=lambda stage, done, total: move(stage, done, total)
        )
    learner.save(out)
    device = resolve_device(config.device)
    facts = {
        "command": "pretrain",
        "kind": kind,
        "sources": learner.provenance["sources"],
        "out": out,
        "train_seconds": learner.provenance["seconds"],
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

    A run that is stopped or killed at any moment goes on with --resume, and ends as it would have,
    in one process or, with --schedule together, in several.

    Example: graphglow pretrain --kind paper --sources digits synthetic --out learner.safetensors

    Args:
        sources: The source graphs: names (see graphglow datasets) or files.
        out: Where to write the learner, as safetensors.
    """
    began = time.perf_counter()
    with joined(config.device, alone=topology() == "one") as ranks:
        with together(ranks, job="pretrain"):
            if ranks is not None and config.schedule != "together":
                raise InputError(
                    f"--schedule must be together on several processes; got {config.schedule!r}"
                )
            if is_first(ranks):
                replace = checkpoints.may_replace(out, overwrite=overwrite)
                out = check_output(out, overwrite=replace, suffixes=TENSOR_SUFFIXES, inputs=sources)
        with on_first(ranks, checkpoints.kept(out)) as kept:
            with on_first(ranks, waiting("loading graphs")), together(ranks):
                graphs = [reading.read(name)[0] for name in sources]
            train: Callable[..., StructureLearner] = pretrain_structure
            if ranks is not None:
                from graphglow.training.distributed import pretrain_together

                train = partial(pretrain_together, ranks=ranks)
            visits = config.episodes * len(graphs)
            if config.schedule == "together":  # step 1 is heard once of every source
                visits = config.episodes + len(graphs) - 1
            train_began = time.perf_counter()
            with on_first(ranks, epoch_bar("pre-training", config.epochs, visits)) as on_epoch:
                learner = train(graphs, config, on_epoch=on_epoch, checkpoints=kept)
            train_seconds = time.perf_counter() - train_began
            made = learner.provenance
            made["splits"] = [data.split for data in graphs]
            with together(ranks):
                if is_first(ranks):
                    learner.save(out)
    if kept is None:  # not the first
        return
    device = resolve_device(config.device) if ranks is None else ranks.device
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
        **({} if ranks is None else {"ranks": ranks.size}),
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
        predictions: Annotated[Path | None, flags.said(None, "FILE|FOLDER", "(optional)")] = None,
        controls: Annotated[bool, FlagCreatePairsOff, flags.said(hint="")] = True,
        overwrite: flags.Overwrite = False,
        json: flags.Json = False,
    ) -> None:
        """Train a small GNN on a new graph under a frozen learner.

        The graph is refined first, without training; then small GNNs over the input graph, the
        refined one and none are mixed by validation. Under a learner of the paper's kind (--learner
        paper, which has flags of its own) this is Algorithm 3. With --out, a run that is stopped or
        killed at any moment goes on with --resume, and ends as it would have; on several processes,
        with --predictions FOLDER.

        Example: graphglow transfer --target breast_cancer --json

        Args:
            out: Where to write the trained result, as safetensors, for graphglow refine, explain
                and predict --result.
            predictions: Where to write every node's id, predicted class, probabilities, known
                class and split (.csv or .parquet). On several processes, or from a folder of
                shards: a FOLDER that gets the nodes and probabilities of each process as arrays.
            controls: Do not train an MLP and a GCN on the same split to compare with.
        """
        folder = predictions is not None and not predictions.suffix
        result: TransferResult | ShardResult
        with joined(config.device, alone=topology(target, folder=folder) == "one") as ranks:
            with together(ranks, job="transfer", predictions=predictions is not None):
                if ranks is not None:
                    predictions = _check_folder(predictions, out, ranks, checkpoints, overwrite)
                else:
                    replace = checkpoints.may_replace(out, overwrite=overwrite)
                    inputs = (learner_file(learner), target, reading.split_file)
                    new = partial(check_output, overwrite=replace, inputs=inputs)
                    out = out and new(out, suffixes=TENSOR_SUFFIXES)
                    predictions = predictions and new(prediction_file(predictions))
                theta = load_learner(learner, seed=config.seed)
            with on_first(ranks, checkpoints.kept(predictions if ranks else out)) as kept:
                if ranks is None:
                    result, split = transferred(theta, target, reading, config, kept)
                    more: dict[str, Any] = {"target_was_source": was_source(result)}
                    files.write_each((out, result.save), (predictions, result.write_predictions))
                else:
                    job = (theta, target, reading, config, kept, ranks)
                    result, split = _transferred_together(*job)
                    more = {"bytes_sent": result.bytes_sent}
                    if predictions is not None:
                        result.write_predictions(predictions)
                if isinstance(result, TransferResult):
                    if controls:
                        with waiting("training controls"):
                            more["controls"] = result.controls()
                    more["metrics"] = result.metrics()
        if is_first(ranks):
            facts = {**result.summary(), "learner": learner, "split": split, "out": out, **more}
            facts |= {"predictions": predictions, "resumed": kept is not None and kept.resumed}
            tell("Transfer", facts, json=json)

    return transfer


def transferred(
    theta: Learner,
    target: str,
    reading: flags.GraphFlags,
    config: TransferConfig | PaperConfig,
    kept: Checkpoints | None = None,
) -> tuple[TransferResult, str]:
    """Read the target and train in this process; also say which split was used."""
    with waiting(f"loading {target}"):
        data, split = reading.read(target)
    visits = 1 if isinstance(config, PaperConfig) else len(LINES)
    with epoch_bar("training", config.epochs, visits) as on_epoch:
        return training.transfer(data, theta, config, on_epoch=on_epoch, checkpoints=kept), split


def was_source(result: TransferResult) -> bool:
    """Whether the learner was pre-trained on a graph of the target's name: then it has seen it."""
    return result.graph.name in (result.provenance.get("sources") or ())


@contextmanager
def joined(device: str, *, alone: bool) -> Iterator["Ranks | None"]:
    """Meet the other ranks; what another has said is not said again, the exit status is its own."""
    if alone:
        yield None
        return
    from graphglow.training.distributed import HeardError, join

    try:
        with join(device) as ranks:
            yield ranks
    except HeardError as error:
        raise SystemExit(2) from error


@contextmanager
def together(ranks: "Ranks | None", **facts: object) -> Iterator[None]:
    """A block that bad input on one rank ends on all; after it they agree on ``facts``, if any."""
    if ranks is None:
        yield
        return
    from graphglow.training.distributed import agreement

    with agreement.together(ranks):
        yield
    if facts:
        agreement.agree(ranks, facts)


def is_first(ranks: "Ranks | None") -> bool:
    """Whether this process speaks and writes for all."""
    return ranks is None or ranks.rank == 0


def on_first(
    ranks: "Ranks | None", context: AbstractContextManager[T | None]
) -> AbstractContextManager[T | None]:
    """A context that other ranks do not enter."""
    return context if is_first(ranks) else nullcontext(None)


def _check_folder(
    folder: Path | None,
    out: Path | None,
    ranks: "Ranks",
    checkpoints: files.CheckpointFlags,
    overwrite: bool,
) -> Path | None:
    """The folder for predictions, tried on every rank; rank 0 says whether it may be there."""
    place = "--predictions FOLDER on several processes"
    if out is not None:
        raise InputError(f"ranks and shards must write --predictions FOLDER only; got --out {out}")
    replace = checkpoints.may_replace(folder, overwrite=overwrite, flag=place)
    if folder is None:
        return None
    folder = folder.expanduser()
    if folder.suffix or (os.path.lexists(folder) and not folder.is_dir()):
        raise InputError(f"{place} must be a folder; got the file {folder}")
    if is_first(ranks) and folder.exists() and not replace:
        raise InputError(f"{place} must not exist, or pass --overwrite; got {folder}")
    check_output(folder / f"nodes-{ranks.rank}.npy", overwrite=True, shared=True)
    return folder


def _transferred_together(
    theta: Learner,
    target: str,
    reading: flags.GraphFlags,
    config: TransferConfig | PaperConfig,
    kept: Checkpoints | None,
    ranks: "Ranks",
) -> tuple["ShardResult", str]:
    """Train on this rank's shard; also say which split was used.

    A target that is no folder of shards is read and cut by every rank, so it must fit in memory.
    """
    from graphglow.training import distributed
    from graphglow.training.distributed.agreement import agree, data_identity

    cut = distributed.is_shard_folder(target)
    with together(ranks):
        if not isinstance(theta, StructureLearner) or not isinstance(config, PaperConfig):
            raise InputError(
                "several processes must train under a learner of the paper's kind (--learner "
                "paper); got an evidence learner"
            )
        if cut:
            kind, split = "a folder of shards", "own"
            identity = distributed.shards_info(target).identity
            names = ("split_file", "split_seed", "columns")
            given = [n for n in names if getattr(reading, n) != getattr(flags.GraphFlags, n)]
            if given:
                named = " and ".join(f"--{name.replace('_', '-')}" for name in given)
                raise InputError(f"shards must keep their split and columns; got {named} too")
        else:
            data, split = reading.read(target)
            kind, identity = "one graph", data_identity(data)["content"]
    agree(ranks, {"kind of target": kind, "graph or split": identity})
    with tempfile.TemporaryDirectory() as folder:
        if not cut:
            target = str(Path(folder) / "shards")
            distributed.write_shards(distributed.GraphArrays.of_data(data), target, ranks.size)
        shard = distributed.read_shard(target, ranks)
    with on_first(ranks, epoch_bar("training", config.epochs)) as on_epoch:
        result = distributed.transfer_shard(
            theta, shard, config, ranks, on_epoch=on_epoch, checkpoints=kept
        )
    return result, split
