r"""Training on a refined graph that is given: seconds and memory by number of nodes and backbone.

The graph, its features and the refined graph are random, with classes that both say a little of;
nothing is refined, only trained. Each run adds a row to ``results/train_scale.jsonl``; memory is
the process's, so a process makes one.

    python benchmarks/train_scale.py --nodes 100000 --backbone gcn
    python benchmarks/train_scale.py --nodes 1000000 --batch-nodes 4096 --epochs 5
"""

import argparse
import json
import resource
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor
from torch_geometric.data import Data

import graphglow
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.experiments.bench.config import Row, stamped
from graphglow.storage import append_line
from graphglow.training.device import resolve_device

CLASSES, EDGES, REFINED, FEATURES, LINK, ROLE = 10, 10, 8, 100, 32, 8
"""Edges of the input and of the refined graph are per node, each counted once."""


class Drawn(RefinedGraph):
    """One that nobody asks about pairs."""

    @property
    def link(self) -> Tensor:
        return columns(self.num_nodes, LINK)

    @property
    def role(self) -> Tensor:  # type: ignore[override]
        return columns(self.num_nodes, ROLE)


def columns(nodes: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(width)
    return torch.randn(nodes, width, generator=generator) / width**0.5


class Given(EvidenceLearner):
    """A learner that has its refined graph already."""

    def refine(self, data: Data, **_: object) -> RefinedGraph:
        generator = torch.Generator().manual_seed(1)
        nodes = int(data.num_nodes or 0)
        low, high = drawn(nodes, 0.6, REFINED, 1).edge_index
        pairs = torch.stack([low, high])[:, low < high]
        count = pairs.shape[1]
        said = torch.rand(nodes, CLASSES, generator=generator)
        said[torch.arange(nodes), data.y] += 0.5
        return Drawn(
            edges=torch.arange(count),
            probabilities=said / said.sum(1, keepdim=True),
            channel_scores={},
            context={},
            num_nodes=nodes,
            chance=1 / CLASSES,
            calibration=0.0,
            search="given",
            num_candidates=count,
            pair_in_input=torch.zeros(count, dtype=torch.bool),
            pair_log_odds=torch.rand(count, generator=generator) + 0.1,
            scale=torch.tensor([1.0, 0.0]),
            known=SimpleNamespace(pairs=pairs),
        )


def drawn(nodes: int, homophily: float, each: int, features: int) -> Data:
    """A random graph with ``each`` edges per node; the classes are the same for one size."""
    return graphglow.synthetic_graph(
        num_nodes=nodes,
        num_classes=CLASSES,
        num_features=features,
        homophily=homophily,
        average_degree=2 * each,
        feature_noise=8,
    )


def measured(
    nodes: int, backbone: str, batch_nodes: int | None, epochs: int, device: str = "cpu"
) -> Row:
    """One transfer, without the refinement: half of the nodes train it, a quarter validates."""
    data = drawn(nodes, 0.3, EDGES, FEATURES)
    part = torch.rand(nodes, generator=torch.Generator().manual_seed(0))
    data.train_mask, data.test_mask = part < 0.5, part >= 0.75
    data.val_mask = ~data.train_mask & ~data.test_mask
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    settings = {"backbone": backbone, "batch_nodes": batch_nodes, "epochs": epochs}
    heard: list[object] = []
    began, cpu = time.perf_counter(), time.process_time()
    found = graphglow.transfer(
        data, Given().frozen(), device=device, on_epoch=heard.append, **settings
    )
    return {
        "nodes": nodes,
        **settings,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "epochs_of_all": len(heard),
        "before_bytes": before,
        "peak_bytes": found.peak_memory_bytes,
        "test_accuracy": found.test_accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--backbone", default="sign")
    parser.add_argument("--batch-nodes", type=int)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/train_scale.jsonl"))
    given = vars(parser.parse_args())
    out = given.pop("out")
    for row in stamped("train_scale", resolve_device(given["device"]), [measured(**given)]):
        append_line(out, json.dumps(row))
        print(json.dumps(row))


if __name__ == "__main__":
    main()
