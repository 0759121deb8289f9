"""Epoch time and memory against the number of nodes, at fixed degree.

graphglow bench scale --nodes 100000 1000000 10000000 --device cuda
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphglow.checks import at_least, step_size
from graphglow.errors import InputError
from graphglow.experiments.bench import measure
from graphglow.experiments.bench.config import ModelBench, Row, some
from graphglow.graphs import scale_graph
from graphglow.training.device import memory_advice, resolve_device
from graphglow.training.task import GraphTask

LARGE = 100_000
"""The exponent is fitted to graphs of at least so many nodes."""

OUT_OF_MEMORY: Row = {"epoch_ms": None, "peak_bytes": None, "out_of_memory": True}


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
        some("nodes", self.nodes)
        for nodes in self.nodes:
            at_least("nodes", nodes, 2 * max(2, self.classes))
        step_size("min_seconds", self.min_seconds)


def run_scale(config: ScaleBench) -> Iterator[Row]:
    """One row per size, then one with the fitted exponent if two sizes or more are large."""
    device = resolve_device(config.device)
    measured: list[tuple[int, float]] = []
    for nodes in config.nodes:
        if device.type == "cpu":  # where only a new process knows its own peak
            row = measure.in_fresh_process(epoch_at, config, nodes) or dict(OUT_OF_MEMORY)
        else:
            row = epoch_at(config, nodes)
        if row["epoch_ms"] is not None:
            measured.append((nodes, row["epoch_ms"]))
        yield {"nodes": nodes, **config.facts(), "picked": config.picked(nodes), **row}
    if (slope := exponent(measured)) is not None:
        large = [n for n, _ in measured if n >= LARGE]
        yield {"kind": "fit", "fitted_nodes": large, "exponent": slope, **config.facts()}


def epoch_at(config: ScaleBench, nodes: int) -> Row:
    """Draw the graph, train warm epochs, and say how long one takes and what it needs."""
    try:
        with memory_advice(nodes, config.transfer_config()):
            return _epoch_at(config, nodes)
    except InputError as error:
        if not measure.ran_out(error):
            raise
        return dict(OUT_OF_MEMORY)


def _epoch_at(config: ScaleBench, nodes: int) -> Row:
    device = resolve_device(config.device)
    measure.reset_peak(device)
    base = measure.bytes_now(device)
    graph = scale_graph(
        num_nodes=nodes,
        average_degree=config.degree,
        num_features=config.features,
        num_classes=config.classes,
        seed=config.seed,
        device=device,
    )
    resident = measure.bytes_now(device)
    measure.reset_peak(device)
    learner = config.learner().to(device).requires_grad_(False)
    hidden = learner.config.embedding_size
    task = GraphTask(graph, learner, hidden, [config.transfer_config()])

    def epoch() -> None:
        task.train_step()
        task.validate()

    seconds = measure.median_seconds(epoch, config.min_seconds)
    _, accuracy = task.validate()
    return {
        "edges": (graph.adj.col.numel() - nodes) // 2,
        "degree": config.degree,
        "features": config.features,
        "epoch_ms": 1e3 * seconds,
        "graph_bytes": resident - base,
        "peak_bytes": measure.peak_since_reset(device),
        "val_accuracy": float(accuracy),
        "out_of_memory": False,
    }


def exponent(measured: Sequence[tuple[int, float]]) -> float | None:
    """Slope of log time over log nodes among the large graphs; None for fewer than two sizes."""
    large = [(math.log(n), math.log(t)) for n, t in measured if n >= LARGE]
    if len({n for n, _ in large}) < 2:
        return None
    return statistics.linear_regression(*zip(*large, strict=True)).slope
