"""One transfer on real graphs: seconds of an epoch and of all of them.

graphglow bench epoch --targets amherst41 reed98 --epochs 500 --compare --device cuda
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch_geometric.data import Data

from graphglow.experiments.bench.ceilings import Ceilings, measure_ceilings
from graphglow.experiments.bench.config import TransferBench, some
from graphglow.experiments.bench.roofline import epoch_work
from graphglow.experiments.bench.rows import Row, quotient
from graphglow.graphs import load_graph
from graphglow.ops import Backend
from graphglow.training import TransferResult, transfer
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
    ceilings = measure_ceilings(device, config.precision, min_seconds=CEILING_SECONDS)
    backends: dict[Backend, None] = dict.fromkeys(
        ["eager", config.backend] if config.compare else [config.backend]
    )
    for name, data in zip(config.targets, graphs, strict=True):
        eager: float | None = None
        for backend in backends:
            row = measured_transfer(replace(config, backend=backend), name, data, ceilings)
            if backend == "eager":
                eager = row["train_seconds"]
            yield row | {"speedup_over_eager": quotient(eager, row["train_seconds"])}


def measured_transfer(config: EpochBench, name: str, data: Data, ceilings: Ceilings) -> Row:
    """Warm up, then the median of several transfers."""
    learner, settings = config.learner(), config.transfer_config()
    transfer(learner, data, replace(settings, epochs=config.warm_up))
    runs = [transfer(learner, data, settings) for _ in range(config.repeats)]
    seconds = statistics.median(run.train_seconds for run in runs)
    return {
        "target": name,
        **graph_facts(runs[0]),
        **config.facts(),
        "picked": config.picked(runs[0].graph.num_nodes),
        "train_seconds": seconds,
        "epoch_ms": 1e3 * seconds / config.epochs,
        "slowest_seconds": max(run.train_seconds for run in runs),
        "repeats": config.repeats,
        "peak_bytes": gpu_peak(runs[0]),
        "val_accuracy": runs[0].val_accuracy,
        **_work(config, runs[0], seconds / config.epochs, ceilings),
    }


def _work(config: EpochBench, run: TransferResult, seconds: float, ceilings: Ceilings) -> Row:
    """Operations and bytes of the learned graph's messages, against the measured ceilings."""
    assert run.learner is not None
    learner, graph = run.learner.config, run.graph
    flop, moved = epoch_work(
        config.delta,
        graph.num_nodes,
        min(config.pivots, graph.num_nodes),
        learner.num_heads * learner.embedding_size,
        [learner.embedding_size] * (run.config.num_layers - 1) + [graph.num_classes],
        config.refinements,
    )
    roof = max(flop / ceilings.flop_per_second, moved / ceilings.bytes_per_second)
    return {
        "gflop": flop / 1e9,
        "least_bytes": moved,
        "ceiling_tflops": ceilings.flop_per_second / 1e12,
        "ceiling_gbytes": ceilings.bytes_per_second / 1e9,
        "roof_ms": 1e3 * roof,
        "roof_share": roof / seconds,
    }


def graph_facts(result: TransferResult) -> Row:
    graph = result.graph
    edges = (graph.adj.col.numel() - graph.num_nodes) // 2
    return {"nodes": graph.num_nodes, "edges": edges, "features": graph.num_features}


def gpu_peak(result: TransferResult) -> int | None:
    """Peak of the run on a GPU; a process on a CPU knows only its life's: see bench memory."""
    return result.peak_memory_bytes if result.graph.y.is_cuda else None
