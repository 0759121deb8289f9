"""Time Eq. 11 by fused kernels with other tiles than those in use, on the GPU; best first.

    python benchmarks/tune_tiles.py --backend triton --nodes 200000 --precision bfloat16
    python benchmarks/tune_tiles.py --backend dense --nodes 2235 --precision float32

Each entry of the backend's table of tiles is tried with one of its numbers halved or doubled, all
others as they are, and forward and backward are timed whole. Tiles that do not fit are left out.
"""

import argparse
import dataclasses
from collections.abc import Iterator

import torch
from triton.testing import do_bench_cudagraph

from graphglow.ops import pivot_propagate, triton_dense, triton_fused

TABLES = {"triton": triton_fused.TILES, "dense": triton_dense.TILES}


def neighbours(tiles) -> Iterator[object]:
    for field in dataclasses.fields(tiles):
        value = getattr(tiles, field.name)
        for other in {value // 2, 2 * value} - {0, value}:
            yield dataclasses.replace(tiles, **{field.name: other})


def milliseconds(args: argparse.Namespace) -> float:
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator, device="cuda")

    q, k = (torch.nn.functional.normalize(normal(n, args.width)) for n in (args.nodes, args.pivots))
    v, g = normal(args.nodes, args.features), normal(args.nodes, args.features)
    leaves = [t.requires_grad_() for t in (v, q, k)]

    def step() -> None:
        out = pivot_propagate(*leaves, backend=args.backend, precision=args.precision)
        torch.autograd.grad(out, leaves, g)

    return do_bench_cudagraph(step, rep=40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=sorted(TABLES), default="triton")
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32", "bfloat16"])
    for name, default in {"nodes": 200_000, "pivots": 1000, "width": 256, "features": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    table, found = TABLES[args.backend], [(milliseconds(args), "tiles in use", "")]
    for name, in_use in list(table.items()):
        for tiles in neighbours(in_use):
            table[name] = tiles
            try:
                found.append((milliseconds(args), str(name), str(tiles)))
            except Exception as error:  # out of resources, or the compiler gave up
                print(f"left out  {name} {tiles}: {type(error).__name__}", flush=True)
        table[name] = in_use
    for ms, name, tiles in sorted(found):
        print(f"{ms:9.3f} ms  {name} {tiles}")


if __name__ == "__main__":
    main()
