"""Run what is missing of the paper's tables and figures, and append a row for each run.

graphglow reproduce table1 --targets reed98 --seeds 5

Rows are written whole, one at a time, as runs end: Ctrl-C or a kill loses at most what is being
trained, and a rerun does the rest. They lie in a folder, a file for each experiment, or in one file
(``.jsonl``); what lies beside a file, packed (``.jsonl.gz``), is read first. Learners lie in a
folder beside the rows.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from graphglow.errors import InputError
from graphglow.experiments.paper.cells import Cell
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.config import ReproduceConfig
from graphglow.experiments.runs.executor import (
    RunFailed,
    WorkerLost,
    Workers,
    open_executor,
    ray_address,
    result_of,
)
from graphglow.experiments.runs.learners import (
    Lesson,
    keep_learner,
    load_with_split,
    without_files,
)
from graphglow.experiments.runs.plan import Plan, make_plan, taken_over
from graphglow.experiments.runs.rows import ResultRow, RowFile, append_row, read_rows
from graphglow.experiments.runs.run import Place, Runs, failed, perform, teach
from graphglow.experiments.search.settings import Settings
from graphglow.graphs.load import data_folder


class Progress(NamedTuple):
    """Where a reproduction stands; ``running`` says what is being trained."""

    done: int
    total: int
    failed: int
    running: tuple[str, ...]


OnProgress = Callable[[Progress], None]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: so many ``rows`` have been written; what was being trained is lost."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows


class Outcome(NamedTuple):
    """What a reproduction did."""

    made: int
    copied: int
    failed: int
    """Of those made."""
    errors: dict[str, int]
    """Why, in the first such row's words, and how often."""
    seconds: float


def row_files(out: Path) -> list[Path]:
    """The files of rows that ``out`` stands for, those that are there, the packed ones first."""
    if out.suffix == ".jsonl":
        return [path for path in (out.with_name(f"{out.name}.gz"), out) if path.exists()]
    return [*sorted(out.glob("*.jsonl.gz")), *sorted(out.glob("*.jsonl"))]


def found_rows(out: Path) -> list[RowFile]:
    """What they hold; a file that is no file of rows is refused."""
    files = [read_rows(path) for path in row_files(out)]
    for file in files:
        if file.foreign:
            raise InputError(
                f"the rows must be in a file of JSON lines; got {file.path} ({file.foreign})"
            )
    return files


def learner_folder(out: Path) -> Path:
    """Where the learners of the rows in ``out`` are."""
    return out.with_name(f"{out.stem}_learners")


def reproduce(
    cells: Iterable[Cell],
    out: Path,
    config: ReproduceConfig,
    settings: Settings,
    *,
    data_root: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """Make the runs of ``cells`` that ``out`` has no rows of, and append a row for each.

    A run that fails is a row too, with ``error`` and no accuracy.

    Args:
        cells: See :func:`~graphglow.experiments.paper.cells.select_cells`.
        out: The folder or file of rows.
        config: Seeds, processes, and what is fixed in every run.
        settings: The tuned ones.
        data_root: Where the raw files of named graphs are.
        on_progress: Called as jobs begin and end.
    """
    began, address = time.perf_counter(), ray_address(config.executor)
    rows = [row for file in found_rows(out) for row in file.rows]
    with open_executor(config.processes, address, device=config.device) as workers:
        if address is not None:
            config = replace(config, device=workers.device)  # of the nodes, not of this machine
        plan = make_plan(cells, config, settings, rows, learner_folder(out))
        place = Place(
            data_root=data_folder(data_root).absolute(),
            threads=workers.threads,
            processes=workers.processes,
            device=workers.device,
            commit=provenance()["commit"],
        )
        work = _Work(plan, workers, place, out, on_progress)
        try:
            for row in plan.copies:
                work.append(row)
            work.run()
        except KeyboardInterrupt as error:
            raise Interrupted(work.rows) from error
    errors = dict(work.errors.values())
    seconds = time.perf_counter() - began
    return Outcome(work.made, len(plan.copies), sum(errors.values()), errors, seconds)


class _Work:
    """Keeps the workers busy until nothing is left, and writes rows as they come."""

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        place: Place,
        out: Path,
        on_progress: OnProgress | None,
    ) -> None:
        self.workers, self.place, self.out, self.on_progress = workers, place, out, on_progress
        for name in without_files(plan.graphs, place.data_root):
            load_with_split(name, place.data_root)  # raises as a run would, or fetches it
        self.wanted = dict(plan.jobs)
        self.learners = {one: path.read_bytes() for one, path in plan.learners.items() if path}
        self.refused: dict[Lesson, str] = {}
        """Learners that could not be made, and why."""
        self.queue: list[Lesson | Runs] = []
        missing = set(plan.lessons)
        for job in plan.jobs:  # each learner before who needs it first
            for lesson in job.lessons:
                if lesson in missing:
                    missing.remove(lesson)
                    self.queue.append(lesson)
            self.queue.append(job)
        self.total = len(self.queue)
        self.running: dict[Future[Any], Lesson | Runs] = {}
        self.lost: set[Lesson | Runs] = set()
        """What was being done as a process was killed: it is done again, alone."""
        self.made, self.rows = 0, 0
        self.errors: dict[str, tuple[str, int]] = {}  # by the rule that was broken

    def run(self) -> None:
        """All jobs; what has ended is kept, however this ends."""
        try:
            while True:
                while len(self.running) < self.workers.processes and (job := self._next()):
                    self._begin(job)
                if not self.running:
                    return
                for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                    self._end(future, self.running.pop(future))
                    self._tell()
        except BaseException:
            for future, job in self.running.items():
                with suppress(Exception):
                    if future.done() and future.exception() is None:
                        self._end(future, job)
            raise

    def _next(self) -> Lesson | Runs | None:
        """The first job whose learners are there."""
        if self.lost.intersection(self.running.values()):
            return None
        for job in self.queue:
            needs = job.lessons if isinstance(job, Runs) else []
            ready = all(one is None or one in self.learners | self.refused for one in needs)
            if ready and not (job in self.lost and self.running):
                self.queue.remove(job)
                return job
        return None

    def _begin(self, job: Lesson | Runs) -> None:
        self._tell(job)
        if isinstance(job, Lesson):
            self.running[self.workers.submit(teach, job, self.place)] = job
            return
        for lesson in job.lessons:
            if lesson in self.refused:
                self._write(failed(job, self.refused[lesson], self.place), job)
                return
        learners = {lesson: self.learners[lesson] for lesson in job.lessons if lesson}
        self.running[self.workers.submit(perform, job, self.place, learners)] = job

    def _end(self, future: Future[Any], job: Lesson | Runs) -> None:
        failure = None
        try:
            result = result_of(future)
        except WorkerLost as error:
            if job not in self.lost:
                self._again(job)
                return
            failure = str(error)
        except RunFailed as error:
            failure = str(error)
        if isinstance(job, Runs):
            self._write(result if failure is None else failed(job, failure, self.place), job)
        elif failure is None:
            keep_learner(learner_folder(self.out), job, result)
            self.learners[job] = result
        else:
            self.refused[job] = f"pre-training on {'+'.join(job.sources)} failed: {failure}"

    def _again(self, job: Lesson | Runs) -> None:
        """Put a job back that was lost with its process; of a batch, each run by itself."""
        again: list[Lesson | Runs] = [job]
        if isinstance(job, Runs):
            again = [*(apart := job.apart())]
            self.wanted |= {one: [w] for one, w in zip(apart, self.wanted[job], strict=True)}
        self.lost.update(again)
        self.queue += again

    def _write(self, rows: Sequence[ResultRow], job: Runs) -> None:
        """A row for every cell that wants the run."""
        for row, wanted in zip(rows, self.wanted[job], strict=True):
            for cell in wanted.cells:
                self.append(row if cell is job.cell else taken_over(row, cell))
            self.made += 1
            if row.error:
                rule = row.error.split(";")[0]
                first, count = self.errors.get(rule, (row.error, 0))
                self.errors[rule] = first, count + 1

    def append(self, row: ResultRow) -> None:
        single = self.out.suffix == ".jsonl"
        append_row(self.out if single else self.out / f"{row.experiment}.jsonl", row)
        self.rows += 1

    def _tell(self, *beginning: Lesson | Runs) -> None:
        if self.on_progress is None:
            return
        jobs = [*self.running.values(), *beginning]
        self.total = max(self.total, len(self.queue) + len(jobs))  # a batch may come apart
        done = self.total - len(self.queue) - len(jobs)
        failures = sum(count for _, count in self.errors.values())
        self.on_progress(Progress(done, self.total, failures, tuple(map(_said, jobs))))


def _said(job: Lesson | Runs) -> str:
    if isinstance(job, Lesson):
        return f"pre-training on {'+'.join(job.sources)}, seed {job.config.seed}"
    seeds = ", ".join(str(configs.run.seed) for configs in job.configs)
    return f"{job.cell.label} on {job.cell.target}, seed {seeds}"
