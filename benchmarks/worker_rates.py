"""Refining a random graph and pre-training, by this process and by several: seconds, and the same?

    python benchmarks/worker_rates.py --nodes 200000 --workers 2 4 16
    python benchmarks/worker_rates.py --nodes 0 --share 0.3 --device cuda --workers 14 --draw cpu

Lines for each number of workers go to ``results/bench_workers.jsonl``; 0 is this process alone.
``waited`` is the share of pre-training in which the optimiser waits for episodes, which workers
draw on ``--draw``.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

import graphglow
from graphglow.evidence import pretrain_evidence
from graphglow.lab.bench.config import Row, stamped
from graphglow.lab.bench.refine import RefineBench, graph_for
from graphglow.pretrained import evidence_learner
from graphglow.storage import append_line, checksum
from graphglow.training.device import resolve_device
from graphglow.training.sharing import workers_or_here

SHOWN = ("part", "workers", "draw", "seconds", "waited", "result")
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


def pretraining(share: float, workers: int, device: str, draw: str) -> Row:
    """A share of the usual episodes and steps; start-up of the workers is on the clock."""
    usual = graphglow.EvidencePretrainConfig()
    names = ("first_episodes", "vote_episodes", "second_episodes", "predict_episodes", "steps")
    config = replace(usual, **{n: max(2, round(share * getattr(usual, n))) for n in names})
    sources = [graphglow.load_graph(name) for name in SOURCES]
    torch.zeros(1, device=device)  # so that none of them waits for the device to wake up
    began = time.perf_counter()
    with workers_or_here(workers or None, None, torch.device(draw)) as each:
        made = pretrain_evidence(sources, config, device=device, draw_on=draw, each=each)
    seconds = time.perf_counter() - began
    same = checksum(dict(made.state_dict()))[:16]
    waited = {"seconds": seconds, "waited": made.provenance["seconds_for_episodes"] / seconds}
    return {"part": "pretrain", "share": share, "draw": draw, **waited, "result": same}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draw", nargs="+", default=["cpu"])
    parser.add_argument("--out", type=Path, default=Path("results/bench_workers.jsonl"))
    args = parser.parse_args()
    place = resolve_device(args.device)
    for workers in (0, *args.workers):
        made = [refining(args.nodes, workers, args.device)] if args.nodes else []
        if args.share:
            draws = args.draw if workers else [place.type]
            made += [pretraining(args.share, workers, place.type, draw) for draw in draws]
        for row in stamped("workers", place, [{"workers": workers} | one for one in made]):
            append_line(args.out, json.dumps(row))
            print(*(f"{name} {row[name]}" for name in SHOWN if name in row), flush=True)


if __name__ == "__main__":
    main()
