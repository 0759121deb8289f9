"""Make the runs of a cell, or a learner that cells wait for: what a worker process is asked to do.

What a run can fail at (it does not fit, its loss is not finite) becomes a row that says so. What
keeps all of them from starting (a missing file) is raised instead.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.baselines import FitResult, fit_many
from graphglow.errors import InputError
from graphglow.experiments.cell import Cell
from graphglow.experiments.cell_config import Configs
from graphglow.experiments.cell_rows import cell_facts, run_facts
from graphglow.experiments.learner_files import find_learner, load_with_split, make_learner
from graphglow.experiments.row_checks import Row
from graphglow.experiments.structure_metrics import (
    heard_over_edges,
    heard_over_latent,
    heard_over_pivots,
    structure_metrics,
)
from graphglow.graphs.perturb import PERTURBATIONS
from graphglow.structure import Structure, StructureLearner
from graphglow.training import PretrainConfig, TransferConfig, TransferResult, transfer_many
from graphglow.training.config import RunConfig
from graphglow.training.device import resolve_device
from graphglow.training.transfer import StructureObserver, transfer

OF_THE_RESULT = (
    "test_accuracy",
    "val_accuracy",
    "epochs",
    "train_seconds",
    "total_seconds",
    "peak_memory_bytes",
    "device",
)
"""What a row takes from the result's own summary."""
WARM_UP = 10
"""Epochs of a run before one that is timed on a GPU: kernels are compiled, graphs recorded."""
NO_MEMORY = "allocate memory"
"""What the allocator of the CPU says; its error is a plain ``RuntimeError``."""
Result = TransferResult | FitResult


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where runs are made, the same for all of them."""

    data_root: Path | None
    learners: Path
    threads: int
    processes: int
    device: str
    """Its kind, for rows of runs that could not be made."""
    provenance: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Learning:
    """A learner to be pre-trained, for the cells that wait for it."""

    sources: tuple[str, ...]
    config: PretrainConfig

    def perform(self, place: Place) -> None:
        """Leave the learner in its folder; :class:`RunFailed` if that cannot be done."""
        graphs = [load_with_split(name, place.data_root) for name in self.sources]
        try:
            make_learner(place.learners, self.sources, graphs, self.config)
        except Exception as error:
            raise _of_this_run(error) from error


@dataclass(frozen=True, kw_only=True)
class Runs:
    """A cell with one seed, or with several that are trained as one program."""

    cell: Cell
    configs: tuple[Configs, ...]

    def perform(self, place: Place) -> list[Row]:
        """Train, and return a row for each seed."""
        data = load_with_split(self.cell.target, place.data_root)
        try:
            return self._rows(data, place)
        except Exception as error:
            if len(self.configs) > 1:  # one that blows up ends them all
                alone = [replace(self, configs=(configs,)) for configs in self.configs]
                return [row for runs in alone for row in runs.perform(place)]
            return self.failed(str(_of_this_run(error)), place)

    def failed(self, why: str, place: Place) -> list[Row]:
        """Rows that say why there is no accuracy."""
        nothing: Row = dict.fromkeys((*OF_THE_RESULT, "pretrain_seconds"))
        nothing |= {"runs_at_once": 1, "timed": False, "metrics": {}, "error": why}
        nothing["device"] = place.device
        return [self._row(configs, place, nothing) for configs in self.configs]

    def _rows(self, data: Data, place: Place) -> list[Row]:
        cell, first = self.cell, self.configs[0]
        if cell.damage is not None:
            assert len(self.configs) == 1  # each seed has damage of its own
            damage = PERTURBATIONS[cell.damage.kind]
            data = damage(data, cell.damage.ratio, seed=first.run.seed)
        found = {c.pretraining: _learner(cell, c, place) for c in self.configs}  # or None
        learners = [found[configs.pretraining] for configs in self.configs]
        configs = [configs.run for configs in self.configs]
        device = resolve_device(first.run.device)
        if cell.timed and device.type == "cuda":
            _train(cell.method, data, [replace(configs[0], epochs=WARM_UP)], learners)
        _reset_peak(device)
        seen = _Seen(data) if cell.observe_every else None
        results = _train(cell.method, data, configs, learners, seen, cell.observe_every)
        alone = len(results) == 1
        timed = alone and seen is None and (cell.timed or device.type == "cpu")
        return [
            self._row(
                self.configs[run],
                place,
                {name: result.summary()[name] for name in OF_THE_RESULT}
                | {
                    "pretrain_seconds": _pretrain_seconds(learners[run]),
                    "runs_at_once": len(results),
                    "timed": timed,
                    "metrics": seen.metrics(result.epochs) if seen else {},
                    "error": None,
                },
            )
            for run, result in enumerate(results)
        ]

    def _row(self, configs: Configs, place: Place, measured: Row) -> Row:
        return {
            **cell_facts(self.cell),
            **run_facts(self.cell, configs),
            **measured,
            "threads": place.threads,
            "processes": place.processes,
            "copied_from": None,
            "provenance": place.provenance,
        }


Job = Learning | Runs


class RunFailed(Exception):
    """A run or a pre-training could not be made; others may well be."""


def _of_this_run(error: Exception) -> Exception:
    """The error as one sentence about this run; a bug is one too, and says what it is."""
    if isinstance(error, InputError | RunFailed):
        return RunFailed(str(error))
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or NO_MEMORY in str(error):
        return RunFailed("the run must fit in memory; it took more than there was")
    text = " ".join(str(error).split())
    return RunFailed(
        f"the run must not meet a bug of graphglow; got {type(error).__name__}: {text:.300}"
    )


def _learner(cell: Cell, configs: Configs, place: Place) -> StructureLearner | None:
    if configs.pretraining is None:
        return None
    found = find_learner(place.learners, cell.sources, configs.pretraining)
    if found is None:
        raise RunFailed(f"the learner of {'+'.join(cell.sources)} must be there; got none")
    return found


def _train(
    method: str,
    data: Data,
    configs: Sequence[RunConfig],
    learners: Sequence[StructureLearner | None],
    seen: "_Seen | None" = None,
    every: int | None = None,
) -> Sequence[Result]:
    thetas = [learner for learner in learners if learner is not None]
    shared = all(theta is thetas[0] for theta in thetas)
    if not thetas:
        return fit_many(method, data, configs)
    transfers = [config for config in configs if isinstance(config, TransferConfig)]
    if seen is None:
        each = thetas[: len(transfers)]  # a warm-up is one run
        return transfer_many(each[0] if shared else each, data, transfers)
    assert every is not None
    observer = StructureObserver(every, seen.look)
    return [transfer(thetas[0], data, transfers[0], observer=observer)]


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
        found = {name: values[:count] for name, values in self.found.items()}
        given = {f"input_{name}": value for name, value in self.given.items()}
        return {"epoch": self.epochs[:count], **found, **given}


def _pretrain_seconds(learner: StructureLearner | None) -> float | None:
    return None if learner is None else learner.provenance.get("seconds")


def _reset_peak(device: torch.device) -> None:
    """Let the peak of this process begin anew, where the system can (Linux)."""
    if device.type == "cpu":
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
