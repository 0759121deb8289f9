"""Run what is missing of the paper's tables and figures, and append a row for each run.

graphglow reproduce table1 --targets reed98 --seeds 5

Rows are written whole, one at a time, as runs end: Ctrl-C or a kill loses at most what is being
trained, and a rerun does the rest. Learners lie in a folder beside the rows.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphglow.errors import InputError
from graphglow.experiments.cell import Cell
from graphglow.experiments.cell_rows import append_row, read_rows, taken_over
from graphglow.experiments.cell_run import Job, Learning, Place, RunFailed
from graphglow.experiments.learner_files import check_data
from graphglow.experiments.plan import Plan, ReproduceConfig, make_plan
from graphglow.experiments.provenance import provenance
from graphglow.experiments.ray_workers import RayWorkers, ray_workers
from graphglow.experiments.row_checks import Row
from graphglow.experiments.schedule import Entry, Lesson, Schedule
from graphglow.experiments.search.settings import Settings
from graphglow.experiments.time_left import TimeLeft
from graphglow.experiments.workers import Workers, ray_address, threads_for
from graphglow.storage import try_lock
from graphglow.training.device import resolve_device

SOMEWHERE = (None, None, "a node of Ray")
"""Where a run is made if that is not known yet: no seconds of other runs are taken over."""
LOCK = ".reproduce.lock"
KILLED = "the run must fit in memory; its process was killed, as the system does where it does not"


class Progress(NamedTuple):
    """Where a reproduction stands; ``running`` says what is being trained."""

    done: int
    total: int
    failed: int
    running: tuple[str, ...]
    seconds_left: float | None


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

    A run that fails is a row too, with ``error`` and no accuracy. Another reproduction with the
    same ``out`` at the same time is refused: it would make the same runs again.

    Args:
        cells: See :func:`~graphglow.experiments.selection.select_cells`.
        out: The file of rows.
        config: Seeds, processes, and what is fixed in every run.
        settings: The tuned ones.
        data_root: Where the raw files of named graphs are.
        on_progress: Called as jobs begin and end.
    """
    began = time.perf_counter()
    with _alone(out), _workers(config) as workers:
        if isinstance(workers, RayWorkers):
            config = replace(config, device=workers.device)  # of the nodes, not of this machine
            device: str = workers.device
        else:
            device = resolve_device(config.device).type
        place = Place(
            data_root=data_root,
            learners=learner_folder(out),
            threads=workers.threads,
            processes=len(workers.all),
            device=device,
            provenance=provenance(),
        )
        plan = planned(cells, out, config, settings)
        schedule = Schedule(plan.jobs(batch_seeds=config.batch_seeds), place.learners)
        check_data(schedule.graphs(), data_root)
        work = _Work(schedule, workers, place, out, on_progress)
        try:
            work.copy(plan.copies)
            work.run()
        except KeyboardInterrupt as error:
            raise Interrupted(work.rows) from error
    return Outcome(
        made=work.made,
        copied=len(plan.copies),
        failed=work.failed,
        errors=dict(work.errors.values()),
        seconds=time.perf_counter() - began,
    )


def planned(cells: Iterable[Cell], out: Path, config: ReproduceConfig, settings: Settings) -> Plan:
    """What is missing in ``out``."""
    if ray_address(config.executor) is not None:
        return make_plan(cells, config, settings, read_rows(out), SOMEWHERE)
    threads = threads_for(processes_for(config))
    where = (resolve_device(config.device).type, threads, provenance()["machine"])
    return make_plan(cells, config, settings, read_rows(out), where)


def learner_folder(out: Path) -> Path:
    """Where the learners of the rows in ``out`` are."""
    return out.with_name(f"{out.stem}_learners")


def _alone(out: Path) -> AbstractContextManager[None]:
    """Keep other reproductions from the same rows."""
    return alone(
        learner_folder(out) / LOCK,
        f"rows must be made by one process at a time; got {out}, which another is adding to "
        "(with another --out it may go on)",
    )


def _workers(config: ReproduceConfig) -> AbstractContextManager[Workers | RayWorkers]:
    address = ray_address(config.executor)
    if address is None:
        return Workers(processes_for(config))
    return ray_workers(address, device=config.device, processes=config.processes)


def processes_for(config: ReproduceConfig) -> int:
    """Processes to use: as asked, else one for each core, and one on a GPU."""
    if config.processes is not None:
        return config.processes
    return 1 if resolve_device(config.device).type == "cuda" else torch.get_num_threads()


class _Begun(NamedTuple):
    """A job that a worker is at."""

    item: Entry | Lesson
    worker: Any
    at: float


class _Work:
    """Keeps the workers busy until nothing is left, and writes rows as they come."""

    def __init__(
        self,
        schedule: Schedule,
        workers: Workers | RayWorkers,
        place: Place,
        out: Path,
        on_progress: OnProgress | None,
    ) -> None:
        self.schedule, self.workers, self.place, self.out = schedule, workers, place, out
        self.on_progress = on_progress
        self.running: dict[Future[Any], _Begun] = {}
        self.time_left = TimeLeft()
        self.total = len(schedule.left())
        self.made, self.failed, self.rows = 0, 0, 0
        self.defined: set[str] = set()  # in the file, by this process
        self.errors: dict[str, tuple[str, int]] = {}  # by the rule that was broken

    def copy(self, rows: Iterable[Row]) -> None:
        """Write rows of runs that were made before, for other cells."""
        for row in rows:
            self._append(row)

    def run(self) -> None:
        """All jobs; what has ended is kept, however this ends."""
        free = list(self.workers.all)
        try:
            while True:
                while free and (item := self.schedule.next()) is not None:
                    self._begin(item, free)
                if not self.running:
                    return
                finished, _ = wait(self.running, return_when=FIRST_COMPLETED)
                for future in finished:
                    begun = self.running.pop(future)
                    free.append(begun.worker)
                    self._end(future, begun)
        except BaseException:
            for future in [future for future in self.running if future.done()]:
                if not isinstance(future.exception(), BrokenProcessPool):  # it heard SIGTERM too
                    with suppress(Exception):
                        self._end(future, self.running.pop(future))
            raise

    def _begin(self, item: Entry | Lesson, free: list[Any]) -> None:
        failure = self.schedule.failure(item) if isinstance(item, Entry) else None
        if failure is not None:
            assert isinstance(item, Entry)
            self._write(item.job.failed(failure, self.place), item)
            return
        worker, at = free.pop(), time.perf_counter()
        self._tell(item.job)
        future = self.workers.perform(worker, item.job, self.place)
        self.running[future] = _Begun(item, worker, at)

    def _end(self, future: Future[Any], begun: _Begun) -> None:
        item = begun.item
        self.time_left.learn(item.job, time.perf_counter() - begun.at)
        failure: str | None = None
        try:
            rows = future.result()
        except BrokenProcessPool:
            begun.worker.lose()
            failure = KILLED
        except RunFailed as error:
            failure = str(error)
        if isinstance(item, Lesson):
            self.schedule.learned(item, failure)
        elif failure is None:
            self._write(rows, item)
        elif len(item.wanted) > 1:
            self.schedule.split(item)
        else:
            self._write(item.job.failed(failure, self.place), item)
        self._tell()

    def _write(self, rows: Sequence[Row], entry: Entry) -> None:
        """A row for every cell that wants the run."""
        for row, wanted in zip(rows, entry.wanted, strict=True):
            for cell in wanted.cells:
                mine = cell is entry.job.cell
                self._append(row if mine else taken_over(row, cell))
            self.made += 1
            if row["error"]:
                self.failed += 1
                rule = row["error"].split(";")[0]
                first, count = self.errors.get(rule, (row["error"], 0))
                self.errors[rule] = first, count + 1

    def _append(self, row: Row) -> None:
        append_row(self.out, row, self.defined)
        self.rows += 1

    def _tell(self, *beginning: Job) -> None:
        if self.on_progress is None:
            return
        jobs = [*(begun.item.job for begun in self.running.values()), *beginning]
        left = self.schedule.left()
        self.total = max(self.total, len(left) + len(jobs))  # a batch may come apart
        self.on_progress(
            Progress(
                done=self.total - len(left) - len(jobs),
                total=self.total,
                failed=self.failed,
                running=tuple(map(_said, jobs)),
                seconds_left=self.time_left.of([*jobs, *left], len(self.workers.all)),
            )
        )


def _said(job: Job) -> str:
    if isinstance(job, Learning):
        return f"pre-training on {'+'.join(job.sources)}, seed {job.config.seed}"
    seeds = ", ".join(str(configs.run.seed) for configs in job.configs)
    return f"{job.cell.label} on {job.cell.target}, seed {seeds}"


@contextmanager
def alone(path: Path, refusal: str) -> Iterator[None]:
    """Let one process into the block, and raise ``refusal`` in others that come meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = try_lock(path)
    if file is None:
        raise InputError(refusal)
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()
