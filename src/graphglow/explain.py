"""Why a node got its class, and why two nodes are taken to be of one class.

Each answer is a score taken apart without approximation: the ``contributions`` of an
:class:`Explanation` add up to its ``score``.

- ``Prediction.explain(node)``: a sum over channels k with weights w_k and class shares pi_c,
  ``score_c = sum_k w_k log(P_k(c) / pi_c) + log pi_c``.
- :func:`explain_pair`: a sum over kinds of evidence, brought in one by one, in an order and in its
  reverse; a kind's share is the mean of the two changes that it made to the log-odds.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.pair_features import MEANINGS, logit
from graphglow.evidence.predictor import CHANNEL_NAMES, CHANNELS, FinalRound, folds
from graphglow.evidence.predictor import weights as channel_weights
from graphglow.evidence.refined import explain_pairs, with_pairs
from graphglow.graph import as_graph
from graphglow.graph.write import class_names, node_places, own_ids, write_table
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
GENERAL = ("this graph", "labelled pairs", "chance")
"""Contributions that are the same for all pairs of a graph."""


class Contribution(NamedTuple):
    """One summand of a score: of a channel, a node (by its id), or a kind of evidence."""

    name: int | str
    about: str
    value: float
    details: Mapping[str, Any] = MappingProxyType({})
    """Further columns of the table."""


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
    """A score (a logit or log-odds), and the contributions that add up to it.

    ``contributions`` come strongest first, then sums over what is not listed, and constants.
    ``answer`` is a few sentences; ``tables`` are further rows, by caption.
    """

    title: str
    answer: str
    score: float
    probability: float
    contributions: tuple[Contribution, ...]
    facts: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    surroundings: Surroundings | None = None

    def __repr__(self) -> str:
        return f"Explanation({self.answer})"

    def rows(self) -> list[dict[str, Any]]:
        """Name, meaning and value of each contribution, and further columns."""
        return [
            {"name": one.name, "about": one.about, "contribution": one.value, **one.details}
            for one in self.contributions
        ]

    def to_frame(self) -> Any:
        """Return :meth:`rows` as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def text(self, rows: int = 12) -> str:
        """Return everything as text; of further tables the first ``rows`` rows."""
        import pandas as pd

        frame = self.to_frame()[["name", "about", "contribution"]]
        lines = [self.answer, frame.to_string(index=False, float_format="{:+.3f}".format)]
        lines.append(f"score: {self.score:+.3f}, the sum of these")
        for caption, table in self.tables.items():
            head = pd.DataFrame(table[:rows])
            head = head.to_string(index=False, na_rep="-", float_format="{:.3f}".format)
            lines += [f"{caption}:", head] if table else []
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return facts and contributions as JSON can hold them."""
        known = {"text": self.answer, "score": self.score, "probability": self.probability}
        return known | self.facts | {"contributions": self.rows()}

    def write(self, path: str | Path) -> None:
        """Write a page that opens offline (``.html``) or the table (``.csv``, ``.parquet``)."""
        from graphglow.report import PAGES, write_explanation

        if Path(path).suffix.lower() in PAGES:
            write_explanation(self, Path(path).expanduser())
        else:
            write_table(self.to_frame(), path, "an explanation that is no .html page")


# Why this class


@torch.no_grad()
def explain_prediction(
    prediction: "Prediction", node: Any, label: int | str | None = None
) -> Explanation:
    """Explain a class of a node; see :meth:`Prediction.explain`."""
    data, refined = prediction.data, prediction.refined
    final, count = refined.final, len(prediction.labelled)
    assert final is not None
    assert refined.update is not None
    assert refined.shares is not None
    graph, names = final.graph, class_names(data, prediction.probabilities.shape[1])
    place = int(node_places(data, count, [node])[0])
    at = prediction.order.argsort()[place].to(graph.device)
    predicted, seen = int(prediction.classes[place]), graph.seen.tolist()
    explained = predicted if label is None else class_number(label, names)
    if explained not in seen:
        raise InputError(
            f"class {names[explained]} has no given label, so that nothing speaks for it. Explain "
            f"one of {', '.join(names[c] for c in seen[:10])}."
        )
    column, log_prior = seen.index(explained), refined.shares.double().log()
    predictor = copy.deepcopy(prediction.learner.predictor).to(graph.device)
    odds, trust = final.inputs(at[None])
    weights = channel_weights(predictor, trust, refined.update[folds(graph)[at]])[0].double()  # [V]
    by_channel = odds[0].double() * weights  # [C, V]
    scores = by_channel.sum(1) + log_prior
    parts = []
    for k, name in enumerate(CHANNELS):
        p = final.channels[name].probabilities[at]
        details = {"says": names[seen[int(p.argmax())]], "probability": float(p[column])}
        details |= {"weight": float(weights[k]), "log_odds": float(odds[0, column, k])}
        about, value = CHANNEL_NAMES.get(name, name), float(by_channel[column, k])
        parts.append(Contribution(name, about, value, details))
    parts.sort(key=lambda part: -abs(part.value))
    about = "log of the share of the class"
    parts.append(Contribution("log_share", about, float(log_prior[column])))
    around = _labelled_nodes(prediction, final, int(at), names)
    probability, labelled = prediction.probabilities[place], bool(prediction.labelled[place])
    facts = {
        "id": own_ids(data, count)[place],
        "predicted": names[predicted],
        "explained": names[explained],
        "labelled": labelled,
        "scores": {names[c]: float(score) for c, score in zip(seen, scores, strict=True)},
    }
    by = ", by leave-one-out" if labelled else ""
    leading = [f"{one.about} ({one.value:+.2f})" for one in parts[:3] if one.value > 0]
    answer = (
        f"Node {facts['id']} is {names[explained]} with probability "
        f"{float(probability[explained]):.1%}{by}. Most for it: {', '.join(leading) or 'nothing'}."
    )
    return Explanation(
        title=f"Why node {facts['id']} is class {names[explained]}",
        answer=answer,
        score=float(scores[column]),
        probability=float(probability[explained]),
        contributions=tuple(parts),
        facts=facts,
        tables={"labelled nodes around it": around},
    )


def _labelled_nodes(
    prediction: "Prediction", final: FinalRound, at: int, names: list[str]
) -> list[dict[str, Any]]:
    """The labelled nodes at which random walks of one or two steps end most often.

    Weights are the chances of such a walk, one or two steps with even odds.
    """
    graph, ids = final.graph, own_ids(prediction.data, len(prediction.labelled))
    given, refined = _walks(graph.links, at), _walks(final.adjacency, at)
    reached = (given + refined).sum(0)
    others = graph.labelled[graph.labelled != at].cpu().numpy()
    strongest = others[np.argsort(-reached[others], kind="stable")][:LISTED]
    rows = []
    for node in strongest[reached[strongest] > 0].tolist():
        place = int(prediction.order[node])
        steps = 1 if given[0, node] > 0 or refined[0, node] > 0 else 2
        row = {"id": ids[place], "label": names[int(prediction.data.y[place])], "steps": steps}
        for name, walks in (("input", given), ("refined", refined)):
            row[f"{name}_edge"] = bool(walks[0, node] > 0)
            row[f"{name}_weight"] = float(walks[:, node].mean())
        rows.append(row)
    return rows


def _walks(graph: SparseMatrix, start: int) -> NDArray[np.float64]:
    """Chances that a random walk is at each other node after one step and after two: [2, N]."""
    from sklearn.preprocessing import normalize

    matrix = graph.to_scipy().astype(np.float64)
    matrix.setdiag(0)
    chance = normalize(matrix, norm="l1")
    one = chance[[start]]
    walks: NDArray[np.float64] = np.vstack([one.toarray(), (one @ chance).toarray()])
    walks[1, start] = 0
    return walks


# Why this pair


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

    Args:
        data: The graph; it, the learner, seed and device are as for :func:`graphglow.refine`.
        u: The id of one node; its index where the graph has no ids.
        v: The id of the other.
        learner: An evidence learner.
        seed: Seeds the random projections.
        device: Where to compute.
    """
    found = evidence_learner(learner, seed=seed)
    data = as_graph(data, need_labels=False)
    places = pair_places(data, u, v)  # what is wrong is said before the graph is refined
    refined, order = run_frozen(found, data, seed=seed, device=device)
    kept = choose_edges(refined)[0].edge_index
    first, second = order.cpu().argsort()[places].tolist()
    named = own_ids(data, refined.num_nodes)
    ids = [named[i] for i in order.tolist()]
    u, v = ids[first], ids[second]
    ends = torch.tensor([[first], [second]], device=refined.pairs.device).sort(0).values
    refined = with_pairs(refined, ends)
    which = (refined.pairs == ends).all(0).nonzero()[0]
    place, chance = int(which), refined.chance
    parts = {name: float(part) for name, part in explain_pairs(found, refined, which).items()}
    around, joined = surroundings(refined.graph.links, ids, (first, second))
    is_kept = bool(((kept[0] == first) & (kept[1] == second)).any())
    outcome = ("dropped", "kept")[is_kept] if joined else ("absent", "added")[is_kept]
    candidate = place < refined.num_candidates
    probability = float(refined.pair_probability[place])
    target = str(data.get("name") or "the graph")
    but, reason = "and", ""
    if probability > chance and not is_kept:
        but = "but"
        reason = ": stronger edges come first" if candidate else ": it did not consider this pair"
    return Explanation(
        title=f"What speaks for {u} and {v} being of one class",
        answer=f"{u} and {v} are {_percent(probability)} likely to be of one class (two random "
        f"nodes of {target}: {_percent(chance)}), {but} {OUTCOMES[outcome]}{reason}. "
        f"{_pro_and_con(parts)}",
        score=float(refined.pair_log_odds[place]) + logit(chance),
        probability=probability,
        contributions=_by_evidence(parts),
        facts={
            "u": u,
            "v": v,
            "target": target,
            "chance": chance,
            "outcome": outcome,
            "input_edge": joined,
            "candidate": candidate,
        },
        surroundings=around,
    )


def explain_edge(
    pair: tuple[int | str, int | str],
    parts: Mapping[str, float],
    around: Surroundings,
    joined: bool,
) -> Explanation:
    """Explain the log-odds that an edge is real or, where there is none, that it is missing."""
    log_odds = sum(parts.values())
    probability = 1 / (1 + math.exp(-log_odds))
    kind = "a real edge" if joined else "a missing edge"
    return Explanation(
        title=f"Whether {pair[0]} and {pair[1]} should be joined",
        answer=f"{_percent(probability)} likely to be {kind}. {_pro_and_con(parts)}",
        score=log_odds,
        probability=probability,
        contributions=_by_evidence({k: v for k, v in parts.items() if abs(v) > 1e-4}),
        facts={"u": pair[0], "v": pair[1], "input_edge": joined},
        surroundings=around,
    )


def _by_evidence(parts: Mapping[str, float]) -> tuple[Contribution, ...]:
    """The kinds of evidence, the most favourable first."""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return tuple(Contribution(name, MEANINGS.get(name, ""), value) for name, value in ordered)


def pair_places(data: Data, u: int | str, v: int | str) -> list[int]:
    """Return the indices of two different nodes, by their ids."""
    places: list[int] = node_places(data, int(data.num_nodes or 0), (u, v)).tolist()
    if places[0] == places[1]:
        raise InputError(f"a pair must be two different nodes; got {u!r} twice")
    return places


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
    around = Surroundings(common=common, of_u=of_u, of_v=of_v, edges=edges, left_out=left_out)
    return around, pair[1] in near(pair[0])


def _pro_and_con(parts: Mapping[str, float]) -> str:
    """The strongest evidence on both sides, in words."""
    own = sorted((value, name) for name, value in parts.items() if name not in GENERAL)
    con = ", ".join(f"{n} ({v:+.1f})" for v, n in own[:NAMED] if v <= -LEAST_NAMED)
    pro = ", ".join(f"{n} ({v:+.1f})" for v, n in own[: -NAMED - 1 : -1] if v >= LEAST_NAMED)
    return f"Most speaks for it: {pro or 'nothing'}; against: {con or 'nothing'}."


def _percent(probability: float) -> str:
    """A probability in whole percent, never 0 or 100."""
    if 0.005 <= probability < 0.995:
        return f"{probability:.0%}"
    return "over 99%" if probability > 0.5 else "under 1%"


def class_number(label: int | str, names: list[str]) -> int:
    """Return the number of a class, by its name or, if it is an integer, its number."""
    if not isinstance(label, bool) and str(label) in names:
        return names.index(str(label))
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(names):
        return label
    raise InputError(f"label must be one of the classes {', '.join(names[:10])}; got {label!r}")
