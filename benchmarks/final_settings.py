"""Run the best trials of the searches again, with more seeds, and settle the settings by them.

    python benchmarks/final_settings.py --processes 6
    python benchmarks/final_settings.py --seeds 0         no runs: by the scores of the trials

A trial of ``search_settings.py`` is two runs, and the best of many such is partly luck. Here the
best few of each method on each graph are run again with seeds of their own, as long as tables
run them, and the best mean validation accuracy wins. GraphGLOW and its control, a random theta,
share trials with lambda = 1, where theta plays no part: else luck alone would tell two equal
models apart. The best trial with lambda < 1 is settled besides, as ``graphglow-on`` and
``random-on``: the learned graph takes part there whether it helps or not.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import optuna

from graphglow.errors import InputError
from graphglow.experiments.paper import GRAPHS, LEARNED_ON, ON, of_the_other_kind
from graphglow.experiments.paper.cells import split_of
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.executor import open_executor, result_of
from graphglow.experiments.runs.learners import load_with_split
from graphglow.experiments.search.blind import blinded
from graphglow.experiments.search.settings import locked, read_settings, write_settings
from graphglow.experiments.search.space import STEPS, Candidate, SearchConfig, has_learner, nested
from graphglow.storage import append_line

PAIRS = {
    "graphglow": "random-theta",
    "random-theta": "graphglow",
    "graphglow-backbone": "random-backbone",
    "random-backbone": "graphglow-backbone",
}
"""Who has whose trials with lambda = 1 besides its own."""
LARGE = ("pubmed", "cornell5")
CROSSED = 2
"""So many of the other's best trials with lambda < 1 are finalists too."""
CROSS = "the other of the pair"
SIBLINGS = {"cornell5": "johnshopkins55", "pubmed": "citeseer"}
"""The large graphs had fewer trials: what won on a smaller one of their kind is a finalist too."""
FIRST_SEED = 100
"""Finals are run with seeds that neither the searches nor the tables have."""
Settings = dict[str, Any]


class Scored(NamedTuple):
    """A trial: its settings, those of the target's GNN under ``transfer``, and its mean score."""

    settings: Settings
    score: float
    found_by: str

    @property
    def on(self) -> bool:
        """Whether the learned graph takes part."""
        return bool(self.settings["transfer"].get("input_weight", 1.0) < 1)


def trials_of(file: Path, method: str) -> list[Scored]:
    """The trials in a file that have a score, of all its studies, best first."""
    if not file.exists():
        return []
    storage = f"sqlite:///{file}"
    found = []
    for summary in optuna.get_all_study_summaries(storage):
        for trial in optuna.load_study(study_name=summary.study_name, storage=storage).trials:
            if trial.state == optuna.trial.TrialState.COMPLETE:
                given = nested(trial.params)
                whole = given if "transfer" in given else {"transfer": given}
                found.append(Scored(whole, trial.values[0], method))
    return sorted(found, key=lambda one: -one.score)


def finalists(folder: Path, method: str, target: str, count: int) -> list[Scored]:
    """The best of a method's own trials and those that it shares, no settings twice.

    As many besides of those with lambda < 1, where the method has a lambda, and a few of the
    other's: what is good for one of two such similar models may be for the other.
    """
    own = trials_of(folder / f"{target}-{method}.db", method)
    other = PAIRS.get(method)
    given = trials_of(folder / f"{target}-{other}.db", other) if other else []
    shared = [one for one in given if not one.on]
    ranked = sorted([*own, *shared], key=lambda one: -one.score)
    chosen: dict[str, Scored] = {}
    for some in (ranked, [one for one in ranked if one.on]):
        seen: dict[str, Scored] = {}
        for one in some:
            settings = of_method(one, method)
            seen.setdefault(json.dumps(settings, sort_keys=True), one._replace(settings=settings))
        chosen |= dict(list(seen.items())[:count])
    crossed = [one._replace(found_by=CROSS) for one in given if one.on][:CROSSED]
    return [*chosen.values(), *(new for one in crossed for new in crossing(one, method))]


def crossing(one: Scored, method: str) -> list[Scored]:
    """What is good for the other of a pair, tried here; by GraphGLOW with each of theta's steps."""
    settings = of_method(one, method)
    if not has_learner(method):
        return [one._replace(settings=settings)]
    steps = STEPS["learner_learning_rate"]
    return [
        one._replace(settings={**settings, "pretrain": {"learner_learning_rate": step}})
        for step in steps
    ]


def of_sibling(path: Path, method: str, target: str) -> list[Scored]:
    """What the settings file has for the target's sibling, with the learned graph on and off."""
    if target not in SIBLINGS:
        return []
    sibling = SIBLINGS[target]
    sources = of_the_other_kind(sibling) if has_learner(method) else ()
    settings, found = read_settings(path), {}
    for name in (method, ON.get(method)):
        given = settings.of(name, sibling, sources) if name is not None else {}
        if given:
            whole = given if has_learner(method) else {"transfer": given}
            found[json.dumps(given, sort_keys=True)] = {"pretrain": {}, **whole}
    return [Scored(whole, -math.inf, f"of {sibling}") for whole in found.values()]


def of_method(one: Scored, method: str) -> Settings:
    """A trial's settings for a method, which may be the other one of a pair."""
    target = {n: v for n, v in one.settings["transfer"].items() if n != "embedding_size"}
    if has_learner(method):
        return {"pretrain": one.settings.get("pretrain", {}), "transfer": target}
    width = {"embedding_size": 64} if method in PAIRS else {}
    return {"transfer": {**target, **width}}


def scores(
    method: str, target: str, found: Sequence[Scored], args: argparse.Namespace
) -> list[list[float] | InputError]:
    """Validation accuracies of each finalist, one per seed; of GraphGLOW under its learner."""
    config = SearchConfig(
        seeds_per_trial=args.seeds_large if target in LARGE else args.seeds,
        patience=None,
        seed=FIRST_SEED,
        device=args.device,
    )
    data = blinded(load_with_split(target, args.data_root))
    if not has_learner(method):
        plain = Candidate(method=method, target=data, config=config)
        return plain.scores([one.settings["transfer"] for one in found])
    sources = [blinded(load_with_split(n, args.data_root)) for n in of_the_other_kind(target)]
    searched = Candidate(
        method=method,
        target=data,
        config=replace(config, seed=0),
        sources=sources,
        folder=args.folder / "learners",
    )
    out = []
    for one in found:
        learner = searched.learner_of(one.settings)
        final = Candidate(method=method, target=data, config=config, learner=learner)
        out += final.scores([one.settings])
    return out


def settle(method: str, target: str, args: argparse.Namespace) -> str:
    """Run the finalists of one method on one target, keep the best; return a line about it."""
    began = time.time()
    count = args.finalists_large if target in LARGE else args.finalists
    found = finalists(args.folder, method, target, count)
    found += of_sibling(args.settings, method, target) if args.seeds else []
    if not found:
        return f"{method} on {target}: no trials"
    ran = scores(method, target, found, args) if args.seeds else [[one.score] for one in found]
    runs = list(zip(found, ran, strict=True))
    said = []
    on = ON.get(method)
    with locked(args.settings):
        for name, some in ((method, runs), (on, [run for run in runs if run[0].on])):
            scored = [
                (one, values)
                for one, values in some
                if not isinstance(values, InputError) and (args.seeds or one.found_by != CROSS)
            ]
            if name is None or not scored:
                continue
            best, values = max(scored, key=lambda run: statistics.mean(run[1]))
            keep(name, target, best, values, runs, args)
            said.append(f"{name} on {target}: {statistics.mean(values):.4f}")
    return f"{', '.join(said)}, {len(runs)} finalists, {time.time() - began:.0f} s"


def method_of(name: str) -> str:
    return LEARNED_ON[name][0] if name in LEARNED_ON else name


def keep(
    name: str,
    target: str,
    best: Scored,
    values: list[float],
    runs: Sequence[tuple[Scored, list[float] | InputError]],
    args: argparse.Namespace,
) -> None:
    """Write the settings, and a row with what was compared."""
    sources = of_the_other_kind(target) if has_learner(method_of(name)) else ()
    given = best.settings if sources else best.settings["transfer"]
    settings = read_settings(args.settings).having(name, target, given, sources)
    write_settings(args.settings, settings)
    method = method_of(name)
    row = {
        "experiment": "search",
        "method": name,
        "target": target,
        "split": split_of(target),
        "sources": list(sources) or None,
        "settings": given,
        "val_accuracy": statistics.mean(values),
        "val_accuracies": values if args.seeds else None,
        "found_by": best.found_by,
        "trials": len(trials_of(args.folder / f"{target}-{method}.db", method)),
        "finalists": [
            {
                "settings": one.settings,
                "found_by": one.found_by,
                "search_val_accuracy": one.score if math.isfinite(one.score) else None,
                "val_accuracies": None if isinstance(ran, InputError) else ran,
            }
            for one, ran in runs
        ]
        if args.seeds
        else None,
        "provenance": provenance(),
    }
    append_line(args.settings.with_name("search.jsonl"), json.dumps(row))


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--methods", nargs="+", default=["graphglow", "random-theta", "gcn"])
    parser.add_argument("--targets", nargs="+", default=list(GRAPHS))
    parser.add_argument("--finalists", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5, help="runs of a finalist; 0: none")
    parser.add_argument("--finalists-large", type=int, default=3, help="on PubMed and Cornell5")
    parser.add_argument("--seeds-large", type=int, default=3, help="on PubMed and Cornell5")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/search"))
    parser.add_argument("--settings", type=Path, default=Path("results/settings.json"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Settle, and say a line for each method and graph as it ends."""
    args = parsed(argv)
    asked = [(method, target) for method in args.methods for target in args.targets]
    asked.sort(key=lambda final: final[1] not in LARGE)  # the longest first
    with open_executor(args.processes, device=args.device) as executor:
        for done in as_completed([executor.submit(settle, *final, args) for final in asked]):
            print(result_of(done), flush=True)


if __name__ == "__main__":
    main()
