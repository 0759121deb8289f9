"""Seconds of refine and predict on one large random graph, in this process and on a local Ray.

    python benchmarks/ray_workers.py --nodes 20000

Every run appends a row to ``results/ray.jsonl``, with a digest of the result: the bytes are the
same wherever the blocks are computed. ``load`` is how many processes wanted a core before the run.
"""

import argparse
import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

import graphglow
from measuring import Row, random_graph, write_rows

OUT = Path("results/ray.jsonl")


def digest(*tensors: torch.Tensor) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def measure(nodes: int, workers: list[int]) -> Iterator[Row]:
    """Run each door once here, and once warm with each number of Ray workers."""
    data = random_graph(nodes)
    doors = {
        "refine": lambda **on: graphglow.refine(data, device="cpu", **on),
        "predict": lambda **on: graphglow.predict(data, device="cpu", **on),
    }
    for part, door in doors.items():
        for count in (0, *workers):
            on = {"workers": count, "ray": "local"} if count else {}
            if count:
                graphglow.refine("wine", **on)  # the workers start, and import what they need
            load, began = os.getloadavg()[0], time.perf_counter()
            found = door(**on)
            seconds = time.perf_counter() - began
            if part == "refine":
                made = digest(found.edge_index, found.edge_probability)
            else:
                made = digest(torch.as_tensor(found.probabilities))
            yield {
                "part": part,
                "nodes": nodes,
                "edges": data.num_edges // 2,
                "workers": count,
                "where": "Ray" if count else "this process",
                "seconds": seconds,
                "digest": made,
                "load": load,
                "cores": os.cpu_count(),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    write_rows(args.out, "ray", torch.device("cpu"), measure(args.nodes, args.workers))


if __name__ == "__main__":
    main()
