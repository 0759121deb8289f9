"""Run what is missing of the paper's tables and figures, and append a row for each run.

graphglow reproduce table1 --targets reed98 --seeds 5

A run is known by everything its result is a function of (:func:`~.rows.same_run`). So changed
settings make a cell run anew, and cells that ask for the same run, in one experiment or in
several, share it: each gets a row of its own, and the run is made once.

Rows are written whole, one at a time, as runs end: Ctrl-C or a kill loses at most what is being
trained, and a rerun does the rest. They lie in a folder, a file for each experiment, or in one file
(``.jsonl``); what lies beside a file, packed (``.jsonl.gz``), is read first. Learners lie in a
folder beside the rows.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from graphglow.errors import InputError
from graphglow.graph.load import data_folder
from graphglow.lab import Told, unheard
from graphglow.lab.paper import EVIDENCE, PRETRAINED
from graphglow.lab.paper.cells import EXPERIMENTS, Cell
from graphglow.lab.provenance import provenance
from graphglow.lab.runs.config import (
    ReproduceConfig,
    Run,
    as_compared,
    config_kind,
    merged,
    run_of,
    tuned_settings,
)
from graphglow.lab.runs.learners import (
    Lesson,
    find_learner,
    keep_learner,
    load_with_split,
    without_files,
)
from graphglow.lab.runs.rows import (
    ResultRow,
    RowFile,
    line_of,
    read_rows,
    same_run,
    same_settings,
    shortened,
)
from graphglow.lab.runs.run import cell_facts, failed_row, lesson_of, perform, teach
from graphglow.lab.settings import Settings
from graphglow.storage import append_line
from graphglow.workers.executor import (
    RunFailed,
    Workers,
    open_executor,
    ray_address,
    result_of,
)

Twins = list[Run]
"""One run as several cells ask for it: the first is made, and serves the others."""
Job = list[Twins]
"""Runs that are trained together: one, or a batch of those of a cell."""
COUNTED = ("done", "failed", "copied", "shared", "missing")


class Outcome(NamedTuple):
    """What a reproduction did; ``errors`` says which rules failed runs broke, and how often."""

    made: int
    copied: int
    failed: int
    errors: dict[str, int]
    seconds: float


def found_rows(out: Path) -> list[RowFile]:
    """The files of rows that ``out`` stands for, packed ones first; what is none is refused."""
    if out.suffix != ".jsonl":
        paths = [*sorted(out.glob("*.jsonl.gz")), *sorted(out.glob("*.jsonl"))]
        return [read_rows(path) for path in paths]
    both = (out.with_name(f"{out.name}.gz"), out)
    files = [read_rows(path) for path in both if path.exists()]
    for file in files:
        if file.damaged and not file.rows:
            raise InputError(f"the rows must be in a file of rows; got {file.skipped}")
    return files


def learner_folder(out: Path) -> Path:
    """Where the learners of the rows in ``out`` are."""
    return out.with_name(f"{out.stem}_learners")


def with_outdated(rows: Iterable[ResultRow], settings: Settings) -> list[ResultRow]:
    """The rows, with those marked whose cells are made with other settings or learners today."""
    cells = {(cell.experiment, cell.key): cell for made in EXPERIMENTS.values() for cell in made()}
    known = ((row, cells.get(row.slot[:2])) for row in rows)
    return [
        replace(row, outdated=cell is not None and _is_outdated(row, cell, settings))
        for row, cell in known
    ]


def _is_outdated(row: ResultRow, cell: Cell, settings: Settings) -> bool:
    if cell.method in EVIDENCE:  # nothing is tuned; the learner itself may be another one
        today = run_of(cell, row.seed, settings, ReproduceConfig()).facts()
        same = {name: today[name] for name in ("config", "pretraining")}
        return same_settings(replace(row, **same)) != same_settings(row)
    tuned = tuned_settings(cell, settings)
    if cell.method in PRETRAINED:
        tuned = tuned.get("transfer", {})
    held = as_compared(config_kind(cell.method), merged(tuned, cell.settings))
    used = as_compared(config_kind(cell.method), row.config)
    return any(held.get(name) != used.get(name) for name in tuned)


class Plan(NamedTuple):
    """What there is to do, and what is done."""

    copies: list[ResultRow]
    """Rows of runs that were made for other cells."""
    jobs: list[Job]
    """Runs to be made."""
    learners: dict[Lesson, Path | None]
    """Those that jobs need, each with its file if it is there."""
    counts: dict[str, dict[str, int]]
    """By experiment, what its cells ask for: done, failed, to be copied from rows of other cells,
    to be shared with a cell that is counted as missing, missing. The last add up to the runs."""

    @property
    def runs(self) -> list[Twins]:
        """What is to be made, one by one."""
        return [twins for job in self.jobs for twins in job]

    @property
    def lessons(self) -> list[Lesson]:
        """Learners to be made."""
        return [lesson for lesson, path in self.learners.items() if path is None]

    @property
    def graphs(self) -> list[str]:
        """Names of the graphs that are read."""
        sources = [name for lesson in self.lessons for name in lesson.sources]
        return list(dict.fromkeys([*(job[0][0].cell.target for job in self.jobs), *sources]))


def make_plan(
    cells: Iterable[Cell],
    config: ReproduceConfig,
    settings: Settings,
    rows: Iterable[ResultRow],
    learners: Path,
) -> Plan:
    """Compare what cells ask for with the rows, and the folder of learners, that there are."""
    copies: list[ResultRow] = []
    wanted: dict[str, Twins] = {}
    counted: dict[str, dict[str, int]] = {}
    known: dict[str, list[ResultRow]] = {}
    latest: dict[tuple[str, str, int], str] = {}
    for row in rows:
        if row.ended:
            latest[row.slot] = key = same_run(vars(row))
            known.setdefault(key, []).append(row)
    for cell in cells:
        counts = counted.setdefault(cell.experiment, dict.fromkeys(COUNTED, 0))
        seeds = 1 if cell.timed else config.seeds  # those of one cell take as long as each other
        for seed in range(config.seed, config.seed + seeds):
            run = run_of(cell, seed, settings, config)
            key = same_run(run.facts())
            usable = [row for row in known.get(key, ()) if not (row.error and config.retry_failed)]
            slot = (cell.experiment, cell.key, seed)
            own = [row for row in usable if row.slot == slot and latest[slot] == key]
            if cell.timed:  # seconds are never another experiment's
                usable = own = [row for row in own if row.timed or row.error]
            if own:
                counts["failed" if own[-1].error else "done"] += 1
            elif usable:
                best = max(usable, key=lambda row: not row.error)
                copies.append(_taken_over(best, cell))
                counts["copied"] += 1
            else:
                counts["shared" if key in wanted else "missing"] += 1
                twins = wanted.setdefault(key, [])
                # a run that is timed serves all; one that is not, only those that ask for no time
                twins.insert(0 if cell.timed else len(twins), run)
    groups: dict[Any, Job] = {}
    for key, twins in wanted.items():
        cell = twins[0].cell
        together = config.batch_seeds and _can_batch(twins)
        groups.setdefault((cell.experiment, cell.key) if together else key, []).append(twins)
    jobs = list(groups.values())
    lessons = dict.fromkeys(lesson for job in jobs for lesson in _lessons(job))
    files = {lesson: find_learner(learners, lesson) for lesson in lessons}
    return Plan(copies, jobs, files, counted)


def _taken_over(row: ResultRow, cell: Cell) -> ResultRow:
    """The row of another cell that asks for the same run."""
    return replace(row, **cell_facts(cell), copied_from=row.experiment)


def _can_batch(twins: Twins) -> bool:
    """Whether a run can be one program with runs of its cell that differ in the seed."""
    if any(run.cell.timed or run.cell.observe_every or run.cell.damage for run in twins):
        return False
    if twins[0].cell.method in EVIDENCE:  # each run is a batch by itself
        return False
    return twins[0].pretraining is not None


def _lessons(job: Job) -> list[Lesson]:
    return [lesson for twins in job if (lesson := lesson_of(twins[0]))]


def reproduce(
    cells: Iterable[Cell],
    out: Path,
    config: ReproduceConfig,
    settings: Settings,
    *,
    data_root: Path | None = None,
    told: Told = unheard,
) -> Outcome:
    """Make the runs of ``cells`` that ``out`` has no rows of, and append a row for each.

    A run that fails is a row too, with ``error`` and no accuracy.

    Args:
        cells: See :func:`~graphglow.lab.paper.cells.select_cells`.
        out: The folder or file of rows.
        config: Seeds, processes, and what is fixed in every run.
        settings: The tuned ones.
        data_root: Where the raw files of named graphs are.
        told: Called as jobs begin and end.
    """
    began, address = time.perf_counter(), ray_address(config.executor)
    rows = [row for file in found_rows(out) for row in file.rows]
    with open_executor(config.processes, address, device=config.device) as workers:
        if address is not None:
            config = replace(config, device=workers.device)  # of the nodes, not of this machine
        plan = make_plan(cells, config, settings, rows, learner_folder(out))
        work = _Work(workers, out, told)
        work.run(plan, data_folder(data_root).absolute())
    errors, seconds = work.errors, time.perf_counter() - began
    return Outcome(work.made, len(plan.copies), errors.total(), dict(errors), seconds)


class _Work:
    """Keeps the workers busy, and writes rows as they come."""

    def __init__(self, workers: Workers, out: Path, told: Told) -> None:
        self.workers, self.out, self.told = workers, out, told
        self.commit = provenance()["commit"]  # once rows are written, the tree may look changed
        self.done = self.total = self.made = 0
        self.errors: Counter[str] = Counter()

    def run(self, plan: Plan, data_root: Path) -> None:
        """Copy rows, pre-train, then make the runs."""
        for name in without_files(plan.graphs, data_root):
            load_with_split(name, data_root)  # raises as a run would, or fetches it
        for row in plan.copies:
            self._append(row)
        self.total = len(plan.lessons) + len(plan.jobs)
        learners: dict[Lesson, bytes | str]  # the content of its file, or why there is none
        learners = {one: path.read_bytes() for one, path in plan.learners.items() if path}
        for lesson, future in self._each(teach, ((one, one, data_root) for one in plan.lessons)):
            try:
                learners[lesson] = content = result_of(future)
                keep_learner(learner_folder(self.out), lesson, content)
            except RunFailed as error:
                learners[lesson] = f"pre-training on {'+'.join(lesson.sources)} failed: {error}"
        calls = (
            (job, [first for first, *_ in job], data_root, {n: learners[n] for n in _lessons(job)})
            for job in plan.jobs
        )
        for job, future in self._each(perform, calls):
            try:
                self._write(job, result_of(future))
            except RunFailed as error:  # Ray has given it up
                self._write(job, [failed_row(first, str(error)) for first, *_ in job])

    def _each(
        self, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, Future[Any]]]:
        """Call with what follows each first item; that and its future, as calls end."""
        waiting, running = iter(calls), dict[Future[Any], Any]()
        while True:
            for job, *given in islice(waiting, self.workers.processes - len(running)):
                self._tell([*running.values(), job])
                running[self.workers.submit(function, *given)] = job
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future
                self.done += 1
                self._tell(running.values())

    def _write(self, job: Job, rows: list[ResultRow]) -> None:
        """A row for every cell that wants the run."""
        threads, processes = self.workers.threads, self.workers.processes
        for row, (_, *others) in zip(rows, job, strict=True):
            whole = replace(row, threads=threads, processes=processes)
            whole = replace(whole, provenance={**row.provenance, "commit": self.commit})
            whole = replace(whole, device=row.device or self.workers.device)
            for one in (whole, *(_taken_over(whole, twin.cell) for twin in others)):
                self._append(one)
            self.made += 1
            if row.error:
                self.errors[row.error.split("; got")[0]] += 1  # the rule, without its numbers

    def _append(self, row: ResultRow) -> None:
        single = self.out.suffix == ".jsonl"
        path = self.out if single else self.out / f"{row.experiment}.jsonl"
        append_line(path, line_of(row))

    def _tell(self, running: Iterable[Lesson | Job]) -> None:
        failed = f"{self.errors.total()} failed  " if self.errors else ""
        self.told(failed + shortened(map(_said, running), most=1), self.done, self.total)


def _said(job: Lesson | Job) -> str:
    if isinstance(job, Lesson):
        return f"pre-training on {'+'.join(job.sources)}, seed {job.config.seed}"
    seeds = ", ".join(str(twins[0].config.seed) for twins in job)
    return f"{job[0][0].cell.label} on {job[0][0].cell.target}, seed {seeds}"
