"""Every GPU figure of docs/performance.md in one run of a few minutes, on one GPU.

    python benchmarks/gpu_suite.py --data-root data --out results [--parts op epoch batch scale]

The same benchmarks as ``graphglow bench``, without the packages of the command line. Rows are added
to ``bench_<name>.jsonl`` in the folder ``--out`` as they are measured; a case that fails says so
and the others go on.
"""

import argparse
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from graphglow.experiments.bench import transfers
from graphglow.experiments.bench.config import BenchConfig, Row, stamped
from graphglow.experiments.bench.op import OpBench, run_op
from graphglow.experiments.bench.scale import ScaleBench, run_scale
from graphglow.storage import append_line

PRECISIONS = ("float32", "tf32", "bfloat16")
HALF = PRECISIONS[::2]
ONCE = {"repeats": 1, "device": "cuda"}
FACEBOOK = {"targets": ("amherst41", "johnshopkins55"), "epochs": 500, **ONCE}
PUBMED = {"targets": ("pubmed",), "pivots": 800, "epochs": 100, **ONCE}
EAGER = {"targets": ("amherst41",), "epochs": 60, "backend": "eager", **ONCE}
AT = {"nodes": (200_000,), "backends": ("eager", "triton"), "min_seconds": 0.5, "device": "cuda"}
SIZES = {"nodes": (10**4, 10**5, 10**6, 10**7), "min_seconds": 0.5, "device": "cuda"}
PARTS: dict[str, list[BenchConfig]] = {
    "op": [OpBench(precision=precision, **AT) for precision in PRECISIONS],
    "epoch": [
        *(transfers.EpochBench(precision=precision, **FACEBOOK) for precision in PRECISIONS),
        *(transfers.EpochBench(precision=precision, **PUBMED) for precision in HALF),
        *(transfers.EpochBench(capture=capture, **EAGER) for capture in (True, False)),
    ],
    "batch": [
        transfers.BatchBench(target="amherst41", epochs=100, precision=precision, **ONCE)
        for precision in PRECISIONS
    ],
    "scale": [ScaleBench(precision=precision, **SIZES) for precision in HALF],
}


def measured(config: BenchConfig, data_root: Path) -> Iterator[Row]:
    if isinstance(config, OpBench):
        return run_op(config)
    if isinstance(config, ScaleBench):
        return run_scale(config)
    if isinstance(config, transfers.BatchBench):
        return transfers.run_batch(config, data_root)
    assert isinstance(config, transfers.EpochBench)
    return transfers.run_epoch(config, data_root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    args = parser.parse_args()
    for name in args.parts:
        began = time.perf_counter()
        for config in PARTS[name]:
            try:
                for row in stamped(name, torch.device("cuda"), measured(config, args.data_root)):
                    append_line(args.out / f"bench_{name}.jsonl", json.dumps(row))
                    print({k: v for k, v in row.items() if v and k != "provenance"}, flush=True)
            except Exception:
                traceback.print_exc()
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
