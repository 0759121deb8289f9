"""Time and memory of whole jobs: rows of bench_refine, ray, bench_epoch and bench_scale.

    python benchmarks/measuring.py predict refine audit --targets cora --nodes 100000 --device cuda
    python benchmarks/measuring.py epoch --targets amherst41 --epochs 500
    python benchmarks/measuring.py epoch --nodes 100000 1000000 --refinements 2
    python benchmarks/measuring.py ray --nodes 20000 --workers 0 1 2 4

Epochs are those of a transfer under the paper's learner, never trained. On Ray, refine and predict
have a digest of the result, whose bytes are the same wherever blocks are computed; 0 workers are
this process, and ``load`` is how many processes wanted a core before the run.
"""

import argparse
import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphglow import PaperConfig, StructureLearner, audit, load_graph, predict, refine, transfer
from graphglow.device import peak_memory_bytes, reset_peak_memory, resolve_device
from graphglow.graph import synthetic_graph
from graphglow.graph.load import data_folder
from graphglow.lab.row_files import provenance
from graphglow.lab.runs import load_with_split
from graphglow.settings import LearnerConfig
from graphglow.storage import append_line

Row = dict[str, Any]
RESULTS = Path(__file__).resolve().parents[1] / "results"


def random_graph(
    nodes: int, *, features: int = 100, degree: float = 20.0, labels: float = 0.1, seed: int = 0
) -> Data:
    """Return a graph of ten classes; a share of the nodes trains, as many validate."""
    data = synthetic_graph(
        num_nodes=nodes,
        num_classes=10,
        num_features=features,
        average_degree=degree,
        seed=seed,
    )
    draws = torch.rand(nodes, generator=torch.Generator().manual_seed(seed))
    data.train_mask, data.val_mask = draws < labels, draws > 1 - labels
    return data


def calibration_error(p: np.ndarray, y: np.ndarray, bins: int = 15) -> float:
    """``sum_b |mean p - mean y| n_b / M`` over bins of p: [M], [M]."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, p - y, bins)).sum() / len(p))


def write_rows(out: Path, benchmark: str, device: torch.device, rows: Iterable[Row]) -> None:
    """Append rows, each with its machine and versions, to a file, and print them."""
    where = {"device": device.type, "threads": torch.get_num_threads()}
    for row in rows:
        made = {"benchmark": benchmark, **row, **where}
        append_line(out, json.dumps(made | {"provenance": provenance()}))
        print(made, flush=True)


def timed(step: Callable[[Data], object], data: Data, device: torch.device, repeats: int) -> Row:
    """Return median seconds after a first run on a small graph, which loads kernels."""
    step(load_graph("synthetic-small"))
    spent = []
    for _ in range(repeats):
        reset_peak_memory(device)
        began = time.perf_counter(), time.process_time()
        step(data)
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    seconds, cpu_seconds = (median(values) for values in zip(*spent, strict=True))
    sizes = {"nodes": data.num_nodes, "input_edges": data.num_edges // 2}
    peak = {"peak_bytes": peak_memory_bytes(device)}
    return sizes | {"seconds": seconds, "cpu_seconds": cpu_seconds} | peak


def whole_jobs(part: str, args: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """Predict, refine or audit each graph."""
    steps: dict[str, Callable[[Data], object]] = {
        "predict": lambda data: predict(data, device=device.type),
        "refine": lambda data: refine(data, device=device.type),
        "audit": lambda data: audit(data, device=device.type).findings,
    }
    for target in (*args.targets, *args.nodes):
        named = isinstance(target, str)
        data = load_graph(target, data_root=args.data_root) if named else random_graph(target)
        row = timed(steps[part], data, device, args.repeats)
        yield {"target": str(target), "part": part, "stage": "all"} | row


def on_ray(args: argparse.Namespace) -> Iterator[Row]:
    """Run refine and predict once with each number of workers, which are warm."""
    doors: dict[str, Callable[..., Any]] = {"refine": refine, "predict": predict}
    results = {"refine": "edge_probability", "predict": "probabilities"}
    for nodes, (part, door), count in product(args.nodes, doors.items(), args.workers):
        data, on = random_graph(nodes), {"workers": count, "ray": "local"} if count else {}
        door("wine", device="cpu", **on)  # workers start, and import what they need
        load, began = os.getloadavg()[0], time.perf_counter()
        found = getattr(door(data, device="cpu", **on), results[part])
        seconds = time.perf_counter() - began
        sizes = {"nodes": nodes, "edges": data.num_edges // 2, "workers": count}
        digest = f"{zlib.crc32(torch.as_tensor(found).contiguous().numpy().tobytes()):08x}"
        yield {"part": part, **sizes, "seconds": seconds, "digest": digest, "load": load}


def epochs(data: Data, args: argparse.Namespace) -> Row:
    """Return the median of several transfers of so many epochs, after one that warms up."""
    config = PaperConfig(
        epochs=args.epochs, refinements=args.refinements, tolerance=0.0, num_pivots=args.pivots,
        device=args.device,
    )  # fmt: skip
    learner = StructureLearner(LearnerConfig(), seed=0)
    transfer(data, learner, config, epochs=10)
    runs = [transfer(data, learner, config) for _ in range(args.repeats)]
    seconds = median(run.train_seconds for run in runs)
    return {
        "nodes": data.num_nodes, "edges": data.num_edges // 2, "refinements": args.refinements,
        "pivots": args.pivots, "epochs": args.epochs, "train_seconds": seconds,
        "epoch_ms": 1e3 * seconds / args.epochs, "peak_bytes": runs[-1].peak_memory_bytes,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=("predict", "refine", "audit", "ray", "epoch"))
    parser.add_argument("--targets", nargs="*", default=[])
    parser.add_argument("--nodes", type=int, nargs="*", default=[], help="of random graphs")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2, 4])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--pivots", type=int, default=1000)
    parser.add_argument("--refinements", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder")
    args = parser.parse_args()
    device, root = resolve_device(args.device), data_folder(args.data_root)
    for part in args.parts:
        if part == "ray":
            write_rows(args.out / "ray.jsonl", part, torch.device("cpu"), on_ray(args))
        elif part != "epoch":
            file = args.out / "bench_refine.jsonl"
            write_rows(file, part, device, whole_jobs(part, args, device))
        if part != "epoch":
            continue
        named = ({"target": t} | epochs(load_with_split(t, root), args) for t in args.targets)
        write_rows(args.out / "bench_epoch.jsonl", "epoch", device, named)
        drawn = ({"degree": 20.0} | epochs(random_graph(n, features=32), args) for n in args.nodes)
        write_rows(args.out / "bench_scale.jsonl", "scale", device, drawn)


if __name__ == "__main__":
    main()
