"""Accuracy, time and memory of every competitor on the paper's graphs: one row per run.

python benchmarks/competitors.py --methods gcn gat --targets cora citeseer --trials 16
python benchmarks/competitors.py --tables

For each method and graph: settings are drawn from the method's search space (Appendix C), tried
with a few seeds, and the ones with the best mean validation accuracy are run with the seeds of the
report. Test labels play no part before that. The chosen settings stand in each row, and all trials
in rows of their own (``"kind": "trial"``, validation accuracy only).
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

SOCIAL = ("amherst41", "cornell5", "johnshopkins55", "reed98")
CITATION = ("cora", "citeseer", "pubmed")
SHAPED_BY_RUN = ("learning_rate", "weight_decay", "dropout", "input_weight", "structure_momentum")
"""Settings in which the runs of one batch may differ."""


def draws(space: dict[str, tuple], trials: int, seed: int) -> list[dict[str, Any]]:
    """``trials`` different settings from a space, all of it if it is no larger; seeded."""
    names = sorted(space)
    size = math.prod(len(space[name]) for name in names)
    if size <= trials:
        return [dict(zip(names, c, strict=True)) for c in itertools.product(*map(space.get, names))]
    generator = random.Random(seed)
    seen: dict[str, dict[str, Any]] = {}
    while len(seen) < trials:
        drawn = {name: generator.choice(space[name]) for name in names}
        seen[json.dumps(drawn)] = drawn
    return list(seen.values())


def batches(method: Any, configs: list[Any]) -> list[list[int]]:
    """Indices of configs that can be trained as one program, at most 24 at a time."""
    if not method.batched:
        return [[i] for i in range(len(configs))]
    groups: dict[str, list[int]] = defaultdict(list)
    for i, config in enumerate(configs):
        shape = {k: v for k, v in asdict(config).items() if k not in (*SHAPED_BY_RUN, "seed")}
        groups[json.dumps(shape, sort_keys=True)].append(i)
    return [g[i : i + 24] for g in groups.values() for i in range(0, len(g), 24)]


def run(name: str, data: Any, configs: list[Any]) -> list[Any]:
    """Results in the order of configs; None for a batch that could not be trained."""
    from graphglow.baselines import METHODS, fit_many
    from graphglow.errors import InputError

    results: list[Any] = [None] * len(configs)
    for group in batches(METHODS[name], configs):
        try:
            done = fit_many(name, data, [configs[i] for i in group])
        except InputError as error:
            print(f"{name}: {error}", flush=True)
            continue
        for i, result in zip(group, done, strict=True):
            results[i] = result
    return results


def load(target: str, args: argparse.Namespace) -> tuple[Any, str]:
    from graphglow import load_graph

    social = target in SOCIAL
    split = Path(args.data_root) / target / "split.npz" if social else None
    data = load_graph(target, data_root=args.data_root, split_file=split)
    return data, "authors" if social else "public"


def job(work: tuple[str, str, argparse.Namespace, dict[str, Any]]) -> None:
    """All rows of one method on one graph, each written as soon as it is known."""
    name, target, args, origin = work

    def write(row: dict[str, Any]) -> None:
        shared = {"benchmark": "competitors", "method": name, "target": target, "split": split}
        append_line(args.out, json.dumps(shared | row | {"provenance": origin}))

    import torch

    from graphglow.baselines import METHODS
    from graphglow.storage import append_line

    torch.set_num_threads(args.threads)
    began = time.perf_counter()
    try:
        data, split = load(target, args)
        method = METHODS[name]
        known = {field.name for field in fields(method.config)}
        fixed = {k: v for k, v in (json.loads(args.set) if args.set else {}).items() if k in known}
        if args.epochs:
            fixed["epochs"] = args.epochs
        if args.patience:
            fixed["patience"] = args.patience
        trials = [{}, *(json.loads(args.tries) if args.tries else [])]  # defaults compete too
        if args.trials > 0:
            space = {k: v for k, v in method.space.items() if k not in fixed}
            trials += draws(space, args.trials, args.search_seed)
        chosen: dict[str, Any] = {}
        if len(trials) > 1:
            chosen = search(name, data, trials, fixed, args, write)
        configs = [method.config(**(chosen | fixed | {"seed": s})) for s in range(args.seeds)]
        batched = method.batched and not args.alone
        for group in [configs] if batched else [[c] for c in configs]:
            for result in run(name, data, group):
                if result is None:
                    continue
                best = max(result.history, key=lambda e: (e.val_accuracy, -e.val_loss)).epoch
                write(
                    {
                        "kind": "run",
                        **result.summary(),
                        "best_epoch": best,
                        "runs_at_once": len(group),
                        "processes": args.processes,
                        "trials": len(trials) - 1,
                        "config": asdict(result.config),
                    }
                )
    except Exception:
        print(f"{name} on {target}: {traceback.format_exc()}", flush=True)
    print(f"{name} on {target}: {time.perf_counter() - began:.0f} s", flush=True)


def search(
    name: str,
    data: Any,
    trials: list[dict[str, Any]],
    fixed: dict[str, Any],
    args: argparse.Namespace,
    write: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Try settings on validation accuracy, write a row for each, and return the best settings."""
    from graphglow.baselines import METHODS

    config = METHODS[name].config
    seeds = range(1000, 1000 + args.search_seeds)  # not those of the report
    configs = [config(**(t | fixed | {"seed": s})) for t in trials for s in seeds]
    together = METHODS[name].batched
    results = run(name, data, configs) if together else []
    scores = []
    for i, trial in enumerate(trials):
        of_trial = slice(i * len(seeds), (i + 1) * len(seeds))
        found = results[of_trial] if together else run(name, data, configs[of_trial])
        accuracies = [r.val_accuracy for r in found if r is not None]
        scores.append(statistics.mean(accuracies) if accuracies else -1.0)
        settings, tried = trial | fixed, list(seeds)
        write({"kind": "trial", "settings": settings, "seeds": tried, "val_accuracy": accuracies})
    return trials[max(range(len(trials)), key=scores.__getitem__)]


def table(path: Path, out: Any = None) -> None:
    """Print means and sample standard deviations in percent, as a Markdown table."""
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["kind"] == "run":
            cells[row["target"], row["method"], row["split"]].append(row)
    print("| target | method | split | test % | validation % | s | peak MB | runs |", file=out)
    print("|---|---|---|---|---|---|---|---|", file=out)
    for (target, method, split), rows in sorted(cells.items()):
        test = [100 * row["test_accuracy"] for row in rows]
        val = [100 * row["val_accuracy"] for row in rows]
        spread = statistics.stdev(test) if len(test) > 1 else 0.0
        seconds = statistics.mean(row["train_seconds"] for row in rows)
        peak = max(row["peak_memory_bytes"] for row in rows) / 1e6
        print(
            f"| {target} | {method} | {split} | {statistics.mean(test):.1f} +- {spread:.1f} "
            f"| {statistics.mean(val):.1f} | {seconds:.1f} | {peak:.0f} | {len(rows)} |",
            file=out,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--targets", nargs="+", choices=CITATION + SOCIAL, default=list(CITATION))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=0, help="settings to try; 0: the defaults")
    parser.add_argument("--tries", help="settings to try as well, as a JSON list of objects")
    parser.add_argument("--search-seeds", type=int, default=2)
    parser.add_argument("--search-seed", type=int, default=0, help="draws the settings to try")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--patience", type=int)
    parser.add_argument("--set", help="settings that are fixed, as a JSON object")
    parser.add_argument("--alone", action="store_true", help="one run at a time: single times")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data-root", default=os.environ.get("GRAPHGLOW_DATA", "data"))
    parser.add_argument("--out", type=Path, default=Path("results/competitors.jsonl"))
    parser.add_argument("--tables", action="store_true", help="print the table of --out, run none")
    args = parser.parse_args()
    if not args.tables:
        from graphglow.experiments.provenance import provenance

        origin = provenance()
        work = [(name, target, args, origin) for target in args.targets for name in args.methods]
        args.out.parent.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("spawn")
        with context.Pool(args.processes, maxtasksperchild=1) as pool:  # a peak of its own each
            for _ in pool.imap_unordered(job, work, chunksize=1):
                pass
    table(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
