"""Search the settings of every method of the paper's tables, and write results/settings.json.

    python benchmarks/search_settings.py --processes 6

The same as ``graphglow search`` for each method and target, one process per study. GraphGLOW's
learner is pre-trained on Table 2's sources; of pre-training only the encoder and theta's step are
searched, four learners in all, beside what the GNN of the target is trained with. Every method has
the same budget on a graph; the two large graphs have a smaller one. A rerun goes on with what is
missing.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from graphglow.errors import InputError
from graphglow.experiments.candidates import SearchConfig
from graphglow.experiments.paper import GRAPHS, of_the_other_kind
from graphglow.experiments.paper.cells import split_of, table2
from graphglow.experiments.paper.lines import WIDER
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.executor import end_with
from graphglow.experiments.runs.learners import load_with_split
from graphglow.experiments.search import Work, has_learner, search
from graphglow.experiments.search_spaces import STEPS
from graphglow.experiments.settings import locked, read_settings, write_settings
from graphglow.storage import append_line

LARGE = ("pubmed", "cornell5")
BORROWED = {
    "pubmed": "citeseer",
    "amherst41": "reed98",
    "johnshopkins55": "amherst41",
    "cornell5": "johnshopkins55",
}
"""Whose settings a method takes on a graph on which it was not searched (``--borrow``)."""
FIRST = ("graphglow", "random-theta", "gcn")
"""Methods that are searched before the others; ``WIDER`` ones come last."""


class Study(NamedTuple):
    """What one process is asked to search."""

    method: str
    target: str
    config: SearchConfig
    folder: Path
    settings: Path
    data_root: Path | None
    until: float
    """When to begin nothing new."""


def all_methods() -> list[str]:
    """The methods of Table 2 that have settings of their own, and the wider searches."""
    named = {cell.tuned_as or cell.method for cell in table2()}
    return sorted(named, key=lambda name: (_place(name), name))


def _place(method: str) -> int:
    return 0 if method in FIRST else 2 if method in WIDER else 1


def run(study: Study) -> str:
    """Search one method on one target; return a line about it."""
    began = time.time()
    if began > study.until:
        return f"{study.method} on {study.target}: not begun"
    torch.set_num_threads(1)
    names = of_the_other_kind(study.target) if has_learner(study.method) else ()
    work = Work(
        storage=study.folder / f"{study.target}-{study.method}.db",
        learners=study.folder / "learners",
        settings=study.settings,
    )
    data = load_with_split(study.target, study.data_root)
    try:
        row = search(
            study.method,
            data,
            study.config,
            work=work,
            sources=[load_with_split(name, study.data_root) for name in names],
            pretrain_space=STEPS,
            split=split_of(study.target),
        )
    except InputError as error:
        return f"{study.method} on {study.target}: {error}"
    found = "no trial succeeded" if row["val_accuracy"] is None else f"{row['val_accuracy']:.4f}"
    seconds = time.time() - began
    return f"{study.method} on {study.target}: {found}, {row['trials']} trials, {seconds:.0f} s"


def studies(args: argparse.Namespace) -> list[Study]:
    """What the main claims rest on before the rest, and of each the longest first."""
    until = time.time() + args.seconds
    made = []
    for method in args.methods or all_methods():
        for target in args.targets:
            large = target in LARGE
            config = SearchConfig(
                trials=args.trials_large if large else args.trials,
                trials_at_once=args.at_once,
                seeds_per_trial=1 if large else args.seeds,
                device=args.device,
            )
            paths = (args.folder, args.settings, args.data_root)
            made.append(Study(method, target, config, *paths, until))
    return sorted(made, key=lambda study: (_place(study.method), study.target not in LARGE))


def borrow(path: Path) -> None:
    """Fill in what was not searched on a graph with what was found on one of its kind."""
    with locked(path):
        settings = read_settings(path)
        for method in all_methods():
            for target, other in BORROWED.items():
                sources = of_the_other_kind(target) if has_learner(method) else ()
                if not settings.of(method, target) and settings.of(method, other):
                    found = settings.of(method, other)
                    settings = settings.having(method, target, found, sources)
                    row = {
                        "experiment": "search",
                        "method": method,
                        "target": target,
                        "sources": list(sources) or None,
                        "borrowed_from": other,
                        "settings": found,
                        "provenance": provenance(),
                    }
                    append_line(path.with_name("search.jsonl"), json.dumps(row))
        write_settings(path, settings)


def main(argv: Sequence[str] | None = None) -> None:
    """Search, and say a line for each study as it ends."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--methods", nargs="+", help="those of Table 2 by default")
    parser.add_argument("--targets", nargs="+", default=list(GRAPHS))
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--trials-large", type=int, default=16, help="on PubMed and Cornell5")
    parser.add_argument("--at-once", type=int, default=20, help="trials of one round")
    parser.add_argument("--seeds", type=int, default=2, help="runs of a trial; 1 on large graphs")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after")
    parser.add_argument(
        "--borrow", action="store_true", help="fill in what was not searched, and end"
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/search"))
    parser.add_argument("--settings", type=Path, default=Path("results/settings.json"))
    args = parser.parse_args(argv)
    if args.borrow:
        borrow(args.settings)
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.processes, end_with, (os.getpid(),)) as pool:
        for line in pool.imap_unordered(run, studies(args)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
