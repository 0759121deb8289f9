"""Time and peak memory of pivot_propagate, backend against backend, forward and backward.

    python benchmarks/bench_pivot_propagate.py [--device cuda] [--out results/bench_op.jsonl]

One JSON line per case and backend; ``ratio`` is the time against ``eager`` in the same run. Peak
memory is that of the tensors alive during one forward and backward, above the inputs.
"""

import argparse
import json
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

from graphglow.experiments.provenance import provenance
from graphglow.ops import pivot_propagate

CASES = [(962, 962), (2235, 1000), (5180, 1000), (19717, 800)]  # nodes, pivots of real graphs
WIDTH, FEATURES = 256, 64  # H * d = 4 * 64; d


def inputs(n: int, p: int, device: str) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    shapes = [(n, FEATURES), (n, WIDTH), (p, WIDTH)]
    tensors = [torch.rand(s, generator=generator, device=device) for s in shapes]
    return [t.requires_grad_() for t in tensors]


def peak_bytes(step, device: str) -> int:
    """Peak of the allocator (GPU), or the largest sum of live allocations (CPU profiler)."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    origin = provenance()
    for n, p in CASES:
        v, q, k = inputs(n, p, args.device)
        eager_seconds = None
        for backend in ("eager", "chunked", "linear"):
            threshold = None if backend == "linear" else 0.0

            def step(backend=backend, threshold=threshold, v=v, q=q, k=k) -> None:
                out = pivot_propagate(v, q, k, threshold=threshold, backend=backend)
                torch.autograd.grad(out.sum(), (v, q, k))

            step()
            peak = peak_bytes(step, args.device)
            timing = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
            seconds = timing.blocked_autorange(min_run_time=1.0).median
            eager_seconds = eager_seconds or seconds
            row = {
                "benchmark": "pivot_propagate",
                "nodes": n,
                "pivots": p,
                "backend": backend,
                "device": args.device,
                "median_ms": round(1e3 * seconds, 3),
                "ratio": round(seconds / eager_seconds, 3),
                "peak_bytes": peak,
                "provenance": origin,
            }
            print(json.dumps({key: row[key] for key in row if key != "provenance"}), flush=True)
            if args.out is not None:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
