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
import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from graphglow.errors import InputError
from graphglow.experiments.paper import GRAPHS, WIDER, of_the_other_kind
from graphglow.experiments.paper.cells import split_of, table2
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.executor import open_executor, result_of
from graphglow.experiments.runs.learners import load_with_split
from graphglow.experiments.search.settings import locked, read_settings, write_settings
from graphglow.experiments.search.space import STEPS, SearchConfig, has_learner
from graphglow.experiments.search.study import Work, search
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


def all_methods() -> list[str]:
    """The methods of Table 2 that have settings of their own, and the wider searches."""
    named = {cell.tuned_as or cell.method for cell in table2()}
    return sorted(named, key=lambda name: (_place(name), name))


def _place(method: str) -> int:
    return 0 if method in FIRST else 2 if method in WIDER else 1


def run(method: str, target: str, args: argparse.Namespace) -> str:
    """Search one method on one target; return a line about it."""
    began = time.time()
    if began > args.until:
        return f"{method} on {target}: not begun"
    large = target in LARGE
    config = SearchConfig(
        trials=args.trials_large if large else args.trials,
        trials_at_once=args.at_once,
        seeds_per_trial=1 if large else args.seeds,
        device=args.device,
    )
    work = Work(
        storage=args.folder / f"{target}-{method}.db",
        learners=args.folder / "learners",
        settings=args.settings,
    )
    names = of_the_other_kind(target) if has_learner(method) else ()
    try:
        row = search(
            method,
            load_with_split(target, args.data_root),
            config,
            work=work,
            sources=[load_with_split(name, args.data_root) for name in names],
            pretrain_space=STEPS,
            split=split_of(target),
        )
    except InputError as error:
        return f"{method} on {target}: {error}"
    found = "no trial succeeded" if row["val_accuracy"] is None else f"{row['val_accuracy']:.4f}"
    return f"{method} on {target}: {found}, {row['trials']} trials, {time.time() - began:.0f} s"


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
    args.until = time.time() + args.seconds
    asked = [(m, target) for m in args.methods or all_methods() for target in args.targets]
    # what the main claims rest on before the rest, and of each the longest first
    asked.sort(key=lambda study: (_place(study[0]), study[1] not in LARGE))
    with open_executor(args.processes, device=args.device) as executor:
        for done in as_completed([executor.submit(run, *study, args) for study in asked]):
            print(result_of(done), flush=True)


if __name__ == "__main__":
    main()
