"""Why two nodes belong together or not: what each kind of evidence says about the pair.

The learner's log-odds that two nodes are of one class is a sum over named kinds of evidence
(:data:`~evidence.pair_features.GROUPS`), over what the graph as a whole says, and over chance::

    log_odds = logit(chance) + this graph + labelled pairs + own features + features around + ...

From no evidence at all the kinds are brought in one by one, in an order and in its reverse; a
kind's share is the mean of the two changes that it made. The sum is exact.

:func:`graphglow.report.write_pair_explanation` makes a page of the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.order import reordered
from graphglow.evidence.pair_features import logit
from graphglow.evidence.refined import RefinedGraph, explain_pairs
from graphglow.graph import as_graph
from graphglow.graph.write import class_names, own_ids, write_table
from graphglow.inference.own_names import node_places
from graphglow.linalg.sparse import SparseMatrix
from graphglow.predict import content_order
from graphglow.pretrained import UNIVERSAL, LearnerName, evidence_learner
from graphglow.refine import chosen
from graphglow.training.device import resolve_device
from graphglow.training.evidence import EvidenceResult, known_to_learner
from graphglow.training.result import TransferResult

Outcome = Literal["kept", "dropped", "added", "absent"]
OUTCOMES: dict[Outcome, str] = {
    "kept": "The input graph joins them, and the refined graph keeps the edge.",
    "dropped": "The input graph joins them; the refined graph drops the edge.",
    "added": "The input graph does not join them; the refined graph adds an edge.",
    "absent": "Neither the input graph nor the refined graph joins them.",
}
GENERAL = ("this graph", "labelled pairs", "chance")
"""Contributions that are the same for all pairs of a graph."""
MEANINGS = {
    "own features": "how alike the features of the two are, and what sets each apart from others",
    "features around": "how alike the features around the two are, one and two steps away",
    "neighbours in common": "which neighbours they share, and how rare those are",
    "classes by features": "whether their features give them the same class",
    "classes by surroundings": "whether what surrounds them gives them the same class",
    "classes by neighbours": "whether their lists of neighbours give them the same class",
    "classes by all": "whether all of these together give them the same class",
    "edge in the input": "whether your graph joins them",
    "degrees": "how many neighbours each has",
    "this graph": "what is known of this graph as a whole: how far each kind of evidence held "
    "among its training labels",
    "labelled pairs": "a correction, so that pairs of known classes come out right on average",
    "chance": "two random nodes of this graph",
}
"""What each contribution is about."""
SPEAKS = 0.05  # log-odds from which evidence is named in words
NAMED = 3  # kinds of evidence named for, and against
DRAWN = 6  # neighbours of each sort in the picture


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Some of the input graph around a pair, in the user's ids, for a drawing."""

    common: list[int | str]
    """Neighbours of both."""
    of_u: list[int | str]
    of_v: list[int | str]
    edges: list[tuple[int | str, int | str]]
    """Among the neighbours that are listed."""
    left_out: int
    """Neighbours that are not listed."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PairExplanation:
    """Why two nodes are, or are not, taken to be of one class.

    ``log_odds``, which is ``logit(probability)``, is the sum of ``contributions``, up to rounding.
    """

    u: int | str
    """The one node's own id; its index where there is none."""
    v: int | str
    target: str
    """The graph's name."""
    probability: float
    """That both are of one class."""
    log_odds: float
    chance: float
    """The same for two random nodes of this graph."""
    outcome: Outcome
    """What became of the edge between them."""
    input_edge: bool
    candidate: bool
    """Whether the pair is among those that the refined graph is made of; others are never added."""
    predicted: tuple[str, str] | None
    """The predicted classes of the two; None without labels."""
    contributions: dict[str, float]
    """What each kind of evidence adds to the log-odds, the most favourable first."""
    surroundings: Surroundings

    def to_frame(self) -> Any:
        """A pandas DataFrame, the most favourable first: ``evidence``, ``contribution``, and what
        it is ``about``.
        """
        import pandas as pd

        rows = [(name, part, MEANINGS.get(name, "")) for name, part in self.contributions.items()]
        return pd.DataFrame(rows, columns=["evidence", "contribution", "about"])

    def plot(self) -> Any:
        """A bar for each kind of evidence, as a Plotly figure (the extra ``report``)."""
        from graphglow.report.explanation import evidence_chart
        from graphglow.report.page import plotly_figure

        return plotly_figure(evidence_chart(self))

    def write(self, path: str | Path) -> None:
        """Write the table, ``.csv`` or ``.parquet``; an existing file is replaced."""
        write_table(self.to_frame(), path, "an explanation")

    def __repr__(self) -> str:
        return f"PairExplanation({self.summary()})"

    def text(self) -> str:
        """All of it in lines for people, as the command line prints it."""
        table = self.to_frame()[["evidence", "contribution"]]
        shown = table.to_string(index=False, float_format="{:+.3f}".format)
        return f"{self.summary()}\n{shown}\nlog-odds: {self.log_odds:+.3f}, the sum of these"

    def summary(self) -> str:
        """The answer in a paragraph of plain words."""
        likely = f"{self.u} and {self.v} are {_percent(self.probability)} likely to be of one class"
        said = [f"{likely}; two random nodes of {self.target} are {_percent(self.chance)}."]
        said.append(OUTCOMES[self.outcome])
        if self.outcome in ("absent", "dropped") and self.probability > self.chance:
            said.append("They are more alike than chance, but others are nearer to each.")
        if self.predicted is not None:
            one, other = self.predicted
            both = f"Both are predicted to be {one}"
            said.append(f"{both if one == other else f'They are predicted {one} and {other}'}.")
        spoke = [_named(self.contributions, sign) for sign in (1, -1)]
        said.append(
            f"Most speaks for it: {spoke[0] or 'nothing'}; against: {spoke[1] or 'nothing'}."
        )
        return " ".join(said)


def explain_pair(
    data: Any,
    u: int | str,
    v: int | str,
    learner: LearnerName = UNIVERSAL,
    *,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> PairExplanation:
    """Say which evidence speaks for and against two nodes being of one class; nothing is trained.

    Any two nodes will do, joined or not. Labels outside of the training nodes are never read.

    Args:
        data: The graph, as for :func:`graphglow.refine`.
        u: The one node's own id; its index where the graph has no ids.
        v: The other's.
        learner: An evidence learner: ``"universal"``, ``"untrained"`` as a control, a file, or the
            learner itself.
        seed: As for :func:`graphglow.refine`.
        device: Where to compute.
    """
    found = evidence_learner(learner, seed=seed)
    data = as_graph(data, need_labels=False)
    ids = own_ids(data, int(data.num_nodes or 0))
    wanted = torch.tensor(_pair(data, len(ids), u, v))
    order = content_order(data)
    data, ids = reordered(data, order), [ids[i] for i in order.tolist()]
    first, second = order.argsort()[wanted].tolist()
    pair, where = (first, second), resolve_device(device)
    refined = found.refine(data, seed=seed, device=where, also=torch.tensor(pair)[:, None])
    edges = chosen(refined, None, 0.0, add=True, drop=True).edge_index
    return _explanation(found, refined, edges, data, ids, pair, refined.probabilities)


def explain_result_pair(result: TransferResult, u: int | str, v: int | str) -> PairExplanation:
    """See :meth:`TransferResult.explain_pair`."""
    if not isinstance(result, EvidenceResult):
        raise InputError(
            "explaining a pair needs a transfer under an evidence learner; got one under the "
            "paper's, which compares embeddings and has no evidence to name"
        )
    ids = own_ids(result.data, result.graph.num_nodes)
    pair = _pair(result.data, len(ids), u, v)
    refined = result.refined
    if _place(refined, *pair) is None:  # no candidate
        refined = result.refined_with(torch.tensor(pair)[:, None])
    data = known_to_learner(result.data)
    data.name = result.graph.name
    edges, scores = result.edge_index, result.logits
    return _explanation(result.learner, refined, edges, data, ids, pair, scores)


def edge_reasons(result: TransferResult, node: int, others: list[int]) -> dict[int, dict[str, Any]]:
    """Of those of ``others`` that a refined edge joins to ``node``: why, by their number.

    Each is what :class:`~graphglow.inference.explain.Contribution` says of an edge.
    """
    if not isinstance(result, EvidenceResult):
        return {}
    mine = (result.edge_index[0] == node).cpu()
    ends, odds = result.edge_index[1].cpu()[mine], result.edge_probability.cpu()[mine]
    joined = {end: p for end, p in zip(ends.tolist(), odds.tolist(), strict=True) if end in others}
    if not joined:
        return {}
    refined = result.refined
    places = {end: _place(refined, node, end) for end in joined}
    which = {end: place for end, place in places.items() if place is not None}
    where = torch.tensor(list(which.values()), dtype=torch.int64, device=refined.pairs.device)
    shares = {
        name: part.tolist() for name, part in explain_pairs(result.learner, refined, where).items()
    }
    reasons: dict[int, dict[str, Any]] = {n: {"probability": p} for n, p in joined.items()}
    for row, end in enumerate(which):
        spoke = {name: part[row] for name, part in shares.items()}
        reasons[end]["evidence_for"] = _named(spoke, 1, 1)
        reasons[end]["evidence_against"] = _named(spoke, -1, 1)
    return reasons


def _pair(data: Data, count: int, u: int | str, v: int | str) -> tuple[int, int]:
    one, other = node_places(data, count, (u, v)).tolist()
    if one == other:
        raise InputError(f"a pair must be two different nodes; got {u!r} twice")
    return one, other


def _place(refined: RefinedGraph, u: int, v: int) -> int | None:
    """Where a pair stands among those that were looked at."""
    low, high = min(u, v), max(u, v)
    found = ((refined.pairs[0] == low) & (refined.pairs[1] == high)).nonzero()
    return int(found[0]) if len(found) else None


def _explanation(
    learner: EvidenceLearner,
    refined: RefinedGraph,
    edge_index: Tensor,
    data: Data,
    ids: list[int | str],
    pair: tuple[int, int],
    scores: Tensor | None,
) -> PairExplanation:
    """Of a pair that was looked at.

    Shapes:
        edge_index [2, E] the edges that were made; scores [N, C] of classes, if there are labels
    """
    predicted = None
    if scores is not None:
        names = class_names(data, scores.shape[1])
        one, other = scores[list(pair)].argmax(1).tolist()
        predicted = names[one], names[other]
    place = _place(refined, *pair)
    assert place is not None  # it was asked for
    which = torch.tensor([place], device=refined.pairs.device)
    parts = {name: float(part) for name, part in explain_pairs(learner, refined, which).items()}
    around, joined = surroundings(refined.problem.links, ids, pair)
    there = bool(((edge_index[0] == pair[0]) & (edge_index[1] == pair[1])).any())
    outcome: Outcome = "added" if there else "absent"
    if joined:
        outcome = "kept" if there else "dropped"
    return PairExplanation(
        u=ids[pair[0]],
        v=ids[pair[1]],
        target=str(data.get("name") or "the graph"),
        probability=float(refined.pair_probability[place]),
        log_odds=float(refined.pair_log_odds[place]) + logit(refined.chance),
        chance=refined.chance,
        outcome=outcome,
        input_edge=joined,
        candidate=place < refined.num_candidates,
        predicted=predicted,
        contributions=dict(sorted(parts.items(), key=lambda one: -one[1])),
        surroundings=around,
    )


def surroundings(
    links: SparseMatrix, ids: list[int | str], pair: tuple[int, int]
) -> tuple[Surroundings, bool]:
    """The graph around a pair, of its pattern [N, N], and whether it joins the two."""

    def near(node: int) -> set[int]:
        return set(links.col[int(links.crow[node]) : int(links.crow[node + 1])].tolist())

    one, other = (near(node) - set(pair) for node in pair)
    parts = [sorted(part)[:DRAWN] for part in (one & other, one - other, other - one)]
    drawn = {node for part in parts for node in part}
    named = [[ids[node] for node in part] for part in parts]
    around = Surroundings(
        common=named[0],
        of_u=named[1],
        of_v=named[2],
        edges=[(ids[a], ids[b]) for a in sorted(drawn) for b in near(a) & drawn if a < b],
        left_out=len(one | other) - len(drawn),
    )
    return around, pair[1] in near(pair[0])


def _named(contributions: Mapping[str, float], sign: int, most: int = NAMED) -> str:
    """The evidence that speaks most for (1) or against (-1), in words."""
    spoke = {n: c for n, c in contributions.items() if n not in GENERAL and sign * c >= SPEAKS}
    strongest = sorted(spoke.items(), key=lambda one: -abs(one[1]))[:most]
    return ", ".join(f"{name} ({value:+.1f})" for name, value in strongest)


def _percent(probability: float) -> str:
    """In whole percent, and never all or nothing."""
    if 0.005 <= probability < 0.995:
        return f"{probability:.0%}"
    return "over 99%" if probability > 0.5 else "under 1%"
