"""Refining a random graph and pre-training, by this process and by several: seconds, and the same?

    python benchmarks/worker_rates.py --nodes 200000 --workers 2 4 16

Lines for each number of workers go to ``results/bench_workers.jsonl``; 0 is this process alone.
``waited`` is the share of pre-training in which the optimiser waits for episodes.
"""

import argparse
import json
import time
from pathlib import Path

import graphglow
from graphglow.experiments.bench.config import Row, stamped
from graphglow.experiments.bench.refine import RefineBench, graph_for
from graphglow.pretrained import evidence_learner
from graphglow.storage import append_line, checksum
from graphglow.training.device import resolve_device
from graphglow.training.sharing import workers_or_here

SHOWN = ("part", "workers", "seconds", "result")
SOURCES = ("digits", "wine", "breast_cancer", "synthetic")


def refining(nodes: int, workers: int, device: str) -> Row:
    """One refinement; start-up of the workers is on the clock."""
    data = graph_for(RefineBench(nodes=(nodes,)), nodes, None)
    place, began = resolve_device(device), time.perf_counter()
    with workers_or_here(workers or None, None, place) as each:
        made = evidence_learner().refine(data, device=place, each=each)
    seconds = time.perf_counter() - began
    same = checksum({"pairs": made.pairs, "odds": made.pair_log_odds})[:16]
    return {"part": "refine", "nodes": nodes, "seconds": seconds, "result": same}


def pretraining(share: float, workers: int, device: str) -> Row:
    """A share of the usual episodes and steps."""
    usual = graphglow.EvidencePretrainConfig()
    names = ("first_episodes", "vote_episodes", "second_episodes", "steps")
    less = {name: max(2, round(share * getattr(usual, name))) for name in names}
    sources = [graphglow.load_graph(name) for name in SOURCES]
    made = graphglow.pretrain(sources, workers=workers or None, device=device, **less)
    seconds, drawn = made.provenance["seconds"], made.provenance["seconds_for_episodes"]
    same = checksum(dict(made.state_dict()))[:16]
    waited = {"seconds": seconds, "waited": drawn / seconds}
    return {"part": "pretrain", "share": share, **waited, "result": same}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/bench_workers.jsonl"))
    args = parser.parse_args()
    for workers in (0, *args.workers):
        made = [refining(args.nodes, workers, args.device)] if args.nodes else []
        made += [pretraining(args.share, workers, args.device)] if args.share else []
        found = [{"workers": workers} | one for one in made]
        for row in stamped("workers", resolve_device(args.device), found):
            append_line(args.out, json.dumps(row))
            print(*(f"{name} {row[name]}" for name in SHOWN), flush=True)


if __name__ == "__main__":
    main()
