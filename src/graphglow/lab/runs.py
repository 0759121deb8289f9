"""One engine for experiments: the runs that have no row yet are made, and each leaves a row.

A run is a cell with a seed; it is known by its setup and seed (:mod:`graphglow.lab.rows`). So a
changed setting makes a cell run anew, and cells that ask for the same run share it: each gets a row
of its own. Rows are appended as runs end: after Ctrl-C or a kill the same command goes on.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.competitors import METHODS, fit
from graphglow.device import reset_peak_memory, resolve_device
from graphglow.errors import InputError
from graphglow.evidence.learner import EVIDENCE_VERSION
from graphglow.gnn import Structure
from graphglow.graph import load_graph
from graphglow.graph.load import data_folder
from graphglow.graph.perturb import PERTURBATIONS
from graphglow.lab import Progress, no_progress
from graphglow.lab.config import RunsConfig, Tuned, config_of, merged, settings_of
from graphglow.lab.paper_tables import EVIDENCE, ON, OWN_LINES, PRETRAINED, Cell, split_of
from graphglow.lab.rows import Row, as_line, digest, file_of, provenance, rows_in
from graphglow.lab.structure_metrics import (
    edge_label_weights,
    observed_metrics,
    structure_metrics,
)
from graphglow.parallel import map_blocks
from graphglow.pretrain import pretrain
from graphglow.pretrained import UNIVERSAL, Learner, learner_identity, load_learner
from graphglow.settings import (
    EvidencePretrainConfig,
    PaperConfig,
    PretrainConfig,
    RunConfig,
    TransferConfig,
)
from graphglow.storage import append_line, atomic_path
from graphglow.transfer import StructureObserver, transfer

RESULT = ("test_accuracy", "val_accuracy", "epochs", "train_seconds", "total_seconds",
          "peak_memory_bytes", "device")  # fmt: skip
"""What a row takes from the summary of a result."""
WARM_UP = 10
"""Epochs of a run before one that is timed on a GPU."""
Job = TypeVar("Job")


class Outcome(NamedTuple):
    """What was done: rows made, of which failed with which errors, and jobs left undone."""

    made: int
    failed: int
    left: int
    errors: dict[str, int]
    seconds: float


def make_rows(
    make: Callable[[Any, Job], list[Row]],
    shared: Any,
    jobs: Sequence[Job],
    out: Path,
    config: RunsConfig,
    progress: Progress = no_progress,
) -> Outcome:
    """Append the rows that ``make(shared, job)`` gives for every job, as they end."""
    began, made, done = time.perf_counter(), 0, 0
    errors: Counter[str] = Counter()
    with closing(_mapped(make, shared, jobs, config)) as results:
        for rows in results:
            done += 1
            for row in rows:
                append_line(file_of(out, row["experiment"]), as_line(row))
                made += 1
                errors.update([row["error"]] if row.get("error") else [])
                progress(f"{row['label']} on {row['target']}", done, len(jobs))
            if config.seconds is not None and time.perf_counter() - began > config.seconds:
                break
    seconds = time.perf_counter() - began
    return Outcome(made, errors.total(), len(jobs) - done, dict(errors), seconds)


def _mapped(
    make: Callable[[Any, Job], Any], shared: Any, jobs: Iterable[Job], c: RunsConfig
) -> Any:
    """Results in the order in which they end."""
    gpus = float(c.device == "cuda")
    return map_blocks(make, shared, jobs, workers=c.workers, ray=c.ray, gpus=gpus, ordered=False)


# Graphs and learners


def load_with_split(name: str, data_root: Path | None) -> Data:
    """Load a graph with the split that experiments use; the authors' lies beside the raw files."""
    split = data_folder(data_root) / name / "split.npz" if split_of(name) == "authors" else None
    return load_graph(name, data_root=data_root, split_file=split)


class Pretraining(NamedTuple):
    """A learner that runs ask for."""

    sources: tuple[str, ...]
    config: PretrainConfig | EvidencePretrainConfig

    @property
    def key(self) -> str:
        facts = asdict(replace(self.config, device="auto")) if "device" in vars(self.config) else {}
        return digest(self.sources, facts or asdict(self.config))


def pretrained(data_root: Path | None, wanted: Pretraining) -> tuple[str, bytes]:
    """Pre-train on the sources; return the key, and the content of the learner's file."""
    graphs = [load_with_split(name, data_root) for name in wanted.sources]
    began = time.perf_counter()
    learner: Learner = pretrain(graphs, wanted.config)
    learner.provenance["seconds"] = time.perf_counter() - began
    learner.provenance["splits"] = [split_of(name) for name in wanted.sources]
    learner.provenance["provenance"] = provenance()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.safetensors"
        learner.save(path)
        return wanted.key, path.read_bytes()


def learners_of(
    folder: Path, wanted: Iterable[Pretraining], data_root: Path | None, config: RunsConfig
) -> dict[str, bytes]:
    """Return the files of learners by key; those that the folder lacks are pre-trained first."""
    paths = {one.key: folder / f"{'+'.join(one.sources)}-{one.key}.safetensors" for one in wanted}
    lacking = [one for one in dict.fromkeys(wanted) if not paths[one.key].exists()]
    with closing(_mapped(pretrained, data_root, lacking, config)) as made:
        for key, content in made:
            with atomic_path(paths[key], make_folder=True) as temporary:
                temporary.write_bytes(content)
    return {key: path.read_bytes() for key, path in paths.items()}


# Runs of the paper's cells


class Run(NamedTuple):
    """A cell with a seed: its config on the target, and the learner that it needs."""

    cell: Cell
    setup: str
    config: RunConfig | TransferConfig
    pretraining: Pretraining | None

    def facts(self, cell: Cell) -> Row:
        """What a row of ``cell``, which may be another with the same run, says before the run."""
        named = ("experiment", "label", "method", "target", "series", "x", "split", "sources")
        before = asdict(self.pretraining.config) if self.pretraining else {}
        return {name: getattr(cell, name) for name in named} | {
            "cell": cell.key,
            "seed": self.config.seed,
            "setup": self.setup,
            "damage": cell.damage,
            "timed": cell.timed,
            "config": asdict(self.config),
            "pretraining": before,
        }


def run_of(cell: Cell, seed: int, tuned: Tuned, config: RunsConfig) -> Run:
    """Return the run of a cell with a seed: tuned settings, then the cell's, then the config's."""
    after, before = _settings(cell, tuned)
    fixed = {"epochs": config.epochs, "patience": config.patience}
    given = {name: value for name, value in fixed.items() if value is not None}
    asked: list[Any] = [merged(after, cell.settings) | given, merged(before, cell.pretraining)]
    if cell.method in EVIDENCE:
        kind: type[Any] = TransferConfig
        asked.append([EVIDENCE_VERSION, _identity(EVIDENCE[cell.method])])
    elif cell.method in PRETRAINED:
        kind = PaperConfig
        encoder = {n: v for n, v in asked[0].items() if n == "encoder"}  # one for both parts
        asked[1] = merged(encoder, asked[1])
        if cell.method == "graphglow-attention":
            asked[1] = merged(asked[1], {"learner": {"similarity": "attention"}})
        if config.pretrain_epochs is not None:
            asked[1]["epochs"] = config.pretrain_epochs
    else:
        kind = METHODS[cell.method].config
    setup = digest(cell.method, cell.target, cell.split, sorted(cell.sources), cell.damage,
                   cell.observe_every, cell.timed, asked)  # fmt: skip
    pretraining = None
    if cell.sources:
        teacher: type[Any] = EvidencePretrainConfig if cell.method in EVIDENCE else PretrainConfig
        where = {} if cell.method in EVIDENCE else {"device": config.device}
        pretraining = Pretraining(cell.sources, config_of(teacher, asked[1], **where))
    made = config_of(kind, asked[0], seed=seed, device=config.device)
    return Run(cell, setup, made, pretraining)


def _settings(cell: Cell, tuned: Tuned) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tuned ones on the target and of pre-training; where a line has none, those of its method."""
    if cell.method in EVIDENCE:  # nothing is tuned
        return {}, {}
    name = cell.tuned_as or cell.method
    usual = OWN_LINES[name][0] if name in ON.values() else name
    found = settings_of(tuned, name, cell.target, cell.sources)
    found = found or settings_of(tuned, usual, cell.target, cell.sources)
    if cell.method not in PRETRAINED:
        return found, {}
    return found.get("transfer", {}), found.get("pretrain", {})


@cache  # every run asks
def _identity(name: str) -> str:
    """Return a digest of the weights of a learner of the package."""
    return learner_identity(load_learner(name or UNIVERSAL))


class Plan(NamedTuple):
    """What there is to do: rows to be copied from other cells, and runs with who asks for them."""

    copies: list[Row]
    jobs: list[tuple[Run, list[Cell]]]
    counts: dict[str, Counter[str]]
    """By experiment: cells and seeds that are done, failed, copied and missing."""

    @property
    def graphs(self) -> list[str]:
        """Names of the graphs that are read."""
        names = [name for run, _ in self.jobs for name in (run.cell.target, *run.cell.sources)]
        return list(dict.fromkeys(names))


def make_plan(cells: Iterable[Cell], config: RunsConfig, tuned: Tuned, rows: list[Row]) -> Plan:
    """Compare what cells ask for with the rows that there are."""
    known: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        known.setdefault((row.get("setup", ""), row["seed"]), []).append(row)
    plan, wanted = Plan([], [], {}), dict[tuple[str, int], list[Cell]]()
    for cell in cells:
        counts = plan.counts.setdefault(cell.experiment, Counter())
        for seed in range(config.seed, config.seed + (1 if cell.timed else config.seeds)):
            run = run_of(cell, seed, tuned, config)
            key = run.setup, seed
            ended = [r for r in known.get(key, ()) if not (r.get("error") and config.retry_failed)]
            mine = [r for r in ended if (r["experiment"], r["cell"]) == (cell.experiment, cell.key)]
            if mine:
                counts["failed" if mine[-1].get("error") else "done"] += 1
            elif ended:
                plan.copies.append(ended[-1] | run.facts(cell))
                counts["copied"] += 1
            else:
                counts["missing"] += 1
                if key not in wanted:
                    wanted[key] = []
                    plan.jobs.append((run, wanted[key]))
                wanted[key].append(cell)
    return plan


def reproduce(
    cells: Sequence[Cell],
    out: Path,
    config: RunsConfig,
    tuned: Tuned,
    *,
    data_root: Path | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Make the runs of ``cells`` that ``out`` has no rows of, and append a row for each.

    Args:
        cells: See :func:`~graphglow.lab.paper_tables.select_cells`.
        out: A folder of rows, or one file (.jsonl); learners lie in a folder beside it.
        config: Which runs, and where.
        tuned: Tuned settings.
        data_root: Where the raw files of named graphs are.
        progress: Called as runs end.
    """
    plan = make_plan(cells, config, tuned, rows_in(out, {cell.experiment for cell in cells}))
    for name in plan.graphs:
        load_with_split(name, data_root)  # what is missing is refused before anything runs
    for row in plan.copies:
        append_line(file_of(out, row["experiment"]), as_line(row))
    if any(run.cell.timed for run, _ in plan.jobs):
        config = replace(config, workers=1)
    wanted = [run.pretraining for run, _ in plan.jobs if run.pretraining]
    learners = learners_of(out.with_name(f"{out.stem}_learners"), wanted, data_root, config)
    shared = Shared(data_root, learners, provenance(), config.workers or 1)
    outcome = make_rows(perform, shared, plan.jobs, out, config, progress)
    return outcome._replace(made=outcome.made + len(plan.copies))


class Shared(NamedTuple):
    """What all runs need."""

    data_root: Path | None
    learners: dict[str, bytes]
    origin: dict[str, Any]
    workers: int


def perform(shared: Shared, job: tuple[Run, list[Cell]]) -> list[Row]:
    """Make a run, for all cells that ask for it; what fails becomes a row that says so."""
    run, cells = job
    try:
        measured = _measured(run, shared)
    except Exception as error:
        measured = {"error": sentence(error)}
    measured |= {"threads": torch.get_num_threads(), "processes": shared.workers}
    return [run.facts(cell) | measured | {"provenance": shared.origin} for cell in cells]


def sentence(error: Exception) -> str:
    """Say in one sentence why a run has no result."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return text
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "allocate memory" in text:
        return "The run did not fit in memory."
    return f"{type(error).__name__}: {text:.300}"


def _measured(run: Run, shared: Shared) -> Row:
    cell, config = run.cell, run.config
    data = load_with_split(cell.target, shared.data_root)
    if cell.damage is not None:
        kind, ratio = cell.damage
        data = PERTURBATIONS[kind](data, ratio, seed=config.seed)
    learner: Learner | str = EVIDENCE.get(cell.method, "")
    if run.pretraining is not None:
        learner = learner_from(shared.learners[run.pretraining.key])
    device = resolve_device(config.device)
    if cell.timed and device.type == "cuda":
        _trained(cell, data, replace(config, epochs=WARM_UP), learner)
    reset_peak_memory(device)
    looks: list[dict[str, float]] = []

    def look(epoch: int, latent: Structure, pivots: Tensor) -> None:
        looks.append({"epoch": epoch} | observed_metrics(latent, pivots, data.y))

    observer = StructureObserver(cell.observe_every, look) if cell.observe_every else None
    result = _trained(cell, data, config, learner, observer)
    facts = result.summary()
    row = {name: facts.get(name) for name in RESULT}
    if not isinstance(learner, str):
        row["pretrain_seconds"] = learner.provenance["seconds"]
    looks = [one for one in looks if one["epoch"] <= result.epochs]
    metrics: Row = {name: [one[name] for one in looks] for name in looks[0]} if looks else {}
    if looks:
        given = structure_metrics(edge_label_weights(data), data.y)
        metrics |= {f"input_{name}": value for name, value in given.items()}
    elif cell.method in EVIDENCE:
        metrics["input_weight"] = getattr(result, "input_weight", None)
    return row | {"metrics": metrics}


def _trained(
    cell: Cell,
    data: Data,
    config: Any,
    learner: Learner | str,
    observer: StructureObserver | None = None,
) -> Any:
    if cell.method in EVIDENCE or cell.method in PRETRAINED:
        return transfer(data, learner, config, observer=observer)
    return fit(cell.method, data, config)


def learner_from(content: bytes) -> Learner:
    """Return the learner of a file's content."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(content)
        file.flush()
        return load_learner(Path(file.name))
