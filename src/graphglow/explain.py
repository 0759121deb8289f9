"""Why a node got its class, and why two nodes are taken to be of one class.

Each answer is a score taken apart without approximation: the ``contributions`` of an
:class:`Explanation` add up to its ``score``.

- ``Prediction.explain(node)``: the log-odds of class c against the strongest other class d, a sum
  over channels k with weights w_k and class shares pi,
  ``sum_k w_k (log(P_k(c) / pi_c) - log(P_k(d) / pi_d)) + log(pi_c / pi_d)``.
- :func:`explain_pair`: a sum over kinds of evidence, brought in one by one, in an order and in its
  reverse; a kind's share is the mean of the two changes that it made to the log-odds.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch

from graphglow.errors import InputError
from graphglow.evidence.pair_features import MEANINGS, logit
from graphglow.evidence.predictor import CHANNEL_NAMES, CHANNELS, folds, vote_inputs
from graphglow.evidence.refined import RefinedGraph, with_pairs
from graphglow.graph.load import as_given
from graphglow.graph.write import class_names, node_place, node_places, own_ids, write_table
from graphglow.linalg.sparse import SparseMatrix
from graphglow.predict import run_frozen
from graphglow.pretrained import UNIVERSAL, LearnerName, evidence_learner
from graphglow.refine import choose_edges

if TYPE_CHECKING:  # which imports this
    from graphglow.predict import Prediction

LISTED = 20  # labelled nodes around a node
DRAWN = 6  # neighbours of each kind around a pair
NAMED, LEAST_NAMED = 3, 0.05  # kinds of evidence in words, for and against; their log-odds
OUTCOMES = {
    "kept": "the refined graph keeps their edge",
    "dropped": "the refined graph drops their edge",
    "added": "the refined graph adds an edge between them",
    "absent": "the refined graph has no edge between them either",
}
GENERAL = ("this graph", "labelled pairs", "chance", "log_share")
"""Contributions that are the same for all pairs, or nodes, of a graph."""


class Surroundings(NamedTuple):
    """The input graph around a pair, for a drawing: neighbours of both, of one, and their edges."""

    common: list[int | str]
    of_u: list[int | str]
    of_v: list[int | str]
    edges: list[tuple[int | str, int | str]]
    left_out: int
    """Number of neighbours that are not listed."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """A score (log-odds), and the contributions that add up to it.

    ``answer`` is a few sentences. Each row of ``contributions`` has the ``name`` of a channel or a
    kind of evidence, what it is ``about``, its ``contribution``, and maybe more; ``tables`` are
    further rows, by caption.
    """

    title: str
    answer: str
    score: float
    probability: float
    contributions: list[dict[str, Any]]
    facts: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    surroundings: Surroundings | None = None

    def __repr__(self) -> str:
        return f"Explanation({self.answer})"

    def to_dict(self) -> dict[str, Any]:
        """Return facts and contributions as JSON can hold them."""
        known = {"text": self.answer, "score": self.score, "probability": self.probability}
        return known | self.facts | {"contributions": self.contributions}

    def to_frame(self) -> pd.DataFrame:
        """Return name, meaning and value of each contribution, and further columns."""
        return pd.DataFrame(self.contributions)

    def text(self, rows: int = 12) -> str:
        """Return everything as text; of further tables the first ``rows`` rows."""
        frame = self.to_frame()[["name", "about", "contribution"]]
        lines = [self.answer, frame.to_string(index=False, float_format="{:+.3f}".format)]
        lines.append(f"score: {self.score:+.3f}, the sum of these")
        for caption, table in self.tables.items():
            head = pd.DataFrame(table[:rows])
            head = head.to_string(index=False, na_rep="-", float_format="{:.3f}".format)
            lines += [f"{caption}:", head] if table else []
        return "\n".join(lines)

    def write(self, path: str | Path) -> None:
        """Write a page that opens offline (``.html``) or the table (``.csv``, ``.parquet``)."""
        from graphglow.report import PAGES

        if Path(path).suffix.lower() in PAGES:
            from graphglow.report.explanations import write_explanation

            write_explanation(self, Path(path).expanduser())
        else:
            write_table(self.to_frame(), path, "an explanation that is no .html page")


@torch.no_grad()
def explain_prediction(
    prediction: "Prediction", node: Any, label: int | str | None = None
) -> Explanation:
    """Explain a class of a node; see :meth:`Prediction.explain`."""
    data, refined = prediction.data, prediction.refined
    known, count = refined.known, len(prediction.labelled)
    assert refined.update is not None
    assert refined.shares is not None
    graph, names = refined.graph, class_names(data, prediction.probabilities.shape[1])
    place = node_place(data, count, node)
    at = prediction.order.argsort()[place].to(graph.device)
    explained, seen = int(prediction.classes[place]), graph.seen.tolist()
    facts = {"id": own_ids(data, count)[place], "predicted": names[explained]}
    if label is not None:
        if isinstance(label, bool) or str(label) not in names:
            raise InputError(
                f"label must be one of the classes {', '.join(names[:10])}; got {label!r}"
            )
        explained = names.index(str(label))
    if explained not in seen:
        raise InputError(
            f"class {names[explained]} has no given label, so that nothing speaks for it. Explain "
            f"one of {', '.join(names[c] for c in seen[:10])}."
        )
    predictor = copy.deepcopy(prediction.learner.predictor).to(graph.device)
    odds, trust = vote_inputs(known, "predictor", at[None])
    weights = predictor.weights(trust, refined.update[folds(graph)[at]])[0].double()  # [V]
    log_shares = refined.shares.double().log()
    scores = odds[0].double() @ weights + log_shares  # [C]
    column = seen.index(explained)
    rival = int(scores.index_fill(0, torch.tensor(column).to(at), -torch.inf).argmax())
    over = odds[0, column].double() - odds[0, rival].double()  # [V]
    parts: list[dict[str, Any]] = []
    for k, name in enumerate(CHANNELS):
        p = known.channels[name].probabilities[at]
        part: dict[str, Any] = {"name": name, "about": CHANNEL_NAMES.get(name, name)}
        part |= {"contribution": float(over[k] * weights[k])}
        part |= {"says": names[seen[int(p.argmax())]], "probability": float(p[column])}
        parts.append(part | {"weight": float(weights[k]), "log_odds": float(over[k])})
    parts.sort(key=lambda part: -abs(part["contribution"]))
    share = {"name": "log_share", "about": "share of the class, over that of the other"}
    parts.append(share | {"contribution": float(log_shares[column] - log_shares[rival])})
    labelled, other = bool(prediction.labelled[place]), names[seen[rival]]
    chances = prediction.probabilities[place][[explained, seen[rival]]].tolist()
    by = ", by leave-one-out" if labelled else ""
    named = {part["about"]: part["contribution"] for part in parts[:-1]}
    return Explanation(
        title=f"Why node {facts['id']} is class {names[explained]}",
        answer=f"Node {facts['id']} is {names[explained]} with probability {percent(chances[0])}"
        f"{by}; the strongest other class is {other} with {percent(chances[1])}. "
        f"{pro_and_con(named, f'{names[explained]} over {other}')}",
        score=float(scores[column] - scores[rival]),
        probability=chances[0],
        contributions=parts,
        facts=facts
        | {
            "explained": names[explained],
            "other_class": other,
            "labelled": labelled,
            "scores": {names[c]: float(score) for c, score in zip(seen, scores, strict=True)},
        },
        tables={"labelled nodes around it": _labelled_nodes(prediction, refined, int(at), names)},
    )


def _labelled_nodes(
    prediction: "Prediction", refined: RefinedGraph, at: int, names: list[str]
) -> list[dict[str, Any]]:
    """The labelled nodes at which random walks of one or two steps end most often.

    Weights are the chances of such a walk, one or two steps with even odds.
    """
    from sklearn.preprocessing import normalize

    graph, ids = refined.graph, own_ids(prediction.data, len(prediction.labelled))
    walks = {}  # by graph, after one step and after two: [2, N]
    for name, links in (("input", graph.links), ("refined", refined.adjacency())):
        matrix = links.to_scipy().astype(np.float64)
        matrix.setdiag(0)
        chance = normalize(matrix, norm="l1")
        walks[name] = np.vstack([chance[[at]].toarray(), (chance[[at]] @ chance).toarray()])
    reached = (walks["input"] + walks["refined"]).sum(0)
    reached[at] = 0
    others = graph.labelled.cpu().numpy()
    strongest = others[np.argsort(-reached[others], kind="stable")][:LISTED]
    rows = []
    for node in strongest[reached[strongest] > 0].tolist():
        place = int(prediction.order[node])
        row = {"id": ids[place], "label": names[int(prediction.data.y[place])]}
        row["steps"] = 1 if any(walk[0, node] > 0 for walk in walks.values()) else 2
        for name, walk in walks.items():
            row[f"{name}_edge"] = bool(walk[0, node] > 0)
            row[f"{name}_weight"] = float(walk[:, node].mean())
        rows.append(row)
    return rows


def explain_pair(
    data: Any,
    u: int | str,
    v: int | str,
    learner: LearnerName = UNIVERSAL,
    *,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Explanation:
    """Say which evidence speaks for and against two nodes being of one class; nothing is trained.

    The nodes need not be joined. Labels outside of the training nodes are never read.
    ``facts["outcome"]`` says what becomes of the edge between them in the graph of
    :func:`graphglow.refine`: ``kept``, ``dropped``, ``added`` or ``absent``. It keeps no more edges
    than the input has, so a pair that is likely of one class may still be left out.
    ``facts["probability_real"]`` is what :func:`graphglow.audit` says of their edge, or of a
    missing one; None where a graph cannot be audited.

    Args:
        data: The graph; it, the learner, seed and device are as for :func:`graphglow.refine`.
        u: The id of one node; its index where the graph has no ids.
        v: The id of the other.
        learner: An evidence learner.
        seed: Seeds the random projections.
        device: Where to compute.
    """
    from graphglow.audit import audit  # which imports this

    found = evidence_learner(learner, seed=seed)
    data = as_given(data)
    places = pair_places(data, u, v)  # what is wrong is said before the graph is refined
    try:
        edge = audit(data, missing=False, device=device).explained([places])[0]
    except InputError:  # no edges, or hardly a pair without one
        edge = None
    refined, order = run_frozen(found, data, seed=seed, device=device)
    kept = choose_edges(refined)[0].edge_index
    first, second = order.cpu().argsort()[list(places)].tolist()
    named = own_ids(data, refined.graph.num_nodes)
    ids = [named[i] for i in order.tolist()]
    u, v = ids[first], ids[second]
    ends = torch.tensor([[first], [second]], device=refined.pairs.device).sort(0).values
    refined = with_pairs(refined, ends)
    which = (refined.pairs == ends).all(0).nonzero()[0]
    place, chance = int(which), refined.graph.chance
    parts = {name: float(part) for name, part in found.explain(refined, which).items()}
    around, joined = surroundings(refined.graph.links, ids, (first, second))
    is_kept = bool(((kept[0] == first) & (kept[1] == second)).any())
    outcome = ("dropped", "kept")[is_kept] if joined else ("absent", "added")[is_kept]
    candidate = place < refined.num_candidates
    probability = float(refined.pair_probability[place])
    target = str(data.get("name") or "the graph")
    but, reason, real = "and", "", ""
    if probability > chance and not is_kept:
        but = "but"
        reason = ": stronger edges come first" if candidate else ": it did not consider this pair"
    if edge is not None:
        kind = "that edge is real" if joined else "an edge is missing there"
        real = f" Another question is whether {kind}: {percent(edge.probability)} by the audit."
    return Explanation(
        title=f"What speaks for {u} and {v} being of one class",
        answer=f"{u} and {v} are {percent(probability)} likely to be of one class (two random "
        f"nodes of {target}: {percent(chance)}), {but} {OUTCOMES[outcome]}{reason}. "
        f"{pro_and_con(parts)}{real}",
        score=float(refined.pair_log_odds[place]) + logit(chance),
        probability=probability,
        contributions=by_evidence(parts, MEANINGS),
        facts={
            "u": u,
            "v": v,
            "target": target,
            "chance": chance,
            "outcome": outcome,
            "input_edge": joined,
            "candidate": candidate,
            "probability_real": None if edge is None else edge.probability,
        },
        surroundings=around,
    )


def by_evidence(parts: Mapping[str, float], meanings: Mapping[str, str]) -> list[dict[str, Any]]:
    """The kinds of evidence, the most favourable first."""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return [{"name": n, "about": meanings[n], "contribution": value} for n, value in ordered]


def pair_places(data: Any, u: int | str, v: int | str) -> tuple[int, int]:
    """Return the indices of two different nodes, by their ids."""
    first, second = node_places(data, int(data.num_nodes or 0), (u, v)).tolist()
    if first == second:
        raise InputError(f"a pair must be two different nodes; got {u!r} twice")
    return first, second


def surroundings(
    links: SparseMatrix, ids: list[int | str], pair: tuple[int, int]
) -> tuple[Surroundings, bool]:
    """Return what surrounds a pair in a graph, by its pattern [N, N]; whether it joins the two."""

    def near(node: int) -> set[int]:
        return set(links.col[int(links.crow[node]) : int(links.crow[node + 1])].tolist())

    one, other = (near(node) - set(pair) for node in pair)
    parts = [sorted(part)[:DRAWN] for part in (one & other, one - other, other - one)]
    drawn = {node for part in parts for node in part}
    common, of_u, of_v = ([ids[node] for node in part] for part in parts)
    edges = [(ids[a], ids[b]) for a in sorted(drawn) for b in near(a) & drawn if a < b]
    left_out = len(one | other) - len(drawn)
    return Surroundings(common, of_u, of_v, edges, left_out), pair[1] in near(pair[0])


def pro_and_con(parts: Mapping[str, float], thing: str = "it") -> str:
    """The strongest evidence on both sides, in words."""
    own = sorted((value, name) for name, value in parts.items() if name not in GENERAL)
    con = ", ".join(f"{n} ({v:+.1f})" for v, n in own[:NAMED] if v <= -LEAST_NAMED)
    pro = ", ".join(f"{n} ({v:+.1f})" for v, n in own[: -NAMED - 1 : -1] if v >= LEAST_NAMED)
    return f"Most speaks for {thing}: {pro or 'nothing'}; against: {con or 'nothing'}."


def percent(probability: float) -> str:
    """A probability in whole percent, never 0 or 100."""
    if 0.005 <= probability < 0.995:
        return f"{probability:.0%}"
    return "over 99%" if probability > 0.5 else "under 1%"
