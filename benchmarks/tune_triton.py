"""Time every pass of the fused kernels over a list of tiles, on the GPU; best first.

    python benchmarks/tune_triton.py --nodes 200000 --precision bfloat16 --seconds 120 \
        [--pivots 1000] [--width 256] [--features 64] [--batch 1] [--out results/tiles.jsonl]

``--precision`` is bfloat16, or how float32 inputs are multiplied: tf32, tf32x3, bf16x3, ieee. The
candidates are compiled first, in ``--workers`` processes that share Triton's cache on disk; those
that do not fit are named and left out. Then each is timed (median of do_bench), the promising ones
first, until ``--seconds`` are over. At the end: forward and backward with the best tiles and with
the ones in use, against eager in the same arithmetic, and the error of both against float64.
"""

import argparse
import dataclasses
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from triton.testing import do_bench

from graphglow.ops import triton_fused as fused
from graphglow.ops.eager import eager
from graphglow.ops.triton_fused import Pass, Problem, Tiles

PASSES: tuple[Pass, ...] = ("to_pivots", "to_nodes", "grad_to_pivots", "grad_q", "grad_k")
NODES_NEAR = ("to_nodes", "grad_q")
"""Passes whose programs hold a block of nodes; the others hold pivots."""
PRECISIONS = ("bfloat16", "tf32", "tf32x3", "bf16x3", "ieee")
DEVICE = torch.device("cuda", 0)
GAMMA_LIMIT = 2_000_000_000
"""Entries of Gamma up to which eager is run beside."""

# near, far, warps, stages, then block_w, block_g and programs per multiprocessor
CANDIDATES = {
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


def candidates(name: Pass, precision: str) -> list[Tiles]:
    kind = "gradients" if name in ("grad_q", "grad_k") else "messages"
    columns = precision if precision in ("bfloat16", "tf32") else "float32"
    found = []
    for near, far, *rest in CANDIDATES[kind, columns]:
        block_n, block_p = (near, far) if name in NODES_NEAR else (far, near)
        found.append(Tiles(block_n, block_p, *rest))
    return found


def make_problem(args: argparse.Namespace, nodes: int, tiles: dict[Pass, Tiles]) -> Problem:
    half = args.precision == "bfloat16"
    return Problem(
        batch=args.batch, n=nodes, p=args.pivots, f=args.features, head_width=args.width, heads=1,
        kernel="identity", threshold=0.0, dtype=torch.bfloat16 if half else torch.float32,
        precision="tf32" if half else args.precision,
        chip=fused._chip(DEVICE), tiles=tiles,
    )  # fmt: skip


def make_inputs(problem: Problem) -> list[torch.Tensor]:
    """v, q and k as the learner makes them: rows of q and k are unit vectors."""
    generator = torch.Generator(DEVICE).manual_seed(0)

    def normal(rows: int, columns: int) -> torch.Tensor:
        shape = problem.batch, rows, columns
        return torch.randn(shape, generator=generator, device=DEVICE, dtype=problem.dtype)

    q, k = normal(problem.n, problem.head_width), normal(problem.p, problem.head_width)
    unit = [t / t.norm(dim=-1, keepdim=True) for t in (q, k)]
    return [normal(problem.n, problem.f), *unit]


def make_passes(problem: Problem) -> dict[Pass, Callable[[Problem], object]]:
    """What each pass does, on tensors that earlier passes made with the tiles in use."""
    v, q, k = make_inputs(problem)
    g = torch.randn_like(v)
    c, m = fused.to_pivots(problem, v, q, k)
    out, row_sum = fused.to_nodes(problem, c, q, k)
    ds, dm = fused.grad_to_pivots(problem, g, q, k, c, m, row_sum)
    dr = torch.zeros_like(row_sum)
    return {
        "to_pivots": lambda p: fused.to_pivots(p, v, q, k),
        "to_nodes": lambda p: fused.to_nodes(p, c, q, k),
        "grad_to_pivots": lambda p: fused.grad_to_pivots(p, g, q, k, c, m, row_sum),
        "grad_q": lambda p: fused.grad_q(
            p, v, q, k, g, out, row_sum, c, ds, dm, need_v=True
        ),
        "grad_k": lambda p: fused.grad_k(p, v, q, k, g, row_sum, dr, c, ds, dm),
    }  # fmt: skip


def compile_one(job: tuple[argparse.Namespace, Pass, Tiles]) -> str | None:
    """Run a pass once on a small graph, which leaves it in Triton's cache; or say why not."""
    args, name, tiles = job
    small = make_problem(args, 300, {})
    try:
        make_passes(small)[name](dataclasses.replace(small, tiles={name: tiles}))
        torch.cuda.synchronize()
    except Exception as error:  # out of resources, or the compiler gave up
        return f"{type(error).__name__}: {error}".splitlines()[0][:120]
    return None


def pass_flop(problem: Problem, name: Pass) -> float:
    """Multiplications and additions, each product made once."""
    w, f = problem.head_width, problem.f
    columns = {"grad_q": 2 * w + 3 * f, "grad_k": 2 * w + 2 * f}.get(name, w + f)
    return 2.0 * problem.batch * problem.n * problem.p * columns


def time_candidates(args: argparse.Namespace, problem: Problem, deadline: float) -> list[dict]:
    jobs = [(args, name, t) for name in args.passes for t in candidates(name, args.precision)]
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        failures = list(pool.map(compile_one, jobs))
    good = [job[1:] for job, why in zip(jobs, failures, strict=True) if why is None]
    for (_, name, tiles), why in zip(jobs, failures, strict=True):
        if why is not None:
            print(f"left out  {name:15s} {tiles}: {why}")
    passes, rows, rank = make_passes(problem), [], dict.fromkeys(PASSES, 0)
    order = []
    for name, tiles in good:  # the first of every pass, then the second of every pass, ...
        order.append((rank[name], name, tiles))
        rank[name] += 1
    for _, name, tiles in sorted(order, key=lambda entry: entry[0]):
        if time.monotonic() > deadline:
            print("out of time: the rest is not timed")
            break
        this = dataclasses.replace(problem, tiles={name: tiles})
        ms = do_bench(lambda: passes[name](this), warmup=10, rep=60, return_mode="median")  # noqa: B023
        rows.append(
            {
                "pass": name,
                "tiles": dataclasses.asdict(tiles),
                "in_use": tiles == problem.tiles_of(name),
                "ms": ms,
                "tflops": pass_flop(problem, name) / ms / 1e9,
            }
        )
    return sorted(rows, key=lambda row: (PASSES.index(row["pass"]), row["ms"]))


def time_totals(args: argparse.Namespace, best: dict[Pass, Tiles]) -> list[dict]:
    """Forward, and forward with backward, through autograd."""
    problem = make_problem(args, args.nodes, {})
    tensors = [t.requires_grad_() for t in make_inputs(problem)]
    g = torch.randn_like(tensors[0])

    def fused_with(tiles: dict[Pass, Tiles]) -> Callable[..., torch.Tensor]:
        return lambda v, q, k: fused.triton_fused(
            v, q, k, 0.0, "identity", 1, problem.precision, tiles
        )

    functions = {"triton, tiles in use": fused_with({}), "triton, best tiles": fused_with(best)}
    if problem.batch * problem.n * problem.p <= GAMMA_LIMIT:
        functions["eager"] = lambda v, q, k: eager(v, q, k, 0.0, "identity", 1)
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    return [
        {
            "total": label,
            "forward_ms": do_bench(lambda: function(*tensors), return_mode="median"),  # noqa: B023
            "both_ms": do_bench(
                lambda: torch.autograd.grad(function(*tensors), tensors, g),  # noqa: B023
                return_mode="median",
            ),
            "errors": errors(function, tensors, g) if "eager" in functions else None,
        }
        for label, function in functions.items()
    ]


def errors(function: Callable[..., torch.Tensor], tensors: list, g: torch.Tensor) -> list[float]:
    """Of out, dv, dq and dk on the first 5,000 nodes, relative in norm to float64."""
    v, q, k = (t.detach()[:, :5000].requires_grad_() for t in tensors)
    g = g[:, :5000]
    exact = [t.detach().double().requires_grad_() for t in (v, q, k)]
    want = eager(*exact, 0.0, "identity", 1)
    wanted = [want, *torch.autograd.grad(want, exact, g.double())]
    got = function(v, q, k)
    gotten = [got, *torch.autograd.grad(got, (v, q, k), g)]
    return [
        float((a.double() - b).detach().norm() / b.detach().norm())
        for a, b in zip(gotten, wanted, strict=True)
    ]


def show(row: dict) -> None:
    if "pass" in row:
        tiles = ", ".join(f"{key}={value}" for key, value in row["tiles"].items())
        mark = "*" if row["in_use"] else " "
        print(f"{row['pass']:15s}{mark}{row['ms']:10.3f} ms {row['tflops']:7.1f} TFLOP/s  {tiles}")
    else:
        text = (
            f"{row['total']:22s} forward {row['forward_ms']:9.3f} ms  both {row['both_ms']:9.3f} ms"
        )
        if row["errors"] is not None:
            text += "  errors " + " ".join(f"{error:.1e}" for error in row["errors"])
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--pivots", type=int, default=1000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", choices=PRECISIONS, default="bfloat16")
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=list(PASSES))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    deadline = time.monotonic() + args.seconds
    rows = time_candidates(args, make_problem(args, args.nodes, {}), deadline)
    best: dict[Pass, Tiles] = {}
    for row in rows:
        best.setdefault(row["pass"], Tiles(**row["tiles"]))
    rows += time_totals(args, best)
    settings = {key: value for key, value in vars(args).items() if key not in ("out", "passes")}
    for row in rows:
        show(row)
        if args.out is not None:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            with args.out.open("a") as file:
                device = torch.cuda.get_device_name()
                file.write(json.dumps({**settings, "device": device, **row}) + "\n")


if __name__ == "__main__":
    main()
