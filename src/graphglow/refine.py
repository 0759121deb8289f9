"""``graphglow.refine``: a better graph and instant predictions, with nothing trained on it.

The evidence learner is frozen and its predictors are solved in closed form, so this takes about a
second on a graph of a few thousand nodes.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least, in_unit_interval, one_of, true_or_false
from graphglow.errors import InputError
from graphglow.evidence.refined import RefinedGraph
from graphglow.graph import as_graph
from graphglow.graph.check import without_edges
from graphglow.graph.graph import undirected_edges
from graphglow.graph.write import edge_frame, write_predictions
from graphglow.predict import run_frozen
from graphglow.pretrained import UNIVERSAL, LearnerName, evidence_learner
from graphglow.verdict import NO_PAIRS, Accuracies, Verdict, edge_shares, verdict_of

WITHOUT_EDGES = 8
"""Edges that a node keeps of a graph that has none to go by."""
EDGES = ("edge_index", "edge_weight", "edge_probability", "edge_in_input")


class RefinedData(Data):  # type: ignore[misc]
    """A refined graph: features, labels and ids of the input, and other edges.

    Shapes:
        edge_index [2, E], both directions; edge_weight [E] log-odds over chance, 0 to 8;
        edge_probability [E] that both ends are of one class; edge_in_input [E];
        class_probability [N, C], absent without labels

    ``verdict`` says in one line whether this is better than the input, and by what; predictions do
    not depend on the edges that are kept. ``search`` says how the nearest nodes were found:
    ``exact``, or how many of how many lists were looked through.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            known = sorted(self.keys()) + [verb for verb in vars(RefinedData) if verb[0] != "_"]
            rule = f"a refined graph has {', '.join(known)}"
            raise AttributeError(f"{rule}; got {name!r}") from error

    def predict_proba(self) -> Tensor | None:
        """Class probabilities of every node, in closed form [N, C]; None without labels."""
        found: Tensor | None = self.get("class_probability")
        return found

    def predict(self) -> Tensor | None:
        """The most probable class of every node [N]; None without labels."""
        probabilities = self.predict_proba()
        return None if probabilities is None else probabilities.argmax(1)

    def accuracy(self, part: Literal["train", "val", "test"]) -> float | None:
        """Of the predictions on a part of the split; None where it has no nodes, or no labels."""
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
    add: bool = True,
    drop: bool = True,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    workers: int | None = None,
    ray: str | None = None,
) -> RefinedData:
    """Refine a graph with a frozen evidence learner; nothing is trained.

    Edges are the strongest of the pairs, joined in the input or not, that are more likely of one
    class than two random nodes are: as many as the input has edges, unless asked for otherwise, so
    that input edges above chance may be left out too. Labels outside of the training nodes are
    never read, but for the ``verdict``, which reads validation labels; if it is bad, that is an
    :class:`InputWarning`.

    Args:
        data: The graph: a ``Data``, of which features, edges, labels and a split may each be
            absent, or anything else that :func:`graphglow.load_graph` takes.
        learner: An evidence learner: ``"universal"``, ``"untrained"`` as a control, a file, or the
            learner itself.
        top_k: Edges kept for each node, the strongest, and those that its neighbours keep. By
            default as many edges are kept in all as the input has: each node's strongest, then
            each one's second, and so on; the strongest of every node even if that is more.
        min_probability: Leave out edges below this probability too; without ``drop``, of new ones.
        add: False: only edges of the input are kept, and none is added.
        drop: False: all edges of the input are kept, and others are added.
        seed: Of the random projections, and of the untrained control.
        device: Where to compute.
        workers: Ray workers that share the work, on CPUs; None: this process alone. Whatever their
            number, the result is the same, also if some of them are killed.
        ray: ``"local"``, a Ray of this machine (the default where there are workers), or the
            address of a cluster: ``"auto"`` or ``"ray://HOST:10001"``.

    Returns:
        A PyG ``Data`` with what ``data`` has of nodes; :meth:`RefinedData.predict_proba` has the
        instant predictions.
    """
    in_unit_interval("min_probability", min_probability)
    true_or_false("add", add)
    true_or_false("drop", drop)
    seed = at_least("seed", seed, 0)
    if top_k is not None:
        at_least("top_k", top_k, 1)
    found = evidence_learner(learner, seed=seed)
    data = as_graph(data, need_labels=False)
    made, order = run_frozen(found, data, seed=seed, device=device, workers=workers, ray=ray)
    judged = _closed_form(made, data, order)
    made = chosen(made, top_k, min_probability, add=add, drop=drop)
    of_nodes: dict[str, Any] = without_edges(data.clone()).to_dict()
    refined = RefinedData(**of_nodes)
    for name in EDGES:
        refined[name] = getattr(made, name).cpu()
    refined.edge_index = order[refined.edge_index]
    if made.probabilities is not None:
        refined.class_probability = made.probabilities.cpu()[order.argsort()]
    refined.num_nodes = made.num_nodes
    verdict = _verdict(data, refined, judged, min_probability, made.input_edges)
    refined.verdict, refined.search = verdict.sentence, made.search
    verdict.warn()
    return refined


def chosen(
    made: RefinedGraph,
    top_k: int | None,
    min_probability: float,
    *,
    add: bool,
    drop: bool,
) -> RefinedGraph:
    """The refined graph with the edges that were asked for."""
    if not drop:
        made = replace(made, edges=torch.cat([made.edges, made.dropped()]))
    if not add:
        made = made.only(made.pair_in_input[made.edges])
    edges = made.input_edges
    if top_k is not None or edges == 0:
        kept = (made.ranks() < (top_k or WITHOUT_EDGES)).any(0)
    elif add:
        kept = _best_first(made, edges)
    else:
        kept = torch.ones_like(made.edges, dtype=torch.bool)
    kept &= made.pair_probability[made.edges] >= min_probability
    return made.only(kept if drop else kept | made.pair_in_input[made.edges])


def _best_first(made: RefinedGraph, count: int) -> Tensor:
    """Which edges are the best ``count``: by their place among the edges of the end that holds them
    higher, then by weight. The best edge of every node is kept in any case: [K] of bool.
    """
    rank = made.ranks().amin(0)
    upto = torch.bincount(rank).cumsum(0)  # edges of this place or a better one
    last = int((upto < count).sum())
    kept = rank < max(1, last)
    tied = (rank == last).nonzero()[:, 0]
    heaviest = made.weights()[tied].argsort(descending=True, stable=True)
    kept[tied[heaviest[: max(0, count - int(kept.sum()))]]] = True
    return kept


def _closed_form(made: RefinedGraph, data: Data, order: Tensor) -> Accuracies | None:
    """Accuracy on validation nodes, over the input graph (A^2 x) and of all there is."""
    mask = data.get("val_mask")
    if made.probabilities is None or mask is None or made.input_edges == 0:
        return None
    nodes = (mask & (data.y >= 0)).nonzero()[:, 0]
    if len(nodes) == 0:
        return None
    channels, truth = made.known.channels, data.y[nodes]
    given = made.graph.seen[channels["aax"].probabilities.argmax(1)].cpu()
    found = made.probabilities.argmax(1).cpu()
    here = order.argsort()[nodes]
    return Accuracies.of(given[here] == truth, found[here] == truth)


def _verdict(
    data: Data,
    refined: RefinedData,
    judged: Accuracies | None,
    min_probability: float,
    edges_before: int,
) -> Verdict:
    labels = data.get("y") is not None and bool((data.y >= 0).any())
    edges = refined.edge_index
    if edges.shape[1] == 0 and int(data.num_nodes) > 1:
        limit = f" and reaches min_probability {min_probability:g}" if min_probability else ""
        why = f"none is above chance{limit}"
        return Verdict(f"cannot tell: no edges are left, as {why}", True)
    if edges.shape[1] == 2 * edges_before and bool(refined.edge_in_input.all()):
        return Verdict("no change: every edge is as it was", False)
    nodes = judged.nodes if judged else 0
    return verdict_of(
        edge_shares(data, edges),
        judged,
        whose=f"closed-form predictions of {nodes:,} validation nodes are {{}} right, against {{}} "
        "over the input graph, whichever edges are kept",
        unknown=NO_PAIRS if labels else "no labels",
    )


def usual_top_k(data: Data) -> int:
    """Edges kept for each node where nobody says how many: about as many as the graph has."""
    return round(2 * input_edges(data) / max(1, int(data.num_nodes or 0))) or WITHOUT_EDGES


def input_edges(data: Data) -> int:
    """Different undirected edges of a graph, self-loops left out."""
    if data.get("edge_index") is None:
        return 0
    weight = data.get("edge_weight")
    return len(undirected_edges(data.edge_index, weight, int(data.num_nodes))[0])
