"""The methods of the suite: each has one setting for all graphs, chosen over open graphs.

All see the same split, width, epochs and patience. ``results/open_world_settings.jsonl`` has the
rows by which settings were chosen (``benchmarks/open_world.py --choose``).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.baselines import METHODS as COMPETITORS
from graphglow.baselines import fit
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.graphs import check_graph, graph_of
from graphglow.graphs.graph import normalised_adjacency
from graphglow.pretrained import PAPER, UNIVERSAL, UNTRAINED, LearnerName, evidence_learner
from graphglow.structure import FixedStructure
from graphglow.training import EvidenceResult, PaperConfig, TransferConfig, transfer
from graphglow.training.config import Device, ModelConfig
from graphglow.training.device import resolve_device
from graphglow.training.evidence import instant_predictions
from graphglow.training.loop import Loop
from graphglow.training.task import GraphTask

NAMES = {
    "gcn": "GCN",
    "mlp": "MLP",
    "linkx": "LINKX",
    "gpr": "GPR-GNN",
    "h2gcn": "H2GCN",
    "knn": "kNN graph",
    "jaccard": "Jaccard + GCN",
    "paper": "paper's GraphGLOW",
    "untrained": "untrained",
    "instant": "instant",
    "graphglow": "graphglow",
}
"""What people call them. ``instant`` is the learner's closed form, with nothing trained on the
graph; ``graphglow`` is :func:`graphglow.transfer`, which trains a GNN over the input graph and the
refined one; ``untrained`` does so under a learner never trained."""
OURS = ("instant", "graphglow")
CONTROL = "untrained"
OTHERS = tuple(name for name in NAMES if name not in (*OURS, CONTROL))
"""What has nothing of the evidence learner."""
NEED_FEATURES = ("knn", "jaccard")
EPOCHS, PATIENCE, HIDDEN = 200, 40, 64
"""Of every GNN, ours and others'."""
PAPER_LEARNER = {"num_pivots": 200, "refinements": 2}
"""What the package's learner of the paper's kind was pre-trained with."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "gcn": {"learning_rate": 0.05, "weight_decay": 5e-4, "dropout": 0.5},
    "mlp": {"learning_rate": 0.05, "weight_decay": 5e-3, "dropout": 0.5},
    "linkx": {"learning_rate": 0.05, "weight_decay": 5e-3, "dropout": 0.5},
    "gpr": {"learning_rate": 0.05, "weight_decay": 5e-4, "dropout": 0.5},
    "h2gcn": {"learning_rate": 0.01, "weight_decay": 5e-5, "dropout": 0.5},
    "paper": {"learning_rate": 0.05, "weight_decay": 5e-4, "input_weight": 0.9} | PAPER_LEARNER,
}
"""The rest are defaults; ``knn`` and ``jaccard`` are GCNs and have a GCN's."""
INPUT_WEIGHTS = (0.0, 0.5, 1.0)
"""lambda of ``knn``, by validation: the kNN graph alone, both, the input graph alone."""
NEIGHBOURS = 10
EDGES_AT_ONCE = 20_000
LEAST_SIMILAR = 0.01
"""Edges between nodes less alike are dropped by ``jaccard``, as its authors do."""
WIDEST = 6000
"""Up to so many nodes, a node without features is told by a column of its own."""
BINS = 10


class Entry(NamedTuple):
    """How one method did on one graph; ``scores`` [N, C] are on the CPU."""

    method: str
    scores: Tensor
    seconds: float
    metrics: dict[str, Any]


def settings_of(method: str) -> dict[str, Any]:
    """A competitor's, by name."""
    shared = {"epochs": EPOCHS, "patience": PATIENCE}
    own = SETTINGS.get("gcn" if method in NEED_FEATURES else method, {})
    return shared | dict(own)


def run_methods(
    data: Data,
    methods: Sequence[str],
    *,
    seed: int = 0,
    device: Device = "auto",
    learner: LearnerName = UNIVERSAL,
    calibrate: bool = False,
) -> Iterator[Entry]:
    """Run methods on a graph with a split, one after another.

    Methods that need features are left out where these say nothing. GNNs, ours too, then read
    columns that tell nodes apart, which is the most that they can be given.

    Args:
        data: With features, training and validation nodes.
        methods: Names in :data:`NAMES`.
        seed: Of weights and of what evidence draws.
        device: Where to compute.
        learner: The evidence learner.
        calibrate: Whether ``graphglow`` also says how true its probabilities of pairs are.
    """
    bare = bool((data.x == data.x[:1]).all())
    told = _with_columns(data, seed) if bare else data
    for method in methods:
        began = time.perf_counter()
        metrics: dict[str, Any] = {}
        if method in NEED_FEATURES and bare:
            continue
        if method in ("graphglow", UNTRAINED):
            which = learner if method == "graphglow" else _untrained_like(learner, seed)
            config = TransferConfig(
                epochs=EPOCHS, patience=PATIENCE, hidden=HIDDEN, seed=seed, device=device
            )
            result = transfer(told, which, config)
            assert isinstance(result, EvidenceResult)
            scores, seconds = result.logits.cpu(), time.perf_counter() - began
            if method == "graphglow" and calibrate:
                metrics = calibration(result.refined, data)
        elif method == "instant":
            found, place = evidence_learner(learner), resolve_device(device)
            scores = instant_predictions(found, data, seed, place)
            seconds = time.perf_counter() - began
        else:
            scores = _competitor(method, told, seed, device)
            seconds = time.perf_counter() - began
        yield Entry(method, scores, seconds, metrics)


def _untrained_like(learner: LearnerName, seed: int) -> EvidenceLearner:
    """The control, on the scale of the learner's log-odds."""
    control = EvidenceLearner.untrained(seed)
    control.logit_scale.copy_(evidence_learner(learner).logit_scale.cpu())
    return control


def _competitor(method: str, data: Data, seed: int, device: Device) -> Tensor:
    """Scores of all nodes: [N, C]."""
    given = settings_of(method) | {"seed": seed, "device": device}
    if method == "paper":
        return transfer(data, PAPER, PaperConfig(**given)).logits.cpu()
    if method == "knn":
        return _over_knn(data, given)
    if method == "jaccard":
        data, method = without_unlike_edges(data, resolve_device(device)), "gcn"
    config = COMPETITORS[method].config(hidden=HIDDEN, **given)  # type: ignore[call-arg]
    return fit(method, data, config).logits


def _over_knn(data: Data, given: Mapping[str, Any]) -> Tensor:
    """A GCN over ``lambda A + (1 - lambda) kNN`` for each lambda at once; the best one's scores."""
    data = check_graph(data)
    device = resolve_device(given["device"])
    graph = graph_of(data).to(device)
    near = normalised_adjacency(_nearest(data.x.to(device)), None, graph.num_nodes)
    configs = [ModelConfig(**given, input_weight=w, refinements=1) for w in INPUT_WEIGHTS]
    task = GraphTask(graph, None, HIDDEN, configs, given=FixedStructure(near))
    Loop(task, configs[0].epochs, PATIENCE).run()
    logits = task.logits()  # [B, N, C]
    right = (logits[:, graph.val].argmax(-1) == graph.y[graph.val]).double().mean(1)
    return logits[int(right.argmax())].cpu()


def _nearest(x: Tensor) -> Tensor:
    """Each node and its nearest others by cosine: [N, D] -> [2, N k]."""
    rows = F.normalize(x, dim=1)
    nodes, k = len(rows), min(NEIGHBOURS + 1, len(rows))
    found = [(some @ rows.T).topk(k, 1).indices for some in torch.split(rows, 2048)]
    there = torch.cat(found).flatten()
    here = torch.arange(nodes, device=x.device).repeat_interleave(k)
    return torch.stack([here, there])[:, here != there]


def without_unlike_edges(data: Data, device: torch.device | str = "cpu") -> Data:
    """Drop edges between nodes with too little in common (Wu et al., IJCAI 2019).

    Jaccard similarity where all features are 0 or 1, else cosine, as the usual code has it.
    """
    x, (here, there) = data.x.to(device), data.edge_index.to(device)
    binary = bool(((x == 0) | (x == 1)).all())
    length = x.square().sum(1)
    parts = zip(*(torch.split(end, EDGES_AT_ONCE) for end in (here, there)), strict=True)
    alike = torch.cat([(x[a] * x[b]).sum(1) for a, b in parts])
    both = length[here] + length[there] - alike if binary else (length[here] * length[there]).sqrt()
    kept = (alike / both.clamp_min(1e-12) >= LEAST_SIMILAR).cpu()
    out = data.clone()
    out.edge_index = data.edge_index[:, kept]
    if data.get("edge_weight") is not None:
        out.edge_weight = data.edge_weight[kept]
    if not bool(kept.any()):  # a loop says that no edge is meant
        out.edge_index = torch.zeros(2, 1, dtype=torch.int64)
        out.pop("edge_weight", None)
    return out


def _with_columns(data: Data, seed: int) -> Data:
    """A column for each node; on large graphs random columns, which tell nodes apart as well."""
    nodes, out = len(data.y), data.clone()
    generator = torch.Generator().manual_seed(seed)
    wide = nodes <= WIDEST
    out.x = torch.eye(nodes) if wide else torch.randn(nodes, 256, generator=generator) / 16
    return out


def calibration(refined: RefinedGraph, data: Data) -> dict[str, Any]:
    """How true the probabilities of pairs are, over those of which not both labels were read.

    By tenths of probability: how many pairs, their mean probability, the share of one class.
    """
    y, labelled = data.y.to(refined.pairs.device), data.train_mask.to(refined.pairs.device)
    fair = (y[refined.pairs] >= 0).all(0) & ~labelled[refined.pairs].all(0)
    pairs, said = refined.pairs[:, fair], refined.pair_probability[fair].double()
    same = (y[pairs[0]] == y[pairs[1]]).double()
    place = (said * BINS).long().clamp_max(BINS - 1)
    count = torch.bincount(place, minlength=BINS).double()
    sums = [torch.bincount(place, value, minlength=BINS) for value in (said, same)]
    means = [total / count.clamp_min(1) for total in sums]
    error = ((means[0] - means[1]).abs() * count).sum() / count.sum().clamp_min(1)
    found = {"pairs": count, "said": means[0], "true": means[1]}
    return {"ece": float(error)} | {name: tuple(v.tolist()) for name, v in found.items()}
