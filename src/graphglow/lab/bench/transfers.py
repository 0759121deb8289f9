"""Whole models: seconds of an epoch, several seeds as one batch, growing graphs.

graphglow bench epoch --targets amherst41 reed98 --epochs 500 --compare --device cuda
graphglow bench batch --target amherst41 --seeds 10 --epochs 500 --device cuda
graphglow bench scale --nodes 100000 1000000 10000000 --device cuda
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import linear_regression, mean, median

from graphglow.checks import at_least, step_size
from graphglow.graph import load_graph, scale_graph
from graphglow.lab.bench import measure
from graphglow.lab.bench.config import ModelBench, Row, TransferBench, quotient
from graphglow.lab.bench.op import least_bytes, roofline
from graphglow.settings import Backend
from graphglow.training import TransferResult, transfer, transfer_many
from graphglow.training.device import resolve_device
from graphglow.training.task import GraphTask

CEILING_SECONDS = 0.5
"""How long each ceiling is measured."""
LARGE = 100_000
"""The exponent of growth is fitted to graphs of at least so many nodes."""
OUT_OF_MEMORY: Row = {"epoch_ms": None, "peak_bytes": None, "out_of_memory": True}


@dataclass(frozen=True, kw_only=True)
class EpochBench(TransferBench):
    """Which graphs, how often, and against what."""

    targets: tuple[str, ...] = ("synthetic",)
    """Graphs: names (see graphglow datasets) or files."""
    compare: bool = False
    """Run the eager backend as well, and give the ratio."""


def run_epoch(config: EpochBench, data_root: Path | None) -> Iterator[Row]:
    """One row per graph and backend; eager first, where it is compared with."""
    graphs = {name: load_graph(name, data_root=data_root) for name in config.targets}
    device = resolve_device(config.device)
    ceilings = measure.ceilings(device, config.precision, min_seconds=CEILING_SECONDS)
    backends: list[Backend] = ["eager", config.backend] if config.compare else [config.backend]
    for name, data in graphs.items():
        eager: float | None = None
        for backend in dict.fromkeys(backends):
            settings = replace(config.transfer_config(), backend=backend)
            transfer(data, config.learner(), replace(settings, epochs=config.warm_up))
            runs = [transfer(data, config.learner(), settings) for _ in range(config.repeats)]
            seconds = median(run.train_seconds for run in runs)
            eager = seconds if backend == "eager" else eager
            yield {
                "target": name,
                **_facts(runs[0]),
                **config.facts(),
                "backend": backend,
                "picked": replace(config, backend=backend).picked(runs[0].graph.num_nodes),
                "train_seconds": seconds,
                "epoch_ms": 1e3 * seconds / config.epochs,
                "val_accuracy": runs[0].val_accuracy,
                "speedup_over_eager": quotient(eager, seconds),
                **roofline(*epoch_work(config, runs[0]), seconds / config.epochs, ceilings),
            }


def epoch_work(config: EpochBench, run: TransferResult) -> tuple[int, int]:
    """FLOP and least bytes of the learned graph's messages in one epoch.

    A training step (forward, and twice as much backward) and a validation pass, each of so many
    refinements, each with the messages of every layer over one structure. FLOP are those of
    ``eager``, with Gamma made once per refinement; of ``linear``, where nothing is cut.
    """
    graph, shape = run.graph, config.learner().config
    n, p = graph.num_nodes, min(config.pivots, graph.num_nodes)
    w = shape.num_heads * shape.embedding_size
    hidden = config.transfer_config().num_layers - 1
    widths = [shape.embedding_size] * hidden + [graph.num_classes]
    if config.delta == "affine":
        forward = sum(4 * (n + p) * w * f for f in widths)
    else:
        forward = 2 * n * p * w + sum(2 * 2 * n * p * f for f in widths)
    moved = [least_bytes(n, p, w, f) for f in widths]
    total = sum(2 * out + back for out, back in moved)
    return config.refinements * 4 * forward, config.refinements * total


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
    data = load_graph(config.target, data_root=data_root)
    learner = config.learner()
    seeds = range(config.seed, config.seed + config.seeds)

    def train(seeds: range, epochs: int) -> list[TransferResult]:
        settings = replace(config.transfer_config(), epochs=epochs)
        return transfer_many(data, learner, [replace(settings, seed=seed) for seed in seeds])

    train(seeds[:1], config.warm_up)
    singles = [train(range(s, s + 1), config.epochs)[0] for s in seeds]
    train(seeds, config.warm_up)
    batches = [train(seeds, config.epochs) for _ in range(config.repeats)]
    single = median(run.train_seconds for run in singles)
    batch = median(runs[0].train_seconds for runs in batches)
    pairs = zip(singles, batches[0], strict=True)
    apart = [(one.val_accuracy or 0.0) - (other.val_accuracy or 0.0) for one, other in pairs]
    yield {
        **_facts(batches[0][0]),
        **config.facts(),
        "picked": config.picked(singles[0].graph.num_nodes, runs=config.seeds),
        "single_seconds": single,
        "batch_seconds": batch,
        "ratio": batch / single,
        "greatest_accuracy_difference": max(map(abs, apart)),
        "mean_accuracy_difference": abs(mean(apart)),
    }


@dataclass(frozen=True, kw_only=True)
class ScaleBench(ModelBench):
    """Sizes of the graphs."""

    nodes: tuple[int, ...] = (10_000, 100_000)
    """N: several are measured one after the other."""
    degree: float = 20.0
    """Average degree: twice the undirected edges per node."""
    features: int = 32
    """D: node features, dense."""
    classes: int = 5
    """C."""
    refinements: int = 2
    """T: refinements of each forward pass."""
    min_seconds: float = 1.0
    """Time epochs for about this long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for nodes in self.nodes:
            at_least("nodes", nodes, 2 * max(2, self.classes))
        step_size("min_seconds", self.min_seconds)


def run_scale(config: ScaleBench) -> Iterator[Row]:
    """One row per size, then one with the fitted exponent if two sizes or more are large."""
    measured: list[tuple[int, float]] = []
    for nodes in config.nodes:
        row = measure.in_fresh_process(epoch_at, config, nodes) or OUT_OF_MEMORY
        if row["epoch_ms"] is not None:
            measured.append((nodes, row["epoch_ms"]))
        yield config.facts() | {"nodes": nodes, "picked": config.picked(nodes)} | row
    if (slope := exponent(measured)) is not None:
        large = [n for n, _ in measured if n >= LARGE]
        yield {"kind": "fit", "fitted_nodes": large, "exponent": slope, **config.facts()}


def epoch_at(config: ScaleBench, nodes: int) -> Row:
    """Draw the graph, train warm epochs, and say how long one takes and what it needs."""
    device = resolve_device(config.device)
    base = measure.reset_peak(device)
    graph = scale_graph(
        num_nodes=nodes,
        average_degree=config.degree,
        num_features=config.features,
        num_classes=config.classes,
        seed=config.seed,
        device=device,
    )
    resident = measure.reset_peak(device)
    learner = config.learner().to(device).requires_grad_(False)
    task = GraphTask(graph, learner, learner.config.embedding_size, [config.transfer_config()])

    def epoch() -> None:
        task.train_step()
        task.validate()

    seconds = measure.median_seconds(epoch, config.min_seconds)
    return {
        "edges": (graph.adj.col.numel() - nodes) // 2,
        "epoch_ms": 1e3 * seconds,
        "graph_bytes": resident - base,
        "peak_bytes": measure.peak_since_reset(device),
        "val_accuracy": float(task.validate()[1]),
        "out_of_memory": False,
    }


def exponent(measured: Sequence[tuple[int, float]]) -> float | None:
    """Slope of log time over log nodes among the large graphs; None for fewer than two sizes."""
    large = [(math.log(n), math.log(t)) for n, t in measured if n >= LARGE]
    if len({n for n, _ in large}) < 2:
        return None
    return linear_regression(*zip(*large, strict=True)).slope


def _facts(result: TransferResult) -> Row:
    """Sizes of the graph, and the peak on a GPU."""
    graph = result.graph
    edges = (graph.adj.col.numel() - graph.num_nodes) // 2
    peak = result.peak_memory_bytes if graph.y.is_cuda else None
    sizes = {"nodes": graph.num_nodes, "edges": edges, "features": graph.num_features}
    return {**sizes, "peak_bytes": peak}
