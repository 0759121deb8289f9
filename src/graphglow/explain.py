"""Why a node got its class, and why two nodes are taken to be of one class.

Each answer is a score taken apart without approximation: the ``contributions`` of an
:class:`Explanation` add up to its ``score``.

- ``Prediction.explain(node)``: the log-odds of a class are a sum over channels. With w_k the
  weight of channel k at this node and pi_c the share of class c among the given labels,
  ``score_c = sum_k w_k log(P_k(c) / pi_c) + log pi_c``.
- ``TransferResult.explain(node)``: in the last layer of the GNN the logit is a sum over nodes,
  ``score_c = sum_v (lambda A_uv + (1 - lambda) S_uv) message_vc + own_uc + bias_c``.
- :func:`explain_pair`: the log-odds that two nodes are of one class are a sum over kinds of
  evidence, brought in one by one from none at all, in an order and in its reverse; a kind has the
  mean of the two changes that it made.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pair_features import logit
from graphglow.evidence.predictor import CHANNELS, FinalRound, folds
from graphglow.evidence.predictor import weights as channel_weights
from graphglow.evidence.refined import RefinedGraph, explain_pairs, with_pairs
from graphglow.gnn import backbone_class, backbones_that
from graphglow.graph import as_graph
from graphglow.graph.write import (
    TABLES,
    class_names,
    node_places,
    own_ids,
    split_names,
    write_table,
)
from graphglow.linalg.rows import entries
from graphglow.linalg.sparse import SparseMatrix
from graphglow.predict import CHANNEL_NAMES, run_frozen
from graphglow.pretrained import UNIVERSAL, LearnerName, evidence_learner
from graphglow.refine import chosen

if TYPE_CHECKING:  # which import this
    from graphglow.predict import Prediction
    from graphglow.result import TransferResult

NEIGHBOURS = 20  # labelled nodes listed
SPEAKS = 0.05  # log-odds from which evidence is named in words
NAMED = 3  # kinds of evidence named for, and against
DRAWN = 6  # neighbours of each sort in the picture
OUTCOMES = {
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
    "this graph": "how far each kind of evidence held among the training labels of this graph",
    "labelled pairs": "a correction, so that pairs of known classes come out right on average",
    "chance": "two random nodes of this graph",
}
"""What each kind of evidence about a pair is."""


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """One summand of a score."""

    name: int | str
    """A channel, a node's id, or a kind of evidence."""
    about: str
    """What it is, in words."""
    value: float
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the table."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Part of the input graph around a pair, in the user's ids, for a drawing."""

    common: list[int | str]
    """Neighbours of both."""
    of_u: list[int | str]
    of_v: list[int | str]
    edges: list[tuple[int | str, int | str]]
    """Edges among the neighbours that are listed."""
    left_out: int
    """Number of neighbours that are not listed."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """A score, and the contributions that add up to it (up to rounding)."""

    title: str
    """The question."""
    answer: str
    """A few sentences."""
    score: float
    """A logit or log-odds: the sum of ``contributions``."""
    probability: float
    """The probability of what is explained."""
    contributions: tuple[Contribution, ...]
    """The strongest first; sums over what is not listed, and constants, come last."""
    facts: dict[str, Any]
    """What else is known of the node or the pair."""
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Further tables by their captions, as rows."""
    surroundings: Surroundings | None = None
    """Of a pair: the input graph around it."""

    def __repr__(self) -> str:
        return f"Explanation({self.answer})"

    def summary(self) -> str:
        """Return the answer in a few sentences."""
        return self.answer

    def to_frame(self) -> Any:
        """Return the contributions as a pandas DataFrame.

        Columns: ``name``, ``about``, ``contribution``, and what else is known of each.
        """
        import pandas as pd

        rows = [
            {"name": one.name, "about": one.about, "contribution": one.value, **one.details}
            for one in self.contributions
        ]
        return pd.DataFrame(rows)

    def text(self, rows: int = 12) -> str:
        """Return everything in lines for people, with the first ``rows`` rows of each table."""
        import pandas as pd

        frame = self.to_frame()[["name", "about", "contribution"]]
        shown = frame if len(frame) <= rows + 3 else frame.head(rows)
        more = frame.contribution[len(shown) :]
        others = f" and {more.sum():+.3f} by {len(more)} more" if len(more) else ""
        lines = [self.answer, shown.to_string(index=False, float_format="{:+.3f}".format)]
        lines.append(f"score: {self.score:+.3f}, the sum of these{others}")
        for caption, table in self.tables.items():
            head = pd.DataFrame(table[:rows])
            head = head.to_string(index=False, na_rep="-", float_format="{:.3f}".format)
            lines += [f"{caption}:", head] if table else []
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return facts and contributions as JSON can hold them."""
        rows = [
            {"name": one.name, "contribution": one.value, **one.details}
            for one in self.contributions
        ]
        known = {"text": self.answer, "score": self.score, "probability": self.probability}
        return known | self.facts | {"contributions": rows}

    def write(self, path: str | Path) -> None:
        """Write a page that opens offline (``.html``) or the table (``.csv``, ``.parquet``)."""
        from graphglow.report import PAGES, write_explanation

        path = Path(path).expanduser()
        if path.suffix.lower() in PAGES:
            write_explanation(self, path)
        elif path.suffix.lower() in TABLES:
            write_table(self.to_frame(), path, "an explanation")
        else:
            kinds = ", ".join((*PAGES, *TABLES))
            raise InputError(f"An explanation cannot be written to {path}. Name a {kinds} file.")


# Why this class, by a prediction


@torch.no_grad()
def explain_prediction(
    prediction: "Prediction", node: Any, label: int | str | None = None
) -> Explanation:
    """Explain a class of a node; see :meth:`Prediction.explain`."""
    data, refined = prediction.data, prediction.refined
    final, count = refined.final, len(prediction.labelled)
    assert final is not None
    problem, names = final.graph, class_names(data, prediction.probabilities.shape[1])
    place = int(node_places(data, count, [node])[0])
    at = prediction.order.argsort()[place].to(problem.device)
    predicted, seen = int(prediction.classes[place]), problem.seen.tolist()
    explained = predicted if label is None else class_number(label, names)
    if explained not in seen:
        raise InputError(
            f"class {names[explained]} has no given label, so that nothing speaks for it. Explain "
            f"one of {', '.join(names[c] for c in seen[:10])}."
        )
    column = seen.index(explained)
    predictor = copy.deepcopy(prediction.learner.predictor).to(problem.device)
    odds, trust = final.inputs(at[None])
    assert refined.update is not None
    assert refined.shares is not None
    log_prior = refined.shares.double().log()
    update = refined.update[folds(problem)[at]]
    weights = channel_weights(predictor, trust, update)[0].double()  # [V]
    by_channel = odds[0].double() * weights  # [C, V]
    scores = by_channel.sum(1) + log_prior
    parts = []
    for k, name in enumerate(CHANNELS):
        p = final.channels[name].probabilities[at]
        details = {
            "says": names[seen[int(p.argmax())]],
            "probability": float(p[column]),
            "weight": float(weights[k]),
            "log_odds": float(odds[0, column, k]),
        }
        about, value = CHANNEL_NAMES.get(name, name), float(by_channel[column, k])
        parts.append(Contribution(name=name, about=about, value=value, details=details))
    parts.sort(key=lambda part: -abs(part.value))
    about, value = "log of the share of the class", float(log_prior[column])
    parts.append(Contribution(name="log_share", about=about, value=value))
    around = _labelled_nodes(prediction, final, int(at), names)
    facts = {
        "id": own_ids(data, count)[place],
        "predicted": names[predicted],
        "explained": names[explained],
        "labelled": bool(prediction.labelled[place]),
        "scores": {names[c]: float(score) for c, score in zip(seen, scores, strict=True)},
    }
    probability = float(prediction.probabilities[place, explained])
    return Explanation(
        title=f"Why node {facts['id']} is {class_text(names[explained])}",
        answer=_prediction_answer(facts, probability, parts, around),
        score=float(scores[column]),
        probability=probability,
        contributions=tuple(parts),
        facts=facts,
        tables={"labelled nodes around it": around},
    )


def _prediction_answer(
    facts: Mapping[str, Any],
    probability: float,
    parts: Sequence[Contribution],
    around: Sequence[Mapping[str, Any]],
) -> str:
    by = ", by leave-one-out" if facts["labelled"] else ""
    lines = [f"Node {facts['id']} is {facts['explained']} with probability {probability:.1%}{by}."]
    if facts["explained"] != facts["predicted"]:
        lines.append(f"It is predicted {facts['predicted']}.")
    if leading := [f"{one.about} ({one.value:+.2f})" for one in parts[:3] if one.value > 0]:
        lines.append(f"Most for it: {', '.join(leading)}.")
    if near := [one["label"] for one in around]:
        same = near.count(facts["explained"])
        lines.append(
            f"Of the {len(near)} strongest labelled nodes within two steps, {same} are "
            f"{facts['explained']}."
        )
    return " ".join(lines)


def _labelled_nodes(
    prediction: "Prediction", final: FinalRound, at: int, names: list[str]
) -> list[dict[str, Any]]:
    """The labelled nodes that random walks of one or two steps end at most often.

    Weights are the chances of such a walk, one or two steps with even odds.
    """
    problem, ids = final.graph, own_ids(prediction.data, len(prediction.labelled))
    walks = torch.stack([*_walks(problem.links, at), *_walks(final.adjacency, at)])  # [4, N]
    others = problem.labelled[problem.labelled != at]
    reached = walks.sum(0)[others]
    strongest = reached.argsort(descending=True, stable=True)[:NEIGHBOURS]
    rows = []
    for node in others[strongest[reached[strongest] > 0]].tolist():
        place = int(prediction.order[node])
        given, given_two, refined, refined_two = walks[:, node].tolist()
        rows.append(
            {
                "id": ids[place],
                "label": names[int(prediction.data.y[place])],
                "steps": 1 if given > 0 or refined > 0 else 2,
                "input_edge": given > 0,
                "refined_edge": refined > 0,
                "input_weight": (given + given_two) / 2,
                "refined_weight": (refined + refined_two) / 2,
            }
        )
    return rows


def _walks(graph: SparseMatrix, start: int) -> tuple[Tensor, Tensor]:
    """Chances of a walk to end at each node after one step and after two, not at home: [N]."""
    row, col, weight = entries(graph)
    weight = weight * (row != col)
    total = torch.zeros(graph.shape[0], device=weight.device).index_add_(0, row, weight)
    chance = weight / total.clamp_min(1e-12)[row]
    one, two = torch.zeros_like(total), torch.zeros_like(total)
    first = row == start
    one[col[first].long()] = chance[first]
    two.index_add_(0, col, one[row] * chance)
    two[start] = 0
    return one, two


# Why this class, by a trained GNN


def explain_result(
    result: "TransferResult",
    node: int | str,
    top_k: int = 10,
    *,
    label: int | str | None = None,
    against: int | str | None = None,
) -> Explanation:
    """Explain a logit of a node; see :meth:`TransferResult.explain`."""
    import pandas as pd

    at_least("top_k", top_k, 1)
    data, graph = result.data, result.graph
    if not backbone_class(result.backbone).explainable():
        able = backbones_that(lambda kind: kind.explainable())
        raise InputError(
            f"The scores of {result.backbone} are no sum over neighbours, so they cannot be taken "
            f"apart. Train another backbone: {able}."
        )
    place = int(node_places(data, graph.num_nodes, [node])[0])
    names, ids = class_names(data, graph.num_classes), own_ids(data, graph.num_nodes)
    predicted = result.predict().tolist()
    explained = predicted[place] if label is None else class_number(label, names)
    other = None if against is None else class_number(against, names)
    if other == explained:
        raise InputError(f"against must be another class; got {names[explained]} twice")

    def towards(values: Tensor) -> Tensor:
        """The column of the class, less that of the other one: [.., C] -> [..]."""
        kept = values[..., explained].double()
        return kept if other is None else kept - values[..., other].double()

    last = result.last_layer()
    by_input, by_learned = (row[0].double().cpu() for row in result.message_rows(place, last.adj))
    message = towards(last.messages).cpu()
    heard = ((by_input != 0) | (by_learned != 0)).nonzero()[:, 0]
    value = ((by_input + by_learned) * message)[heard]
    heard = heard[value.abs().argsort(descending=True, stable=True)]
    joined = set(last.adj.col[last.adj.crow[place] : last.adj.crow[place + 1]].tolist())
    probability = result.edge_probabilities(place)
    splits = split_names(data) or [""] * graph.num_nodes
    columns = {
        "node": heard.tolist(),
        "label": [None if (y := int(data.y[n])) < 0 else names[y] for n in heard],
        "predicted": [names[predicted[n]] for n in heard],
        "split": [splits[n] for n in heard],
        "input_edge": [n == place or n in joined for n in heard.tolist()],
        "probability": [probability.get(n) for n in heard.tolist()],
    }
    frame = pd.DataFrame(columns, dtype=object).assign(
        message=message[heard].numpy(),
        input_weight=by_input[heard].numpy(),
        learned_weight=by_learned[heard].numpy(),
        input_part=(by_input * message)[heard].numpy(),
        learned_part=(by_learned * message)[heard].numpy(),
    )
    sums = ["input_weight", "learned_weight", "input_part", "learned_part"]
    by_class = frame.groupby("predicted")[sums].sum()
    by_class.insert(0, "nodes", frame.predicted.value_counts())
    parts = [
        Contribution(
            name=ids[row["node"]],
            about="the node itself" if row["node"] == place else f"predicted {row['predicted']}",
            value=row["input_part"] + row["learned_part"],
            details=row,
        )
        for row in frame.head(top_k).to_dict("records")
    ]
    rest = frame.iloc[top_k:][sums].sum()
    for name, about, value in (
        (f"{len(frame) - len(parts)} others", "not listed", rest.input_part + rest.learned_part),
        ("own", "the node without any message", towards(last.own[place])),
        ("bias", "alike for all nodes", towards(last.bias)),
    ):
        parts.append(Contribution(name=name, about=about, value=float(value)))
    facts = {
        "node": place,
        "id": ids[place],
        "target": graph.name,
        "label": None if int(data.y[place]) < 0 else names[int(data.y[place])],
        "predicted": names[predicted[place]],
        "explained": names[explained],
        "against": None if other is None else names[other],
        "input_total": float(frame.input_part.sum()),
        "learned_total": float(frame.learned_part.sum()),
    }
    logits = result.logits[place]
    return Explanation(
        title=f"What speaks for node {ids[place]} being {_towards(facts)}",
        answer=_result_answer(facts, parts),
        score=float(towards(logits)),
        probability=float(logits.softmax(0)[explained]),
        contributions=tuple(parts),
        facts=facts,
        tables={"all nodes that are heard, by predicted class": [
            {"predicted": name, **row} for name, row in by_class.to_dict("index").items()
        ]},
    )  # fmt: skip


def _towards(facts: Mapping[str, Any]) -> str:
    against = "" if facts["against"] is None else f" rather than {class_text(facts['against'])}"
    return f"{class_text(facts['explained'])}{against}"


def _result_answer(facts: Mapping[str, Any], parts: Sequence[Contribution]) -> str:
    label = facts["label"]
    known = "its class is not known" if label is None else f"it is known to be {class_text(label)}"
    first, place = parts[0], facts["node"]
    who = "the node itself" if first.details.get("node") == place else f"node {first.name}"
    return (
        f"Node {facts['id']} of {facts['target']} is predicted to be "
        f"{class_text(facts['predicted'])}; {known}. All nodes together add "
        f"{facts['input_total']:+.3f} over the input graph and {facts['learned_total']:+.3f} over "
        f"the learned graph to the score for {_towards(facts)}. Most comes from {who} "
        f"({first.value:+.3f})."
    )


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

    Any two nodes will do, joined or not. Labels outside of the training nodes are never read.
    ``facts["outcome"]`` says what becomes of the edge between them: ``kept``, ``dropped``,
    ``added`` or ``absent``.

    Args:
        data: The graph, and the learner, seed and device, as for :func:`graphglow.refine`.
        u: The one node's id; its index where the graph has no ids.
        v: The other's.
        learner: An evidence learner.
        seed: Of random projections.
        device: Where to compute.
    """
    found = evidence_learner(learner, seed=seed)
    data = as_graph(data, need_labels=False)
    pair = pair_places(data, int(data.num_nodes or 0), u, v)
    refined, order = run_frozen(found, data, seed=seed, device=device)
    kept = chosen(refined, None, 0.0, add=True, drop=True).edge_index
    return explain_known_pair(found, refined, data, pair, kept, refined.probabilities, order)


def explain_known_pair(
    learner: EvidenceLearner,
    refined: RefinedGraph,
    data: Data,
    pair: tuple[int, int],
    edge_index: Tensor,
    scores: Tensor | None,
    order: Tensor | None = None,
) -> Explanation:
    """Explain a pair of nodes of ``data``, which the learner has refined already.

    Node i of ``refined``, of its kept edges ``edge_index`` [2, E] and of the class ``scores``
    [N, C], if there are labels, is ``order[i]`` of ``data``.
    """
    count = refined.num_nodes
    order = torch.arange(count) if order is None else order.cpu()
    named = own_ids(data, count)
    ids = [named[i] for i in order.tolist()]
    rank = order.argsort()
    first, second = int(rank[pair[0]]), int(rank[pair[1]])
    ends = torch.tensor([[min(first, second)], [max(first, second)]], device=refined.pairs.device)
    refined = with_pairs(refined, ends)
    which = (refined.pairs == ends).all(0).nonzero()[0]
    place = int(which)
    parts = {name: float(part) for name, part in explain_pairs(learner, refined, which).items()}
    links = refined.graph.links
    around, joined = surroundings(links, ids, (first, second))
    there = bool(((edge_index[0] == first) & (edge_index[1] == second)).any())
    outcome = ("dropped", "kept")[there] if joined else ("absent", "added")[there]
    predicted = None
    if scores is not None:
        names = class_names(data, scores.shape[1])
        predicted = [names[c] for c in scores[[first, second]].argmax(1).tolist()]
    facts = {
        "u": ids[first],
        "v": ids[second],
        "target": str(data.get("name") or "the graph"),
        "chance": refined.chance,
        "outcome": outcome,
        "input_edge": joined,
        "candidate": place < refined.num_candidates,
        "predicted": predicted,
    }
    probability = float(refined.pair_probability[place])
    return Explanation(
        title=f"What speaks for {ids[first]} and {ids[second]} being of one class",
        answer=_pair_answer(facts, probability, parts),
        score=float(refined.pair_log_odds[place]) + logit(refined.chance),
        probability=probability,
        contributions=_by_evidence(parts),
        facts=facts,
        surroundings=around,
    )


def explain_edge(
    pair: tuple[int | str, int | str],
    parts: Mapping[str, float],
    around: Surroundings,
    joined: bool,
) -> Explanation:
    """Explain the log-odds that an edge is real, or, where there is none, that it is missing."""
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
    return tuple(Contribution(name=n, about=MEANINGS.get(n, ""), value=v) for n, v in ordered)


def pair_places(data: Data, count: int, u: int | str, v: int | str) -> tuple[int, int]:
    """Return the indices of two different nodes, by their ids."""
    one, other = node_places(data, count, (u, v)).tolist()
    if one == other:
        raise InputError(f"a pair must be two different nodes; got {u!r} twice")
    return one, other


def surroundings(
    links: SparseMatrix, ids: list[int | str], pair: tuple[int, int]
) -> tuple[Surroundings, bool]:
    """Return the graph around a pair, of its pattern [N, N], and whether it joins the two."""

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


def _pair_answer(facts: Mapping[str, Any], probability: float, parts: Mapping[str, float]) -> str:
    said = [
        f"{facts['u']} and {facts['v']} are {_percent(probability)} likely to be of one class; two "
        f"random nodes of {facts['target']} are {_percent(facts['chance'])}.",
        OUTCOMES[facts["outcome"]],
    ]
    if facts["outcome"] in ("absent", "dropped") and probability > facts["chance"]:
        said.append("They are more alike than chance, but others are nearer to each.")
    if facts["predicted"] is not None:
        one, other = facts["predicted"]
        both = f"Both are predicted to be {one}"
        said.append(f"{both if one == other else f'They are predicted {one} and {other}'}.")
    return " ".join([*said, _pro_and_con(parts)])


def _pro_and_con(parts: Mapping[str, float]) -> str:
    """The strongest evidence on both sides, in words."""
    own = sorted((value, name) for name, value in parts.items() if name not in GENERAL)
    con = ", ".join(f"{name} ({v:+.1f})" for v, name in own[:NAMED] if v <= -SPEAKS)
    pro = ", ".join(f"{name} ({v:+.1f})" for v, name in own[: -NAMED - 1 : -1] if v >= SPEAKS)
    return f"Most speaks for it: {pro or 'nothing'}; against: {con or 'nothing'}."


def _percent(probability: float) -> str:
    """A probability in whole percent, and never all or nothing."""
    if 0.005 <= probability < 0.995:
        return f"{probability:.0%}"
    return "over 99%" if probability > 0.5 else "under 1%"


# Classes


def class_number(label: int | str, names: list[str]) -> int:
    """Return the number of a class, by its name or, if it is an integer, its number."""
    if not isinstance(label, bool) and str(label) in names:
        return names.index(str(label))
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(names):
        return label
    raise InputError(f"label must be one of the classes {', '.join(names[:10])}; got {label!r}")


def class_text(name: str) -> str:
    """Return a class as people say it: a bare number would not say that it is one."""
    return f"class {name}" if name.isdigit() else name
