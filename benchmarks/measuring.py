"""What the measuring scripts share: a clock, random graphs, and rows that name the machine."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer
from torch_geometric.data import Data

from graphglow.graph import synthetic_graph
from graphglow.lab.rows import provenance
from graphglow.storage import append_line

Row = dict[str, Any]
RESULTS = Path(__file__).resolve().parents[1] / "results"


def median_seconds(step: Callable[[], object], min_seconds: float = 1.0) -> float:
    """Seconds of one warm call; timed for about so long."""
    step()
    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=min_seconds).median)


def random_graph(
    nodes: int, *, features: int = 100, degree: float = 20.0, labels: float = 0.1, seed: int = 0
) -> Data:
    """Ten classes; a share of the nodes has a label to train on."""
    data = synthetic_graph(
        num_nodes=nodes,
        num_classes=10,
        num_features=features,
        average_degree=degree,
        seed=seed,
    )
    data.train_mask = torch.rand(nodes, generator=torch.Generator().manual_seed(seed)) < labels
    return data


def stamped(benchmark: str, device: torch.device, rows: Iterable[Row]) -> Iterator[Row]:
    """Add to each row, as it comes, which benchmark on which machine with which versions."""
    origin = provenance()
    where = {"device": device.type, "threads": torch.get_num_threads()}
    for row in rows:
        yield {"benchmark": benchmark, **row, **where, "provenance": origin}


def write_rows(out: Path, benchmark: str, device: torch.device, rows: Iterable[Row]) -> None:
    """Append rows to a file, and print them."""
    for row in stamped(benchmark, device, rows):
        append_line(out, json.dumps(row))
        print({name: v for name, v in row.items() if name != "provenance"}, flush=True)
