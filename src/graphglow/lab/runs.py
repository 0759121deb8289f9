"""One engine for experiments: the runs that have no row yet are made, and each leaves a row.

A run is a cell with a seed; it is known by its setup and seed (``row_files.py``). So a
changed setting makes a cell run anew. Rows are appended as runs end: after Ctrl-C or a kill the
same command goes on. The second half of this file makes the runs of the paper's cells, where cells
that ask for the same run share it.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from graphglow.competitors import METHODS, fit
from graphglow.device import map_blocks, reset_peak_memory, resolve_device
from graphglow.errors import InputError
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.datasets import PERTURBATIONS
from graphglow.graph.load import data_folder
from graphglow.lab import Progress, no_progress
from graphglow.lab.config import RunsConfig, Tuned, config_of, merged, tuned_settings
from graphglow.lab.paper_tables import ON, OWN_LINES, TRANSFERRED, Cell, split_of
from graphglow.lab.row_files import Row, as_line, digest, file_of, provenance, rows_in
from graphglow.lab.structure_metrics import edge_label_weights, observed_metrics, structure_metrics
from graphglow.paper.algorithms import PaperTask
from graphglow.paper.learner import StructureLearner
from graphglow.pretrain import pretrain
from graphglow.pretrained import load_learner
from graphglow.settings import PaperConfig, PretrainConfig, RunConfig
from graphglow.storage import append_line
from graphglow.transfer import transfer

# The engine


class Plan(NamedTuple):
    """What there is to do: rows to be copied from other cells, and runs to be made."""

    copies: list[Row]
    jobs: list[tuple[Any, list[Row]]]
    """Runs, each with what the rows of those who ask for it say before it is made."""
    counts: dict[str, Counter[str]]
    """By experiment: cells and seeds that are done, failed, copied and missing."""


def make_plan(
    runs: Iterable[Any], rows: Iterable[Row], config: RunsConfig, *, share: bool = True
) -> Plan:
    """Compare the runs that are asked for, by their ``facts``, with the rows that there are.

    With ``share``, cells whose setup is the same share their runs.
    """

    def key_of(row: Row) -> tuple[Any, ...]:
        return row.get("setup"), row["seed"], "" if share else row["cell"]

    known: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if not (row.get("error") and config.retry_failed):
            known.setdefault(key_of(row), []).append(row)
    plan, missing = Plan([], [], {}), dict[tuple[Any, ...], list[Row]]()
    for run in runs:
        facts = run.facts
        counts, key = plan.counts.setdefault(facts["experiment"], Counter()), key_of(facts)
        ended = known.get(key, [])
        mine = [r for r in ended if all(r[n] == facts[n] for n in ("experiment", "cell"))]
        if mine:
            counts["failed" if mine[-1].get("error") else "done"] += 1
        elif ended:
            plan.copies.append(ended[-1] | facts)
            counts["copied"] += 1
        else:
            if key not in missing:
                missing[key] = []
                plan.jobs.append((run, missing[key]))
            missing[key].append(facts)
            counts["missing"] += 1
    return plan


class Outcome(NamedTuple):
    """What was done: rows made, of which failed with which errors, and jobs left undone."""

    made: int
    failed: int
    left: int
    errors: dict[str, int]
    seconds: float


def make_rows(
    measure: Callable[[Any, Any], Row | None],
    known: Any,
    plan: Plan,
    out: Path,
    config: RunsConfig,
    progress: Progress = no_progress,
) -> Outcome:
    """Append the rows of a plan as its runs end.

    ``measure(known, run)`` returns what a run gave, or None where it makes no sense; what it raises
    becomes a row that says so.
    """
    for row in plan.copies:
        append_line(file_of(out, row["experiment"]), as_line(row))
    began, made, done = time.perf_counter(), len(plan.copies), 0
    errors: Counter[str] = Counter()
    with closing(mapped(_attempt, (measure, known, provenance()), plan.jobs, config)) as results:
        for rows in results:
            done += 1
            for row in rows:
                append_line(file_of(out, row["experiment"]), as_line(row))
                made += 1
                errors.update([row["error"]] if row.get("error") else [])
                score = row.get("error") or f"{100 * (row.get('test_accuracy') or 0):.1f} %"
                progress(f"{row['label']} on {row['target']}: {score}", done, len(plan.jobs))
            if config.seconds is not None and time.perf_counter() - began > config.seconds:
                break
    seconds = time.perf_counter() - began
    return Outcome(made, errors.total(), len(plan.jobs) - done, dict(errors), seconds)


def mapped(function: Any, known: Any, jobs: Iterable[Any], config: RunsConfig) -> Any:
    """Map jobs in any order: one after the other, or on as many Ray workers as asked for."""
    where: dict[str, Any] = {"workers": config.workers, "ray": config.ray}
    return map_blocks(
        function, known, jobs, **where, gpus=float(config.device == "cuda"), ordered=False
    )


def _attempt(given: tuple[Any, Any, Row], job: tuple[Any, list[Row]]) -> list[Row]:
    (measure, known, origin), (run, rows) = given, job
    try:
        found = measure(known, run)
    except Exception as error:
        found = {"error": sentence(error)}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return [] if found is None else [row | found | {"provenance": origin} for row in rows]


def sentence(error: Exception) -> str:
    """Say in one sentence why a run has no result."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return text
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "allocate memory" in text:
        return "The run did not fit in memory."
    return f"{type(error).__name__}: {text:.300}"


# Graphs and learners


def load_with_split(name: str, data_root: Path | None) -> Data:
    """Load a graph with the split that experiments use; the authors' lies beside the raw files."""
    split = data_folder(data_root) / name / "split.npz" if split_of(name) == "authors" else None
    return load_graph(name, data_root=data_root, split_file=split)


class Pretraining(NamedTuple):
    """A learner that runs ask for."""

    sources: tuple[str, ...]
    config: PretrainConfig

    @property
    def key(self) -> str:
        return digest(self.sources, asdict(self.config) | {"device": "auto"})

    def file(self, out: Path) -> Path:
        """Where the learner lies: in a folder beside the rows."""
        folder = out.with_name(f"{out.stem}_learners")
        return folder / f"{'+'.join(self.sources)}-{self.key}.safetensors"

    @property
    def most_epochs(self) -> int:
        return self.config.episodes * self.config.epochs * len(self.sources)

    @property
    def about(self) -> str:
        """The learner in words, and about how long it takes at most."""
        c, cpu = self.config, resolve_device(self.config.device).type == "cpu"
        sizes = [DATASETS[source].nodes for source in self.sources]
        cells = [size * min(size, c.num_pivots) * c.refinements for size in sizes]
        each = [CPU_SECONDS * one if cpu else max(0.01, GPU_SECONDS * one) for one in cells]
        minutes = max(1, round(c.episodes * c.epochs * sum(each) / 60))
        most = f"at most {self.most_epochs:,} epochs, about {minutes:,} min"
        return f"{' + '.join(self.sources)}: {most} on a {'core of this CPU' if cpu else 'GPU'}"


CPU_SECONDS, GPU_SECONDS = 1e-7, 3e-10
"""Of an epoch of pre-training, by nodes x pivots x refinements: one core, and an H200."""


def pretrained_learner(
    data_root: Path | None, wanted: Pretraining, progress: Progress = no_progress
) -> tuple[Pretraining, StructureLearner]:
    """Pre-train on the sources; return the learner beside what was asked for."""
    graphs = [load_with_split(name, data_root) for name in wanted.sources]
    began, number = time.perf_counter(), count(1)
    what, config = f"pre-training on {' + '.join(wanted.sources)}", wanted.config
    most = wanted.most_epochs
    learner = pretrain(graphs, config, on_epoch=lambda _: progress(what, next(number), most))
    learner.provenance["seconds"] = time.perf_counter() - began
    learner.provenance["splits"] = [split_of(name) for name in wanted.sources]
    learner.provenance["provenance"] = provenance()
    return wanted, learner.cpu()


# Runs of the paper's cells

RESULT = ("test_accuracy", "val_accuracy", "epochs", "train_seconds", "total_seconds",
          "peak_memory_bytes", "device")  # fmt: skip
"""What a row takes from the summary of a result."""
NUM_LEARNERS = 3
"""Learners of each set of sources: the seeds of a cell take them in turn."""
WARM_UP = 10
"""Epochs of a run before one that is timed on a GPU."""


class CellRun(NamedTuple):
    """A cell with a seed: its config on the target, and the learner that it needs."""

    cell: Cell
    setup: str
    config: RunConfig
    pretraining: Pretraining | None

    @property
    def facts(self) -> Row:
        """What a row of the cell says before the run."""
        named = ("experiment", "label", "method", "target", "series", "x", "split", "sources",
                 "damage", "timed")  # fmt: skip
        return {name: getattr(self.cell, name) for name in named} | {
            "cell": self.cell.key,
            "seed": self.config.seed,
            "setup": self.setup,
            "config": asdict(self.config),
            "pretraining": asdict(self.pretraining.config) if self.pretraining else {},
        }


def run_of(cell: Cell, seed: int, tuned: Tuned, config: RunsConfig) -> CellRun:
    """Return the run of a cell with a seed: tuned settings, then the cell's, then the config's."""
    own = cell.tuned_as or cell.method
    usual = OWN_LINES[own][0] if own in ON.values() else own  # where a line has none of its own
    after = tuned_settings(tuned, own, cell.target, cell.sources)
    after = after or tuned_settings(tuned, usual, cell.target, cell.sources)
    before: dict[str, Any] = {}
    if cell.method in TRANSFERRED:
        after, before = after.get("transfer", {}), after.get("pretrain", {})
    after = merged(after, cell.settings)
    after |= {} if config.epochs is None else {"epochs": config.epochs}
    before = merged(before, cell.pretraining)
    kind: type[RunConfig]
    if cell.method in TRANSFERRED:
        kind = PaperConfig  # whose encoder is that of pre-training
        before = {name: after[name] for name in ("encoder",) if name in after} | before
        if cell.method == "graphglow-attention":
            before = merged(before, {"learner": {"similarity": "attention"}})
    else:
        kind = METHODS[cell.method].config
    setup = digest(cell.method, cell.target, cell.split, sorted(cell.sources), cell.damage,
                   cell.observe_every, cell.timed, [after, before])  # fmt: skip
    pretraining = None
    if cell.sources:
        before = {"seed": seed % NUM_LEARNERS} | before
        given = config_of(PretrainConfig, before, device=config.device)
        pretraining = Pretraining(cell.sources, given)
    made = config_of(kind, after, seed=seed, device=config.device)
    return CellRun(cell, setup, made, pretraining)


def plan_cells(
    cells: Iterable[Cell], rows: Iterable[Row], config: RunsConfig, tuned: Tuned
) -> Plan:
    """Compare what cells ask for with the rows that there are."""
    first = config.seed
    runs = (
        run_of(cell, seed, tuned, config)
        for cell in cells
        for seed in range(first, first + (1 if cell.timed else config.seeds))
    )
    return make_plan(runs, rows, config)


def missing_learners(plan: Plan, out: Path) -> list[Pretraining]:
    """Return the learners that the runs of a plan need, and that are not there yet."""
    wanted = dict.fromkeys(run.pretraining for run, _ in plan.jobs if run.pretraining)
    return [one for one in wanted if not one.file(out).exists()]


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    config: RunsConfig,
    tuned: Tuned,
    *,
    data_root: Path | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Make the runs of cells that ``out``, a folder or file of rows, lacks; append their rows.

    Learners that are pre-trained for them lie in a folder beside it.
    """
    plan = plan_cells(cells, rows_in(out, {cell.experiment for cell in cells}), config, tuned)
    runs: list[CellRun] = [run for run, _ in plan.jobs]
    for name in {name for run in runs for name in (run.cell.target, *run.cell.sources)}:
        load_with_split(name, data_root)  # what is missing is refused before anything runs
    if any(run.cell.timed for run in runs):
        config = replace(config, workers=1)
    lacking = missing_learners(plan, out)
    here = config.ray is None and config.workers in (None, 1)  # else others pre-train
    train = partial(pretrained_learner, progress=progress) if here else pretrained_learner
    with closing(mapped(train, data_root, lacking, config)) as made:
        for number, (one, learner) in enumerate(made, 1):
            file = one.file(out)
            file.parent.mkdir(parents=True, exist_ok=True)
            learner.save(file)
            progress(f"learner of {' + '.join(one.sources)}", number, len(lacking))
    wanted = dict.fromkeys(run.pretraining for run in runs if run.pretraining)
    learners = {one: load_learner(one.file(out)) for one in wanted}
    known = data_root, learners, config.workers or 1
    return make_rows(_measure_cell, known, plan, out, config, progress)


def _measure_cell(
    known: tuple[Path | None, dict[Pretraining, StructureLearner], int], run: CellRun
) -> Row:
    data_root, learners, workers = known
    cell, config = run.cell, run.config
    data = load_with_split(cell.target, data_root)
    if cell.damage is not None:
        kind, ratio = cell.damage
        data = PERTURBATIONS[kind](data, ratio, seed=config.seed)
    learner = None if run.pretraining is None else learners[run.pretraining]
    looks: list[dict[str, float]] = []

    def look(task: PaperTask, epoch: int) -> None:
        if epoch % cell.observe_every == 0:
            found = observed_metrics(task.evaluate().latent, task.pivots, data.y)
            looks.append({"epoch": epoch} | found)

    def trained(config: Any) -> Any:
        if learner is not None:
            return transfer(data, learner, config, look=look if cell.observe_every else None)
        return fit(cell.method, data, config)

    device = resolve_device(config.device)
    if cell.timed and device.type == "cuda":
        trained(replace(config, epochs=WARM_UP))
    reset_peak_memory(device)
    result = trained(config)
    facts = result.summary()
    row = {name: facts.get(name) for name in RESULT}
    row |= {"threads": torch.get_num_threads(), "processes": workers}
    if learner is not None:
        row["pretrain_seconds"] = learner.provenance["seconds"]
    looks = [one for one in looks if one["epoch"] <= result.epochs]
    if looks:
        given = structure_metrics(edge_label_weights(data), data.y)
        row["metrics"] = {name: [one[name] for one in looks] for name in looks[0]} | {
            f"input_{name}": value for name, value in given.items()
        }
    return row
