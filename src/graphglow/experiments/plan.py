"""What is missing: the runs that cells ask for, less those that the rows of a file hold already.

A run is known by everything its result is a function of (:func:`~.cell_rows.same_run`). So changed
settings make a cell run anew, and cells that ask for the same run, in one experiment or in
several, share it: each gets a row of its own, and the run is made once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphglow.baselines.methods import METHODS
from graphglow.checks import at_least
from graphglow.errors import InputError
from graphglow.experiments.cell import Cell
from graphglow.experiments.cell_config import Configs, Protocol, configs_of
from graphglow.experiments.cell_rows import (
    latest,
    run_facts,
    same_run,
    slot_of,
    taken_over,
)
from graphglow.experiments.cell_run import Runs
from graphglow.experiments.row_checks import Row
from graphglow.experiments.search.settings import Settings
from graphglow.experiments.workers import ray_address
from graphglow.training.config import LARGEST_SEED


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig(Protocol):
    """How the cells of experiments are run."""

    seeds: int = 5
    """Runs of each cell, with seeds that follow each other."""
    seed: int = 0
    """The first of these seeds."""
    batch_seeds: bool = False
    """Train the seeds of a cell as one program where the method allows it: faster on a GPU."""
    retry_failed: bool = False
    """Make runs again that failed before (out of memory, a loss that is not finite)."""
    executor: str = "local"
    """Where runs are made: local, in processes of this machine; ray, on the Ray cluster that this
    machine has, or one that is started for it; ray:ADDRESS, on a cluster elsewhere (ray:auto,
    ray:10.0.0.1:6379, ray:ray://host:10001). A worker that dies is replaced, and rows are written
    here, once. Needs Ray: pip install "graphglow[ray]"."""
    processes: int | None = None
    """Runs at the same time, each in a process of its own; None: one per core, one on a GPU; with
    ray, one per CPU of the cluster, or per GPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("seeds", self.seeds, 1)
        at_least("seed", self.seed, 0)
        if self.seed + self.seeds - 1 > LARGEST_SEED:
            raise InputError(f"seeds must be <= {LARGEST_SEED}; got {self.seed} for the first")
        ray_address(self.executor)
        if self.processes is not None:
            at_least("processes", self.processes, 1)


Where = tuple[Any, Any, Any]
"""Device, threads and machine."""


@dataclass
class Wanted:
    """One run, and the cells that want it; the first of them makes it."""

    cells: list[Cell]
    configs: Configs


@dataclass
class Plan:
    """What there is to do, and what is done."""

    copies: list[Row] = field(default_factory=list)
    """Rows of runs that were made for other cells."""
    wanted: dict[str, Wanted] = field(default_factory=dict)
    """Runs to be made."""
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By experiment, what its cells ask for: done, failed, to be copied from rows of other cells,
    to be shared with a cell that is counted as missing, missing. The last add up to the runs."""

    def jobs(self, *, batch_seeds: bool) -> list[tuple[Runs, list[Wanted]]]:
        """Jobs, each with the runs that it makes, in the order of the cells."""
        groups: dict[Any, list[Wanted]] = {}
        for key, wanted in self.wanted.items():
            cell = wanted.cells[0]
            together = batch_seeds and can_batch(wanted)
            groups.setdefault((cell.experiment, cell.key) if together else key, []).append(wanted)
        return [
            (Runs(cell=group[0].cells[0], configs=tuple(w.configs for w in group)), group)
            for group in groups.values()
        ]


def can_batch(wanted: Wanted) -> bool:
    """Whether runs of a cell that differ in the seed can be one program."""
    cell, (_, pretraining) = wanted.cells[0], wanted.configs
    if any(c.timed or c.observe_every for c in wanted.cells) or cell.damage is not None:
        return False
    if pretraining is not None:
        return True  # where learners cannot be stacked, one after another
    return METHODS[cell.method].batched


def make_plan(
    cells: Iterable[Cell],
    config: ReproduceConfig,
    settings: Settings,
    rows: Sequence[Row],
    where: Where,
) -> Plan:
    """Compare what cells ask for with the rows that there are.

    Args:
        cells: Of any experiments.
        config: Seeds, and what is fixed.
        settings: The tuned ones.
        rows: Of the file.
        where: This machine: seconds are taken over only from runs that were made alike.
    """
    plan = Plan()
    now = {slot_of(row): row for row in latest(rows)}
    known: dict[str, list[Row]] = {}
    for row in rows:
        key = same_run(row)
        if key is not None:
            known.setdefault(key, []).append(row)
    for cell in cells:
        counts = plan.counts.setdefault(
            cell.experiment, {"done": 0, "failed": 0, "copied": 0, "shared": 0, "missing": 0}
        )
        for seed in range(config.seed, config.seed + config.seeds):
            configs = configs_of(cell, seed, settings, config)
            key = same_run(run_facts(cell, configs))
            assert key is not None
            own = now.get((cell.experiment, cell.key, seed))
            if own is not None and same_run(own) == key and _serves(own, cell, config, None):
                counts["failed" if own.get("error") else "done"] += 1
                continue
            others = [row for row in known.get(key, ()) if _serves(row, cell, config, where)]
            if others:
                best = max(others, key=lambda row: not row.get("error"))
                plan.copies.append(taken_over(best, cell))
                counts["copied"] += 1
                continue
            counts["shared" if key in plan.wanted else "missing"] += 1
            wanted = plan.wanted.setdefault(key, Wanted([], configs))
            # a run that is timed serves all; one that is not, only those that ask for no time
            wanted.cells.insert(0 if cell.timed else len(wanted.cells), cell)
    return plan


def where_of(row: Row) -> Where:
    """Device, threads and machine of a row."""
    machine = (row.get("provenance") or {}).get("machine")
    return row.get("device"), row.get("threads"), machine


def _serves(row: Row, cell: Cell, config: ReproduceConfig, where: Where | None) -> bool:
    """Whether a row of the same run will do for a cell; ``where`` is given for another's row."""
    if row.get("error"):
        return not config.retry_failed
    if not cell.timed:
        return True
    return bool(row.get("timed")) and where in (None, where_of(row))
