"""Make the runs of a cell: what a worker is asked to do.

What a run can fail at (it does not fit, its loss is not finite) becomes a row that says so. What
keeps all of them from starting (a missing file) is raised instead.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.baselines import FitResult, fit_many
from graphglow.errors import InputError
from graphglow.experiments.paper.cells import Cell
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.config import Configs
from graphglow.experiments.runs.executor import RunFailed
from graphglow.experiments.runs.learners import (
    Lesson,
    learner_from,
    load_with_split,
    make_learner,
)
from graphglow.experiments.runs.rows import ResultRow
from graphglow.experiments.structure_metrics import (
    heard_over_edges,
    heard_over_latent,
    heard_over_pivots,
    structure_metrics,
)
from graphglow.graphs.perturb import PERTURBATIONS
from graphglow.structure import Structure, StructureLearner
from graphglow.training import TransferConfig, TransferResult, transfer_many
from graphglow.training.config import RunConfig
from graphglow.training.device import resolve_device
from graphglow.training.transfer import StructureObserver, transfer

OF_THE_RESULT = ("test_accuracy", "val_accuracy", "epochs", "train_seconds", "total_seconds",
                 "peak_memory_bytes", "device")  # fmt: skip
"""What a row takes from the result's own summary."""
WARM_UP = 10
"""Epochs of a run before one that is timed on a GPU: kernels are compiled, graphs recorded."""
NO_MEMORY = "allocate memory"
"""What the allocator of the CPU says; its error is a plain ``RuntimeError``."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where runs are made, the same for all of them."""

    data_root: Path | None
    threads: int
    processes: int
    device: str
    """Its kind, for rows of runs that could not be made."""
    commit: str
    """Of the process that asks: while it writes rows, its source tree may look changed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """A cell with one seed, or with several that are trained as one program."""

    cell: Cell
    configs: tuple[Configs, ...]

    @property
    def lessons(self) -> list[Lesson | None]:
        """The learner that each run needs, if it needs one."""
        each = [configs.pretraining for configs in self.configs]
        return [None if before is None else Lesson(self.cell.sources, before) for before in each]

    def apart(self) -> list["Runs"]:
        """The same, one by one."""
        return [replace(self, configs=(configs,)) for configs in self.configs]


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


def run_facts(cell: Cell, configs: Configs) -> dict[str, Any]:
    """What a row says of its run before it is made: all that the result is a function of."""
    before = configs.pretraining
    return {
        "method": cell.method,
        "sources": cell.sources,
        "target": cell.target,
        "split": cell.split,
        "seed": configs.run.seed,
        "damage": cell.damage._asdict() if cell.damage else None,
        "observe_every": cell.observe_every,
        "config": asdict(configs.run),
        "pretraining": asdict(before) if before else {},
    }


def teach(lesson: Lesson, place: Place) -> bytes:
    """Pre-train the learner that cells wait for; :class:`RunFailed` if that cannot be done."""
    graphs = [load_with_split(name, place.data_root) for name in lesson.sources]
    try:
        return make_learner(lesson, graphs)
    except Exception as error:
        raise RunFailed(_sentence(error)) from error


def perform(runs: Runs, place: Place, learners: Mapping[Lesson, bytes]) -> list[ResultRow]:
    """Train, and return a row for each seed; learners are the contents of their files."""
    data = load_with_split(runs.cell.target, place.data_root)
    try:
        return _rows(runs, data, place, learners)
    except Exception as error:
        if len(runs.configs) > 1:  # one that blows up ends them all
            return [row for one in runs.apart() for row in perform(one, place, learners)]
        return failed(runs, _sentence(error), place)


def failed(runs: Runs, why: str, place: Place) -> list[ResultRow]:
    """Rows that say why there is no accuracy."""
    nothing = {"error": why, "device": place.device, "timed": False}
    return [_row(runs.cell, configs, place, nothing) for configs in runs.configs]


def _rows(
    runs: Runs, data: Data, place: Place, contents: Mapping[Lesson, bytes]
) -> list[ResultRow]:
    cell, configs = runs.cell, [configs.run for configs in runs.configs]
    if cell.damage is not None:
        assert len(configs) == 1  # each seed has damage of its own
        data = PERTURBATIONS[cell.damage.kind](data, cell.damage.ratio, seed=configs[0].seed)
    found = {lesson: learner_from(contents[lesson]) for lesson in runs.lessons if lesson}
    learners = [found[lesson] for lesson in runs.lessons if lesson]
    device = resolve_device(configs[0].device)
    if cell.timed and device.type == "cuda":
        _train(cell.method, data, [replace(configs[0], epochs=WARM_UP)], learners[:1])
    if device.type == "cpu":
        with suppress(OSError):  # let the peak of this process begin anew, where the system can
            Path("/proc/self/clear_refs").write_text("5")
    seen = _Seen(data) if cell.observe_every else None
    results = _train(cell.method, data, configs, learners, seen, cell.observe_every)
    alone = len(results) == 1 and seen is None
    shared = {
        "runs_at_once": len(results),
        "timed": alone and (cell.timed or device.type == "cpu"),
    }
    return [
        _row(
            cell,
            runs.configs[run],
            place,
            {name: result.summary()[name] for name in OF_THE_RESULT}
            | {
                "pretrain_seconds": learners[run].provenance["seconds"] if learners else None,
                "metrics": seen.metrics(result.epochs) if seen else {},
            }
            | shared,
        )
        for run, result in enumerate(results)
    ]


def _row(cell: Cell, configs: Configs, place: Place, measured: dict[str, Any]) -> ResultRow:
    return ResultRow(
        **cell_facts(cell),
        **run_facts(cell, configs),
        **measured,
        threads=place.threads,
        processes=place.processes,
        provenance=provenance() | {"commit": place.commit},
    )


def _sentence(error: Exception) -> str:
    """The error as one sentence about this run; a bug is one too, and says what it is."""
    if isinstance(error, InputError | RunFailed):
        return str(error)
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or NO_MEMORY in str(error):
        return "the run must fit in memory; it took more than there was"
    text = " ".join(str(error).split())
    return f"the run must not meet a bug of graphglow; got {type(error).__name__}: {text:.300}"


def _train(
    method: str,
    data: Data,
    configs: Sequence[RunConfig],
    learners: Sequence[StructureLearner],
    seen: "_Seen | None" = None,
    every: int | None = None,
) -> Sequence[TransferResult | FitResult]:
    if not learners:
        return fit_many(method, data, configs)
    transfers = [config for config in configs if isinstance(config, TransferConfig)]
    if seen is not None and every is not None:
        observer = StructureObserver(every, seen.look)
        return [transfer(learners[0], data, transfers[0], observer=observer)]
    shared = all(learner is learners[0] for learner in learners)
    return transfer_many(learners[0] if shared else learners, data, transfers)


class _Seen:
    """What a learned graph was like while its GNN trained."""

    def __init__(self, data: Data) -> None:
        self.y = data.y
        self.given = structure_metrics(heard_over_edges(data), data.y)
        self.epochs: list[int] = []
        self.found: dict[str, list[float]] = {}

    def look(self, epoch: int, latent: Structure, pivots: Tensor) -> None:
        self.epochs.append(epoch)
        heard = {
            "": heard_over_latent(latent, self.y),
            "pivot_": heard_over_pivots(latent, pivots, self.y),
        }
        for prefix, labels in heard.items():
            for name, value in structure_metrics(labels.cpu(), self.y).items():
                self.found.setdefault(prefix + name, []).append(value)

    def metrics(self, epochs: int) -> dict[str, Any]:
        """Up to the last epoch of the run; a GPU goes on for some after that."""
        count = sum(epoch <= epochs for epoch in self.epochs)
        found = {name: tuple(values[:count]) for name, values in self.found.items()}
        given = {f"input_{name}": value for name, value in self.given.items()}
        return {"epoch": tuple(self.epochs[:count]), **found, **given}
