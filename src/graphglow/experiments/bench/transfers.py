"""Transfers on graphs by name: seconds of an epoch, several seeds as one batch, peak memory.

graphglow bench epoch --targets amherst41 reed98 --epochs 500 --compare --device cuda
graphglow bench batch --target amherst41 --seeds 10 --epochs 500 --device cuda
graphglow bench memory --target pubmed --pivots 800 --device cuda
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from torch_geometric.data import Data

from graphglow.checks import at_least, one_of
from graphglow.errors import InputError
from graphglow.experiments.bench import measure
from graphglow.experiments.bench.config import (
    NAMED_BACKENDS,
    Row,
    TransferBench,
    chosen_backends,
    quotient,
    some,
)
from graphglow.experiments.bench.op import epoch_work, roofline
from graphglow.graphs import load_graph
from graphglow.ops import Backend
from graphglow.training import TransferResult, transfer, transfer_many
from graphglow.training.device import resolve_device

CEILING_SECONDS = 0.5
"""How long each ceiling is measured."""


@dataclass(frozen=True, kw_only=True)
class EpochBench(TransferBench):
    """Which graphs, how often, and against what."""

    targets: tuple[str, ...] = ("synthetic",)
    """Graphs: names (see graphglow datasets) or files."""
    compare: bool = False
    """Run the eager backend as well, and give the ratio."""

    def __post_init__(self) -> None:
        super().__post_init__()
        some("targets", self.targets)


def run_epoch(config: EpochBench, data_root: Path | None) -> Iterator[Row]:
    """One row per graph and backend; eager first, where it is compared with."""
    device = resolve_device(config.device)
    graphs = [load_graph(name, data_root=data_root) for name in config.targets]
    ceilings = measure.ceilings(device, config.precision, min_seconds=CEILING_SECONDS)
    compared: list[Backend] = ["eager", config.backend] if config.compare else [config.backend]
    for name, data in zip(config.targets, graphs, strict=True):
        eager: float | None = None
        for backend in dict.fromkeys(compared):
            row = _transferred(replace(config, backend=backend), name, data, ceilings)
            eager = row["train_seconds"] if backend == "eager" else eager
            yield row | {"speedup_over_eager": quotient(eager, row["train_seconds"])}


def _transferred(config: EpochBench, name: str, data: Data, ceilings: measure.Ceilings) -> Row:
    """Warm up, then the median of several transfers; against the roof of the learned graph."""
    learner, settings = config.learner(), config.transfer_config()
    transfer(learner, data, replace(settings, epochs=config.warm_up))
    runs = [transfer(learner, data, settings) for _ in range(config.repeats)]
    seconds, graph = median(run.train_seconds for run in runs), runs[0].graph
    shape = learner.config
    flop, moved = epoch_work(
        config.delta,
        graph.num_nodes,
        min(config.pivots, graph.num_nodes),
        shape.num_heads * shape.embedding_size,
        [shape.embedding_size] * (settings.num_layers - 1) + [graph.num_classes],
        config.refinements,
    )
    return {
        "target": name,
        **_graph_facts(runs[0]),
        **config.facts(),
        "picked": config.picked(graph.num_nodes),
        "train_seconds": seconds,
        "epoch_ms": 1e3 * seconds / config.epochs,
        "repeats": config.repeats,
        "peak_bytes": _gpu_peak(runs[0]),
        "val_accuracy": runs[0].val_accuracy,
        **roofline(flop, moved, seconds / config.epochs, ceilings),
    }


@dataclass(frozen=True, kw_only=True)
class BatchBench(TransferBench):
    """One graph, and how many seeds."""

    target: str = "synthetic"
    """The graph: a name (see graphglow datasets) or a file."""
    seeds: int = 10
    """B: runs in the batch, with seeds that follow one another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("seeds", self.seeds, 2)


def run_batch(config: BatchBench, data_root: Path | None) -> Iterator[Row]:
    """One row: the batch, the single runs, and how far their results are apart."""
    resolve_device(config.device)
    data = load_graph(config.target, data_root=data_root)
    learner = config.learner()
    seeds = range(config.seed, config.seed + config.seeds)

    def train(seeds: range, epochs: int) -> list[TransferResult]:
        settings = replace(config.transfer_config(), epochs=epochs)
        return transfer_many(learner, data, [replace(settings, seed=seed) for seed in seeds])

    train(seeds[:1], config.warm_up)
    singles = [train(range(s, s + 1), config.epochs)[0] for s in seeds]
    train(seeds, config.warm_up)
    batches = [train(seeds, config.epochs) for _ in range(config.repeats)]
    single = median(run.train_seconds for run in singles)
    batch = median(runs[0].train_seconds for runs in batches)
    apart = [
        alone.val_accuracy - together.val_accuracy
        for alone, together in zip(singles, batches[0], strict=True)
    ]
    yield {
        "target": config.target,
        **_graph_facts(singles[0]),
        **config.facts(),
        "picked": config.picked(singles[0].graph.num_nodes, runs=config.seeds),
        "seeds": config.seeds,
        "single_seconds": single,
        "batch_seconds": batch,
        "ratio": batch / single,
        "greatest_accuracy_difference": max(map(abs, apart)),
        "mean_accuracy_difference": abs(mean(apart)),
        "repeats": config.repeats,
        "peak_bytes": _gpu_peak(batches[0][0]),
    }


@dataclass(frozen=True, kw_only=True)
class MemoryBench(TransferBench):
    """One graph, and the backends to compare."""

    target: str = "synthetic"
    """The graph: a name (see graphglow datasets) or a file."""
    epochs: int = 10
    """Epochs made: enough for a GPU to record one."""
    backends: tuple[str, ...] = ()
    """Which to compare; eager comes first. By default all that can run here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for backend in self.backends:
            one_of("backends", backend, NAMED_BACKENDS)
        if "linear" in self.backends:
            self.check_linear()


def run_memory(config: MemoryBench, data_root: Path | None) -> Iterator[Row]:
    """One row per backend, each from a process of its own."""
    device = resolve_device(config.device)
    load_graph(config.target, data_root=data_root)  # a bad name is refused before any process
    eager: int | None = None
    for backend in chosen_backends(config.backends, device):
        if backend == "linear" and config.delta != "affine":
            continue
        chosen = replace(config, backend=backend)
        row = measure.in_fresh_process(peak_of_transfer, chosen, data_root)
        if row is None:  # killed by the system
            row = {"peak_bytes": None, "out_of_memory": True}
        eager = row["peak_bytes"] if backend == "eager" else eager
        row["share_of_eager"] = quotient(row["peak_bytes"], eager)
        yield {"target": config.target, **chosen.facts(), **row}


def peak_of_transfer(config: MemoryBench, data_root: Path | None) -> Row:
    """Train once and say what the process took; to be called in a fresh one.

    On a CPU the figure is the resident memory of the process at its worst, with Python, torch and
    the data in it; ``base_bytes`` is what was resident before the model was built. On a GPU both
    count the allocator's bytes, and ``base_bytes`` is 0.
    """
    device = resolve_device(config.device)
    data = load_graph(config.target, data_root=data_root)
    learner = config.learner()
    measure.reset_peak(device)
    base = measure.bytes_now(device)
    try:
        result = transfer(learner, data, config.transfer_config())
    except InputError as error:
        if not measure.ran_out(error):
            raise
        return {"peak_bytes": None, "out_of_memory": True}
    peak = measure.peak_since_reset(device)
    return _graph_facts(result) | {"base_bytes": base, "peak_bytes": peak, "out_of_memory": False}


def _graph_facts(result: TransferResult) -> Row:
    graph = result.graph
    edges = (graph.adj.col.numel() - graph.num_nodes) // 2
    return {"nodes": graph.num_nodes, "edges": edges, "features": graph.num_features}


def _gpu_peak(result: TransferResult) -> int | None:
    """Peak of the run on a GPU; a process on a CPU knows only its life's: see bench memory."""
    return result.peak_memory_bytes if result.graph.y.is_cuda else None
