"""Time the Triton kernels over a list of tiles, on the GPU; the best of each first.

    python benchmarks/tune.py fused --nodes 200000 --precision bfloat16 [--out tiles.jsonl]
    python benchmarks/tune.py dense --nodes 2235

``fused`` are the passes of the backend triton, ``dense`` the kernels of dense. ``--precision`` of
fused is bfloat16, or how float32 inputs are multiplied: tf32, tf32x3, bf16x3, ieee; of dense one of
float32, tf32, bfloat16. Candidates are compiled first, in ``--workers`` processes that share
Triton's cache on disk; those that do not fit are named and left out.
"""

import argparse
import dataclasses
import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from triton.testing import do_bench

from graphglow.ops import triton_dense
from graphglow.ops import triton_fused as fused
from graphglow.storage import append_line

# near, far, warps, stages, then block_w, block_g and programs per multiprocessor
FUSED = {
    ("messages", "bfloat16"): [
        (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2, 256, 256, 2), (128, 64, 8, 2),
        (64, 64, 4, 3), (64, 128, 4, 2), (128, 64, 8, 4), (64, 64, 8, 3), (64, 128, 8, 2),
        (32, 64, 4, 3, 256, 256, 2), (32, 128, 8, 2, 256, 256, 2), (128, 32, 8, 3),
        (128, 64, 8, 3, 64), (16, 64, 4, 3, 256, 256, 2),
    ],
    ("gradients", "bfloat16"): [
        (128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 8, 3), (64, 64, 4, 2), (64, 32, 4, 2),
        (64, 64, 8, 2), (64, 32, 4, 3), (32, 64, 8, 2, 256, 256, 2), (128, 32, 8, 2),
        (128, 64, 8, 2, 64, 128), (64, 64, 4, 2, 64, 128), (32, 64, 4, 2), (128, 64, 8, 2, 64),
    ],
    ("messages", "tf32"): [
        (64, 64, 4, 2), (64, 64, 8, 2), (128, 64, 8, 3, 64), (64, 32, 4, 2), (64, 64, 8, 2, 64),
        (64, 64, 4, 2, 64, 256, 2), (64, 32, 4, 3), (128, 32, 8, 2), (128, 64, 8, 2, 64),
        (128, 128, 8, 2, 64), (64, 64, 4, 3, 64, 256, 2), (64, 32, 8, 2),
        (32, 64, 8, 2, 64, 256, 2),
    ],
    ("gradients", "tf32"): [
        (64, 32, 8, 2, 64), (64, 64, 8, 2, 64), (64, 32, 8, 2), (64, 32, 4, 2, 64, 128, 2),
        (128, 64, 8, 2, 64, 128), (64, 64, 8, 2, 64, 128), (128, 32, 8, 2, 64),
        (32, 32, 8, 2, 64), (64, 16, 4, 2), (64, 32, 8, 3, 64),
    ],
    ("messages", "float32"): [
        (64, 64, 8, 2, 64), (64, 64, 4, 2, 64, 256, 2), (128, 64, 8, 3, 64), (128, 64, 8, 2, 64),
        (32, 64, 8, 2, 64), (64, 32, 4, 2, 64, 256, 2), (64, 16, 4, 2), (64, 128, 8, 2, 64),
        (32, 64, 4, 2, 64, 256, 2), (64, 64, 8, 3, 64),
    ],
    ("gradients", "float32"): [
        (64, 32, 4, 2, 64, 128, 2), (64, 32, 8, 2, 64), (64, 16, 4, 2, 64, 128, 2),
        (128, 64, 8, 2, 64, 128), (64, 64, 8, 2, 64, 128), (64, 32, 8, 2, 64, 128),
        (32, 32, 8, 2, 64), (16, 32, 4, 2, 64), (32, 32, 4, 2, 64, 128, 2),
    ],
}  # fmt: skip
NODES_NEAR = ("to_nodes", "grad_q")
"""Fused passes whose programs hold a block of nodes; the others hold pivots."""
DENSE = {  # rows, inner, columns, warps, stages
    "gamma": [
        (64, 64, 64, 4, 3), (64, 256, 64, 4, 1), (128, 64, 64, 4, 3), (64, 64, 128, 4, 3),
        (128, 128, 64, 8, 2), (64, 128, 64, 4, 2), (64, 128, 64, 8, 2),
    ],
    "cut": [(32, 0, 128, 4, 2), (16, 0, 128, 4, 2), (64, 0, 64, 4, 2), (32, 0, 256, 8, 2)],
    "to_pivots": [
        (64, 64, 0, 4, 3), (64, 128, 0, 4, 2), (64, 128, 0, 4, 3), (128, 64, 0, 4, 3),
        (32, 128, 0, 4, 3), (64, 64, 0, 4, 4), (64, 32, 0, 4, 4), (128, 128, 0, 8, 2),
    ],
    "to_nodes": [
        (16, 64, 0, 4, 3), (16, 128, 0, 4, 3), (16, 128, 0, 4, 2), (32, 128, 0, 4, 3),
        (32, 64, 0, 4, 4), (64, 64, 0, 4, 3), (64, 128, 0, 4, 2), (16, 128, 0, 8, 3),
    ],
    "grad_gamma": [
        (64, 0, 64, 4, 2), (64, 0, 128, 4, 2), (128, 0, 64, 4, 2), (64, 0, 64, 8, 2),
        (32, 0, 128, 4, 2), (32, 0, 64, 4, 2), (128, 0, 128, 8, 2),
    ],
    "grad_q": [
        (64, 64, 64, 4, 3), (64, 128, 64, 4, 2), (64, 64, 128, 4, 3), (128, 64, 64, 4, 3),
        (64, 64, 64, 4, 4), (64, 32, 64, 4, 4), (64, 128, 64, 8, 2),
    ],
}  # fmt: skip


def candidates(args: argparse.Namespace) -> list[tuple[str, Any]]:
    """Kernels and tiles to try."""
    if args.kernels == "dense":
        return [(name, triton_dense.Tiles(*one)) for name in DENSE for one in DENSE[name]]
    columns = args.precision if args.precision in ("bfloat16", "tf32") else "float32"
    found = []
    for name in ("to_pivots", "to_nodes", "grad_to_pivots", "grad_q", "grad_k"):
        kind = "gradients" if name in ("grad_q", "grad_k") else "messages"
        for near, far, *rest in FUSED[kind, columns]:
            block_n, block_p = (near, far) if name in NODES_NEAR else (far, near)
            found.append((name, fused.Tiles(block_n, block_p, *rest)))
    return found


def inputs(args: argparse.Namespace, nodes: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """v, its gradient, q and k as the learner makes them: rows of q and k are unit vectors."""
    draw = torch.Generator("cuda").manual_seed(0)
    sizes = ((nodes, args.features), (nodes, args.features), (nodes, args.width))
    v, g, q, k = (
        torch.randn(*size, generator=draw, device="cuda", dtype=dtype)
        for size in (*sizes, (args.pivots, args.width))
    )
    return [v, g, torch.nn.functional.normalize(q), torch.nn.functional.normalize(k)]


def fused_step(args: argparse.Namespace, name: str, tiles: Any, nodes: int) -> Callable[[], object]:
    """A pass with these tiles, on tensors that earlier passes made with the tiles in use."""
    half = args.precision == "bfloat16"
    dtype = torch.bfloat16 if half else torch.float32
    problem = fused.Problem(
        batch=1, n=nodes, p=args.pivots, f=args.features, head_width=args.width, heads=1,
        kernel="identity", threshold=0.0, dtype=dtype, chip=fused._chip(torch.device("cuda", 0)),
        precision="tf32" if half else args.precision, tiles={},
    )  # fmt: skip
    v, g, q, k = (t[None] for t in inputs(args, nodes, dtype))
    c, m = fused.to_pivots(problem, v, q, k)
    out, row_sum = fused.to_nodes(problem, c, q, k)
    ds, dm = fused.grad_to_pivots(problem, g, q, k, c, m, row_sum)
    dr = torch.zeros_like(row_sum)
    tuned = dataclasses.replace(problem, tiles={name: tiles})
    return {
        "to_pivots": lambda: fused.to_pivots(tuned, v, q, k),
        "to_nodes": lambda: fused.to_nodes(tuned, c, q, k),
        "grad_to_pivots": lambda: fused.grad_to_pivots(tuned, g, q, k, c, m, row_sum),
        "grad_q": lambda: fused.grad_q(
            tuned, v, q, k, g, out, row_sum, c, ds, dm, need_v=True
        ),
        "grad_k": lambda: fused.grad_k(tuned, v, q, k, g, row_sum, dr, c, ds, dm),
    }[name]  # fmt: skip


def dense_step(args: argparse.Namespace, name: str, tiles: Any, nodes: int) -> Callable[[], object]:
    """A call of one kernel (with the small one that finishes it); its tiles are set."""
    precision = args.precision
    v, g, q, k = inputs(args, nodes, torch.float32)
    gamma, rows, columns = triton_dense.make_gamma(q, k, 0.0, precision)
    c, out = triton_dense.propagate_forward(v, gamma, rows, columns, precision)
    need = {"cut": True, "precision": precision, "need_v": True, "need_gamma": True}
    triton_dense.TILES[name] = tiles
    return {
        "gamma": lambda: triton_dense.make_gamma(q, k, 0.0, precision),
        "cut": lambda: triton_dense.make_gamma(q, k, 0.0, precision),
        "to_pivots": lambda: triton_dense.to_pivots(v, gamma, columns, precision),
        "to_nodes": lambda: triton_dense.to_nodes(c, gamma, rows, precision),
        "grad_gamma": lambda: triton_dense.propagate_backward(
            g, v, gamma, rows, columns, c, out, **need
        ),
        "grad_q": lambda: triton_dense.gamma_backward(gamma, q, k, precision, True, False),
    }[name]


STEPS = {"fused": fused_step, "dense": dense_step}


def compile_one(job: tuple[argparse.Namespace, str, Any]) -> str | None:
    """Run a kernel once on a small graph, which leaves it in Triton's cache; or say why not."""
    args, name, tiles = job
    try:
        STEPS[args.kernels](args, name, tiles, 300)()
        torch.cuda.synchronize()
    except Exception as error:  # out of resources, or the compiler gave up
        return f"{type(error).__name__}: {error}".splitlines()[0][:120]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", choices=list(STEPS))
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--pivots", type=int, default=1000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    jobs = [(args, name, tiles) for name, tiles in candidates(args)]
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        failures = list(pool.map(compile_one, jobs))
    in_use, rows = dict(triton_dense.TILES), []
    for (_, name, tiles), why in zip(jobs, failures, strict=True):
        if why is not None:
            print(f"left out  {name:15s} {tiles}: {why}")
            continue
        step = STEPS[args.kernels](args, name, tiles, args.nodes)
        rows.append((name, do_bench(step, warmup=10, rep=60, return_mode="median"), tiles))
        triton_dense.TILES.update(in_use)
    for name, ms, tiles in sorted(rows, key=lambda row: row[:2]):
        print(f"{name:15s} {1e3 * ms:10.1f} us  {tiles}")
        if args.out is not None:
            row = {**vars(args), "out": None, "kernel": name, "ms": ms}
            row |= {"tiles": str(tiles), "device": torch.cuda.get_device_name()}
            append_line(args.out, json.dumps(row))


if __name__ == "__main__":
    main()
