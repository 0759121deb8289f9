"""Make rows of ``graphglow reproduce`` in a given order, without the command line's dependencies.

    python benchmarks/reproduce_rows.py table2 table1 --processes 6 --seconds 400

The same runs as ``graphglow reproduce --batch-seeds``, for a machine with PyTorch and
PyG only. Experiments are made in the order given, and of each, the methods in the order given.
"""

import argparse
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from graphglow.lab.paper.cells import EXPERIMENTS, Cell, select_cells
from graphglow.lab.runs.config import ReproduceConfig
from graphglow.lab.runs.reproduce import reproduce
from graphglow.lab.search.settings import read_settings

LARGE = ("pubmed", "cornell5")


def ordered(args: argparse.Namespace) -> list[Cell]:
    """Small graphs first, then by the experiments and rows as they are named."""
    cells, _ = select_cells(args.experiments, targets=args.targets)
    chosen = [cell for cell in cells if not args.rows or cell.key.split("/")[0] in args.rows]
    places = {name: place for place, name in enumerate(args.rows)}

    def place(cell: Cell) -> tuple[bool, int, int]:
        row = places.get(cell.key.split("/")[0], 0)
        return cell.target in LARGE, args.experiments.index(cell.experiment), row

    return sorted(chosen, key=place)


def main(argv: Sequence[str] | None = None) -> None:
    """Make what is missing, and say what is under way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("experiments", nargs="+", choices=list(EXPERIMENTS))
    parser.add_argument("--rows", nargs="+", default=[], help="first parts of cells' keys")
    parser.add_argument("--targets", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learners", type=int, default=1)
    parser.add_argument("--patience", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=0, help="stop then, as Ctrl-C does")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--settings", type=Path, default=Path("results/settings.json"))
    parser.add_argument("--out", type=Path, default=Path("results/reproduce"))
    args = parser.parse_args(argv)
    config = ReproduceConfig(
        seeds=args.seeds,
        learners=args.learners,
        patience=args.patience,
        processes=args.processes,
        batch_seeds=True,
        device=args.device,
    )
    began = time.perf_counter()

    def say(said: str, done: int, total: int) -> None:
        print(f"{time.perf_counter() - began:5.0f} s  {done}/{total}: {said}")

    if args.seconds:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.alarm(args.seconds)
    try:
        settings = read_settings(args.settings)
        cells = ordered(args)
        print(reproduce(cells, args.out, config, settings, data_root=args.data_root, told=say))
    except KeyboardInterrupt:
        print("stopped; what had ended is kept")


if __name__ == "__main__":
    main()
