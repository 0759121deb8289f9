"""What the package does, in a minute: three targets, its controls, and a graph before and after.

graphglow demo

Every method has the same labels. A GCN trains on half of them and validates on the rest; all others
have all of them at work.
"""

import statistics
import time
from collections.abc import Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.competitors import METHODS as COMPETITORS
from graphglow.competitors import fit
from graphglow.device import resolve_device
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.perturb import add_edges
from graphglow.lab import Told, unheard
from graphglow.lab.before_after import Refined, describe_refined
from graphglow.lab.open_world.methods import (
    NAMES,
    accuracy,
    bag,
    refine_pool,
    untrained_like,
)
from graphglow.lab.open_world.targets import few_labels
from graphglow.lab.provenance import provenance
from graphglow.pretrained import evidence_learner
from graphglow.settings import Device
from graphglow.workers.executor import open_executor, result_of

OTHERS = ("gcn", "bag-gcn", "logistic")
"""Controls that have nothing of ours."""
METHODS = (*OTHERS, "untrained", "predict")
LABELS = NAMES | {"logistic": "logistic regression"}
SIGNIFICANT = 0.05
CORA_CLASSES = (
    "Theory",
    "Reinforcement learning",
    "Genetic algorithms",
    "Neural networks",
    "Probabilistic methods",
    "Case based",
    "Rule learning",
)
"""In the order of the labels; the files do not name them."""


@dataclass(frozen=True)
class Target:
    """A graph, how many labels it has, and what is wrong with it."""

    name: str
    graph: str
    labels_per_class: int
    """Of training, and as many of validation."""
    false_edges: float = 0.0
    """Random edges that are added, for each edge that it has."""
    seeds: int = 3
    """Where few labels are drawn, most of the spread is which they are: that takes more seeds."""

    @property
    def what(self) -> str:
        """In words."""
        words = [DATASETS[self.graph].what]
        if self.false_edges:
            words.append(f"{self.false_edges:g} false edges added for each true one")
        half = self.labels_per_class
        words.append(f"{2 * half} labels per class, {half} of which validate a GCN")
        return "; ".join(words)

    def draw(self, seed: int) -> Data:
        """The graph, with the labels and false edges of a seed."""
        data = load_graph(self.graph)
        if self.graph == "cora":
            data.class_names = list(CORA_CLASSES)
        few = few_labels(data, self.labels_per_class, seed)
        assert few is not None  # there are enough
        return add_edges(few, self.false_edges, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo runs."""

    targets: tuple[Target, ...] = (
        Target("Cora, few labels", "cora", labels_per_class=5, seeds=4),
        Target("Cora, false edges", "cora", labels_per_class=20, false_edges=1.0),
        Target("Breast cancer", "breast_cancer", labels_per_class=5, seeds=5),
    )
    drawn: int = 1
    """The target whose refined graph is described, by its place: where there is most to mend."""
    gcn: Mapping[str, Any] = field(
        default_factory=lambda: {"epochs": 100, "patience": 10, "hidden": 32}
    )
    """Settings of the GCNs, smaller than the defaults: a minute on two cores."""
    processes: int | None = None
    """None: one per core, or one on a GPU."""


DEMO = Demo()


@dataclass(frozen=True)
class Row:
    """One method on one target with one seed."""

    target: str
    method: str
    seed: int
    split: str
    test_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """Everything that the table and the page show."""

    targets: dict[str, str]
    """What each is, in words."""
    rows: list[Row]
    settings: dict[str, Any]
    versions: dict[str, str]
    refined: Refined
    seconds: float


def run_demo(
    demo: Demo = DEMO, *, seed: int = 0, device: Device = "auto", told: Told = unheard
) -> DemoResult:
    """Run every method on every target with several seeds, from ``seed`` on."""
    began = time.perf_counter()
    asked = [(target, seed + at) for target in demo.targets for at in range(target.seeds)]
    jobs = sorted(asked, key=lambda job: DATASETS[job[0].graph].nodes, reverse=True)
    threads = torch.get_num_threads()
    processes = demo.processes
    if processes is None and resolve_device(device).type == "cpu":
        processes = min(threads, len(jobs))
    found: dict[tuple[str, int], tuple[list[Row], Refined | None]] = {}
    drawn = demo.targets[demo.drawn], seed
    try:
        with open_executor(processes, device=device) as workers:
            futures = {
                workers.submit(_run_job, *job, demo.gcn, workers.device, job == drawn): job
                for job in jobs
            }
            for done in as_completed(futures):
                target, run_seed = futures[done]
                found[target.name, run_seed] = result_of(done)
                told(f"{target.name}, seed {run_seed}", len(found), len(jobs))
    finally:
        torch.set_num_threads(threads)  # a job that ran in this process has changed it
    refined = found[drawn[0].name, seed][1]
    assert refined is not None
    origin = provenance()
    machine = origin["machine"]
    where = f"{machine['gpu'] or machine['cpu']}, {machine['cores']} CPU cores"
    return DemoResult(
        targets={target.name: target.what for target in demo.targets},
        rows=[row for target, run_seed in asked for row in found[target.name, run_seed][0]],
        settings={f"--{name}": value for name, value in demo.gcn.items()},
        versions={**origin["versions"], "commit": origin["commit"], "machine": where},
        refined=refined,
        seconds=time.perf_counter() - began,
    )


def _run_job(
    target: Target, seed: int, settings: Mapping[str, Any], device: Device, describe: bool
) -> tuple[list[Row], Refined | None]:
    """All methods on one target with one seed, in one thread: sums depend on their number."""
    torch.set_num_threads(1)
    data = target.draw(seed)
    learner = evidence_learner()
    config = COMPETITORS["gcn"].config(**settings, seed=seed, device=device)
    rows, refined = [], None
    for method in METHODS:
        if "gcn" in method and DATASETS[target.graph].kind == "table":
            continue  # a table has no edges
        began = time.perf_counter()
        if method == "gcn":
            scores = fit("gcn", data, config).logits
        elif method == "bag-gcn":
            scores = bag("gcn", data, config, seed)
        elif method == "logistic":
            scores = logistic(data)
        else:
            frozen = learner if method == "predict" else untrained_like(learner, seed)
            refined = refine_pool(data, frozen, seed=seed, device=device)
            assert refined.probabilities is not None  # there are labels
            scores = refined.probabilities.cpu()
        seconds = time.perf_counter() - began
        test = accuracy(scores, data, data.test_mask)
        rows.append(Row(target.name, method, seed, str(data.split), test, seconds))
    if not describe:
        return rows, None
    assert refined is not None  # of predict, the last one
    own_edges = load_graph(target.graph).edge_index
    return rows, describe_refined(refined, data, target.name, own_edges)


def logistic(data: Data) -> Tensor:
    """Probabilities by logistic regression on scaled features, all labels at work: [N, C]."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import MaxAbsScaler

    x, known = MaxAbsScaler().fit_transform(data.x.numpy()), data.train_mask | data.val_mask
    model = LogisticRegression(max_iter=1000).fit(x[known], data.y[known].numpy())
    scores = torch.zeros(len(x), int(data.y.max()) + 1)
    scores[:, torch.from_numpy(model.classes_)] = torch.from_numpy(model.predict_proba(x)).float()
    return scores


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
    """On each target over the best of :data:`OTHERS`, and over the network never trained."""
    from scipy.stats import ttest_1samp

    found = []
    for target, lines in summarise(rows).items():
        means = {name: lines[name].mean for name in OTHERS if name in lines}
        scored = {name: mean for name, mean in means.items() if mean is not None}
        best = [max(scored, key=lambda name: scored[name])] if scored else []
        for control in [*best, "untrained"]:
            ours, theirs = (_scores(rows, target, name) for name in ("predict", control))
            apart = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
            if apart:
                spread = len(apart) > 1 and max(apart) > min(apart)
                p = float(ttest_1samp(apart, 0).pvalue) if spread else None
                found.append(Gain(target, control, statistics.mean(apart), len(apart), p))
    return found


def _scores(rows: list[Row], target: str, method: str) -> dict[int, float]:
    """By seed."""
    return {
        row.seed: row.test_accuracy
        for row in rows
        if (row.target, row.method) == (target, method) and row.test_accuracy is not None
    }
