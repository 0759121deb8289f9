"""The commands that train: transfer, fit and pretrain; and report, which shows saved transfers."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from graphglow.commands import flags
from graphglow.commands.output import (
    TENSOR_SUFFIXES,
    Outputs,
    check_output,
    epoch_bar,
    print_facts,
    print_json,
    print_text,
    progress_bar,
    spinner,
)
from graphglow.errors import InputError, one_of
from graphglow.settings import (
    PRETRAINING,
    EvidencePretrainConfig,
    PaperConfig,
    PretrainConfig,
    RunConfig,
    TransferConfig,
)


def transfer(
    target: flags.GraphName,
    reading: flags.Reading,
    settings: OmitArgPrefixes[TransferConfig],
    learner: flags.LearnerName = "universal",
    out: flags.OptionalFile = None,
    predictions: flags.OptionalFile = None,
    resume: flags.Switch = False,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Train a small GNN on a new graph under a frozen learner.

    The graph is refined first, without training; then the GNN is trained over the input graph and
    the refined one, whose shares are chosen by validation. Under a learner of the paper's kind this
    is Algorithm 3; graphglow transfer --learner paper --help shows its settings.

    Example: graphglow transfer --target breast_cancer --out trained.safetensors

    Args:
        out: Where to write the trained result, as safetensors, for graphglow report.
        predictions: Where to write every node's id, predicted class, probabilities, known class
            and split (.csv or .parquet).
        resume: Go on from the checkpoint beside --out of a run that was stopped or killed (under a
            learner of the paper's kind).
    """
    if resume and (out is None or not isinstance(settings, PaperConfig)):
        raise InputError("--resume goes with --out and a learner of the paper's kind")

    import graphglow
    from graphglow.graph.write import TABLES
    from graphglow.pretrained import load_learner
    from graphglow.storage import Checkpoint

    inputs = (learner, target, reading.split_file)
    files = Outputs(
        overwrite, inputs, out=(out, TENSOR_SUFFIXES), predictions=(predictions, TABLES)
    )
    theta = load_learner(learner, seed=settings.seed)
    with spinner(f"loading {target}"):
        data, split = reading.read(target)
    file, checkpoint = files.paths["out"], None
    if file is not None and isinstance(settings, PaperConfig):
        checkpoint = Checkpoint(file.with_name(f"{file.name}.checkpoint"), resume=resume)
    with epoch_bar(settings.epochs) as on_epoch:
        result = graphglow.transfer(data, theta, settings, on_epoch=on_epoch, checkpoint=checkpoint)
    files.write(out=result.save, predictions=result.write_predictions)
    if checkpoint is not None:
        checkpoint.remove()
    facts: dict[str, Any] = {
        **result.summary(),
        "learner": learner,
        "split": split,
        "target_was_source": data.name in (result.learner.provenance.get("sources") or ()),
        "metrics": result.metrics(),
        **files.paths,
    }
    print_facts("Transfer", facts, json=json)


def fit(
    method: Annotated[str, arg(metavar="NAME")],
    target: flags.GraphName,
    reading: flags.Reading,
    settings: OmitArgPrefixes[RunConfig],
    predictions: flags.OptionalFile = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Train a competitor on a graph, under the same protocol as transfer.

    GNNs on the input graph are gcn, sage, gat, appnp, gpr, h2gcn, gcnii and cpgnn; controls are
    mlp, link, link-features and linkx; structure learning on this graph alone is lds, idgl,
    idgl-anchor and vgcn; GraphGLOW's variants are graphglow-star, graphglow-dot, graphglow-knn,
    graphglow-cosine, graphglow-attention, equal-theta and random-theta.
    graphglow fit --method gcn --help shows the settings of gcn, with its own defaults.

    Example: graphglow fit --method gcn --target wine --json

    Args:
        method: What to train.
        predictions: Where to write every node's id, predicted class and probabilities (.csv or
            .parquet).
    """
    from graphglow import competitors
    from graphglow.graph.write import TABLES

    files = Outputs(overwrite, (target, reading.split_file), predictions=(predictions, TABLES))
    with spinner(f"loading {target}"):
        data, split = reading.read(target)
    with epoch_bar(settings.epochs) as on_epoch:
        result = competitors.fit(method, data, settings, on_epoch=on_epoch)
    files.write(predictions=result.write_predictions)
    print_facts("Fit", {**result.summary(), "split": split, **files.paths}, json=json)


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
    graphs an hour or more.

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
        with progress_bar(in_logs=True) as move:
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


def report(
    results: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")],
    out: flags.File = Path("report.html"),
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Show saved transfers as one page that opens offline: what was learned, in tables and lines.

    Example: graphglow report cora.safetensors --out report.html

    Args:
        results: Saved transfers (.safetensors, from graphglow transfer --out).
        out: Where to write the page; an older report is replaced.
    """
    if not results:
        raise InputError("graphglow report needs at least one saved transfer")

    from graphglow.report import PAGES, is_report
    from graphglow.report.results import write_transfers
    from graphglow.result import TransferResult

    paths = list(dict.fromkeys(path.expanduser() for path in results))
    replace = overwrite or is_report(out.expanduser())
    out = check_output(out, overwrite=replace, suffixes=PAGES, inputs=paths)
    with spinner("drawing"):
        transfers = [(path, TransferResult.load(path)) for path in paths]
        write_transfers(transfers, out)
    if json:
        names = [result.graph.name for _, result in transfers]
        return print_json({"command": "report", "out": out, "transfers": names})
    print_text(f"report: {out.absolute()}")


def method_settings(method: str | None) -> type[RunConfig]:
    """Return the settings of a method; without one, those that all methods have."""
    if not method:
        return RunConfig
    from graphglow.competitors import method_named

    return method_named(method).config


def learner_settings(learner: str | None) -> type[TransferConfig | PaperConfig]:
    """Return the settings of a transfer under a learner; a file's kind says which."""
    name = (learner or "universal").lower()
    if name in ("universal", "untrained"):
        return TransferConfig
    if name == "paper":
        return PaperConfig
    from graphglow.paper.learner import StructureLearner
    from graphglow.pretrained import load_learner

    paper = isinstance(load_learner(learner or ""), StructureLearner)
    return PaperConfig if paper else TransferConfig


def kind_settings(kind: str | None) -> type:
    """Return the settings of a kind of learner."""
    one_of("--kind", kind or "evidence", PRETRAINING)
    return PRETRAINING[kind or "evidence"]


CHOSEN_BY: dict[str, tuple[str, Callable[[str | None], type]]] = {
    "transfer": ("--learner", learner_settings),
    "fit": ("--method", method_settings),
    "pretrain": ("--kind", kind_settings),
}
"""The flag of a command by which the class of its settings is chosen."""
