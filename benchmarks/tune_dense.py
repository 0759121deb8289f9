"""Time each kernel of the dense backend over a list of tiles, on the GPU; best first.

    python benchmarks/tune_dense.py [--nodes 2235 5180] [--precision float32] [--out tiles.jsonl]

Candidates are compiled first, in ``--workers`` processes that share Triton's cache on disk; those
that do not fit are left out. Beside each product of q and k stands the library's time for it.
"""

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from triton.testing import do_bench_cudagraph

from graphglow.ops import triton_dense
from graphglow.ops.tf32 import tf32_products
from graphglow.ops.triton_dense import Tiles

PIVOTS, WIDTH = 1000, 256
CANDIDATES = {  # rows, inner, columns, warps, stages
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


def step_of(name: str, nodes: int, features: int, precision: str):
    """A call of one kernel (with the small one that finishes it) on random data."""
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cuda")

    q, k = (torch.nn.functional.normalize(normal(rows, WIDTH)) for rows in (nodes, PIVOTS))
    v, g = normal(nodes, features), normal(nodes, features)
    gamma, rows, columns = triton_dense.make_gamma(q, k, 0.0, precision)
    c, out = triton_dense.propagate_forward(v, gamma, rows, columns, precision)
    if name in ("gamma", "cut"):
        return lambda: triton_dense.make_gamma(q, k, 0.0, precision)
    if name == "to_pivots":
        return lambda: triton_dense.to_pivots(v, gamma, columns, precision)
    if name == "to_nodes":
        return lambda: triton_dense.to_nodes(c, gamma, rows, precision)
    if name == "grad_gamma":
        need = {"cut": True, "precision": precision, "need_v": True, "need_gamma": True}
        return lambda: triton_dense.propagate_backward(g, v, gamma, rows, columns, c, out, **need)
    return lambda: triton_dense.gamma_backward(gamma, q, k, precision, True, False)


def compile_one(case: tuple) -> bool:
    name, tiles, nodes, features, precision = case
    try:
        step = step_of(name, nodes, features, precision)
        triton_dense.TILES[name] = Tiles(*tiles)
        step()
        torch.cuda.synchronize()
    except Exception as error:
        print(name, tiles, type(error).__name__)
        return False
    return True


def library_ms(name: str, nodes: int, precision: str) -> float | None:
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    q, k = (torch.randn(rows, WIDTH, device="cuda", dtype=dtype) for rows in (nodes, PIVOTS))
    d_gamma = torch.randn(nodes, PIVOTS, device="cuda", dtype=dtype)
    products = {
        "gamma": lambda: q @ k.mT,
        "grad_q": lambda: d_gamma @ k,
    }
    if name not in products:
        return None
    with tf32_products(precision == "tf32"):
        return do_bench_cudagraph(products[name], rep=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2235, 5180])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--precision", default="float32", choices=list(triton_dense.PRODUCTS))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cases = [(n, t, args.nodes[0], args.features, args.precision) for n in CANDIDATES
             for t in CANDIDATES[n]]  # fmt: skip
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, mp_context=spawn) as pool:
        usable = [case for case, ok in zip(cases, pool.map(compile_one, cases), strict=True) if ok]
    for nodes in args.nodes:
        for name in CANDIDATES:
            step, before, rows = step_of(name, nodes, args.features, args.precision), None, []
            before = triton_dense.TILES[name]
            for tiles in [case[1] for case in usable if case[0] == name]:
                triton_dense.TILES[name] = Tiles(*tiles)
                rows.append((do_bench_cudagraph(step, rep=20), tiles))
            triton_dense.TILES[name] = before
            library = library_ms(name, nodes, args.precision)
            for ms, tiles in sorted(rows):
                beside = "" if library is None else f"  library {1e3 * library:.1f}"
                print(f"{nodes:6d} {name:10s} {1e3 * ms:8.1f} us{beside}  {tiles}", flush=True)
                if args.out:
                    row = {"nodes": nodes, "kernel": name, "us": 1e3 * ms, "tiles": tiles,
                           "precision": args.precision, "library_us": library}  # fmt: skip
                    with args.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
