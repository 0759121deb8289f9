"""Make the runs of a cell: what a worker is asked to do.

What a run can fail at (it does not fit, its loss is not finite) becomes a row that says so. What
keeps all of them from starting (a missing file) is raised instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.competitors import FitResult, fit
from graphglow.device import reset_peak_memory, resolve_device
from graphglow.errors import InputError
from graphglow.gnn import Structure
from graphglow.graph.perturb import PERTURBATIONS
from graphglow.lab.paper import EVIDENCE
from graphglow.lab.paper.cells import Cell
from graphglow.lab.provenance import provenance
from graphglow.lab.runs.config import Run, TargetConfig
from graphglow.lab.runs.learners import Lesson, learner_from, load_with_split, make_learner
from graphglow.lab.runs.rows import ResultRow
from graphglow.lab.structure_metrics import (
    heard_over_edges,
    heard_over_latent,
    heard_over_pivots,
    structure_metrics,
)
from graphglow.pretrained import Learner, LearnerName
from graphglow.settings import RunConfig, TransferConfig
from graphglow.training.evidence import EvidenceResult
from graphglow.training.result import TransferResult
from graphglow.transfer import StructureObserver, transfer
from graphglow.workers.executor import RunFailed

OF_THE_RESULT = ("test_accuracy", "val_accuracy", "epochs", "train_seconds", "total_seconds",
                 "peak_memory_bytes", "device")  # fmt: skip
"""What a row takes from the result's own summary."""
WARM_UP = 10
"""Epochs of a run before one that is timed on a GPU: kernels are compiled, graphs recorded."""
NO_MEMORY = "allocate memory"
"""What the allocator of the CPU says; its error is a plain ``RuntimeError``."""


def lesson_of(run: Run) -> Lesson | None:
    """The learner that a run needs, if it needs one."""
    return None if run.pretraining is None else Lesson(run.cell.sources, run.pretraining)


def cell_facts(cell: Cell) -> dict[str, Any]:
    """What a row says of the cell alone: fields that differ where one run serves several cells."""
    return {
        "experiment": cell.experiment,
        "cell": cell.key,
        "label": cell.label,
        "series": cell.series,
        "x": cell.x,
        "paper": cell.paper.mean if cell.paper else None,
        "paper_std": cell.paper.std if cell.paper else None,
    }


def teach(lesson: Lesson, data_root: Path) -> bytes:
    """Pre-train the learner that cells wait for; :class:`RunFailed` if that cannot be done."""
    graphs = [load_with_split(name, data_root) for name in lesson.sources]
    try:
        return make_learner(lesson, graphs)
    except Exception as error:
        raise RunFailed(_sentence(error)) from error


def perform(
    runs: Sequence[Run], data_root: Path, learners: Mapping[Lesson, bytes | str]
) -> list[ResultRow]:
    """Train runs that differ in the seed alone, as one program if there are several.

    ``learners`` are those that the runs need: the content of a file, or why there is none.
    """
    data = load_with_split(runs[0].cell.target, data_root)
    try:
        return _rows(runs, data, learners)
    except Exception as error:
        if len(runs) > 1:  # one that blows up ends them all
            return [row for run in runs for row in perform([run], data_root, learners)]
        return [failed_row(runs[0], _sentence(error))]


def failed_row(run: Run, why: str) -> ResultRow:
    """The row that says why there is no accuracy."""
    return _row(run, error=why, timed=False)


def _row(run: Run, **measured: Any) -> ResultRow:
    return ResultRow(**cell_facts(run.cell), **run.facts(), **measured, provenance=provenance())


def _rows(
    runs: Sequence[Run], data: Data, contents: Mapping[Lesson, bytes | str]
) -> list[ResultRow]:
    cell, configs = runs[0].cell, [run.config for run in runs]
    if cell.damage is not None:
        assert len(runs) == 1  # each seed has damage of its own
        data = PERTURBATIONS[cell.damage.kind](data, cell.damage.ratio, seed=configs[0].seed)
    lessons = [lesson for run in runs if (lesson := lesson_of(run))]
    found = {lesson: _learner(contents[lesson]) for lesson in set(lessons)}
    learners = [found[lesson] for lesson in lessons]
    device = resolve_device(configs[0].device)
    if cell.timed and device.type == "cuda":
        _train(cell.method, data, [replace(configs[0], epochs=WARM_UP)], learners[:1])
    reset_peak_memory(device)
    seen = _Seen(data, cell.observe_every) if cell.observe_every else None
    results = _train(cell.method, data, configs, learners, seen)
    alone = len(results) == 1 and seen is None
    return [
        _row(
            run,
            **{name: result.summary()[name] for name in OF_THE_RESULT},
            pretrain_seconds=learners[place].provenance["seconds"] if learners else None,
            metrics=seen.metrics(result.epochs) if seen else _chosen(result),
            runs_at_once=len(results),
            timed=alone and (cell.timed or device.type == "cpu"),
        )
        for place, (run, result) in enumerate(zip(runs, results, strict=True))
    ]


def _chosen(result: TransferResult | FitResult) -> dict[str, Any]:
    """Under an evidence learner: lambda."""
    if not isinstance(result, EvidenceResult):
        return {}
    return {"input_weight": result.input_weight}


def _learner(content: bytes | str) -> Learner:
    if isinstance(content, str):
        raise RunFailed(content)
    return learner_from(content)


def _sentence(error: Exception) -> str:
    """The error as one sentence about this run; a bug is one too, and says what it is."""
    if isinstance(error, InputError | RunFailed):
        return str(error)
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or NO_MEMORY in str(error):
        return "the run must fit in memory; it took more than there was"
    text = " ".join(str(error).split())
    return f"the run met a bug of graphglow: {type(error).__name__}: {text:.300}"


def _train(
    method: str,
    data: Data,
    configs: Sequence[TargetConfig],
    learners: Sequence[Learner],
    seen: "_Seen | None" = None,
) -> Sequence[TransferResult | FitResult]:
    if method in EVIDENCE:
        given: Sequence[LearnerName] = learners or [EVIDENCE[method]] * len(configs)
        own = [config for config in configs if isinstance(config, TransferConfig)]
        return [transfer(data, *pair) for pair in zip(given, own, strict=True)]
    if not learners:
        return fit_many(method, data, [c for c in configs if isinstance(c, RunConfig)])
    observer = seen.observer if seen is not None else None
    return [
        transfer(data, learner, config, observer=observer)
        for learner, config in zip(learners, configs, strict=True)
    ]


def fit_many(method: str, data: Data, configs: Sequence[RunConfig]) -> list[FitResult]:
    return [fit(method, data, config) for config in configs]


class _Seen:
    """What a learned graph was like while its GNN trained."""

    def __init__(self, data: Data, every: int) -> None:
        self.data = data
        self.observer = StructureObserver(every, self.look)
        self.looks: list[dict[str, float]] = []

    def look(self, epoch: int, latent: Structure, pivots: Tensor) -> None:
        y = self.data.y
        found = structure_metrics(heard_over_latent(latent, y).cpu(), y)
        of_pivots = structure_metrics(heard_over_pivots(latent, pivots, y).cpu(), y)
        found |= {f"pivot_{name}": value for name, value in of_pivots.items()}
        self.looks.append({"epoch": epoch, **found})

    def metrics(self, epochs: int) -> dict[str, Any]:
        """Up to the last epoch of the run; a GPU goes on for some after that."""
        looks = [look for look in self.looks if look["epoch"] <= epochs]
        given = structure_metrics(heard_over_edges(self.data), self.data.y)
        found = {name: tuple(look[name] for look in looks) for name in looks[0]}
        return found | {f"input_{name}": value for name, value in given.items()}
