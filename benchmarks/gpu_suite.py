"""Every GPU figure of docs/performance.md in one run of a few minutes, on one GPU.

    python benchmarks/gpu_suite.py --data-root data --out results [--parts op epoch batch scale]

The same benchmarks as ``graphglow bench``, without the packages of the command line. Rows are added
to ``bench_<name>.jsonl`` in the folder ``--out`` as they are measured; a part that fails says so
and the others go on.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from graphglow.experiments.bench.batch import BatchBench, run_batch
from graphglow.experiments.bench.epoch import EpochBench, run_epoch
from graphglow.experiments.bench.op import OpBench, run_op
from graphglow.experiments.bench.rows import Row, stamped
from graphglow.experiments.bench.scale import ScaleBench, run_scale
from graphglow.storage import append_line

PRECISIONS = ("float32", "tf32", "bfloat16")
SHOWN = ("target", "nodes", "backend", "picked", "precision", "capture", "both_ms", "epoch_ms",
         "train_seconds", "ratio", "speedup_over_eager", "ceiling_share", "peak_bytes", "exponent",
         "greatest_accuracy_difference")  # fmt: skip


def op(_: Path) -> Iterator[Row]:
    for precision in PRECISIONS:
        yield from run_op(
            OpBench(
                nodes=(200_000,),
                backends=("eager", "triton"),
                precision=precision,
                min_seconds=0.5,
                device="cuda",
            )
        )


def epoch(data_root: Path) -> Iterator[Row]:
    shared = {"repeats": 1, "device": "cuda"}
    for precision in PRECISIONS:
        targets = ("amherst41", "johnshopkins55")
        config = EpochBench(targets=targets, epochs=500, precision=precision, **shared)
        yield from run_epoch(config, data_root)
    for precision in ("float32", "bfloat16"):
        config = EpochBench(
            targets=("pubmed",), pivots=800, epochs=100, precision=precision, **shared
        )
        yield from run_epoch(config, data_root)
    for capture in (True, False):
        config = EpochBench(
            targets=("amherst41",), epochs=60, backend="eager", capture=capture, **shared
        )
        yield from run_epoch(config, data_root)


def batch(data_root: Path) -> Iterator[Row]:
    for precision in PRECISIONS:
        config = BatchBench(
            target="amherst41", epochs=100, precision=precision, repeats=1, device="cuda"
        )
        yield from run_batch(config, data_root)


def scale(_: Path) -> Iterator[Row]:
    for precision in ("float32", "bfloat16"):
        nodes = (10_000, 100_000, 1_000_000, 10_000_000)
        yield from run_scale(
            ScaleBench(nodes=nodes, precision=precision, min_seconds=0.5, device="cuda")
        )


PARTS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "op": op,
    "epoch": epoch,
    "batch": batch,
    "scale": scale,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.parts:
        began = time.perf_counter()
        try:
            for row in stamped(name, torch.device("cuda"), PARTS[name](args.data_root)):
                append_line(args.out / f"bench_{name}.jsonl", json.dumps(row))
                print(name, {k: row[k] for k in SHOWN if row.get(k) is not None}, flush=True)
        except Exception:
            traceback.print_exc()
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
