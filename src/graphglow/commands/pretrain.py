"""``graphglow pretrain``: a learner of one's own, or an auditor."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, arg

from graphglow.commands import flags
from graphglow.commands.output import (
    TENSOR_SUFFIXES,
    check_output,
    print_facts,
    print_note,
    print_text,
)
from graphglow.commands.progress import epoch_bar, progress_bar, spinner
from graphglow.errors import InputError, one_of
from graphglow.settings import PRETRAINING, EvidencePretrainConfig, PretrainConfig

TIMED = 10
"""Episodes by which the time of all is estimated; those of every network take about as long."""


def kind_settings(kind: str | None) -> type:
    """Return the settings of a kind of learner."""
    one_of("--kind", kind or "evidence", PRETRAINING)
    return PRETRAINING[kind or "evidence"]


CHOSEN_BY = "--kind", kind_settings


def pretrain(
    sources: Annotated[tuple[str, ...], arg(metavar="NAME|FILE ...")],
    out: flags.File,
    reading: flags.Reading,
    settings: OmitArgPrefixes[EvidencePretrainConfig],
    kind: Literal["evidence", "auditor", "paper"] = "evidence",
    workers: flags.OptionalInt = None,
    resume: flags.Switch = False,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Train a learner of your own on source graphs and random ones.

    All labels of the sources are used, whatever their splits; the paper's learner has training and
    validation nodes. Each kind has settings: graphglow pretrain --kind paper --help shows those of
    the paper's Algorithm 2. An evidence learner of a few small graphs takes minutes, one of ten
    graphs an hour or more; an estimate is printed first.

    Example: graphglow pretrain --sources digits wine --out learner.safetensors

    Args:
        sources: The source graphs: names (see graphglow datasets) or files.
        out: Where to write the learner, as safetensors.
        kind: What to train: an evidence learner (for predict, refine, transfer and explain), an
            auditor (for audit), or a learner of the paper's kind.
        workers: Ray workers that draw the episodes of an evidence learner; on a CPU the learner is
            the same.
        resume: Go on from the checkpoint of a run that was stopped or killed (with --kind paper).
    """
    if reading.split_file is not None:
        raise InputError("--split-file has no effect: no one file has the split of several graphs")
    if kind != "evidence" and workers is not None:
        raise InputError("--workers goes with --kind evidence")
    if kind != "paper" and resume:
        raise InputError("--resume goes with --kind paper")

    import graphglow
    from graphglow.device import peak_memory_bytes, resolve_device
    from graphglow.graph.load import check_source
    from graphglow.storage import Checkpoint

    began = time.perf_counter()
    out = check_output(out, overwrite=overwrite, suffixes=TENSOR_SUFFIXES, inputs=sources)
    for name in sources:
        check_source(name)  # a mistyped name is said before any graph is read
    with spinner("loading graphs"):
        graphs = [reading.load(name) for name in sources]
    facts: dict[str, Any] = {"command": "pretrain", "kind": kind}
    if isinstance(settings, PretrainConfig):
        checkpoint = Checkpoint(out.with_name(f"{out.name}.checkpoint"), resume=resume)
        with epoch_bar(settings.epochs) as on_epoch:
            learner = graphglow.pretrain(graphs, settings, on_epoch=on_epoch, checkpoint=checkpoint)
        made = learner.provenance
        made["splits"] = [data.split for data in graphs]
        learner.save(out)
        checkpoint.remove()
        facts |= {name: made[name] for name in ("sources", "splits", "visit_scores")}
        facts |= {"val_accuracy": made["validation_accuracy"], "resumed": checkpoint.resumed}
    else:
        with progress_bar() as move:
            if kind == "evidence":
                move = with_estimate(move)
            learner = graphglow.pretrain(graphs, settings, on_progress=move, workers=workers)
        learner.save(out)
        facts["sources"] = learner.provenance["sources"]
    device = resolve_device(getattr(settings, "device", "cpu"))
    facts |= {
        "out": out,
        "total_seconds": time.perf_counter() - began,
        "peak_memory_bytes": peak_memory_bytes(device),
        "device": device.type,
        "seed": settings.seed,
    }
    print_facts("Pre-trained learner", facts, json=json)
    if not json and kind != "auditor":
        print_text(f"next: graphglow transfer --learner {out} --target NAME|FILE")


def with_estimate(move: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
    """Return ``move`` with a note, after the first episodes, of how long all will take."""
    began = time.perf_counter()

    def on_progress(stage: str, done: int, total: int) -> None:
        if done == TIMED:
            seconds = (time.perf_counter() - began) / TIMED * total
            words = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
            print_note(f"note: {total:,} episodes are drawn, which will take about {words}")
        move(stage, done, total)

    return on_progress
