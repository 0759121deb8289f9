"""What the package does, in a minute: three targets, its controls, and a graph before and after.

graphglow demo

Every method has the same labels. A GCN trains on half of them and validates on the rest; all others
have all of them at work.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.audit import audit
from graphglow.competitors import METHODS as COMPETITORS
from graphglow.competitors import fit
from graphglow.evidence.refined import RefinedGraph
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.synthetic import add_edges
from graphglow.lab import Progress, no_progress
from graphglow.lab.open_world.methods import NAMES, accuracy, bag, refine_pool, untrained_like
from graphglow.lab.open_world.targets import few_labels
from graphglow.lab.row_files import provenance
from graphglow.lab.structure_metrics import GraphFacts, graph_facts
from graphglow.parallel import map_blocks
from graphglow.pretrained import evidence_learner
from graphglow.refine import choose_edges
from graphglow.settings import Device

OTHERS = ("gcn", "bag-gcn", "logistic")
"""Controls that have nothing of ours."""
METHODS = (*OTHERS, "untrained", "predict")
LABELS = NAMES | {"logistic": "logistic regression"}
SIGNIFICANT = 0.05
CORA_CLASSES = ("Theory", "Reinforcement learning", "Genetic algorithms", "Neural networks",
                "Probabilistic methods", "Case based", "Rule learning")  # fmt: skip
"""In the order of the labels; the files do not name them."""
NEW_NEIGHBOURS = 6
DEGREES = 6, 12
"""Least and most edges of the node whose neighbourhood is drawn: fewer say little."""


class Target(NamedTuple):
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
        """The target in words."""
        words = [DATASETS[self.graph].what]
        if self.false_edges:
            words.append(f"{self.false_edges:g} false edges added for each true one")
        half = self.labels_per_class
        return "; ".join([*words, f"{2 * half} labels per class, {half} of which validate a GCN"])

    def draw(self, seed: int) -> Data:
        """Return the graph, with the labels and false edges of a seed."""
        data = load_graph(self.graph)
        if self.graph == "cora":
            data.class_names = list(CORA_CLASSES)
        few = few_labels(data, self.labels_per_class, seed)
        assert few is not None  # there are enough
        return add_edges(few, self.false_edges, seed=seed)


TARGETS = (
    Target("Cora, few labels", "cora", labels_per_class=5, seeds=4),
    Target("Cora, false edges", "cora", labels_per_class=20, false_edges=1.0),
    Target("Breast cancer", "breast_cancer", labels_per_class=5, seeds=5),
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


class Node(NamedTuple):
    """A node of a drawing."""

    node: int
    label: int


class Neighbourhood(NamedTuple):
    """Nodes around the first one, and edges among them, before and after, by place.

    An edge of the input is ``kept`` or ``dropped``.
    """

    nodes: list[Node]
    kept: list[tuple[int, int]]
    dropped: list[tuple[int, int]]
    added: list[tuple[int, int]]


@dataclass(frozen=True)
class Refined:
    """The refined graph of one target, beside its input; shares are in [0, 1]."""

    target: str
    class_names: list[str]
    before: GraphFacts
    after: GraphFacts
    dropped_injected: float | None
    """The share of injected edges that are gone; None where none was injected."""
    dropped_own: float
    """The share of the graph's own edges that are gone."""
    around: Neighbourhood
    audit_auc: float | None
    """How likely the audit, which reads no labels, doubts an injected edge more than another."""


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
    targets: Sequence[Target] = TARGETS,
    gcn: Mapping[str, Any] = GCN,
    *,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress = no_progress,
) -> DemoResult:
    """Run all methods on all targets; the refined graph of the second is described.

    A job is a target with a seed; those of large graphs come first.
    """
    began, threads = time.perf_counter(), torch.get_num_threads()
    jobs = [(target, seed + at) for target in targets for at in range(target.seeds)]
    jobs.sort(key=lambda job: DATASETS[job[0].graph].nodes, reverse=True)
    shared = gcn, device, (targets[1], seed)
    rows: list[Row] = []
    refined = None
    try:
        for made, described in map_blocks(run_job, shared, jobs):
            rows += made
            refined = refined or described
            progress(made[0].target, len({(row.target, row.seed) for row in rows}), len(jobs))
    finally:
        torch.set_num_threads(threads)  # a job that ran in this process has changed it
    assert refined is not None
    places = {target.name: place for place, target in enumerate(targets)}
    origin = provenance()
    machine = origin["machine"]
    where = f"{machine['gpu'] or machine['cpu']}, {machine['cores']} CPU cores"
    return DemoResult(
        targets={target.name: target.what for target in targets},
        rows=sorted(rows, key=lambda row: (places[row.target], row.seed)),
        settings={f"--{name}": value for name, value in gcn.items()},
        versions={**origin["versions"], "commit": origin["commit"], "machine": where},
        refined=refined,
        seconds=time.perf_counter() - began,
    )


def run_job(
    shared: tuple[Mapping[str, Any], Device, tuple[Target, int]], job: tuple[Target, int]
) -> tuple[list[Row], Refined | None]:
    """Run all methods on one target with one seed, in one thread: sums depend on their number."""
    (gcn, device, described), (target, seed) = shared, job
    torch.set_num_threads(1)
    data, learner = target.draw(seed), evidence_learner()
    config = COMPETITORS["gcn"].config(**gcn, seed=seed, device=device)
    rows = []
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
        rows.append(Row(target.name, method, seed, test, seconds))
    if job != described:
        return rows, None
    own_edges = load_graph(target.graph).edge_index
    return rows, describe_refined(refined, data, target.name, own_edges)


def logistic(data: Data) -> Tensor:
    """Return probabilities by logistic regression on scaled features, of all labels: [N, C]."""
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


# A graph before and after


def describe_refined(made: RefinedGraph, data: Data, name: str, own_edges: Tensor) -> Refined:
    """Set the refined graph beside the input graph, whose ``own_edges`` [2, E] are not injected."""
    own, given = (
        _undirected(own_edges, made.num_nodes),
        _undirected(data.edge_index, made.num_nodes),
    )
    injected = given[~torch.isin(given, own)]
    gone = _keys(made.pairs[:, made.dropped()], made.num_nodes).cpu()
    kept = choose_edges(made)
    after = Data(y=data.y, edge_index=kept.edge_index.cpu(), num_nodes=made.num_nodes)
    return Refined(
        target=name,
        class_names=list(data.class_names),
        before=graph_facts(data),
        after=graph_facts(after),
        dropped_injected=_share(torch.isin(injected, gone)) if len(injected) else None,
        dropped_own=_share(torch.isin(own, gone)),
        around=_around(made, data, given, gone),
        audit_auc=_audit_auc(data, injected) if len(injected) else None,
    )


def _audit_auc(data: Data, injected: Tensor) -> float:
    """Ask the auditor, which knows nothing of what was injected; it reads no labels here."""
    from sklearn.metrics import roc_auc_score

    found = audit(Data(x=data.x, edge_index=data.edge_index, num_nodes=data.num_nodes))
    false = torch.isin(_keys(found.edges, int(data.num_nodes)), injected)
    return float(roc_auc_score(false.numpy(), -found.probability_real.numpy()))


def _share(of: Tensor) -> float:
    return float(of.double().mean())


def _keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """Return a number for each pair of nodes, whatever its direction: [2, M] -> [M]."""
    return pairs.amin(0) * num_nodes + pairs.amax(0)


def _undirected(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return each undirected edge once, by its number, loops left out: [2, E] -> [M]."""
    keys: Tensor = torch.unique(_keys(edge_index[:, edge_index[0] != edge_index[1]], num_nodes))
    return keys


def _around(made: RefinedGraph, data: Data, given: Tensor, gone: Tensor) -> Neighbourhood:
    """Return what surrounds the test node whose share of dropped edges is nearest to all nodes'.

    ``given`` and ``gone`` are the numbers of the input's edges, and of the dropped ones.
    """
    nodes, lost = made.num_nodes, torch.isin(given, gone)
    ends = torch.stack([given // nodes, given % nodes])
    degree, losses = (
        torch.bincount(some.flatten(), minlength=nodes) for some in (ends, ends[:, lost])
    )
    drawable = data.test_mask & (degree >= DEGREES[0]) & (degree <= DEGREES[1])
    choice = (drawable if bool(drawable.any()) else data.test_mask).nonzero()[:, 0]
    apart = (losses / degree.clamp_min(1) - lost.double().mean()).abs()[choice]
    centre = int(choice[apart.argmin()])
    near = ends[:, (ends == centre).any(0)].sum(0) - centre
    fresh = ((made.edge_index[0] == centre) & ~made.edge_in_input).nonzero()[:, 0]
    order = made.edge_probability[fresh].argsort(descending=True, stable=True)[:NEW_NEIGHBOURS]
    new = made.edge_index[1, fresh[order]].tolist()
    ring = sorted([*near.tolist(), *new], key=lambda node: (int(data.y[node]), node))
    place = {node: at for at, node in enumerate([centre, *ring])}
    inside = torch.isin(ends, torch.tensor([*place])).all(0)

    def among(edges: Tensor) -> list[tuple[int, int]]:
        return [(place[u], place[v]) for u, v in ends[:, edges & inside].T.tolist()]

    return Neighbourhood(
        nodes=[Node(node, int(data.y[node])) for node in place],
        kept=among(~lost),
        dropped=among(lost),
        added=[(0, place[node]) for node in new],
    )
