"""Run what is missing of the suite, and append a row for each run.

graphglow reproduce open-world

A row is known by target, condition, method, seed, and by the settings or the learner that it was
made with. Jobs are ordered so that a suite that is stopped shows a whole picture: all targets under
the first conditions with the first seed, and so on. Learners of held-out families lie in a folder,
``fold0.safetensors`` to ``fold5.safetensors``, which ``benchmarks/predictor.py --train FOLDER``
makes; nothing is pre-trained here.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch

from graphglow.checks import at_least, one_of
from graphglow.device import resolve_device
from graphglow.errors import InputError
from graphglow.graph.load import data_folder
from graphglow.lab import Told, unheard
from graphglow.lab.open_world import methods as suite_methods
from graphglow.lab.open_world.methods import (
    BAGS,
    CHANNEL_MIXTURES,
    FOLDS,
    NAMES,
    NEED_LEARNER,
    POOL,
    accuracy,
    judged_nodes,
    run_methods,
)
from graphglow.lab.open_world.targets import (
    CONDITIONS,
    Target,
    attacked_files,
    draw,
    find_targets,
)
from graphglow.lab.provenance import provenance
from graphglow.lab.runs.reproduce import found_rows
from graphglow.lab.runs.rows import ResultRow, line_of
from graphglow.pretrained import UNIVERSAL, evidence_learner, learner_identity
from graphglow.settings import Device
from graphglow.storage import append_line
from graphglow.training.evidence import INPUT_WEIGHTS
from graphglow.workers.executor import Workers, open_executor, result_of

EXPERIMENT = "open-world"
ATTACKED = "cora"
"""The target of which attacked files are conditions."""


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """How the suite is run."""

    seeds: int = 5
    """Runs of each cell: each draws a split, damage and weights."""
    seconds: float | None = None
    """Stop after this long; rows so far stay, and the same command goes on."""
    small_workers: int = 1
    """Processes for small targets, on the CPU unless --device says cuda."""
    workers: int = 1
    """Processes for targets of some thousand nodes, on a GPU if there is one."""
    large_workers: int = 1
    """Processes for larger targets, on a GPU if there is one."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU, if there is one, for all but small targets."""

    def __post_init__(self) -> None:
        for name in ("seeds", "small_workers", "workers", "large_workers"):
            at_least(name, getattr(self, name), 1)
        one_of("device", self.device, get_args(Device))


class Job(NamedTuple):
    """Methods on one target under one condition with one seed."""

    target: Target
    condition: str
    seed: int
    learner: str
    methods: tuple[str, ...]

    def cell(self, method: str) -> str:
        """The cell of a row."""
        return f"{method}/{self.target.name}/{self.condition}"


class Outcome(NamedTuple):
    """What a run of the suite did."""

    made: int
    failed: int
    left: int
    """Jobs that there was no time for."""
    errors: dict[str, int]
    seconds: float


class Plan(NamedTuple):
    """What there is to do: jobs, each with the methods that have no row."""

    jobs: list[Job]

    @property
    def absent(self) -> list[str]:
        """Files of learners that jobs need and that are not there."""
        needed = (job.learner for job in self.jobs if {*job.methods} & {*NEED_LEARNER})
        return [name for name in dict.fromkeys(needed) if not _is_there(name)]


def run_suite(
    out: Path,
    config: SuiteConfig,
    *,
    learners: Path,
    data_root: Path | None = None,
    targets: Sequence[str] = (),
    conditions: Sequence[str] = (),
    methods: Sequence[str] = (),
    told: Told = unheard,
) -> Outcome:
    """Make the rows that the file ``out`` lacks, as far as there is time.

    Open graphs are in the folder ``open`` of the data root, held-out ``learners`` in a folder of
    their own. Where targets, conditions or methods are named, there are no others.
    """
    began, root = time.perf_counter(), data_folder(data_root)
    plan = plan_suite(out, config, learners, root, targets, conditions, methods)
    if plan.absent:
        files = ", ".join(Path(name).name for name in plan.absent)
        raise InputError(
            f"learners of held-out families are missing in {learners}: {files}. Make them with: "
            f"python benchmarks/predictor.py --train {learners}"
        )
    jobs, errors, made, finished = plan.jobs, Counter[str](), 0, 0
    origin = {name: provenance()[name] for name in ("commit", "date", "machine")}
    with ExitStack() as stack:
        pools = {
            tier: stack.enter_context(open_executor(count, device=device))
            for tier, (count, device) in _workers(config).items()
        }
        waiting = {tier: iter([j for j in jobs if j.target.tier == tier]) for tier in pools}
        left = None if config.seconds is None else config.seconds - (time.perf_counter() - began)
        for job, future in _each(pools, waiting, root, left):
            finished += 1
            for row in result_of(future):
                append_line(out, compact(replace(row, provenance=origin)))
                made += 1
                if row.error:
                    errors[row.error] += 1
            told(f"{job.target.name}, {job.condition}, seed {job.seed}", finished, len(jobs))
    seconds = time.perf_counter() - began
    return Outcome(made, errors.total(), len(jobs) - finished, dict(errors), seconds)


def _workers(config: SuiteConfig) -> dict[str, tuple[int, Device]]:
    """Processes of each tier of targets, and their device."""
    kind: Device = "cuda" if resolve_device(config.device).type == "cuda" else "cpu"
    few: Device = "cpu" if config.device == "auto" else kind
    counts = {"small": config.small_workers, "middle": config.workers}
    counts["large"] = config.large_workers
    least = min(2, max(counts.values()))  # one would be this process, and keep all waiting
    return {t: (max(n, least), few if t == "small" else kind) for t, n in counts.items()}


def plan_suite(
    out: Path,
    config: SuiteConfig,
    learners: Path,
    root: Path,
    targets: Sequence[str],
    conditions: Sequence[str],
    methods: Sequence[str],
) -> Plan:
    """What :func:`run_suite` would make; nothing is run. Unknown names are refused."""
    every = find_targets(root)
    for kind, given, known in (
        ("targets", targets, [target.name for target in every]),
        ("conditions", conditions, [*CONDITIONS, *attacked_files(root)]),
        ("methods", methods, list(NAMES)),
    ):
        for name in given:
            one_of(kind, name, known)
    chosen = [target for target in every if not targets or target.name in targets]
    rows = [row for file in found_rows(out) for row in file.rows]
    ended = [row for row in rows if row.test_accuracy is not None]  # what failed is tried again
    done = {_key(row.cell, row.seed, row.config) for row in ended}
    wanted = conditions or [*CONDITIONS, *attacked_files(root)]
    whole = _jobs(chosen, wanted, config, learners, root)
    parts = (_missing(job, methods or tuple(NAMES), done) for job in whole)
    return Plan([job for job in parts if job.methods])


def _each(
    pools: dict[str, Workers],
    waiting: dict[str, Iterator[Job]],
    root: Path,
    seconds: float | None,
) -> Iterator[tuple[Job, Future[list[ResultRow]]]]:
    """Keep all pools busy until nothing is left, or the time is up."""
    end = None if seconds is None else time.perf_counter() + seconds
    running: dict[Future[list[ResultRow]], tuple[Job, str]] = {}
    while True:
        left = None if end is None else end - time.perf_counter()
        if left is not None and left <= 0:
            return
        for tier, pool in pools.items():
            free = pool.processes - sum(own == tier for _, own in running.values())
            for job in islice(waiting[tier], free):
                running[pool.submit(perform, job, root, pool.device)] = (job, tier)
        if not running:
            return
        for future in wait(running, timeout=left, return_when=FIRST_COMPLETED).done:
            yield running.pop(future)[0], future


def _jobs(
    targets: Sequence[Target],
    conditions: Sequence[str],
    config: SuiteConfig,
    learners: Path,
    root: Path,
) -> Iterator[Job]:
    """Seed by seed, condition by condition, small targets first."""
    attacked = attacked_files(root)
    by_size = sorted(targets, key=lambda target: target.size)
    for seed in range(config.seeds):
        for condition in conditions:
            for target in by_size:
                if condition in attacked:
                    if target.name != ATTACKED:
                        continue
                    target = target._replace(file=attacked[condition])
                fold = target.fold
                own = UNIVERSAL if fold is None else str(learners / f"fold{fold}.safetensors")
                yield Job(target, condition, seed, own, ())


def _missing(job: Job, methods: Sequence[str], done: set[str]) -> Job:
    """The job with the methods that have no row yet."""
    lacking = [
        method
        for method in methods
        if _key(job.cell(method), job.seed, made_with(method, job.learner)) not in done
    ]
    return job._replace(methods=tuple(lacking))


def _key(cell: str, seed: int, config: Any) -> str:
    return json.dumps([cell, seed, config], sort_keys=True)


def made_with(method: str, learner: str) -> dict[str, Any]:
    """What a row depends on beside its cell and seed."""
    used: dict[str, Any] = {"labels": "pool"} if method in POOL else {}
    if method in NEED_LEARNER:
        identity = _identity(learner) if _is_there(learner) else None  # of a plan alone
        used |= {} if used else {"input_weights": list(INPUT_WEIGHTS)}
        return {"learner": Path(learner).stem, "identity": identity} | used
    members = {"members": FOLDS} if method in BAGS else {}
    return suite_methods.settings_of(method) | members | used


def _is_there(learner: str) -> bool:
    return learner == UNIVERSAL or Path(learner).exists()


@cache
def _identity(learner: str) -> str:
    return learner_identity(evidence_learner(learner))


def perform(job: Job, root: Path, device: Device) -> list[ResultRow]:
    """In a worker: the rows of a job; none where the condition makes no sense."""
    torch.set_num_threads(1)
    try:
        data = draw(job.target, job.condition, job.seed, root)
    except Exception as error:
        return [_row(job, method, error=_sentence(error)) for method in job.methods]
    if data is None:
        return []
    rows = []
    for methods in _passes(job.methods):
        try:
            for entry in run_methods(
                data, methods, seed=job.seed, device=device, learner=job.learner
            ):
                own = accuracy(entry.scores, data, judged_nodes(entry.method, data))
                row = _row(
                    job,
                    entry.method,
                    test_accuracy=accuracy(entry.scores, data, data.test_mask),
                    val_accuracy=own,
                    total_seconds=entry.seconds,
                    device=device,
                    split=str(data.split),
                    metrics=entry.metrics,
                )
                rows.append(row)
        except Exception as error:
            made = {row.method for row in rows}
            lost = [method for method in methods if method not in made]
            rows += [_row(job, method, error=_sentence(error)) for method in lost]
    if device == "cuda":
        torch.cuda.empty_cache()
    return rows


def _passes(methods: Sequence[str]) -> list[list[str]]:
    """Methods that share a refinement together, each other one by itself."""
    ordered = sorted(methods, key=lambda name: name in CHANNEL_MIXTURES)
    groups = groupby(ordered, key=lambda name: "" if name in CHANNEL_MIXTURES else name)
    return [list(group) for _, group in groups]


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split()):.200}"


def _row(job: Job, method: str, **measured: Any) -> ResultRow:
    return ResultRow(
        experiment=EXPERIMENT,
        label=NAMES[method],
        cell=job.cell(method),
        method=method,
        target=job.target.name,
        seed=job.seed,
        series=job.condition,
        config=made_with(method, job.learner),
        **measured,
    )


def compact(row: ResultRow) -> str:
    """A row as one line, without what it has not: there are many."""
    known = json.loads(line_of(row))
    kept = {name: v for name, v in known.items() if v is not None or name == "test_accuracy"}
    return json.dumps(kept, separators=(",", ":"))
