"""Write the tables of docs/scaling.md: what was measured beside what the cost model says.

    python benchmarks/scaling_tables.py            rewrite what stands between the markers
    python benchmarks/scaling_tables.py --check    exit with 1 if that would change the page

Rows are those of ``benchmarks/distributed.py`` (``results/distributed.jsonl``) and, of one process
on a GPU, of ``graphglow bench scale`` and ``op``. Of several rows of one case the newest counts.
"""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from distributed_cost import (
    Job,
    Machine,
    bytes_sent,
    graph_bytes,
    halo_bytes,
    kept_bytes,
    seconds,
)
from graphglow.experiments.bench.config import Row
from marked_page import NO_ROWS, markdown, write_page

NVLINK, BETWEEN_MACHINES = 450e9, 50e9
"""Bytes per second that one GPU sends: to others of its machine (8), and to other machines."""
LATENCY = 20e-6
"""Seconds that an exchange of nothing takes, assumed."""
MEMORY = 141e9
"""Bytes of one H200."""
COMMUNITIES = 0.1
"""The halo of a graph that can be cut well, as a share of a rank's own nodes; assumed."""


def read(path: Path) -> list[Row]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def newest(rows: Iterable[Row], *names: str) -> list[Row]:
    """The last row of each case, by size and number of ranks."""
    found = {tuple(row.get(name) for name in names): row for row in rows}
    return sorted(found.values(), key=lambda row: (row["nodes"], row.get("ranks", 1)))


def ranks_table(rows: Sequence[Row]) -> str:
    """What an epoch took on one rank and on two, beside the model."""
    case = ("nodes", "ranks", "pivots", "refinements", "features", "hidden", "degree", "device")
    lines = []
    for row in newest(rows, *case):
        sent = row["epoch_bytes_sent"]
        lines.append(
            [
                f"{row['nodes']:,}",
                f"{row['entries']:,}",
                f"{row['hidden']} / {row['pivots']} / {row['refinements']}",
                str(row["ranks"]),
                f"{row['epoch_seconds']:.3g}",
                f"{row['epoch_seconds'] / row['model_epoch_seconds']:.2f}",
                megabytes(row["graph_bytes"]),
                f"{row['graph_bytes'] / row['model_graph_bytes']:.2f}",
                megabytes(row["epoch_peak_bytes"]),
                f"{row['epoch_peak_bytes'] / row['model_kept_bytes']:.2f}",
                megabytes(sent) if sent else "0",
                f"{sent / row['model_epoch_bytes_sent']:.3f}" if sent else "",
            ]
        )
    titles = ["nodes", "entries", "d / P / T", "R", "s an epoch", "/ model", "graph MB", "/ model"]
    titles += ["tensors MB", "/ model", "sent MB", "/ model"]
    return markdown(titles, lines) if lines else NO_ROWS


def one_gpu_table(rows: Sequence[Row], machine: Machine) -> str:
    """One process with the fused kernels, which the model does not know, beside the model."""
    lines = []
    for row in one_gpu_rows(rows):
        job = one_gpu_job(row)
        took, told = row["epoch_ms"] / 1e3, seconds(job, machine)
        size = held_bytes(job)
        lines.append(
            [
                f"{row['nodes']:,}",
                f"{took:.3g}",
                f"{told:.3g}",
                f"{took / told:.2f}",
                f"{row['peak_bytes'] / 1e9:.2f}",
                f"{size / 1e9:.2f}",
                f"{row['peak_bytes'] / size:.2f}",
            ]
        )
    titles = ["nodes", "s an epoch", "model", "ratio", "peak GB", "model", "ratio"]
    return markdown(titles, lines) if lines else NO_ROWS


def one_gpu_rows(rows: Iterable[Row]) -> list[Row]:
    wanted = {"device": "cuda", "precision": "float32", "delta": "truncate"}
    fitting = [r for r in rows if r.get("nodes") and all(r[n] == v for n, v in wanted.items())]
    return newest(fitting, "nodes")


def one_gpu_job(row: Row) -> Job:
    return job_of(
        row["nodes"],
        2 * row["edges"] + row["nodes"],
        ranks=1,
        halo=0.0,
        pivots=row["pivots"],
        refinements=row["refinements"],
        features=row["features"],
    )


def predictions(rows: Sequence[Row], machine: Machine) -> str:
    """What the model says of graphs that were not run, in units of what one GPU took."""
    measured = one_gpu_rows(rows)
    if not measured:
        return NO_ROWS
    largest = measured[-1]
    slower = largest["epoch_ms"] / 1e3 / seconds(one_gpu_job(largest), machine)
    fatter = largest["peak_bytes"] / held_bytes(one_gpu_job(largest))
    lines = []
    for nodes in (100_000_000, 1_000_000_000):
        for ranks in (8, 64):
            network = NVLINK if ranks <= 8 else BETWEEN_MACHINES
            for name, halo in (("communities", COMMUNITIES), ("random", random_halo(ranks))):
                job = job_of(nodes, 21 * nodes, ranks=ranks, halo=halo)
                slow = Machine(
                    flops=machine.flops / slower,
                    memory=machine.memory / slower,
                    network=network,
                    latency=LATENCY,
                )
                size = fatter * held_bytes(job) + halo_bytes(job)
                epoch = seconds(job, slow)
                exchange = bytes_sent(job) / network
                fits = "yes" if size < MEMORY else f"no ({size / MEMORY:.1f}x)"
                lines.append(
                    [
                        f"{nodes:,}",
                        str(ranks),
                        name,
                        f"{size / 1e9:.0f}",
                        fits,
                        f"{bytes_sent(job) / 1e9:.3g}",
                        f"{epoch:.3g}",
                        f"{exchange / epoch:.0%}",
                        f"{500 * epoch / 3600:.1f}",
                    ]
                )
    titles = ["nodes", "GPUs", "graph", "GB a GPU", "fits", "GB sent a GPU", "s an epoch"]
    titles += ["of it exchange", "hours of 500 epochs"]
    return markdown(titles, lines)


def held_bytes(job: Job) -> float:
    return graph_bytes(job) + kept_bytes(job)


def random_halo(ranks: int, degree: float = 20.0) -> float:
    """Other ranks' nodes that are neighbours of one's own in a random graph, per own node."""
    return (ranks - 1) * (1 - math.exp(-degree / ranks))


def job_of(
    nodes: int,
    entries: int,
    *,
    ranks: int,
    halo: float,
    pivots: int = 1000,
    refinements: int = 2,
    features: int = 32,
    classes: int = 10,
    hidden: int = 64,
) -> Job:
    """A job whose ranks send and receive ``halo`` rows per node of their own."""
    rows = int(halo * nodes / ranks)
    return Job(
        nodes=nodes,
        entries=entries,
        features=features,
        classes=classes,
        weights=(features + 1) * hidden + (hidden + 1) * classes,
        pivots=pivots,
        hidden=hidden,
        heads=4,
        layers=2,
        refinements=refinements,
        ranks=ranks,
        sent=rows,
        received=rows,
        backend="chunked",
    )


def h200(rows: Iterable[Row]) -> Machine:
    """The rates of the H200 as its own rows have them: the best float32 product, and a copy."""
    fitting = [row for row in rows if row["device"] == "cuda" and row["precision"] == "float32"]
    return Machine(
        flops=1e12 * max(row["ceiling_tflops"] for row in fitting),
        memory=1e9 * max(row["ceiling_gbytes"] for row in fitting),
        network=math.inf,
        latency=0.0,
    )


def megabytes(count: float) -> str:
    return f"{count / 1e6:,.3g}" if count < 1e9 else f"{count / 1e6:,.0f}"


def tables(results: Path) -> dict[str, str]:
    scale = read(results / "bench_scale.jsonl")
    machine = h200(read(results / "bench_op.jsonl"))
    return {
        "ranks": ranks_table(read(results / "distributed.jsonl")),
        "one_gpu": one_gpu_table(scale, machine),
        "predictions": predictions(scale, machine),
    }


if __name__ == "__main__":
    sys.exit(write_page("scaling.md", tables))
