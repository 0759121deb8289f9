"""``graphglow.audit``: edges that look wrong, pairs that look like missing edges, doubtful labels.

The auditor is frozen and its evidence is computed in closed form: nothing is trained on the graph.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.auditing import GROUPS, Auditor, FalseShare, Findings
from graphglow.device import SMALLER, out_of_memory_hint, where_to_compute
from graphglow.errors import InputError, at_least, number
from graphglow.evidence import RefinedGraph
from graphglow.evidence.order import by_content, reordered
from graphglow.evidence.refined import with_pairs
from graphglow.explain import (
    Explanation,
    by_evidence,
    pair_places,
    percent,
    pro_and_con,
    surroundings,
)
from graphglow.graph.check import MADE, edges_were_made
from graphglow.graph.graph import Graph, known_graph
from graphglow.graph.load import as_given
from graphglow.graph.write import class_names, own_ids
from graphglow.predict import run_frozen
from graphglow.pretrained import FOLDER, evidence_learner

AUDIT = "audit"
"""Pre-trained on open and random graphs, none of them among the paper's."""
FEWEST = 10  # edges below which nothing can be said
MOST_EXPLAINED = 10_000  # suspects, the most doubtful ones, whose evidence is listed
MOST_REFINED = 50_000
"""Nodes up to which ``probability_same_class`` is computed."""
SAME_NAME = 0.5  # cosine of two names from which they may mean one thing
SPEAKS = 0.25  # log-odds from which evidence counts as speaking against an edge
MEANINGS = {
    "own features": "how alike the features of the two are, and how often edges join such features",
    "features around": "how alike the features of their neighbours are, one and two steps away",
    "neighbours in common": "how many neighbours they share, and how rare those are",
    "longer paths": "whether paths of three and more steps tie the two together",
    "degrees": "how many neighbours each has",
    "classes": "how often edges join the classes that labels and features give the two",
    "this graph": "where every edge starts: how well evidence tells edges from other pairs here",
}
"""What each kind of evidence about an edge means, in the order of ``GROUPS``."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What the auditor found in one graph; tables are made on demand."""

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
        """Estimated share of false edges, with a 90 % interval: ``estimate``, ``low``, ``high``."""
        return self.findings.false_share

    @property
    def edges(self) -> Tensor:
        """Each edge once, as node numbers low < high, sorted: [2, M]."""
        return self.findings.edges

    @property
    def probability_real(self) -> Tensor:
        """The probability that each edge of :attr:`edges` is real: [M]."""
        return self.findings.edge_log_odds.sigmoid()

    @property
    def verdict(self) -> str:
        """The audit in a few words: the doubtful edges, missing pairs, the share of false edges."""
        count, doubtful = self.edges.shape[1], int((self.probability_real < 0.5).sum())
        likely = int((self.findings.pair_log_odds > 0).sum())
        low, high = round(100 * self.false_share.low), round(100 * self.false_share.high)
        share = f"The share of false edges cannot be told here: it may be {low} to {high} %."
        if self.false_share.is_known:
            share = f"About {self.false_share} of all edges look false."
        pairs = f"Pairs that look like missing edges: {likely:,}. "
        made = " These edges join nearest neighbours; they were made, not given."
        return (
            f"Edges that are more likely false than real: {doubtful:,} of {count:,}. "
            f"{pairs if len(self.findings.pair_log_odds) else ''}{share}"
            f"{made if edges_were_made(self.data) else ''}"
        )

    @cached_property
    def suspects(self) -> pd.DataFrame:
        """Every edge once, the most doubtful first.

        Columns: ``source``, ``target`` (your ids, in the direction that the graph lists first),
        ``weight`` where the graph has weights, ``probability_real``, ``probability_same_class``
        (where there are labels) and ``against``: the kinds of evidence against the edge, the
        strongest first; blank below the most doubtful ones.
        """
        order = self.findings.edge_log_odds.argsort()
        pairs = self.edges[:, order]
        listed = self._keys(self.data.edge_index).to(pairs.device)
        turned = ~torch.isin(self._keys(pairs), listed)  # listed from high to low alone
        ends = torch.where(turned, pairs.flip(0), pairs)
        frame = self._frame(ends, self.probability_real[order])
        if self.graph.weight is not None:
            frame.insert(2, "weight", self.graph.weight[order].cpu().numpy())
        words = [""] * len(frame)
        shares = self.auditor.explain(self.findings, pairs[:, :MOST_EXPLAINED])
        for place, row in enumerate(shares[:, :-1].tolist()):  # the last is the same for all
            against = sorted((v, n) for v, n in zip(row, GROUPS, strict=True) if v < -SPEAKS)
            words[place] = ", ".join(name for _, name in against)
        return frame.assign(against=words)

    @cached_property
    def missing(self) -> pd.DataFrame:
        """Pairs without an edge that look like edges, the best first.

        Columns: ``source``, ``target``, ``probability_real`` and ``probability_same_class``; as
        many as there are edges, or ``top``.
        """
        best = self._best_missing
        chance = self.findings.pair_log_odds[best].sigmoid()
        return self._frame(self.findings.pairs[:, best], chance)

    @property
    def _best_missing(self) -> Tensor:
        """Places of the pairs of :attr:`missing`: [K]."""
        most = self.edges.shape[1] if self.top is None else self.top
        return self.findings.pair_log_odds.argsort(descending=True)[:most]

    @cached_property
    def labels(self) -> pd.DataFrame:
        """Labels in ``train_mask``, the most doubtful first, by cleanlab on leave-one-out classes.

        Columns: ``id``, ``label``, ``suggested``, ``quality`` (0 to 1) and ``doubtful``.
        """
        graph = self.graph
        if self._refined is None:
            raise InputError(
                "labels of at least two classes must be there to be audited, on at most "
                f"{MOST_REFINED:,} nodes; got {len(graph.seen)} classes on {graph.num_nodes:,}"
            )
        try:
            from cleanlab.filter import find_label_issues
            from cleanlab.rank import get_label_quality_scores
        except ImportError as error:
            raise InputError(
                'audit.labels needs cleanlab: pip install "graphglow[audit]"'
            ) from error
        refined, rank = self._refined
        assert refined.probabilities is not None
        given = graph.classes.cpu().numpy()
        chances = refined.probabilities[rank[graph.labelled]][:, graph.seen].double().cpu().numpy()
        chances = chances / chances.sum(1, keepdims=True)
        names = np.array(class_names(self.data, graph.num_classes))[graph.seen.cpu().numpy()]
        columns = {
            "id": self._ids(graph.labelled),
            "label": names[given],
            "suggested": names[chances.argmax(1)],
            "quality": get_label_quality_scores(given, chances),
            "doubtful": find_label_issues(given, chances, n_jobs=1),
        }
        return pd.DataFrame(columns).sort_values("quality", kind="stable", ignore_index=True)

    @cached_property
    def duplicates(self) -> pd.DataFrame:
        """Pairs of nodes that may be one thing under two names, the most alike first.

        Columns: ``first``, ``second``, ``name_similarity``, the cosine of the letters of their ids,
        two and three at a time, and ``feature_similarity``, of their features, 1 without any.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.neighbors import NearestNeighbors

        ids = self._ids(torch.arange(self.graph.num_nodes))
        if ids.dtype.kind not in "OU" or len(ids) > MOST_REFINED:
            raise InputError(
                "Duplicates are found by the names of nodes, so that ids must be text, of at most "
                f"{MOST_REFINED:,} nodes."
            )
        letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3)).fit_transform(ids)
        near = NearestNeighbors(metric="cosine").fit(letters).kneighbors(return_distance=False)
        pairs = torch.stack([torch.arange(len(near)).repeat_interleave(near.shape[1]),
                             torch.from_numpy(near).flatten()])  # fmt: skip
        low, high = torch.unique(pairs.sort(0).values, dim=1)
        names = np.asarray(letters[low.numpy()].multiply(letters[high.numpy()]).sum(1)).ravel()
        x = self.data.get("x")
        x = torch.ones(len(ids), 1) if x is None else x.cpu().to_dense().float()
        columns = {
            "first": ids[low.numpy()],
            "second": ids[high.numpy()],
            "name_similarity": names,
            "feature_similarity": torch.cosine_similarity(x[low], x[high]).numpy(),
        }
        found = pd.DataFrame(columns)[names >= SAME_NAME]
        order = -found.name_similarity * (1 + found.feature_similarity)
        return found.loc[order.sort_values(kind="stable").index].reset_index(drop=True)

    @cached_property
    def _refined(self) -> tuple[RefinedGraph, Tensor] | None:
        """What :func:`graphglow.refine` computes, with the listed missing pairs; and which of its
        nodes each node is [N]. None without labels, or on large graphs.
        """
        if len(self.graph.seen) < 2 or self.graph.num_nodes > MOST_REFINED:
            return None
        device = self.graph.device
        refined, order = run_frozen(
            evidence_learner(), self.data, seed=self.seed, device=device.type
        )
        rank = order.argsort().to(device)
        with torch.no_grad():
            return with_pairs(refined, rank[self.findings.pairs[:, self._best_missing]]), rank

    def repaired(self, drop: float = 0.2, add: float = 0.8) -> Data:
        """The graph without edges below ``drop``, and with pairs above ``add`` as new edges.

        ``drop=0`` keeps all edges and ``add=1`` adds none. An edge that is listed in both
        directions loses both; new ones are listed in both, with the mean weight where the graph
        has weights. Self-loops, nodes and everything else stay.
        """
        number("drop", drop, 0, 1)
        number("add", add, 0, 1)
        data, nodes = self.data, self.graph.num_nodes
        dropped = self._keys(self.edges[:, self.probability_real < drop]).cpu()
        repaired = data.edge_subgraph(
            ~torch.isin(self._keys(data.edge_index.sort(0).values), dropped)
        )
        for name in MADE:  # no longer of nearest neighbours alone
            repaired.pop(name, None)
        if repaired.num_nodes != nodes:
            repaired.num_nodes = nodes
        new = self.findings.pairs[:, self.findings.pair_log_odds.sigmoid() > add].cpu()
        if new.shape[1] == 0:
            return repaired
        known = ("edge_index", "edge_weight")
        if others := [name for name in data.edge_attrs() if name not in known]:
            raise InputError(
                f"New edges would have no {', '.join(others)}. Add none (add=1), or remove these "
                "attributes."
            )
        repaired.edge_index = torch.cat([repaired.edge_index, new, new.flip(0)], 1)
        weight = repaired.get("edge_weight")
        if weight is not None:
            mean = data.edge_weight.double().mean().to(weight)
            filled = mean.expand(2 * new.shape[1], *weight.shape[1:])
            repaired.edge_weight = torch.cat([weight, filled])
        return repaired

    def write(self, path: str | Path) -> None:
        """Write a page with pictures of the worst suspects and the best missing pairs (.html)."""
        from graphglow.report.explanations import write_audit

        write_audit(self, Path(path))

    def explain(self, source: Any, target: Any) -> Explanation:
        """Say what speaks for and against an edge between two nodes, called by your own ids."""
        return self.explained([pair_places(self.data, source, target)])[0]

    def explained(self, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """:meth:`explain` several pairs of node numbers."""
        if not pairs:
            return []
        ids, found = own_ids(self.data, self.graph.num_nodes), []
        both = torch.tensor(pairs, device=self.graph.device).T.sort(0).values
        shares = pd.DataFrame(self.auditor.explain(self.findings, both).cpu(), columns=[*MEANINGS])
        for (u, v), parts in zip(pairs, shares.to_dict("records"), strict=True):
            around, joined = surroundings(self.graph.links, ids, (u, v))
            score = sum(parts.values())
            probability = float(torch.tensor(score).sigmoid())
            kind = "a real edge" if joined else "a missing edge"
            shown = {name: value for name, value in parts.items() if abs(value) > 1e-4}
            found.append(
                Explanation(
                    title=f"Whether {ids[u]} and {ids[v]} should be joined",
                    answer=f"{percent(probability)} likely to be {kind}. {pro_and_con(parts)}",
                    score=score,
                    probability=probability,
                    contributions=by_evidence(shown, MEANINGS),
                    facts={"u": ids[u], "v": ids[v], "input_edge": joined},
                    surroundings=around,
                )
            )
        return found

    def _ids(self, nodes: Tensor) -> Any:
        return np.asarray(own_ids(self.data, self.graph.num_nodes))[nodes.cpu().numpy()]

    def _keys(self, pairs: Tensor) -> Tensor:
        """One number per pair: [2, M] -> [M]."""
        return pairs[0] * self.graph.num_nodes + pairs[1]

    def _frame(self, pairs: Tensor, real: Tensor) -> pd.DataFrame:
        """Pairs by id, the probability that they are real, and that both ends are of one class.

        The latter is NaN where it is not computed.
        """
        columns = {"source": self._ids(pairs[0]), "target": self._ids(pairs[1])}
        frame = pd.DataFrame(columns | {"probability_real": real.cpu().numpy()})
        same: Any = np.full(len(frame), np.nan, dtype=np.float32)
        if self._refined is not None:
            refined, rank = self._refined
            known, wanted = (
                self._keys(p.sort(0).values).cpu().numpy() for p in (refined.pairs, rank[pairs])
            )
            same = pd.Series(refined.pair_probability.cpu().numpy(), known).reindex(wanted).values
        return frame.assign(probability_same_class=same)


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

    Edges count as undirected. Their weights and attributes are no evidence; self-loops are not
    judged. Labels are not needed; those in ``train_mask`` (without a mask, all) are evidence.

    Args:
        data: A PyG ``Data`` (``x`` and ``y`` may be absent), or anything that
            :func:`graphglow.load_graph` takes: a name, tables, a NetworkX graph.
        auditor: ``"audit"``, which comes with the package, ``"untrained"``, a file, or an Auditor.
        missing: Whether to look for missing edges too.
        top: How many missing pairs to list; None: as many as there are edges.
        seed: Seeds the randomised SVD and the pairs that edges are compared with.
        device: Where to compute.
        workers: Ray workers that share the work; see :func:`graphglow.refine`.
        ray: ``"local"``, or the address of a Ray cluster.
    """
    if top is not None:
        at_least("top", top, 0)
    if not isinstance(data, Data):
        data = as_given(data)
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
    ordered = reordered(data, order)
    sorted_graph = graph if ordered is data else known_graph(ordered, place)
    moved = copy.deepcopy(found).to(place)  # the caller's stays where it is
    with out_of_memory_hint(f"auditing {data.get('name', 'this graph')}", SMALLER):
        findings = moved.examine(
            sorted_graph, order, seed=seed, missing=missing, map_blocks=map_blocks
        )
    return Audit(data, graph, moved, findings, top, seed)


def load_auditor(auditor: Auditor | str | Path = AUDIT) -> Auditor:
    """Return the auditor that ``auditor`` is or names; ``"untrained"`` is the control."""
    if isinstance(auditor, Auditor):
        return auditor
    if auditor == "untrained":
        return Auditor().frozen()
    path = FOLDER / f"{AUDIT}.safetensors" if auditor == AUDIT else Path(auditor).expanduser()
    if not path.exists():
        raise InputError(
            f"auditor must be {AUDIT}, untrained, an existing file or an Auditor; got {auditor!r}"
        )
    return Auditor.load(path)
