"""What the package does, in a minute: ``compare`` on three targets, and a graph before and after.

graphglow demo

All methods have the same labels. A GCN trains on half of them and validates on the rest; all others
have all of them at work.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.audit import audit
from graphglow.compare import Comparison, side_by_side
from graphglow.errors import InputWarning
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.datasets import add_edges
from graphglow.graph.graph import undirected_edges
from graphglow.graph.load import describe
from graphglow.lab import Progress, no_progress
from graphglow.lab.open_suite import few_labels
from graphglow.lab.row_files import provenance
from graphglow.refine import refine
from graphglow.settings import Device

OTHERS = ("gcn", "bag-gcn", "logistic")
"""What has nothing of ours."""
DEMO_METHODS = (*OTHERS, "untrained", "predict")


class DemoTarget(NamedTuple):
    """A graph, how many labels it has, and what is wrong with it."""

    name: str
    graph: str
    labels_per_class: int
    """For training, and as many for validation."""
    false_edges: float = 0.0
    """Random edges that are added, for each edge that it has."""

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
    """Everything that the tables and the page show."""

    comparisons: dict[str, Comparison]
    """By target."""
    versions: dict[str, Any]
    refined: Refined
    seconds: float


def run_demo(
    targets: Sequence[DemoTarget] = TARGETS,
    *,
    seeds: int = 3,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress = no_progress,
) -> DemoResult:
    """Compare the methods on each target, and refine the graph of the second one."""
    began, comparisons = time.perf_counter(), {}
    for target in targets:
        splits = [target.draw(seed + number) for number in range(seeds)]
        table = DATASETS[target.graph].kind == "table"  # which has no edges
        methods = [name for name in DEMO_METHODS if not (table and "gcn" in name)]
        comparisons[target.name] = side_by_side(
            splits, f"{target.what}; {seeds} seeds", methods, seed=seed, device=device,
            progress=progress,
        )  # fmt: skip
    second = targets[1]
    own_edges = load_graph(second.graph).edge_index
    refined = before_and_after(second.draw(seed), second.name, own_edges, device)
    origin = provenance()
    machine = origin["machine"]
    where = f"{machine['gpu'] or machine['cpu']}, {machine['cores']} CPU cores"
    versions = {**origin["versions"], "commit": origin["commit"], "machine": where}
    return DemoResult(comparisons, versions, refined, time.perf_counter() - began)


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
