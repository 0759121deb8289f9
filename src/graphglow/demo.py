"""What the package does, in a minute: three targets, controls, and a graph before and after.

graphglow demo

All methods have the same labels. A GCN trains on half of them and validates on the rest; all others
have all of them at work.
"""

import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.audit import audit
from graphglow.competitors import METHODS as COMPETITORS
from graphglow.competitors import fit
from graphglow.errors import InputWarning
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.datasets import add_edges
from graphglow.graph.graph import undirected_edges
from graphglow.graph.load import describe
from graphglow.lab import Progress, no_progress
from graphglow.lab.open_methods import (
    METHOD_TITLES,
    accuracy_on,
    bag,
    predict_pool,
    untrained_like,
)
from graphglow.lab.open_suite import few_labels
from graphglow.lab.row_files import provenance
from graphglow.pretrained import evidence_learner
from graphglow.refine import refine
from graphglow.settings import Device

OTHERS = ("gcn", "bag-gcn", "logistic")
"""Controls that have nothing of ours."""
METHODS = (*OTHERS, "untrained", "predict")
LABELS = METHOD_TITLES | {"logistic": "logistic regression"}
SIGNIFICANT = 0.05


class DemoTarget(NamedTuple):
    """A graph, how many labels it has, and what is wrong with it."""

    name: str
    graph: str
    labels_per_class: int
    """For training, and as many for validation."""
    false_edges: float = 0.0
    """Random edges that are added, for each edge that it has."""
    seeds: int = 3

    @property
    def what(self) -> str:
        """The target in words."""
        half, added = self.labels_per_class, ""
        if self.false_edges:
            added = f"; {self.false_edges:g} false edges added for each true one"
        labels = f"; {2 * half} labels per class, {half} of which validate a GCN"
        return DATASETS[self.graph].what + added + labels

    def draw(self, seed: int) -> Data:
        """Return the graph, with the labels and false edges of a seed."""
        few = few_labels(load_graph(self.graph), self.labels_per_class, seed)
        assert few is not None  # there are enough
        return add_edges(few, self.false_edges, seed=seed)


TARGETS = (
    DemoTarget("Cora, few labels", "cora", labels_per_class=5),
    DemoTarget("Cora, false edges", "cora", labels_per_class=20, false_edges=1.0),
    DemoTarget("Breast cancer", "breast_cancer", labels_per_class=5),
)
GCN: Mapping[str, Any] = {"epochs": 100, "patience": 10, "hidden": 32}
"""Settings of the GCNs, smaller than the defaults: a minute on two cores."""


@dataclass(frozen=True)
class Row:
    """One method on one target with one seed."""

    target: str
    method: str
    seed: int
    test_accuracy: float
    seconds: float


@dataclass(frozen=True)
class Refined:
    """The refined graph of one target, beside its input, as :func:`graphglow.describe` does.

    Of injected edges and of the graph's own, the shares that are gone; and how likely the audit,
    which reads no labels, doubts an injected edge more than another. None if none was injected.
    """

    target: str
    before: dict[str, Any]
    after: dict[str, Any]
    dropped_injected: float | None
    dropped_own: float
    audit_auc: float | None


@dataclass(frozen=True)
class DemoResult:
    """Everything that the table and the page show."""

    targets: dict[str, str]
    """What each is, in words."""
    rows: list[Row]
    settings: dict[str, Any]
    versions: dict[str, Any]
    refined: Refined
    seconds: float


def run_demo(
    targets: Sequence[DemoTarget] = TARGETS,
    gcn: Mapping[str, Any] = GCN,
    *,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress = no_progress,
) -> DemoResult:
    """Run all methods on all targets and seeds, and refine the graph of the second target."""
    began = time.perf_counter()
    jobs = [(target, seed + number) for target in targets for number in range(target.seeds)]
    rows = []
    for done, (target, own_seed) in enumerate(jobs):
        data = target.draw(own_seed)
        for method in METHODS:
            if "gcn" in method and DATASETS[target.graph].kind == "table":
                continue  # a table has no edges
            progress(f"{LABELS[method]} on {target.name}", done, len(jobs))
            start = time.perf_counter()
            scores = node_scores(method, data, gcn, own_seed, device)
            seconds = time.perf_counter() - start
            right = accuracy_on(scores, data, data.test_mask)
            rows.append(Row(target.name, method, own_seed, right, seconds))
    second = targets[1]
    own_edges = load_graph(second.graph).edge_index
    refined = before_and_after(second.draw(seed), second.name, own_edges, device)
    origin = provenance()
    machine = origin["machine"]
    where = f"{machine['gpu'] or machine['cpu']}, {machine['cores']} CPU cores"
    return DemoResult(
        targets={target.name: target.what for target in targets},
        rows=rows,
        settings={f"--{name}": value for name, value in gcn.items()},
        versions={**origin["versions"], "commit": origin["commit"], "machine": where},
        refined=refined,
        seconds=time.perf_counter() - began,
    )


def node_scores(
    method: str, data: Data, gcn: Mapping[str, Any], seed: int, device: Device
) -> Tensor:
    """Return scores or probabilities of all nodes by a method: [N, C]."""
    config = COMPETITORS["gcn"].config(**gcn, seed=seed, device=device)
    if method == "gcn":
        return fit("gcn", data, config).logits
    if method == "bag-gcn":
        return bag("gcn", data, config, seed)
    if method != "logistic":
        learner = evidence_learner()
        frozen = learner if method == "predict" else untrained_like(learner, seed)
        return predict_pool(data, frozen, seed=seed, device=device)
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import MaxAbsScaler

    x, known = MaxAbsScaler().fit_transform(data.x.numpy()), data.train_mask | data.val_mask
    model = LogisticRegression(max_iter=1000).fit(x[known], data.y[known].numpy())
    scores = torch.zeros(len(x), int(data.y.max()) + 1)
    scores[:, torch.from_numpy(model.classes_)] = torch.from_numpy(model.predict_proba(x)).float()
    return scores


class Summary(NamedTuple):
    """Mean and sample standard deviation over the seeds."""

    runs: int
    mean: float
    std: float | None
    seconds: float


def summarise(rows: list[Row]) -> dict[str, dict[str, Summary]]:
    """Group rows by target, then by method."""
    found: dict[str, dict[str, Summary]] = {}
    for target, method in dict.fromkeys((row.target, row.method) for row in rows):
        runs = [row for row in rows if (row.target, row.method) == (target, method)]
        scores = [row.test_accuracy for row in runs]
        found.setdefault(target, {})[method] = Summary(
            runs=len(runs),
            mean=round(statistics.mean(scores), 6),  # equal counts are a tie
            std=statistics.stdev(scores) if len(scores) > 1 else None,
            seconds=statistics.mean(row.seconds for row in runs),
        )
    return found


class Gain(NamedTuple):
    """What predict has over a control on one target, paired by seed."""

    target: str
    control: str
    difference: float
    seeds: int
    p: float | None
    """Of a paired t-test over the seeds; None where there is nothing to test."""

    @property
    def beyond_chance(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANT


def gains(rows: list[Row]) -> list[Gain]:
    """Return the gain on each target over the best of :data:`OTHERS`, and over the untrained."""
    from scipy.stats import ttest_1samp

    found = []
    for target, lines in summarise(rows).items():
        best = sorted((name for name in OTHERS if name in lines), key=lambda n: -lines[n].mean)[:1]
        for control in [*best, "untrained"]:
            ours, theirs = (
                {r.seed: r.test_accuracy for r in rows if (r.target, r.method) == (target, name)}
                for name in ("predict", control)
            )
            apart = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
            if apart:
                spread = len(apart) > 1 and max(apart) > min(apart)
                p = float(ttest_1samp(apart, 0).pvalue) if spread else None
                found.append(Gain(target, control, statistics.mean(apart), len(apart), p))
    return found


def before_and_after(data: Data, name: str, own_edges: Tensor, device: Device = "auto") -> Refined:
    """Refine a graph with all its labels, and set it beside the input.

    Edges of the input that are not among ``own_edges`` [2, E] are injected ones.
    """
    from sklearn.metrics import roc_auc_score

    known = data.clone()
    known.train_mask, known.val_mask = data.train_mask | data.val_mask, data.val_mask & False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the page says it
        refined = refine(known, edges="replace", device=device)
    nodes, pairs = int(data.num_nodes), []
    for edges in (own_edges, data.edge_index, refined.edge_index.cpu()):
        low, high, _ = undirected_edges(edges, None, nodes)
        pairs.append(low.long() * nodes + high)
    own, given, left = pairs
    injected, found = given[~torch.isin(given, own)], None
    if len(injected):  # the auditor knows nothing of them, and reads no labels here
        audited = audit(Data(x=data.x, edge_index=data.edge_index, num_nodes=nodes))
        numbers = audited.edges.amin(0) * nodes + audited.edges.amax(0)
        found = float(roc_auc_score(torch.isin(numbers, injected), -audited.probability_real))
    gone = [(~torch.isin(edges, left)).double().mean() for edges in (injected, own)]
    return Refined(
        target=name,
        before=describe(data),
        after=describe(Data(y=data.y, edge_index=refined.edge_index.cpu(), x=data.x)),
        dropped_injected=float(gone[0]) if len(injected) else None,
        dropped_own=float(gone[1]),
        audit_auc=found,
    )
