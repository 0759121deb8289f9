"""What is missing: the runs that cells ask for, less those that rows hold already.

A run is known by everything its result is a function of (:func:`~.rows.same_run`). So changed
settings make a cell run anew, and cells that ask for the same run, in one experiment or in
several, share it: each gets a row of its own, and the run is made once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphglow.baselines import METHODS
from graphglow.experiments.paper.cells import Cell
from graphglow.experiments.runs.config import Configs, ReproduceConfig, configs_of
from graphglow.experiments.runs.learners import Lesson, find_learner
from graphglow.experiments.runs.rows import ResultRow, same_run
from graphglow.experiments.runs.run import Runs, cell_facts, run_facts
from graphglow.experiments.search.settings import Settings


@dataclass
class Wanted:
    """One run, and the cells that want it; the first of them makes it."""

    cells: list[Cell]
    configs: Configs

    def can_batch(self) -> bool:
        """Whether it can be one program with runs of its cell that differ in the seed."""
        if any(c.timed or c.observe_every or c.damage for c in self.cells):
            return False
        return self.configs.pretraining is not None or METHODS[self.cells[0].method].batched


@dataclass
class Plan:
    """What there is to do, and what is done."""

    copies: list[ResultRow] = field(default_factory=list)
    """Rows of runs that were made for other cells."""
    wanted: dict[str, Wanted] = field(default_factory=dict)
    """Runs to be made."""
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By experiment, what its cells ask for: done, failed, to be copied from rows of other cells,
    to be shared with a cell that is counted as missing, missing. The last add up to the runs."""

    jobs: dict[Runs, list[Wanted]] = field(default_factory=dict)
    """The same as jobs, of one run or a batch of them, in the order of the cells."""
    learners: dict[Lesson, Path | None] = field(default_factory=dict)
    """Those that jobs need, in their order, each with its file if it is there."""

    @property
    def lessons(self) -> list[Lesson]:
        """Learners to be made."""
        return [lesson for lesson, path in self.learners.items() if path is None]

    @property
    def graphs(self) -> list[str]:
        """Names of the graphs that are read."""
        sources = [name for lesson in self.lessons for name in lesson.sources]
        return list(dict.fromkeys([*(job.cell.target for job in self.jobs), *sources]))


def make_plan(
    cells: Iterable[Cell],
    config: ReproduceConfig,
    settings: Settings,
    rows: Iterable[ResultRow],
    learners: Path,
) -> Plan:
    """Compare what cells ask for with the rows, and the folder of learners, that there are."""
    plan = Plan()
    known: dict[str | None, list[ResultRow]] = {}
    latest: dict[tuple[str, str, int], str | None] = {}
    for row in rows:
        if row.ended:
            latest[row.slot] = key = same_run(vars(row))
            known.setdefault(key, []).append(row)
    for cell in cells:
        counts = plan.counts.setdefault(
            cell.experiment, {"done": 0, "failed": 0, "copied": 0, "shared": 0, "missing": 0}
        )
        for seed in range(config.seed, config.seed + config.seeds):
            configs = configs_of(cell, seed, settings, config)
            key = same_run(run_facts(cell, configs))
            assert key is not None
            usable = [row for row in known.get(key, ()) if not (row.error and config.retry_failed)]
            slot = (cell.experiment, cell.key, seed)
            own = [row for row in usable if row.slot == slot and latest[slot] == key]
            if cell.timed:  # seconds are never another experiment's
                usable = own = [row for row in own if row.timed or row.error]
            if own:
                counts["failed" if own[-1].error else "done"] += 1
            elif usable:
                best = max(usable, key=lambda row: not row.error)
                plan.copies.append(taken_over(best, cell))
                counts["copied"] += 1
            else:
                counts["shared" if key in plan.wanted else "missing"] += 1
                wanted = plan.wanted.setdefault(key, Wanted([], configs))
                # a run that is timed serves all; one that is not, only those that ask for no time
                wanted.cells.insert(0 if cell.timed else len(wanted.cells), cell)
    groups: dict[Any, list[Wanted]] = {}
    for key, wanted in plan.wanted.items():
        cell = wanted.cells[0]
        together = config.batch_seeds and wanted.can_batch()
        groups.setdefault((cell.experiment, cell.key) if together else key, []).append(wanted)
    for group in groups.values():
        job = Runs(cell=group[0].cells[0], configs=tuple(wanted.configs for wanted in group))
        plan.jobs[job] = group
        for lesson in job.lessons:
            if lesson is not None and lesson not in plan.learners:
                plan.learners[lesson] = find_learner(learners, lesson)
    return plan


def taken_over(row: ResultRow, cell: Cell) -> ResultRow:
    """The row of another cell that asks for the same run."""
    return replace(row, **cell_facts(cell), copied_from=row.experiment)
