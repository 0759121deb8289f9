"""Several seeds trained as one batch, against one seed.

graphglow bench batch --target amherst41 --seeds 10 --epochs 500 --device cuda
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from graphglow.checks import at_least
from graphglow.experiments.bench.config import TransferBench
from graphglow.experiments.bench.epoch import gpu_peak, graph_facts
from graphglow.experiments.bench.rows import Row
from graphglow.graphs import load_graph
from graphglow.training import TransferResult, transfer_many
from graphglow.training.device import resolve_device


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
    single = statistics.median(run.train_seconds for run in singles)
    batch = statistics.median(runs[0].train_seconds for runs in batches)
    apart = [
        abs(alone.val_accuracy - together.val_accuracy)
        for alone, together in zip(singles, batches[0], strict=True)
    ]
    yield {
        "target": config.target,
        **graph_facts(singles[0]),
        **config.facts(),
        "picked": config.picked(singles[0].graph.num_nodes, runs=config.seeds),
        "seeds": config.seeds,
        "single_seconds": single,
        "batch_seconds": batch,
        "ratio": batch / single,
        "seconds_per_run": batch / config.seeds,
        "greatest_accuracy_difference": max(apart),
        "mean_accuracy_difference": abs(
            statistics.mean(run.val_accuracy for run in singles)
            - statistics.mean(run.val_accuracy for run in batches[0])
        ),
        "repeats": config.repeats,
        "single_peak_bytes": gpu_peak(singles[0]),
        "peak_bytes": gpu_peak(batches[0][0]),
    }
