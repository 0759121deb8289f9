r"""One new node under a stored prediction: seconds, and bytes of the file.

    python benchmarks/new_node.py --nodes 30000 --threads 2

Prints a JSON line: seconds to predict the graph, to freeze it, to save and load it, the first
node after loading (``prepare``, where what all nodes need is computed), the median over single
nodes that come after it (``one``), and a hundred of them at once (``hundred``).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from graphglow.evidence.insertion import FrozenGraph, insert
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.stored import load_state, save_state
from measuring import random_graph, stamped

Result = TypeVar("Result")


def timed(step: Callable[[], Result]) -> tuple[Result, float]:
    began = time.perf_counter()
    result = step()
    return result, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=30_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--degree", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = random_graph(args.nodes, features=args.features, degree=args.degree)
    learner = EvidenceLearner.untrained()
    refined, predict = timed(lambda: learner.refine(data))
    frozen, freeze = timed(lambda: FrozenGraph(refined))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prediction.safetensors"
        _, save = timed(lambda: save_state(path, frozen))
        size = path.stat().st_size
        (loaded, _, _), load = timed(lambda: load_state(path))
    generator = torch.Generator().manual_seed(0)

    def new(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        like = torch.randint(args.nodes, (count,), generator=generator)
        ends = torch.randint(args.nodes, (count * args.degree,), generator=generator)
        here = args.nodes + torch.arange(count).repeat_interleave(args.degree)
        return data.x[like], torch.stack([ends, here])

    x, edges_of_it = new(1)
    _, prepare = timed(lambda: insert(loaded, x, edges_of_it))
    singles = []
    for _ in range(args.repeats):
        x, edges_of_it = new(1)
        singles.append(timed(lambda x=x, e=edges_of_it: insert(loaded, x, e))[1])
    x, edges_of_it = new(100)
    _, hundred = timed(lambda: insert(loaded, x, edges_of_it))
    row = {
        "nodes": args.nodes,
        "features": args.features,
        "degree": args.degree,
        "predict": predict,
        "freeze": freeze,
        "save": save,
        "load": load,
        "prepare": prepare,
        "one": statistics.median(singles),
        "slowest": max(singles),
        "hundred": hundred,
        "megabytes": size / 1e6,
    }
    for line in stamped("new_node", torch.device("cpu"), [row]):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
