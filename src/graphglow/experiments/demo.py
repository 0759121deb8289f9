"""What the package does, in a minute: three targets, its controls, and a graph before and after.

graphglow demo
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.baselines import fit
from graphglow.baselines.fit import METHODS as COMPETITORS
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.executor import open_executor, result_of
from graphglow.experiments.structure_metrics import GraphFacts, graph_facts
from graphglow.graphs import DATASETS, load_graph
from graphglow.graphs.graph import undirected_edges
from graphglow.graphs.perturb import add_edges
from graphglow.graphs.split import MASKS, few_label_split
from graphglow.ops.knn import knn_edges
from graphglow.pretrained import evidence_learner
from graphglow.training import EvidenceResult, TransferConfig, transfer
from graphglow.training.config import Device
from graphglow.training.device import resolve_device

METHODS = ("gcn", "mlp", "knn", "untrained", "graphglow", "instant")
CONTROLS = METHODS[:4]
SIGNIFICANT = 0.05
EDGES_SHOWN = 6
LARGEST_DEGREE = 12
"""Of the node whose neighbourhood is drawn: more would not be seen."""
NEW_NEIGHBOURS = 6
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
    labels_per_class: int | None = None
    """Of training, and as many of validation; None takes the split that the graph comes with."""
    false_edges: float = 0.0
    """Random edges that are added, for each edge that it has."""

    def draw(self, seed: int) -> Data:
        """The graph, with the labels and false edges of a seed."""
        data = load_graph(self.graph)
        if self.graph == "cora":
            data.class_names = list(CORA_CLASSES)
        if self.labels_per_class is not None:
            _give_few_labels(data, self.labels_per_class, seed)
        return add_edges(data, self.false_edges, seed=seed)


TRANSFER = TransferConfig(epochs=100, patience=20, hidden=32)
"""Smaller than the defaults, for all methods alike: a minute on two cores."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo runs. Every method sees the same splits, seeds, width, epochs and patience."""

    targets: tuple[Target, ...] = (
        Target("Cora, 5 labels per class", "cora", labels_per_class=5),
        Target("Cora, half of the edges false", "cora", false_edges=1.0),
        Target("Breast cancer, a table, 5 labels per class", "breast_cancer", labels_per_class=5),
    )
    drawn: int = 1
    """The target whose refined graph is described, by its place: where there is most to mend."""
    num_seeds: int = 3
    transfer: TransferConfig = TRANSFER
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
    val_accuracy: float | None
    seconds: float


class Edge(NamedTuple):
    """An edge with the classes of its ends, and how likely these are one."""

    ends: tuple[int, int]
    classes: tuple[str, str]
    probability: float
    injected: bool = False


class Node(NamedTuple):
    """A node of a drawing."""

    node: int
    label: int
    predicted: int


@dataclass(frozen=True)
class Neighbourhood:
    """A node, the first of ``nodes``, and what it is joined to, before and after; ends are places.

    An edge of the input is ``kept`` or ``dropped``.
    """

    nodes: list[Node]
    kept: list[tuple[int, int]]
    dropped: list[tuple[int, int]]
    added: list[tuple[int, int]]


@dataclass(frozen=True)
class Refined:
    """What the refined graph of one target looks like."""

    target: str
    class_names: list[str]
    before: GraphFacts
    after: GraphFacts
    dropped_injected: float | None
    """The share of injected edges that are gone; None where none was injected."""
    dropped_own: float
    """The share of the graph's own edges that are gone."""
    added: list[Edge]
    """The most probable ones."""
    dropped: list[Edge]
    """The least probable ones."""
    around: Neighbourhood


@dataclass(frozen=True)
class DemoResult:
    """Everything that the table and the page show."""

    rows: list[Row]
    settings: dict[str, Any]
    versions: dict[str, str]
    refined: Refined
    seconds: float


Told = Callable[[str, int, int], None]
"""Told what is done, how many jobs are, and of how many."""


def run_demo(
    demo: Demo = DEMO, *, seed: int = 0, device: Device = "auto", told: Told | None = None
) -> DemoResult:
    """Run every method on every target with several seeds, from ``seed`` on."""
    began = time.perf_counter()
    jobs = [(target, s) for s in range(seed, seed + demo.num_seeds) for target in demo.targets]
    jobs.sort(key=lambda job: DATASETS[job[0].graph].nodes, reverse=True)  # stable
    threads = torch.get_num_threads()
    processes = demo.processes
    if processes is None and resolve_device(device).type == "cpu":
        processes = min(threads, len(jobs))
    found: dict[tuple[str, int], tuple[list[Row], Refined | None]] = {}
    drawn = demo.targets[demo.drawn], seed
    try:
        with open_executor(processes, device=device) as workers:
            futures = {
                workers.submit(_run_job, *job, demo.transfer, workers.device, job == drawn): job
                for job in jobs
            }
            for done in as_completed(futures):
                target, run_seed = futures[done]
                found[target.name, run_seed] = result_of(done)
                if told is not None:
                    told(f"{target.name}, seed {run_seed}", len(found), len(jobs))
    finally:
        torch.set_num_threads(threads)  # a job that ran in this process has changed it
    refined = found[drawn[0].name, seed][1]
    assert refined is not None
    origin = provenance()
    machine = origin["machine"]
    where = f"{machine['gpu'] or machine['cpu']}, {machine['cores']} CPU cores"
    seeds = range(seed, seed + demo.num_seeds)
    return DemoResult(
        rows=[r for t in demo.targets for s in seeds for r in found[t.name, s][0]],
        settings=_changed(demo.transfer),
        versions={**origin["versions"], "commit": origin["commit"], "machine": where},
        refined=refined,
        seconds=time.perf_counter() - began,
    )


def _run_job(
    target: Target, seed: int, config: TransferConfig, device: Device, describe: bool
) -> tuple[list[Row], Refined | None]:
    """All methods on one target with one seed, in one thread: sums depend on their number."""
    torch.set_num_threads(1)
    data = target.draw(seed)
    config = replace(config, seed=seed, device=device)
    split = str(data.split)
    rows = []
    for method in ("gcn", "mlp", "knn"):
        if method == "gcn" and DATASETS[target.graph].kind == "table":
            continue  # a table has no edges but those of knn
        given = data
        if method == "knn":
            given = data.clone()
            given.edge_index = knn_edges(data.x)
        competitor = "mlp" if method == "mlp" else "gcn"
        run = fit(competitor, given, _alike(competitor, config))
        scores = run.test_accuracy, run.val_accuracy, run.seconds
        rows.append(Row(target.name, method, seed, split, *scores))
    control = transfer(data, EvidenceLearner.untrained(seed), config)
    ours = transfer(data, evidence_learner(), config)
    for method, run in (("untrained", control), ("graphglow", ours)):
        scores = run.test_accuracy, run.val_accuracy, run.seconds
        rows.append(Row(target.name, method, seed, split, *scores))
    assert isinstance(ours, EvidenceResult)
    right = (ours.known.instant.argmax(1).cpu() == data.y).double()
    test, val = (float(right[data[mask]].mean()) for mask in ("test_mask", "val_mask"))
    instant = ours.seconds - ours.train_seconds
    rows.append(Row(target.name, "instant", seed, split, test, val, instant))
    return rows, describe_refined(ours, target) if describe else None


def _alike(competitor: str, config: TransferConfig) -> Any:
    """A competitor's config with the settings that it shares with ours."""
    kind = COMPETITORS[competitor].config
    names = kind.__dataclass_fields__.keys() & vars(config).keys()
    return kind(**{name: getattr(config, name) for name in names})


def _give_few_labels(data: Data, per_class: int, seed: int) -> None:
    """So many labels of each class for training, as many for validation; the rest is for tests."""
    train, _, _ = few_label_split(data.y, per_class=per_class, seed=seed)
    both, _, _ = few_label_split(data.y, per_class=2 * per_class, seed=seed)
    masks = [
        torch.zeros(len(data.y), dtype=torch.bool).index_fill(0, n, True) for n in (train, both)
    ]
    parts = masks[0], masks[1] & ~masks[0], ~masks[1] & (data.y >= 0)
    for name, mask in zip(MASKS, parts, strict=True):
        data[name] = mask
    data.split = f"few labels, seed {seed}"


def _changed(config: TransferConfig) -> dict[str, Any]:
    """The settings that differ from the defaults, as the flags that would set them."""
    found, default = vars(config), vars(TransferConfig())
    changed = {name: value for name, value in found.items() if value != default[name]}
    return {f"--{name.replace('_', '-')}": value for name, value in changed.items()}


def describe_refined(result: EvidenceResult, target: Target) -> Refined:
    """Set the refined graph beside the input graph: in numbers, by edges, around one node."""
    data, made = result.data, result.looked_over
    known = load_graph(target.graph).edge_index
    keys, nodes = _Pairs(made.num_nodes), made.num_nodes
    own, given = keys.of_edges(known), keys.of_edges(data.edge_index)
    injected = given[~torch.isin(given, own)]
    gone, chance_of_gone = made.dropped()
    gone_keys = keys(gone)
    once = made.edge_index[0] < made.edge_index[1]
    new = once & ~made.edge_in_input
    refined = Data(y=data.y, edge_index=made.edge_index.cpu(), num_nodes=nodes)

    def listed(pairs: Tensor, probability: Tensor, *, best: bool) -> list[Edge]:
        """The surest pairs of which not both labels were given."""
        fair = ~data.train_mask[pairs.cpu()].all(0)
        pairs, probability = pairs.cpu()[:, fair], probability.cpu()[fair]
        order = probability.argsort(descending=best, stable=True)[:EDGES_SHOWN]
        false = torch.isin(keys(pairs[:, order]), injected).tolist()
        found = zip(pairs[:, order].T.tolist(), probability[order].tolist(), false, strict=True)
        names = data.class_names
        return [
            Edge((u, v), (names[data.y[u]], names[data.y[v]]), chance, was_injected)
            for (u, v), chance, was_injected in found
        ]

    def share_gone(of: Tensor) -> float:
        return float(torch.isin(of, gone_keys.cpu()).double().mean())

    # AUDIT: the findings of ``graphglow.audit`` on the injected edges come here, as one more field
    # of Refined (how many of the most doubtful edges are injected); demo.html.j2 has their place.
    return Refined(
        target=target.name,
        class_names=list(data.class_names),
        before=graph_facts(data, undirected=True),
        after=graph_facts(refined),
        dropped_injected=share_gone(injected) if len(injected) else None,
        dropped_own=share_gone(own),
        added=listed(made.edge_index[:, new], made.edge_probability[new], best=True),
        dropped=listed(gone, chance_of_gone, best=False),
        around=_around(result, made, gone_keys),
    )


class _Pairs:
    """A number for each pair of nodes, whatever its direction."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes

    def __call__(self, pairs: Tensor) -> Tensor:
        """[2, M] -> [M]."""
        return pairs.amin(0) * self.num_nodes + pairs.amax(0)

    def of_edges(self, edge_index: Tensor) -> Tensor:
        """Each undirected edge once, loops left out: [2, E] -> [M]."""
        low, high, _ = undirected_edges(edge_index, None, self.num_nodes)
        return low.long() * self.num_nodes + high


def _around(result: EvidenceResult, made: RefinedGraph, gone: Tensor) -> Neighbourhood:
    """The test node that loses most edges, of those with few enough to be drawn.

    Drawn are its neighbours in the input and the surest of the new ones, the input's edges among
    all these, and new edges of the node itself.
    """
    data, keys = result.data, _Pairs(made.num_nodes)
    given, gone = keys.of_edges(data.edge_index), gone.cpu()
    degree, lost = (
        torch.bincount(torch.cat([k // keys.num_nodes, k % keys.num_nodes]), minlength=len(data.y))
        for k in (given, gone)
    )
    fit_to_draw = data.test_mask & (degree <= LARGEST_DEGREE)
    centre = int(torch.where(fit_to_draw, lost, -1).argmax())
    both = torch.stack([given // keys.num_nodes, given % keys.num_nodes])
    beside = both[:, (both == centre).any(0)]
    near = beside[beside != centre].tolist()
    here = (made.edge_index[0] == centre) & ~made.edge_in_input
    order = made.edge_probability[here].argsort(descending=True, stable=True)[:NEW_NEIGHBOURS]
    new = made.edge_index[1, here][order].tolist()
    predicted = result.logits.argmax(1).cpu()
    ring = sorted([*near, *new], key=lambda node: (int(data.y[node]), node))
    nodes = [centre, *ring]
    place = {node: at for at, node in enumerate(nodes)}

    def among(some: Tensor) -> list[tuple[int, int]]:
        ends = torch.stack([some // keys.num_nodes, some % keys.num_nodes])
        inside = torch.isin(ends, torch.tensor(nodes)).all(0)
        return [(place[u], place[v]) for u, v in ends[:, inside].T.tolist()]

    return Neighbourhood(
        nodes=[Node(node, int(data.y[node]), int(predicted[node])) for node in nodes],
        kept=among(given[~torch.isin(given, gone)]),
        dropped=among(gone),
        added=[(0, place[node]) for node in new],
    )


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
    """What graphglow has over a control on one target, paired by seed."""

    target: str
    control: str
    difference: float
    p: float | None
    """Of a paired t-test over the seeds; None where there is nothing to test."""

    @property
    def beyond_chance(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANT


def gains(rows: list[Row]) -> list[Gain]:
    """On each target against the best of the controls, and against the untrained one."""
    from scipy.stats import ttest_1samp

    found = []
    for target, lines in summarise(rows).items():
        means = {name: lines[name].mean for name in CONTROLS if name in lines}
        scored = {name: mean for name, mean in means.items() if mean is not None}
        if "graphglow" not in lines or not scored:
            continue
        best = max(scored, key=lambda name: scored[name])
        for control in dict.fromkeys([best, *(n for n in scored if n == "untrained")]):
            ours, theirs = (_scores(rows, target, name) for name in ("graphglow", control))
            apart = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
            if apart:
                spread = len(apart) > 1 and max(apart) > min(apart)
                p = float(ttest_1samp(apart, 0).pvalue) if spread else None
                found.append(Gain(target, control, statistics.mean(apart), p))
    return found


def _scores(rows: list[Row], target: str, method: str) -> dict[int, float]:
    """By seed."""
    return {
        row.seed: row.test_accuracy
        for row in rows
        if (row.target, row.method) == (target, method) and row.test_accuracy is not None
    }
