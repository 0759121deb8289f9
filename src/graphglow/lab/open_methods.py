"""The methods of the suite: each has one setting for all graphs, chosen over open graphs.

Every method has the same labels. Those that train a model *split* them: training nodes train,
validation nodes say when to stop and what to take. Others have the *pool*, training and validation
nodes together: ``predict`` and its control need no validation, bags validate on each fold in turn.
``results/archive/open_world_settings.jsonl.gz`` has the rows by which settings were chosen.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.competitors import METHODS as COMPETITORS
from graphglow.competitors import fit
from graphglow.device import resolve_device
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.gnn.propagation import FixedStructure
from graphglow.gnn.train import GNNTask, Loop
from graphglow.graph import check_graph, training_graph
from graphglow.graph.graph import normalised_adjacency
from graphglow.linalg.neighbours import knn_edges
from graphglow.pretrained import PAPER, UNIVERSAL, LearnerName, evidence_learner, untrained_like
from graphglow.settings import Device, GNNConfig, PaperConfig, TransferConfig
from graphglow.transfer import transfer

METHOD_TITLES = {
    "gcn": "GCN",
    "mlp": "MLP",
    "linkx": "LINKX",
    "gpr": "GPR-GNN",
    "h2gcn": "H2GCN",
    "knn": "kNN graph",
    "jaccard": "Jaccard + GCN",
    "paper": "paper's GraphGLOW",
    "bag-gcn": "bag of 5 GCNs",
    "bag-gpr": "bag of 5 GPR-GNNs",
    "logistic": "logistic regression",
    "untrained": "untrained",
    "transfer": "transfer",
    "predict": "predict",
}
"""``predict`` is the frozen network, with nothing trained on the graph; ``untrained`` is the same
with weights never trained; ``transfer`` trains a GNN over the input graph and the refined one."""
BAGS = {"bag-gcn": "gcn", "bag-gpr": "gpr"}
LOGISTIC = "logistic"  # on the features alone; a control of the demo, and no method of the suite
POOL = ("predict", "untrained", LOGISTIC, *BAGS)
"""What has training and validation labels at work; scores of labelled nodes are leave-one-out or
out-of-fold. The others split the labels."""
RIVALS = ("gcn", "mlp", "linkx", "gpr", "h2gcn", "knn", "jaccard", "paper")
"""What splits the labels and has nothing of the evidence learner."""
NEED_LEARNER = ("predict", "untrained", "transfer")
NEED_FEATURES = ("knn", "jaccard")
EPOCHS, PATIENCE, HIDDEN = 200, 40, 64
"""Of every GNN, ours and others'."""
METHOD_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "gcn": {"learning_rate": 0.05, "weight_decay": 5e-4, "dropout": 0.5},
    "mlp": {"learning_rate": 0.05, "weight_decay": 5e-3, "dropout": 0.5},
    "linkx": {"learning_rate": 0.05, "weight_decay": 5e-3, "dropout": 0.5},
    "gpr": {"learning_rate": 0.05, "weight_decay": 5e-4, "dropout": 0.5},
    "h2gcn": {"learning_rate": 0.01, "weight_decay": 5e-5, "dropout": 0.5},
    "paper": {
        "learning_rate": 0.05, "weight_decay": 5e-4, "input_weight": 0.9, "num_pivots": 200,
        "refinements": 2,
    },
}  # fmt: skip
"""The rest are defaults; ``knn`` and ``jaccard`` are GCNs and have a GCN's."""
KNN_WEIGHTS = (0.0, 0.5, 1.0)
"""lambda of ``knn``, by validation: the kNN graph alone, both, the input graph alone."""
LEAST_SIMILAR = 0.01
"""Edges between nodes less similar are dropped by ``jaccard``, as its authors do."""
WIDEST = 6000
"""Up to so many nodes, a node without features gets a column of its own."""
MEMBERS = 5
"""GNNs in a bag."""


class Entry(NamedTuple):
    """How one method did on one graph; ``scores`` [N, C] are on the CPU."""

    scores: Tensor
    seconds: float
    estimate: float
    """The accuracy that the method itself expects: leave-one-out, out of fold, or validation."""


def settings_of(method: str) -> dict[str, Any]:
    """Return the settings of a competitor."""
    base = "gcn" if method in NEED_FEATURES else BAGS.get(method, method)
    return {"epochs": EPOCHS, "patience": PATIENCE} | dict(METHOD_SETTINGS.get(base, {}))


def judged_nodes(method: str, data: Data) -> Tensor:
    """Return the nodes of a method's own estimate of its accuracy: [N] of bool.

    Labelled ones of the pool, which are answered by leave-one-out or out of fold; else those of
    validation.
    """
    mask = data.train_mask | data.val_mask if method in POOL else data.val_mask
    labelled: Tensor = mask & (data.y >= 0)
    return labelled


def accuracy_on(scores: Tensor, data: Data, nodes: Tensor) -> float:
    """Return the share of nodes [N] of bool whose class scores highest."""
    return float((scores.argmax(1) == data.y)[nodes].double().mean())


def lacks_features(data: Data) -> bool:
    """Whether features say nothing, so that methods that need them have nothing to do."""
    return bool((data.x == data.x[:1]).all())


def run_method(
    method: str,
    data: Data,
    *,
    seed: int = 0,
    device: Device = "auto",
    learner: LearnerName = UNIVERSAL,
) -> Entry:
    """Run one of :data:`METHOD_TITLES` on a graph with features, training and validation nodes.

    Where features say nothing, GNNs, ours too, read columns that tell nodes apart, which is the
    most that they can be given.
    """
    began = time.perf_counter()
    if method in ("predict", "untrained"):
        frozen = evidence_learner(learner)
        frozen = frozen if method == "predict" else untrained_like(frozen, seed)
        scores = predict_pool(data, frozen, seed=seed, device=device)
    elif method == LOGISTIC:
        scores = logistic_regression(data)
    else:
        columns = with_columns(data, seed) if lacks_features(data) else data
        scores = _trained(method, columns, seed, device, learner)
    seconds = time.perf_counter() - began
    return Entry(scores, seconds, accuracy_on(scores, data, judged_nodes(method, data)))


def predict_pool(data: Data, learner: EvidenceLearner, **given: Any) -> Tensor:
    """Return class probabilities by a frozen learner: [N, C]; see :func:`refine_pool`."""
    refined = refine_pool(data, learner, **given)
    assert refined.probabilities is not None  # there are labels
    return refined.probabilities.cpu()


def refine_pool(
    data: Data,
    learner: EvidenceLearner,
    *,
    known: Tensor | None = None,
    seed: int = 0,
    device: Device = "auto",
) -> RefinedGraph:
    """Refine a graph, and predict it, with the labels of ``known`` nodes [N], or of the pool."""
    pooled = data.clone()
    pooled.train_mask = data.train_mask | data.val_mask if known is None else known
    return learner.refine(pooled, seed=seed, device=resolve_device(device))


def bag(name: str, data: Data, config: Any, seed: int) -> Tensor:
    """Return probabilities by a bag of competitors, each fold of the pool validating once: [N, C].

    The mean over members; a labelled node is answered by the member that did not train on it.
    """
    pool = judged_nodes("bag-gcn", data)
    members, folds = [], min(MEMBERS, int(pool.sum()))
    parts = [part_of(data.y, pool, number, folds, seed) for number in range(folds)]
    for part in parts:
        one = data.clone()
        one.train_mask, one.val_mask = pool & ~part, part
        members.append(fit(name, one, config).logits.softmax(1))
    probabilities = torch.stack(members).mean(0)
    for part, member in zip(parts, members, strict=True):
        probabilities[part] = member[part]
    return probabilities


def logistic_regression(data: Data) -> Tensor:
    """Return probabilities by the features alone: [N, C]; those of the pool are out of fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.preprocessing import MaxAbsScaler

    pool, model = judged_nodes(LOGISTIC, data), LogisticRegression(max_iter=1000)
    x, y = MaxAbsScaler().fit_transform(data.x.numpy()), data.y[pool].numpy()
    p = model.fit(x[pool], y).predict_proba(x)
    folds = min(MEMBERS, int(data.y[pool].unique(return_counts=True)[1].min()))
    if folds > 1:
        p[pool] = cross_val_predict(model, x[pool], y, cv=folds, method="predict_proba")
    scores = torch.zeros(len(x), int(data.y.max()) + 1)
    scores[:, torch.from_numpy(model.classes_)] = torch.from_numpy(p).float()
    return scores


def part_of(y: Tensor, among: Tensor, number: int, parts: int, seed: int) -> Tensor:
    """Return one of several parts of the nodes in a mask, alike in classes: [N] of bool."""
    nodes = among.nonzero()[:, 0]
    order = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))]
    order = order[y[order].argsort(stable=True)]
    part = torch.zeros_like(among)
    part[order[number::parts]] = True
    return part


def _trained(method: str, data: Data, seed: int, device: Device, learner: LearnerName) -> Tensor:
    """Return scores of all nodes by a method that trains on the graph: [N, C]."""
    given = settings_of(method) | {"seed": seed, "device": device}
    if method == "transfer":
        return transfer(data, learner, TransferConfig(hidden=HIDDEN, **given)).logits.cpu()
    if method == "paper":
        return transfer(data, PAPER, PaperConfig(**given)).logits.cpu()
    if method == "knn":
        return _over_knn(data, given)
    if method == "jaccard":
        data, method = without_unlike_edges(data), "gcn"
    kind = BAGS.get(method, method)
    config = COMPETITORS[kind].config(hidden=HIDDEN, **given)  # type: ignore[call-arg]
    return bag(kind, data, config, seed) if method in BAGS else fit(kind, data, config).logits


def _over_knn(data: Data, given: Mapping[str, Any]) -> Tensor:
    """Return the scores of a GCN over ``lambda A + (1 - lambda) kNN``, lambda by validation."""
    graph = training_graph(check_graph(data)).to(resolve_device(given["device"]))
    near = knn_edges(data.x).to(graph.device)
    knn = FixedStructure(normalised_adjacency(near, None, graph.num_nodes))
    scores, config = [], GNNConfig(hidden=HIDDEN, **given)
    for weight in KNN_WEIGHTS:
        task = GNNTask(graph, config, given=knn, input_weight=weight)
        Loop(task, config.epochs, config.patience).run()
        scores.append((float(task.validate()[1]), task.logits().cpu()))
    return max(scores, key=lambda one: one[0])[1]


def without_unlike_edges(data: Data) -> Data:
    """Drop edges between nodes with too little in common (Wu et al., IJCAI 2019).

    Jaccard similarity where all features are 0 or 1, else cosine, as the usual code has it.
    """
    x, (u, v) = data.x, data.edge_index
    binary = bool(((x == 0) | (x == 1)).all())
    length = x.square().sum(1)
    blocks = zip(u.split(20_000), v.split(20_000), strict=True)
    common = torch.cat([(x[a] * x[b]).sum(1) for a, b in blocks])
    whole = length[u] + length[v] - common if binary else (length[u] * length[v]).sqrt()
    kept = common / whole.clamp_min(1e-12) >= LEAST_SIMILAR
    if bool(kept.any()):
        return data.edge_subgraph(kept)
    out = data.clone()
    out.edge_index = torch.zeros(2, 1, dtype=torch.int64)  # a loop says that no edge is meant
    out.pop("edge_weight", None)
    return out


def with_columns(data: Data, seed: int) -> Data:
    """Give each node a column; on large graphs random columns, which tell nodes apart as well."""
    nodes, out = len(data.y), data.clone()
    generator = torch.Generator().manual_seed(seed)
    wide = nodes <= WIDEST
    out.x = torch.eye(nodes) if wide else torch.randn(nodes, 256, generator=generator) / 16
    return out
