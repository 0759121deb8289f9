"""Time the epochs of a transfer under the paper's learner, never trained: rows of bench_epoch.

    python benchmarks/epoch.py amherst41 reed98 --epochs 500 --pivots 1000 --refinements 10
    python benchmarks/epoch.py --nodes 100000 1000000 --refinements 2 --device cuda

Graphs by name go to results/bench_epoch.jsonl, random ones to results/bench_scale.jsonl.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from torch_geometric.data import Data

from graphglow import PaperConfig, StructureLearner, transfer
from graphglow.device import resolve_device
from graphglow.graph.load import data_folder
from graphglow.lab.runs import load_with_split
from graphglow.settings import LearnerConfig
from measuring import RESULTS, Row, random_graph, write_rows


def measured(data: Data, args: argparse.Namespace) -> Row:
    """The median of several transfers of so many epochs, after one that warms up."""
    config = PaperConfig(
        epochs=args.epochs, refinements=args.refinements, tolerance=0.0, num_pivots=args.pivots,
        device=args.device,
    )  # fmt: skip
    learner = StructureLearner(LearnerConfig(), seed=0)
    transfer(data, learner, config, epochs=10)
    runs = [transfer(data, learner, config) for _ in range(args.repeats)]
    seconds = median(run.train_seconds for run in runs)
    return {
        "nodes": data.num_nodes,
        "edges": data.num_edges // 2,
        "refinements": args.refinements,
        "pivots": args.pivots,
        "precision": "float32",
        "delta": "truncate",
        "backend": "auto",
        "epochs": args.epochs,
        "train_seconds": seconds,
        "epoch_ms": 1e3 * seconds / args.epochs,
        "peak_bytes": runs[-1].peak_memory_bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--nodes", type=int, nargs="*", default=[])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--pivots", type=int, default=1000)
    parser.add_argument("--refinements", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    device, root = resolve_device(args.device), data_folder(args.data_root)

    def named() -> Iterator[Row]:
        for name in args.targets:
            yield {"target": name} | measured(load_with_split(name, root), args)

    def random() -> Iterator[Row]:
        for nodes in args.nodes:
            yield {"degree": 20.0} | measured(random_graph(nodes, features=32), args)

    write_rows(args.results / "bench_epoch.jsonl", "epoch", device, named())
    write_rows(args.results / "bench_scale.jsonl", "scale", device, random())


if __name__ == "__main__":
    main()
