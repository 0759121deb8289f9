"""``graphglow.audit``: which edges of a graph look wrong, which are missing, which labels doubtful.

The auditor is frozen and its evidence is computed in closed form: nothing is trained on the graph.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.auditing import Auditor, FalseShare, Findings
from graphglow.checks import at_least, in_unit_interval, true_or_false
from graphglow.device import SMALLER, out_of_memory_hint
from graphglow.errors import InputError
from graphglow.evidence import RefinedGraph
from graphglow.evidence.order import by_content, reordered
from graphglow.evidence.refined import refine_graph
from graphglow.explain import Explanation, explain_edge, surroundings
from graphglow.graph import as_graph
from graphglow.graph.check import MADE, edges_were_made
from graphglow.graph.graph import Graph, known_graph
from graphglow.graph.write import class_names, node_place, own_ids
from graphglow.linalg.pairs import is_edge
from graphglow.parallel import where_to_compute
from graphglow.pretrained import FOLDER, evidence_learner

AUDIT = "audit"
SHIPPED = FOLDER / f"{AUDIT}.safetensors"
"""Pre-trained on open and random graphs, none of them among the paper's."""
FEWEST = 10
"""Edges below which nothing can be said."""
MOST_EXPLAINED = 10_000
"""Suspects that the table says the evidence against of: the most doubtful."""
MOST_REFINED = 50_000
"""Nodes up to which ``probability_same_class`` is computed."""
SPEAKS = 0.25
"""Log-odds from which evidence counts as speaking for or against an edge."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What the auditor found in one graph; tables are made when they are asked for."""

    data: Data
    graph: Graph
    auditor: Auditor
    findings: Findings
    top: int | None
    seed: int

    def __repr__(self) -> str:
        return f"Audit({self.verdict})"

    @property
    def false_share(self) -> FalseShare:
        """Estimated share of false edges: ``estimate``, and ``low`` and ``high`` of 90 %."""
        return self.findings.false_share

    @property
    def probability_real(self) -> Tensor:
        """Of each edge of :attr:`edges`: [M]."""
        return self.findings.edge_log_odds.sigmoid()

    @property
    def edges(self) -> Tensor:
        """Each edge once, as node numbers low < high, sorted: [2, M]."""
        return self.findings.edges

    @property
    def verdict(self) -> str:
        """The audit in one sentence."""
        share, count = self.false_share, self.edges.shape[1]
        doubtful = int((self.probability_real < 0.5).sum())
        likely = int((self.findings.pair_log_odds > 0).sum())
        low, about, high = (f"{100 * p:.0f} %" for p in (share.low, share.estimate, share.high))
        perhaps = ", so perhaps none" if share.low == 0 else ""
        named = f"More likely false than real: {doubtful:,}"
        if doubtful == 0:
            named = "None can be named: each is more likely real than false"
        made = " These edges join nearest neighbours; they were made, not given."
        return (
            f"About {about} of {count:,} edges look false ({low} to {high}{perhaps}). {named}. "
            f"Pairs that look like missing edges: {likely:,}."
            f"{made if edges_were_made(self.data) else ''}"
        )

    @cached_property
    def suspects(self) -> Any:
        """Every edge once, the most doubtful first, as a DataFrame.

        Columns: ``source``, ``target`` (your ids, in the direction that the graph lists first),
        ``weight`` where the graph has weights, ``probability_real``, ``probability_same_class``
        (where there are labels) and ``against``: the kinds of evidence that spoke against the
        edge, the strongest first.
        """
        import pandas as pd

        order = self.findings.edge_log_odds.argsort()
        pairs = self.findings.edges[:, order]
        source, target = self._as_listed(pairs)
        columns: dict[str, Any] = {"source": self._ids(source), "target": self._ids(target)}
        if self.graph.weight is not None:
            columns["weight"] = self.graph.weight[order].cpu().numpy()
        columns["probability_real"] = self.probability_real[order].cpu().numpy()
        columns["probability_same_class"] = self._same_class(pairs)
        columns["against"] = self._against(pairs)
        return pd.DataFrame(columns)

    @cached_property
    def missing(self) -> Any:
        """Pairs without an edge that look like edges, the best first, as a DataFrame.

        Columns: ``source``, ``target``, ``probability_real`` and ``probability_same_class``; as
        many as there are edges, or ``top``.
        """
        import pandas as pd

        pairs, chance = self._listed
        columns = {"source": self._ids(pairs[0]), "target": self._ids(pairs[1])}
        columns |= {"probability_real": chance.cpu().numpy()}
        return pd.DataFrame(columns | {"probability_same_class": self._same_class(pairs)})

    @property
    def _listed(self) -> tuple[Tensor, Tensor]:
        """Pairs of :attr:`missing` and how likely each is an edge: [2, K], [K]."""
        most = self.findings.edges.shape[1] if self.top is None else self.top
        order = self.findings.pair_log_odds.argsort(descending=True)[:most]
        return self.findings.pairs[:, order], self.findings.pair_log_odds[order].sigmoid()

    @cached_property
    def labels(self) -> Any:
        """Labelled nodes, the most doubtful label first, by cleanlab on predictions that a node's
        own label has no part in, as a DataFrame: ``id``, ``label``, ``suggested``, ``quality``
        (0 to 1) and ``doubtful``. Only labels in ``train_mask`` are looked at.
        """
        import pandas as pd

        refined, graph = self.refined, self.graph
        if refined is None or refined.probabilities is None:
            raise InputError(
                "labels of at least two classes must be there to be audited, on at most "
                f"{MOST_REFINED:,} nodes; got {len(graph.seen)} classes on {graph.num_nodes:,}"
            )
        try:
            from cleanlab.filter import find_label_issues
            from cleanlab.rank import get_label_quality_scores
        except ImportError as error:
            raise InputError(
                "audit.labels needs cleanlab; got a Python without it "
                '(pip install "graphglow[audit]")'
            ) from error
        given = graph.classes.cpu().numpy()
        labelled = self._rank[graph.labelled]
        chances = refined.probabilities[labelled][:, graph.seen].double().cpu().numpy()
        chances = chances / chances.sum(1, keepdims=True)
        quality = get_label_quality_scores(given, chances)
        doubtful = find_label_issues(given, chances, n_jobs=1)
        names = np.array(class_names(self.data, graph.num_classes))[graph.seen.cpu().numpy()]
        frame = pd.DataFrame(
            {
                "id": self._ids(graph.labelled),
                "label": names[given],
                "suggested": names[chances.argmax(1)],
                "quality": quality,
                "doubtful": doubtful,
            }
        )
        return frame.sort_values("quality", kind="stable", ignore_index=True)

    @cached_property
    def refined(self) -> RefinedGraph | None:
        """What the evidence learner says of classes; None without labels, or on large graphs.

        Its node i is ``findings.order[i]``.
        """
        if len(self.graph.seen) < 2 or self.graph.num_nodes > MOST_REFINED:
            return None
        learner = evidence_learner().to(self.graph.device)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(self.seed)
            listed = self._rank[self._listed[0]].sort(0).values
            return refine_graph(learner, self.findings.inputs.graph, generator, also=listed)

    @cached_property
    def _rank(self) -> Tensor:
        return self.findings.order.argsort().to(self.graph.device)

    def repaired(self, drop: float = 0.2, add: float = 0.8) -> Data:
        """The graph without edges below ``drop``, and with pairs above ``add`` as new edges.

        ``drop=0`` keeps all edges and ``add=1`` adds none. An edge that is listed in both
        directions loses both; new ones are listed in both, with the mean weight where the graph
        has weights. Self-loops, nodes and everything else stay as they are.
        """
        in_unit_interval("drop", drop)
        in_unit_interval("add", add)
        nodes = self.graph.num_nodes
        gone = self.edges[:, self.probability_real < drop].cpu()
        new = self.findings.pairs[:, self.findings.pair_log_odds.sigmoid() > add].cpu()
        data = self.data
        index = data.edge_index
        key = index.amin(0) * nodes + index.amax(0)
        kept = ~torch.isin(key, gone[0] * nodes + gone[1])
        repaired = data.edge_subgraph(kept)
        for name in MADE:  # no longer of nearest neighbours alone
            repaired.pop(name, None)
        if repaired.num_nodes != nodes:
            repaired.num_nodes = nodes
        if new.shape[1] == 0:
            return repaired
        ours = ("edge_index", "edge_weight")
        if others := [name for name in data.edge_attrs() if name not in ours]:
            raise InputError(
                f"new edges need add=1 where edges have attributes of their own; got {others}"
            )
        repaired.edge_index = torch.cat([repaired.edge_index, new, new.flip(0)], 1)
        weight = repaired.get("edge_weight")
        if weight is not None:
            mean = data.edge_weight.double().mean().to(weight)
            filled = mean.expand(2 * new.shape[1], *weight.shape[1:])
            repaired.edge_weight = torch.cat([weight, filled])
        return repaired

    def explain(self, source: Any, target: Any) -> Explanation:
        """Say what speaks for and against an edge between two nodes, called by your own ids."""
        return self.explained([(self.node(source), self.node(target))])[0]

    def explained(self, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """:meth:`explain` of several pairs, as node numbers."""
        if not pairs:
            return []
        graph, ids = self.graph, own_ids(self.data, self.graph.num_nodes)
        both = torch.tensor(pairs, device=graph.device).T
        both = torch.stack([both.amin(0), both.amax(0)])
        if bool((both[0] == both[1]).any()):
            raise InputError("a pair must be two different nodes; got one twice")
        joined = is_edge(graph.links, both)
        found = {}
        for missing in (False, True):
            here = (joined != missing).nonzero()[:, 0]
            shares = self.auditor.explain(self.findings, both[:, here], missing=missing)
            for k, i in enumerate(here.tolist()):
                found[i] = {name: float(values[k]) for name, values in shares.items()}
        return [
            explain_edge((ids[u], ids[v]), found[i], *surroundings(graph.links, ids, (u, v)))
            for i, (u, v) in enumerate(pairs)
        ]

    def node(self, name: Any) -> int:
        """The number of a node by its own id."""
        return node_place(self.data, self.graph.num_nodes, name)

    def _ids(self, nodes: Tensor) -> Any:
        ids = np.asarray(own_ids(self.data, self.graph.num_nodes))
        return ids[nodes.cpu().numpy()]

    def _as_listed(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of pairs in the direction that the graph lists, low to high where it has both."""
        index, nodes = self.data.edge_index, self.graph.num_nodes
        listed = (index[0] * nodes + index[1]).to(pairs.device)
        turned = ~torch.isin(pairs[0] * nodes + pairs[1], listed)
        return torch.where(turned, pairs[1], pairs[0]), torch.where(turned, pairs[0], pairs[1])

    def _same_class(self, pairs: Tensor) -> Any:
        """Whether both ends are of one class; NaN without labels, or on large graphs: [K]."""
        found = np.full(pairs.shape[1], np.nan, dtype=np.float32)
        refined = self.refined
        if refined is None:
            return found
        nodes = self.graph.num_nodes
        key = refined.pairs.amin(0) * nodes + refined.pairs.amax(0)
        key, order = key.sort()
        pairs = self._rank[pairs]
        wanted = pairs.amin(0) * nodes + pairs.amax(0)
        place = torch.searchsorted(key, wanted).clamp_max(len(key) - 1)
        hit = (key[place] == wanted).cpu().numpy()
        found[hit] = refined.pair_probability[order][place].cpu().numpy()[hit]
        return found

    def _against(self, pairs: Tensor) -> list[str]:
        """The kinds of evidence against each of the most doubtful pairs; blank for the others."""
        some = pairs[:, :MOST_EXPLAINED]
        shares = self.auditor.explain(self.findings, some, missing=False)
        names = [name for name in shares if name != "this graph"]
        values = torch.stack([shares[name] for name in names], 1).cpu()
        words = []
        for row in values.tolist():
            spoke = sorted((v, n) for v, n in zip(row, names, strict=True) if v < -SPEAKS)
            words.append(", ".join(n for _, n in spoke))
        return words + [""] * (pairs.shape[1] - len(words))


def audit(
    data: Any,
    auditor: Auditor | str | Path = AUDIT,
    *,
    missing: bool = True,
    top: int | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    workers: int | None = None,
    ray: str | None = None,
) -> Audit:
    """Say which edges of a graph look false and which are missing; nothing is trained.

    Edges are taken as undirected, a pair in both directions once; weights and edge attributes are
    no evidence. Self-loops are passed over. Labels are not needed; those in ``train_mask`` are
    evidence too (without a mask, all).

    Args:
        data: A PyG ``Data`` (``x`` and ``y`` may be absent), or anything that
            :func:`graphglow.load_graph` takes: a name, tables, a NetworkX graph.
        auditor: ``"audit"``, the one that comes with the package, a file, or the auditor itself.
        missing: Whether to look for missing edges too.
        top: How many missing pairs to list; as many as there are edges if None.
        seed: Of the randomised SVD and of the pairs that edges are compared with.
        device: Where to compute.
        workers: Ray workers that share the work; see :func:`graphglow.refine`.
        ray: ``"local"``, or the address of a Ray cluster.
    """
    if top is not None:
        at_least("top", top, 0)
    true_or_false("missing", missing)
    if not isinstance(data, Data):
        data = as_graph(data, need_labels=False, split=False)
    seed = at_least("seed", seed, 0)
    found = load_auditor(auditor)
    place, map_blocks = where_to_compute(device, workers, ray)
    graph = known_graph(data, place)
    edges, nodes = len(graph.low), graph.num_nodes
    if not FEWEST <= edges < 0.99 * nodes * (nodes - 1) / 2:
        raise InputError(
            f"a graph to audit must have at least {FEWEST} edges, self-loops not counted, and "
            f"pairs of nodes without one; got {edges} edges on {nodes} nodes"
        )
    order = by_content(graph)
    again = reordered(data, order)
    looked_at = graph if again is data else known_graph(again, place)
    found = copy.deepcopy(found).to(place)  # the caller's stays where it is
    with out_of_memory_hint(f"auditing {data.get('name', 'this graph')}", SMALLER):
        findings = found.examine(
            looked_at, order, seed=seed, missing=missing, map_blocks=map_blocks
        )
    return Audit(data, graph, found, findings, top, seed)


def load_auditor(auditor: Auditor | str | Path = AUDIT) -> Auditor:
    """Return the auditor that ``auditor`` is or names; ``"untrained"`` is the control."""
    if isinstance(auditor, Auditor):
        return auditor
    if not isinstance(auditor, str | Path):
        raise InputError(
            f"auditor must be an Auditor, a name or a file; got {type(auditor).__name__}"
        )
    if auditor == "untrained":
        return Auditor().frozen()
    path = SHIPPED if auditor == AUDIT else Path(auditor).expanduser()
    if not path.exists():
        raise InputError(
            f"auditor must be {AUDIT}, untrained or an existing file; got {str(auditor)!r}"
        )
    return Auditor.load(path)
