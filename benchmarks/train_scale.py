r"""Training on a refined graph that is given: seconds and memory by number of nodes and backbone.

The graph, its features and the refined graph are random, with classes that both say a little of;
nothing is refined, only trained. One JSON line per run.

    python benchmarks/train_scale.py --nodes 100000 --backbone gcn
    python benchmarks/train_scale.py --nodes 1000000 --backbone sign --batch-nodes 4096 --epochs 10
"""

import argparse
import json
import platform
import resource
import time

import torch
from torch import Tensor
from torch_geometric.data import Data

import graphglow
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph

CLASSES, EDGES, REFINED, FEATURES, LINK, ROLE = 10, 10, 8, 100, 32, 8
"""Edges of the input and of the refined graph are per node, each counted once."""


class Given(EvidenceLearner):
    """A learner that has its refined graph already."""

    def refine(self, data: Data, **_: object) -> RefinedGraph:
        generator = torch.Generator().manual_seed(1)
        nodes, y = int(data.num_nodes or 0), data.y
        pairs = joined(y, REFINED, 0.6, generator)
        edges = torch.cat([pairs, pairs.flip(0)], 1)
        count = edges.shape[1]
        said = torch.rand(nodes, CLASSES, generator=generator)
        said[torch.arange(nodes), y] += 0.5
        empty = torch.zeros(0)
        return RefinedGraph(
            edge_index=edges,
            edge_weight=torch.rand(len(pairs[0]), generator=generator).repeat(2) + 0.1,
            edge_probability=torch.full((count,), 0.6),
            edge_in_input=torch.zeros(count, dtype=torch.bool),
            probabilities=said / said.sum(1, keepdim=True),
            link=torch.randn(nodes, LINK, generator=generator) / LINK**0.5,
            role=torch.randn(nodes, ROLE, generator=generator) / ROLE**0.5,
            channel_scores={},
            context={},
            num_nodes=nodes,
            chance=1 / CLASSES,
            calibration=0.0,
            num_candidates=0,
            pairs=edges[:, :0],
            pair_probability=empty,
            pair_log_odds=empty,
            pair_evidence=empty,
        )


def joined(y: Tensor, each: int, homophily: float, generator: torch.Generator) -> Tensor:
    """Random edges, that share of them within a class: [2, N each]."""
    order = y.argsort(stable=True)
    counts = torch.bincount(y, minlength=CLASSES)
    starts = counts.cumsum(0) - counts
    here = torch.arange(len(y)).repeat(each)
    share = torch.rand(len(here), generator=generator)
    same = order[starts[y[here]] + (share * counts[y[here]]).long()]
    other = torch.randint(len(y), here.shape, generator=generator)
    within = torch.rand(len(here), generator=generator) < homophily
    return torch.stack([here, torch.where(within, same, other)])


def graph(nodes: int) -> Data:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    means = torch.randn(CLASSES, FEATURES, generator=generator) / 8
    x = torch.randn(nodes, FEATURES, generator=generator).add_(means[y])
    part = torch.rand(nodes, generator=generator)
    masks = {"train_mask": part < 0.5, "val_mask": (part >= 0.5) & (part < 0.75)}
    edges = joined(y, EDGES, 0.3, generator)
    return Data(x=x, y=y, edge_index=edges, test_mask=part >= 0.75, name="random", **masks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--backbone", default="sign")
    parser.add_argument("--batch-nodes", type=int)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    data = graph(given.nodes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    settings = {name: getattr(given, name) for name in ("backbone", "batch_nodes", "epochs")}
    heard = []
    began, cpu = time.perf_counter(), time.process_time()
    found = graphglow.transfer(
        data, Given().frozen(), device=given.device, on_epoch=heard.append, **settings
    )
    facts = {
        "nodes": given.nodes,
        **settings,
        "device": given.device,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "train_seconds": found.train_seconds,
        "epochs_of_all": len(heard),
        "before_gb": before / 1e9,
        "peak_gb": found.peak_memory_bytes / 1e9,
        "test_accuracy": found.test_accuracy,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
