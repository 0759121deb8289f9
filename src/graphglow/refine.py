"""``graphglow.refine``: a better graph and instant predictions, with nothing trained on it.

The evidence learner is frozen and its predictors are solved in closed form, so this takes about a
second on a graph of a few thousand nodes.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, at_least, number, one_of, warn
from graphglow.evidence.channels import ridge_channel, spread_channel
from graphglow.evidence.refined import RefinedGraph
from graphglow.graph.check import edges_were_made, without_edges
from graphglow.graph.graph import normalised_adjacency, undirected_edges
from graphglow.graph.load import as_given
from graphglow.graph.write import edge_frame, write_predictions
from graphglow.linalg.rows import times, unit_
from graphglow.predict import run_frozen
from graphglow.pretrained import UNIVERSAL, LearnerName, evidence_learner
from graphglow.scores import NO_PAIRS, compare_accuracies, compare_edges, verdict_of

WITHOUT_EDGES = 8
"""Edges that a node keeps where the input has none to count."""
EdgeChoice = Literal["auto", "keep", "augment", "prune", "replace"]
WORDS = {
    "keep": "your edges are kept as they are",
    "augment": "your edges are kept, others are added",
    "prune": "edges are left out, none is added",
    "replace": "edges are left out and others are added",
}
"""What becomes of the edges, by choice."""
NO_EDGES = "cannot tell: no edges are left"
KEPT_WEIGHT = 1.0
"""Least weight of an edge of the input where all of them are kept: what it had there."""
EDGES = ("edge_index", "edge_weight", "edge_probability", "edge_in_input")


class RefinedData(Data):  # type: ignore[misc]
    """A refined graph: features, labels and ids of the input, with other edges.

    Shapes:
        edge_index [2, E], both directions; edge_weight [E] log-odds over chance, 0 to 8;
        edge_probability [E] that both ends are of one class; edge_in_input [E];
        class_probability [N, C], absent without labels

    ``verdict`` says in up to three lines whether this is better than the input; ``choice`` which
    choice of edges it is (``keep``, ``augment``, ``prune`` or ``replace``) and ``search`` how the
    nearest nodes were found: ``exact``, or in how many of how many lists. Predictions do not
    depend on the edges that are kept.
    """

    def predict_proba(self) -> Tensor | None:
        """Class probabilities of every node [N, C]; None without labels."""
        probabilities: Tensor | None = self.get("class_probability")
        return probabilities

    def predict(self) -> Tensor | None:
        """The most probable class of every node [N]; None without labels."""
        probabilities = self.predict_proba()
        return None if probabilities is None else probabilities.argmax(1)

    def accuracy(self, part: Literal["train", "val", "test"]) -> float | None:
        """Accuracy on a part of the split; None where it has no nodes, or without labels."""
        one_of("part", part, ("train", "val", "test"))
        predicted, mask = self.predict(), self.get(f"{part}_mask")
        if predicted is None or mask is None or not bool(mask.any()):
            return None
        return float((predicted == self.y)[mask].double().mean())

    def to_frame(self) -> Any:
        """Each edge once, the most probable first, as a pandas DataFrame.

        Columns: ``source``, ``target`` (your ids), ``weight``, ``probability``, ``in_input``.
        """
        once = (self.edge_index[0] < self.edge_index[1]).numpy()
        return edge_frame(self)[once].sort_values("probability", ascending=False, ignore_index=True)

    def write_predictions(self, path: str | Path) -> None:
        """Write every node's id, predicted class and probabilities as ``.csv`` or ``.parquet``."""
        probabilities = self.predict_proba()
        if probabilities is None:
            raise InputError("predictions need labels to learn from; got a graph without any")
        write_predictions(self, probabilities, path)


def refine(
    data: Any,
    learner: LearnerName = UNIVERSAL,
    *,
    top_k: int | None = None,
    min_probability: float = 0.0,
    edges: EdgeChoice = "auto",
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    workers: int | None = None,
    ray: str | None = None,
) -> RefinedData:
    """Refine a graph with a frozen evidence learner; nothing is trained.

    Every edge, and every promising pair without one, gets the probability that both ends are of
    one class. Which of them make the new graph is chosen by ``edges``. Only labels of training
    nodes are read, and those of validation nodes for the ``verdict``. A bad verdict is an
    :class:`InputWarning`, and so is leaving out more than half of the edges that you gave.

    Args:
        data: The graph: a ``Data``, of which features, edges, labels and a split may each be
            absent, or anything else that :func:`graphglow.load_graph` takes.
        learner: An evidence learner: ``"universal"``, ``"untrained"`` as a control, a file, or the
            learner itself.
        top_k: Edges kept for each node, the strongest, and those that its neighbours keep. By
            default as many edges are kept as the input has: each node's strongest, then each one's
            second, and so on; the strongest of every node even if that is more.
        min_probability: Leave out edges below this probability too; where all edges of the input
            are kept, new ones.
        edges: ``"replace"``: the strongest pairs that are likelier of one class than two random
            nodes, joined in the input or not. ``"augment"``: these and all edges of the input.
            ``"prune"``: the edges of the input that are among them. ``"keep"``: the edges of the
            input. ``"auto"``: keep, augment or replace, whichever predicts the labels best by
            leave-one-out; augment where there are no labels.
        seed: Seeds the random projections, and the untrained control.
        device: Where to compute.
        workers: Ray workers that share the work, on CPUs; the result is the same.
        ray: ``"local"``, a Ray of this machine, or a cluster: ``"auto"``, ``"ray://HOST:10001"``.

    Returns:
        A PyG ``Data`` with the nodes of ``data``, and instant predictions.
    """
    number("min_probability", min_probability, 0, 1)
    one_of("edges", edges, ("auto", *WORDS))
    if top_k is not None:
        at_least("top_k", top_k, 1)
    frozen = evidence_learner(learner, seed=seed)
    data = as_given(data)
    graph, order = run_frozen(frozen, data, seed=seed, device=device, workers=workers, ray=ray)
    kept, chosen = choose_edges(graph, edges, top_k, min_probability)
    refined = RefinedData(**without_edges(data.clone()).to_dict())
    for name in EDGES:
        refined[name] = getattr(kept, name).cpu()
    refined.edge_index = order[refined.edge_index]
    if graph.probabilities is not None:
        refined.class_probability = graph.probabilities.cpu()[order.argsort()]
    refined.num_nodes = graph.graph.num_nodes
    refined.search, refined.choice = graph.known.search, chosen
    refined.verdict = _verdict(data, refined, graph, order, min_probability)
    given = len(graph.graph.low)
    dropped = given - int(refined.edge_in_input.sum()) // 2
    many = 2 * dropped > given and refined.num_edges and not edges_were_made(data)
    if many:
        left_out = f'{dropped:,} of your {given:,} edges are left out (edges="augment" keeps them)'
        refined.verdict += f"\n{left_out}"
    if many or refined.verdict.startswith(("worse", NO_EDGES)):
        warn("; ".join(refined.verdict.splitlines()))
    return refined


def choose_edges(
    graph: RefinedGraph,
    edges: EdgeChoice = "auto",
    top_k: int | None = None,
    min_probability: float = 0.0,
) -> tuple[RefinedGraph, EdgeChoice]:
    """Keep the edges of a refined graph that :func:`refine` is asked for; say which choice it was.

    ``auto`` takes the choice over which labels are predicted best: by ridge regression on two-hop
    means of the features, a linear GNN, or by label spreading where there are no features. The
    measure is the leave-one-out log-loss, and the input is kept if none is better.
    """
    if edges == "auto" and len(graph.graph.low) == 0:
        edges = "replace"
    elif edges == "auto" and len(graph.graph.seen) < 2:
        edges = "augment"
    if edges != "auto":
        return _edges_of(graph, edges, top_k, min_probability), edges
    choices: tuple[EdgeChoice, ...] = ("keep", "augment", "replace")
    best, least, x = (graph, choices[0]), -math.inf, graph.known.views["x"]
    for choice in choices:
        kept = _edges_of(graph, choice, top_k, min_probability)
        alike = torch.ones(kept.edge_index.shape[1], device=x.device)
        adjacency = normalised_adjacency(kept.edge_index, alike, kept.graph.num_nodes)
        if x.shape[1] == 0:
            channel = spread_channel(graph.graph, adjacency)
        else:
            twice = unit_(times(adjacency, times(adjacency, x)))
            channel = ridge_channel(graph.graph, twice)
        if (gain := float(channel.scores[1])) > least:  # in log-loss
            best, least = (kept, choice), gain
    return best


def _edges_of(
    graph: RefinedGraph, edges: EdgeChoice, top_k: int | None, min_probability: float
) -> RefinedGraph:
    given = graph.pair_in_input.nonzero()[:, 0]
    if edges == "keep":
        return replace(graph, edges=given, least_weight=KEPT_WEIGHT)
    best = graph if edges != "prune" else graph.only(graph.pair_in_input[graph.edges])
    if top_k is not None or len(graph.graph.low) == 0:
        kept = (best.ranks() < (top_k or WITHOUT_EDGES)).any(0)
    elif edges == "prune":
        kept = torch.ones_like(best.edges, dtype=torch.bool)
    else:  # as many as the input has, by the better of their ranks at both ends, then by weight
        rank, count = best.ranks().amin(0), len(graph.graph.low)
        up_to = torch.bincount(rank).cumsum(0)  # edges of this rank or a better one
        last = int((up_to < count).sum())
        kept = rank < max(1, last)  # the best edge of every node is among them
        tied = (rank == last).nonzero()[:, 0]
        heaviest = best.weights()[tied].argsort(descending=True, stable=True)
        kept[tied[heaviest[: max(0, count - int(kept.sum()))]]] = True
    best = best.only(kept & (best.pair_probability[best.edges] >= min_probability))
    if edges != "augment":
        return best
    both = torch.unique(torch.cat([best.edges, given]))
    return replace(best, edges=both, least_weight=KEPT_WEIGHT)


def _verdict(
    data: Data, refined: RefinedData, graph: RefinedGraph, order: Tensor, min_probability: float
) -> str:
    """Compare the edges, and predictions over the input graph (A^2 x) with all evidence."""
    edges, y, mask = refined.edge_index, data.get("y"), data.get("val_mask")
    if edges.shape[1] == 0 and refined.num_nodes > 1:
        limit = f" and reaches min_probability {min_probability:g}" if min_probability else ""
        return f"{NO_EDGES}, as none is above chance{limit}"
    if edges.shape[1] == 2 * input_edges(data) and bool(refined.edge_in_input.all()):
        return "no change: every edge is as it was"
    nodes = [] if y is None else (y >= 0 if mask is None else mask & (y >= 0)).nonzero()[:, 0]
    accuracies = None
    if graph.probabilities is not None and len(graph.graph.low) and len(nodes):
        place, truth = order.argsort()[nodes], data.y[nodes]
        before = graph.graph.seen[graph.known.channels["aax"].probabilities.argmax(1)].cpu()
        after = graph.probabilities.argmax(1).cpu()
        which = "labelled nodes by leave-one-out" if mask is None else "validation nodes"
        whose = f"predictions are right for {{}} of {len(nodes):,} {which}, over the input for {{}}"
        accuracies = compare_accuracies(before[place] == truth, after[place] == truth, whose)
    labels = y is not None and bool((y >= 0).any())
    unknown = NO_PAIRS if labels else "no labels"
    return verdict_of((accuracies, compare_edges(data, edges)), unknown)


def usual_top_k(data: Data) -> int:
    """The default number of edges kept for each node: about as many as the graph has."""
    return round(2 * input_edges(data) / max(1, int(data.num_nodes or 0))) or WITHOUT_EDGES


def input_edges(data: Data) -> int:
    """Count undirected edges, without duplicates and self-loops."""
    if data.get("edge_index") is None:
        return 0
    weight = data.get("edge_weight")
    return len(undirected_edges(data.edge_index, weight, int(data.num_nodes))[0])
