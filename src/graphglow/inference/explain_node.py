"""Why a node got its class: what each channel said, who carried it, what the network corrected.

The predictor's answer is a sum, so it can be taken apart without approximation::

    score_c = sum_k sharpness w_k log(P_k(c) / pi_c) + sharpness correction_c + log pi_c
    P(c) = softmax(score)_c

w_k is how much channel k counts at this node, pi_c the share of class c among the labels, and the
sharpness is chosen for the whole graph by leave-one-out.
"""

import copy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.predictor import CHANNELS, FinalRound
from graphglow.graph.write import class_names, own_ids
from graphglow.inference.own_names import node_place
from graphglow.linalg.rows import as_dense, entries, take
from graphglow.linalg.sparse import SparseMatrix
from graphglow.predict import CHANNEL_NAMES

if TYPE_CHECKING:  # which imports this
    from graphglow.predict import Prediction

NEIGHBOURS, NEAREST = 20, 5  # labelled nodes listed, and how many of them by features alone
LISTED = 6  # channels and nodes that the text shows


@dataclass(frozen=True)
class ChannelPart:
    """What one channel added to the score."""

    channel: str
    about: str
    says: str
    """The class that the channel itself would predict."""
    probability: float
    """What it gives the explained class."""
    weight: float
    """How much it counts at this node."""
    log_odds: float
    """``log P / pi`` of the explained class."""
    contribution: float
    """``sharpness * weight * log_odds``."""


@dataclass(frozen=True)
class LabelledNode:
    """A labelled node that the answer may come from."""

    id: int | str
    label: str
    steps: int | None
    """One or two, over either graph; None: it is only alike."""
    input_edge: bool
    refined_edge: bool
    input_weight: float
    """Chance that a walk of one or two steps (each half of the time) over input edges ends here."""
    refined_weight: float
    """The same over refined edges."""
    similarity: float | None
    """Cosine of the features two steps away over the refined graph; None without features."""


@dataclass(frozen=True, repr=False)
class NodeExplanation:
    """Why a node got its class; ``score`` is the sum of the parts, exactly up to rounding.

    ``score = sum of channels' contributions + correction + log_share``
    """

    id: int | str
    predicted: str
    explained: str
    """The class that the numbers speak for: the predicted one unless asked otherwise."""
    probability: float
    """Of ``explained``: the softmax of the scores of all classes."""
    labelled: bool
    """Whether the node's own label was given; it is left out of everything here."""
    score: float
    scores: dict[str, float]
    """The same of every class that has a label."""
    channels: tuple[ChannelPart, ...]
    """The strongest first, for or against."""
    correction: float
    """What the network added to the channels' weighted product."""
    log_share: float
    """Log of the share of ``explained`` among the given labels."""
    sharpness: float
    """What channels and correction are multiplied by; it is in their numbers."""
    changed_by_correction: str | None
    """The class that would have been predicted without the correction, if another."""
    nodes: tuple[LabelledNode, ...]
    """Labelled nodes around it, those of the most weight first."""

    def __repr__(self) -> str:
        return f"NodeExplanation({self.summary()})"

    def summary(self) -> str:
        """The decision in two or three sentences."""
        given = ", by leave-one-out" if self.labelled else ""
        lines = [
            f"Node {self.id} is {self.explained} with probability {self.probability:.1%}{given}."
        ]
        if self.explained != self.predicted:
            lines[0] += f" It is predicted {self.predicted}."
        leading = [part for part in self.channels[:3] if part.contribution > 0]
        if leading:
            said = ", ".join(f"{part.about} ({part.contribution:+.2f})" for part in leading)
            lines.append(f"Most for it: {said}.")
        carried = [one for one in self.nodes if one.steps is not None]
        if carried:
            same = sum(one.label == self.explained for one in carried)
            lines.append(
                f"Of the {len(carried)} strongest labelled nodes within two steps, {same} are "
                f"{self.explained}."
            )
        if self.changed_by_correction is not None:
            lines.append(f"Without the correction it would be {self.changed_by_correction}.")
        return " ".join(lines)

    def to_frame(self) -> Any:
        """The parts of the score as a pandas DataFrame; ``contribution`` adds up to ``score``."""
        import pandas as pd

        rows = [asdict(part) for part in self.channels]
        more = (
            ("correction", "what the network added", self.correction),
            ("log_share", "log of the class share", self.log_share),
        )
        rows += [{"channel": c, "about": a, "contribution": value} for c, a, value in more]
        return pd.DataFrame(rows)

    def nodes_frame(self) -> Any:
        """The labelled nodes around it as a pandas DataFrame."""
        import pandas as pd

        names = list(LabelledNode.__dataclass_fields__)
        return pd.DataFrame([asdict(one) for one in self.nodes], columns=names)

    def text(self) -> str:
        """All of it in lines for people."""
        rest = sum(part.contribution for part in self.channels[LISTED:])
        shown = self.to_frame()[["about", "says", "weight", "contribution"]].head(LISTED)
        others = {name: score for name, score in self.scores.items() if name != self.explained}
        rival = max(others, key=lambda name: others[name])
        lines = [
            self.summary(),
            shown.to_string(index=False, na_rep="-", float_format="{:+.3f}".format),
            f"score {self.score:+.3f}: these, {rest:+.3f} by other channels, "
            f"{self.correction:+.3f} correction, {self.log_share:+.3f} log class share "
            f"(sharpness {self.sharpness:.2f}); the best other class, {rival}, has "
            f"{others[rival]:+.3f}",
        ]
        if self.nodes:
            near = self.nodes_frame().head(LISTED)
            lines += ["labelled nodes that carried it:"]
            lines += [near.to_string(index=False, na_rep="-", float_format="{:.3f}".format)]
        return "\n".join(lines)


@torch.no_grad()
def explain_node(prediction: "Prediction", node: Any, label: int | str | None) -> NodeExplanation:
    """See :meth:`Prediction.explain`."""
    data, final = prediction.data, prediction.refined.final
    assert final is not None
    problem, count = final.problem, prediction.probabilities.shape[1]
    place = node_place(data, len(prediction.labelled), node)
    names = class_names(data, count)
    here = prediction.order.argsort()[place].to(problem.device)
    predicted = int(prediction.classes[place])
    explained = predicted if label is None else _class_of(label, names)
    seen = problem.seen.tolist()
    if explained not in seen:
        raise InputError(
            f"class {names[explained]} has no given label, so that nothing speaks for it. Explain "
            f"one of {', '.join(names[c] for c in seen[:10])}."
        )
    column = seen.index(explained)
    odds, trust, more = final.inputs(here[None])
    predictor = copy.deepcopy(prediction.learner.predictor).to(problem.device)
    of_channels, added = predictor.parts(odds, trust, more)
    weights, correction = of_channels[0].double(), added[0].double()  # [V], [C]
    by_channel = odds[0].double() * weights  # [C, V]
    prior = problem.prior.double().log()
    answer = prediction.probabilities[place, problem.seen.cpu()].double().to(problem.device)
    sharpness = _sharpness(by_channel.sum(1) + correction, answer, prior)
    before = seen[int((sharpness * by_channel.sum(1) + prior).argmax())]
    parts = [
        ChannelPart(
            channel=name,
            about=CHANNEL_NAMES.get(name, name),
            says=names[seen[int(p.argmax())]],
            probability=float(p[column]),
            weight=float(weight),
            log_odds=float(odd),
            contribution=float(sharpness * weight * odd),
        )
        for name, weight, odd in zip(CHANNELS, weights, odds[0, column].double(), strict=True)
        for p in [final.channels[name].probabilities[here]]
    ]
    parts.sort(key=lambda part: -abs(part.contribution))
    scores = (sharpness * (by_channel.sum(1) + correction) + prior).tolist()
    return NodeExplanation(
        id=own_ids(data, len(prediction.labelled))[place],
        predicted=names[predicted],
        explained=names[explained],
        probability=float(prediction.probabilities[place, explained]),
        labelled=bool(prediction.labelled[place]),
        score=scores[column],
        scores={names[c]: score for c, score in zip(seen, scores, strict=True)},
        channels=tuple(parts),
        correction=float(sharpness * correction[column]),
        log_share=float(prior[column]),
        sharpness=sharpness,
        changed_by_correction=names[before] if before != predicted else None,
        nodes=_labelled_nodes(prediction, final, int(here), names),
    )


def _class_of(label: int | str, names: list[str]) -> int:
    """The number of a class, by its name or its number."""
    if str(label) in names:
        return names.index(str(label))
    if isinstance(label, int) and 0 <= label < len(names):
        return label
    raise InputError(f"label must be one of the classes {', '.join(names[:10])}; got {label!r}")


def _sharpness(logits: Tensor, p: Tensor, log_prior: Tensor) -> float:
    """Sharpness s in ``p = softmax(s logits + log prior)``, by least squares: [C], [C], [C]."""
    there = p > 1e-30
    if int(there.sum()) < 2:
        return 1.0
    wanted = (p[there].log() - log_prior[there]).double()
    wanted, given = wanted - wanted.mean(), logits[there] - logits[there].mean()
    size = float(given @ given)
    return float(wanted @ given) / size if size > 1e-12 else 1.0


def _labelled_nodes(
    prediction: "Prediction", final: FinalRound, here: int, names: list[str]
) -> tuple[LabelledNode, ...]:
    """Labelled nodes by the walks that end at them, then those most alike."""
    problem = final.problem
    walks = [_walks(graph, here) for graph in (problem.links, final.graph)]
    alike = _similarity(final, here)
    others = problem.labelled[problem.labelled != here]
    reached = sum((0.5 * (one + two) for one, two in walks), torch.zeros_like(walks[0][0]))[others]
    strongest = reached.argsort(descending=True, stable=True)[:NEIGHBOURS]
    chosen = others[strongest[reached[strongest] > 0]].tolist()
    if alike is not None:
        near = others[alike[others].argsort(descending=True, stable=True)[:NEAREST]].tolist()
        chosen += [one for one in near if one not in chosen]
    ids, order = own_ids(prediction.data, len(prediction.labelled)), prediction.order
    found = []
    for one in chosen:
        place = int(order[one])
        (given, given_two), (refined, refined_two) = ((a[one], b[one]) for a, b in walks)
        joined = bool(given > 0), bool(refined > 0)
        twice = bool(given_two > 0) or bool(refined_two > 0)
        found.append(
            LabelledNode(
                id=ids[place],
                label=names[int(prediction.data.y[place])],
                steps=1 if any(joined) else 2 if twice else None,
                input_edge=joined[0],
                refined_edge=joined[1],
                input_weight=float(given + given_two) / 2,
                refined_weight=float(refined + refined_two) / 2,
                similarity=None if alike is None else float(alike[one]),
            )
        )
    return tuple(found)


def _walks(graph: SparseMatrix, here: int) -> tuple[Tensor, Tensor]:
    """Chances that a walk ends at each node after one step and after two, not back home: [N]."""
    row, col, weight = entries(graph)
    weight = weight * (row != col)
    total = torch.zeros(graph.shape[0], device=weight.device).index_add_(0, row, weight)
    chance = weight / total.clamp_min(1e-12)[row]
    one, two = torch.zeros_like(total), torch.zeros_like(total)
    first = row == here
    one[col[first].long()] = chance[first]
    two.index_add_(0, col, one[row] * chance)
    two[here] = 0
    return one, two


def _similarity(final: FinalRound, here: int) -> Tensor | None:
    """Cosine of each node with one, by features two steps away over the refined graph: [N]."""
    rows = final.views["ffx"]
    if rows.shape[1] == 0:
        return None
    every = torch.arange(rows.shape[0], device=final.problem.device)
    own = as_dense(take(rows, every[here : here + 1]))[0]
    if not bool(own.any()):
        return None
    return torch.cat([as_dense(take(rows, some)) @ own for some in torch.split(every, 2**14)])
