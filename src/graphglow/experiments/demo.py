"""The main job on graphs that come with the package: transfer a learner, frozen, and compare.

graphglow demo
"""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from graphglow.baselines import FitResult, fit
from graphglow.baselines.gnns import GNNConfig
from graphglow.experiments.provenance import provenance
from graphglow.experiments.structure_metrics import GraphFacts, graph_facts
from graphglow.graphs import load_graph
from graphglow.graphs.split import few_label_split
from graphglow.inference.refine import refine
from graphglow.pretrained import paper_learner
from graphglow.structure import StructureLearner
from graphglow.training import PaperConfig, TransferResult, transfer
from graphglow.training.config import Device
from graphglow.training.loop import OnEpoch

METHODS = (
    "evidence",
    "evidence-untrained",
    "graphglow",
    "random-theta",
    "gcn",
    "logistic-regression",
)
NEW_EDGES_SHOWN = 8
TRANSFER = PaperConfig(
    encoder="mlp",  # a point above gcn on validation where edges are wrong: within the spread
    num_pivots=100,  # a tenth of the nodes: the whole demo has 90 s on two cores
    refinements=2,  # as in pre-training
    epochs=100,
)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo runs. Every method sees the same splits, seeds and number of epochs."""

    learner: str = "paper"
    targets: tuple[str, ...] = ("wine", "breast_cancer", "synthetic-small", "synthetic-noisy")
    """Two tables without edges of their own, one whose edges help, one with mostly wrong edges."""
    num_seeds: int = 3
    labels_per_class: int = 10
    """Of training; a quarter of the others validates. Where labels abound, features do well."""
    transfer: PaperConfig = TRANSFER
    refined_target: str = "synthetic-noisy"
    """The target whose refined graph is described: where there is most to mend."""
    top_k: int = 8
    """The mean degree of that graph, so that edge counts compare."""


DEMO = Demo()


Scores = tuple[float | None, float | None, float]
"""Test and validation accuracy, and seconds."""


@dataclass(frozen=True)
class Row:
    """One method on one target with one seed."""

    target: str
    method: str
    seed: int
    split: str
    test_accuracy: float | None
    val_accuracy: float | None
    train_seconds: float


class NewEdge(NamedTuple):
    """An edge of the refined graph that the input graph does not have."""

    source: str
    target: str
    weight: float
    same_class: bool | None


@dataclass(frozen=True)
class Refined:
    """What the refined graph of one target looks like."""

    target: str
    nodes: int
    top_k: int
    before: GraphFacts
    after: GraphFacts
    new_edges: list[NewEdge]


@dataclass(frozen=True)
class DemoResult:
    """Everything that the table and the report show."""

    rows: list[Row]
    pretraining: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    refined: Refined
    seconds: float


Watch = Callable[[str, int, int], AbstractContextManager[OnEpoch | None]]
"""``(label, epochs, visits)`` to a context that gives ``on_epoch``: how progress is shown."""


def run_demo(
    demo: Demo = DEMO, *, seed: int = 0, device: Device = "auto", watch: Watch | None = None
) -> DemoResult:
    """Run every method on every target with several seeds, from ``seed`` on.

    On a CPU one thread is used: on graphs this small more gain little, on a busy machine they
    wait for each other, and the sums would depend on their number.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _run(demo, seed, device, watch or (lambda *_: nullcontext()))
    finally:
        torch.set_num_threads(threads)


def _run(demo: Demo, seed: int, device: Device, watch: Watch) -> DemoResult:
    began = time.perf_counter()
    learner = paper_learner(demo.learner)
    rows: list[Row] = []
    refined: Refined | None = None
    for target in demo.targets:
        for run_seed in range(seed, seed + demo.num_seeds):
            settings = replace(demo.transfer, seed=run_seed, device=device)
            data = _with_few_labels(load_graph(target), demo.labels_per_class, run_seed)
            for method in METHODS:
                about = (target, method, run_seed, f"few labels, seed {run_seed}")
                if method == "logistic-regression":
                    rows.append(Row(*about, *_logistic_regression(data)))
                    continue
                if method.startswith("evidence"):
                    rows.append(Row(*about, *_instant(method, data, settings)))
                    continue
                with watch(
                    f"{method} on {target}, seed {run_seed}", settings.epochs, 1
                ) as on_epoch:
                    result = _train(method, learner, data, settings, on_epoch)
                scores = result.test_accuracy, result.val_accuracy, result.train_seconds
                rows.append(Row(*about, *scores))
                if refined is None and (method, target) == ("graphglow", demo.refined_target):
                    assert isinstance(result, TransferResult)
                    refined = describe_refined(result, demo.top_k)
    assert refined is not None, "refined_target must be one of the targets"
    made, origin = learner.provenance, provenance()
    machine = origin["machine"]
    told = f"{machine['gpu'] or machine['cpu']}, {machine['cores']} CPU cores, 1 torch thread"
    return DemoResult(
        rows=rows,
        pretraining={name: made[name] for name in ("sources", "seed", "seconds")}
        | {"name": demo.learner, "val_accuracy": made["validation_accuracy"]},
        settings={"transfer": {"--learner": demo.learner, **_changed(demo.transfer)}},
        versions={**origin["versions"], "commit": origin["commit"], "machine": told},
        refined=refined,
        seconds=time.perf_counter() - began,
    )


def _with_few_labels(data: Data, per_class: int, seed: int) -> Data:
    parts = few_label_split(data.y, per_class=per_class, seed=seed)
    for name, nodes in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        data[name] = torch.zeros_like(data[name]).index_fill(0, nodes, True)
    return data


def _train(
    method: str,
    learner: StructureLearner,
    data: Data,
    config: PaperConfig,
    on_epoch: OnEpoch | None,
) -> TransferResult | FitResult:
    if method == "gcn":  # of the same size, trained in the same way
        shared = {field.name for field in fields(GNNConfig)} - {"hidden"}
        plain = {name: getattr(config, name) for name in shared}
        own = GNNConfig(hidden=learner.config.embedding_size, **plain)
        return fit("gcn", data, own, on_epoch=on_epoch)
    if method == "random-theta":
        learner = StructureLearner(learner.config, seed=config.seed)
    return transfer(data, learner, config, on_epoch=on_epoch)


def _instant(method: str, data: Data, config: PaperConfig) -> Scores:
    """The evidence learner, which trains nothing: test and validation accuracy, and seconds."""
    began = time.perf_counter()
    learner = "untrained" if method == "evidence-untrained" else "universal"
    refined = refine(data, learner, seed=config.seed, device=config.device)
    return refined.accuracy("test"), refined.accuracy("val"), time.perf_counter() - began


def _logistic_regression(data: Data) -> tuple[float, float, float]:
    """The control that sees features and no graph: test and validation accuracy, and seconds."""
    from sklearn.linear_model import LogisticRegression

    began = time.perf_counter()
    x, y = data.x.numpy(), data.y.numpy()
    train, val, test = (data[f"{part}_mask"].numpy() for part in ("train", "val", "test"))
    model = LogisticRegression(max_iter=1000).fit(x[train], y[train])
    seconds = time.perf_counter() - began
    return float(model.score(x[test], y[test])), float(model.score(x[val], y[val])), seconds


def _changed(config: PaperConfig) -> dict[str, Any]:
    """The settings that differ from the defaults, as the flags that would set them."""
    found, default = vars(config), vars(PaperConfig())
    changed = {name: value for name, value in found.items() if value != default[name]}
    return {f"--{name.replace('_', '-')}": value for name, value in changed.items()}


def describe_refined(result: TransferResult, top_k: int) -> Refined:
    """Compare the refined graph with the input graph, and list its strongest new edges."""
    graph = result.refined_graph(top_k, self_loops=False)
    num_nodes, y = result.graph.num_nodes, result.data.y
    known = to_undirected(result.data.edge_index)
    source, target = graph.edge_index
    new = ~torch.isin(source * num_nodes + target, known[0] * num_nodes + known[1])
    order = graph.edge_weight[new].argsort(descending=True, stable=True)[:NEW_EDGES_SHOWN]
    ids = result.data.get("node_id") or range(num_nodes)
    pairs, weights = graph.edge_index[:, new][:, order].T, graph.edge_weight[new][order]
    edges = []
    for (u, v), weight in zip(pairs.tolist(), weights.tolist(), strict=True):
        same = bool(y[u] == y[v]) if min(y[u], y[v]) >= 0 else None
        edges.append(NewEdge(str(ids[u]), str(ids[v]), weight, same))
    before, after = graph_facts(result.data, undirected=True), graph_facts(graph)
    return Refined(result.graph.name, num_nodes, top_k, before, after, edges)


class Summary(NamedTuple):
    """Mean and sample standard deviation over the seeds; None where there is nothing to say."""

    runs: int
    mean: float | None
    std: float | None
    seconds: float


def summarise(rows: list[Row]) -> dict[str, dict[str, Summary]]:
    """Group rows by target, then by method, in the order in which they came."""
    found: dict[str, dict[str, Summary]] = {}
    for target, method in dict.fromkeys((row.target, row.method) for row in rows):
        runs = [row for row in rows if (row.target, row.method) == (target, method)]
        scores = [row.test_accuracy for row in runs if row.test_accuracy is not None]
        found.setdefault(target, {})[method] = Summary(
            runs=len(runs),
            mean=round(statistics.mean(scores), 6) if scores else None,  # equal counts are a tie
            std=statistics.stdev(scores) if len(scores) > 1 else None,
            seconds=statistics.mean(row.train_seconds for row in runs),
        )
    return found
