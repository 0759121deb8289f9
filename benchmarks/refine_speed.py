"""Time refinements and audits on graphs by name and random ones: rows of bench_refine.

python benchmarks/refine_speed.py cora pubmed --nodes 100000 1000000 --device cuda
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
from torch_geometric.data import Data

from graphglow import audit, fit, load_graph, refine
from graphglow.device import peak_memory_bytes, reset_peak_memory, resolve_device
from measuring import RESULTS, Row, random_graph, write_rows


def rows(args: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """One row for each graph and what is done to it."""
    steps = {
        "refine": lambda data: refine(data, device=args.device),
        "audit": lambda data: audit(data, device=args.device).findings,
        "gcn": lambda data: fit("gcn", data, epochs=200, device=args.device),
    }
    for target in (*args.targets, *args.nodes):
        named = isinstance(target, str)
        data = load_graph(target, data_root=args.data_root) if named else random_graph(target)
        for part in args.parts:
            if part == "gcn" and not named:
                continue
            yield {"target": str(target), "part": part, "stage": "all"} | timed(
                steps[part], data, device, args.repeats
            )


def timed(step, data: Data, device: torch.device, repeats: int) -> Row:
    """Median seconds after a first run on a small graph, which loads kernels."""
    step(load_graph("synthetic-small"))
    spent = []
    for _ in range(repeats):
        reset_peak_memory(device)
        wall, cpu = time.perf_counter(), time.process_time()
        step(data)
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    seconds, cpu_seconds = (median(values) for values in zip(*spent, strict=True))
    sizes = {"nodes": data.num_nodes, "input_edges": data.num_edges // 2}
    peak = {"peak_bytes": peak_memory_bytes(device)}
    return sizes | {"seconds": seconds, "cpu_seconds": cpu_seconds} | peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--nodes", type=int, nargs="*", default=[])
    parser.add_argument("--parts", nargs="+", default=["refine", "audit", "gcn"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "bench_refine.jsonl")
    args = parser.parse_args()
    device = resolve_device(args.device)
    write_rows(args.out, "refine", device, rows(args, device))


if __name__ == "__main__":
    main()
