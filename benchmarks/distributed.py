"""An epoch of a transfer on one rank or several: seconds, memory and bytes sent, of each rank.

    python benchmarks/distributed.py --nodes 10000 100000
    torchrun --nproc-per-node 2 benchmarks/distributed.py --nodes 10000 100000

Random graphs (``scale_graph``) are cut into as many parts as there are ranks, in a process of its
own, and read shard by shard. Each size is a line of ``results/distributed.jsonl``, beside what the
cost model says (``distributed_cost.py``). On GPUs each rank has one.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import distributed_cost as cost
from distributed_cost import Job, Machine
from graphglow.experiments.bench import measure
from graphglow.experiments.bench.config import stamped
from graphglow.graphs import scale_graph
from graphglow.storage import append_line
from graphglow.structure import LearnerConfig, StructureLearner
from graphglow.training import PaperConfig
from graphglow.training.distributed import (
    GraphArrays,
    Ranks,
    Shard,
    join,
    read_shard,
    write_shards,
)
from graphglow.training.distributed.task import ShardTask


def main() -> None:
    options = parsed()
    with join(options.device) as ranks:
        base = measure.reset_peak(ranks.device)
        machine = measured_machine(ranks)
        for nodes in options.nodes:
            row = one_size(nodes, options, ranks, machine, base)
            for line in stamped("distributed", ranks.device, [row]):
                if ranks.rank == 0:
                    append_line(options.out, json.dumps(line))
                    print(json.dumps({k: v for k, v in line.items() if k != "provenance"}))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 30_000])
    parser.add_argument("--degree", type=float, default=20.0)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--pivots", type=int, default=400)
    parser.add_argument("--refinements", type=int, default=4)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--partition", default="auto")
    parser.add_argument("--epochs", type=int, default=5, help="timed, after one that is not")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", type=Path, help="for the shards, which all ranks read")
    parser.add_argument("--out", type=Path, default=Path("results/distributed.jsonl"))
    return parser.parse_args()


def one_size(
    nodes: int, options: argparse.Namespace, ranks: Ranks, machine: Machine, base: int
) -> dict[str, Any]:
    """Write the shards if they are not there, and time some epochs.

    ``epoch_peak_bytes`` are of tensors that an epoch makes; ``resident_peak_bytes`` are all that
    the process had in use (on a GPU, the allocator) above ``base``, that before any graph was read.
    """
    shape = (nodes, options.degree, options.features, options.classes, ranks.size)
    root = options.folder or Path(tempfile.gettempdir()) / "graphglow-shards"
    folder = root / f"{'-'.join(map(str, shape))}-{options.partition}"
    if ranks.rank == 0 and not folder.exists():
        measure.in_fresh_process(write, folder, *shape, options.partition)
    ranks.wait()
    shard = read_shard(folder, ranks)
    config = PaperConfig(
        num_pivots=options.pivots,
        refinements=options.refinements,
        tolerance=1e-30,  # all refinements are made
        backend=options.backend,
    )
    width = LearnerConfig(embedding_size=options.hidden, num_heads=options.heads)
    learner = StructureLearner(width).to(ranks.device).requires_grad_(False)
    task = ShardTask(shard, learner, config, ranks)
    epoch(task)  # not timed
    measure.reset_peak(ranks.device)
    times, sent = [], 0.0
    for _ in range(options.epochs):
        ranks.wait()
        began, before = time.perf_counter(), ranks.traffic.sent
        epoch(task)
        sent = ranks.traffic.sent - before
        ranks.wait()
        times.append(time.perf_counter() - began)
    resident = measure.peak_since_reset(ranks.device) - base
    peak = measure.tensor_peak(lambda: epoch(task), ranks.device)
    structure = task.evaluate().structure
    assert structure is not None  # there is a learner
    job = job_of(task, shard, structure.chosen_backend)
    return {
        "nodes": nodes,
        "entries": job.entries,
        "degree": options.degree,
        "features": options.features,
        "hidden": options.hidden,
        "heads": options.heads,
        "pivots": task.num_pivots,
        "refinements": options.refinements,
        "ranks": ranks.size,
        "partition": options.partition,
        "backend": job.backend,
        "epoch_seconds": statistics.median(times),
        "epochs_timed": len(times),
        **largest(
            ranks,
            own_nodes=len(shard.nodes),
            own_entries=shard.graph.adj.col.numel(),
            halo=shard.graph.adj.halo.size,
            graph_bytes=held(shard),
            epoch_peak_bytes=peak,
            resident_peak_bytes=resident,
            epoch_bytes_sent=sent,
            model_epoch_bytes_sent=cost.bytes_sent(job),
            model_epoch_seconds=cost.seconds(job, machine),
        ),
        "model_graph_bytes": cost.graph_bytes(job),
        "model_kept_bytes": cost.kept_bytes(job),
        "machine": vars(machine),
    }


def held(shard: Shard) -> int:
    """Bytes of a rank's features and of its rows of the adjacency."""
    adj, x = shard.graph.adj, shard.graph.x
    tensors = (x, adj.crow, adj.col, adj.values, adj.crow_t, adj.col_t, adj.order)
    return sum(t.numel() * t.element_size() for t in tensors)


def write(
    folder: Path, nodes: int, degree: float, features: int, classes: int, parts: int, how: str
) -> None:
    graph = scale_graph(
        num_nodes=nodes, average_degree=degree, num_features=features, num_classes=classes
    )
    write_shards(GraphArrays.of_graph(graph), folder, parts, method=how)


def epoch(task: ShardTask) -> None:
    task.train_step()
    task.validate()


def job_of(task: ShardTask, shard: Shard, backend: str) -> Job:
    """The sizes of the job, as the cost model takes them; what is sent is this rank's."""
    ranks, halo = task.ranks, shard.graph.adj.halo
    entries = torch.tensor([shard.graph.adj.col.numel()], device=ranks.device)
    return Job(
        nodes=shard.num_nodes,
        entries=int(ranks.total(entries)),
        features=shard.graph.num_features,
        classes=shard.graph.num_classes,
        weights=task.optimizer.flat.numel(),
        pivots=task.num_pivots,
        hidden=task.learner.config.embedding_size,
        heads=task.learner.config.num_heads,
        layers=task.config.num_layers,
        refinements=task.config.refinements,
        ranks=ranks.size,
        sent=halo.sent,
        received=halo.size,
        backend=backend,
    )


def largest(ranks: Ranks, **own: float) -> dict[str, float]:
    """Of each figure, that of the rank with most of it."""
    table = ranks.gather(torch.tensor(list(own.values()), dtype=torch.float64, device=ranks.device))
    return dict(zip(own, table.amax(0).tolist(), strict=True))


def measured_machine(ranks: Ranks) -> Machine:
    """Rates of this machine, by the shapes that an epoch has."""
    q, k = (torch.rand(n, 256, device=ranks.device) for n in (16_384, 400))
    product = timed(lambda: q @ k.mT, ranks)
    large = torch.rand(16_000_000, device=ranks.device)
    copy = timed(lambda: large.clone(), ranks)
    some = torch.rand(2_000_000, device=ranks.device)
    one = torch.rand(1, device=ranks.device)
    latency = timed(lambda: ranks.total(one), ranks)
    summed = timed(lambda: ranks.total(some), ranks) - latency
    sent = 2 * (ranks.size - 1) / ranks.size * some.numel() * 4
    alone = ranks.size == 1
    return Machine(
        flops=2 * q.shape[0] * q.shape[1] * k.shape[0] / product,
        memory=2 * 4 * large.numel() / copy,
        network=1e30 if alone else sent / max(summed, 1e-9),
        latency=0.0 if alone else latency,
    )


def timed(call: Any, ranks: Ranks, times: int = 7) -> float:
    """Median seconds of a call, with the device waited for."""
    found = []
    for _ in range(times):
        ranks.wait()
        began = time.perf_counter()
        call()
        if ranks.device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


if __name__ == "__main__":
    main()
