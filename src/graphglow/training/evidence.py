"""Transfer under an evidence learner: the graph is refined once, then one GNN is trained.

The frozen learner makes a structure S of the graph, in closed form. The GNN reads the graph's own
features, and its messages pass over ``lambda A + (1 - lambda) S`` (Eq. 12). Where the settings name
no lambda, a GNN is trained for each of :data:`INPUT_WEIGHTS`, and the best on validation nodes is
kept.

Differs from the paper: S does not change while the GNN trains, and lambda may be chosen.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import in_unit_interval
from graphglow.device import (
    check_fits,
    out_of_memory_hint,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.gnn import Backbone, FixedStructure
from graphglow.gnn.train import Epoch, GNNTask, Loop, OnEpoch, freeze
from graphglow.graph import Graph, check_graph, training_graph
from graphglow.graph.graph import normalised_adjacency
from graphglow.settings import TransferConfig
from graphglow.storage import prefixed, within
from graphglow.training.result import TransferResult, loaded_gnn
from graphglow.training.verdict import Accuracies, Share, homophily

if TYPE_CHECKING:
    from graphglow.explain import Explanation

INPUT_WEIGHTS = (0.0, 0.5, 1.0)
"""lambda: the refined graph alone, both graphs, the input graph alone."""
EPOCHS_UNSEEN = 100
"""Epochs where no validation node says when to stop."""
REFINED_EDGES = ("edge_index", "edge_weight", "edge_probability", "edge_in_input")
NEEDS_LESS = "a smaller --hidden, fewer --num-layers"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EvidenceResult(TransferResult):
    """A transfer under an evidence learner: the refined graph, and a GNN trained over it.

    Shapes:
        edge_index [2, E] both directions of the refined edges; edge_weight, edge_probability,
        edge_in_input [E]
    """

    config: TransferConfig
    learner: EvidenceLearner
    edge_index: Tensor
    edge_weight: Tensor
    edge_probability: Tensor
    edge_in_input: Tensor
    input_weight: float
    """lambda."""
    chosen_by: str
    """What chose lambda: ``settings``, ``validation``, or ``leave-one-out`` without validation
    nodes."""
    against_input: Accuracies | None
    """On validation nodes, against the GNN with lambda 1; None where that was not trained."""

    @cached_property
    def logits(self) -> Tensor:
        with torch.no_grad():
            return self.scores_on(self.graph)

    @cached_property
    def message_graph(self) -> tuple[FixedStructure, float]:
        edges = self.edge_index, self.edge_weight
        return _structure(*edges, self.graph.num_nodes), self.input_weight

    def on_graph(self, data: Data, graph: Graph) -> "EvidenceResult":
        refined = refined_by(self.learner, data, self.config.seed, self.device)
        return replace(self, data=data, graph=graph, **_kept_edges(refined, self.config.top_k))

    @cached_property
    def refined(self) -> RefinedGraph:
        """All candidate pairs with their evidence, computed again: a result keeps edges only."""
        return refined_by(self.learner, self.data, self.config.seed, self.device)

    def explain_pair(self, u: int | str, v: int | str) -> "Explanation":
        from graphglow.explain import explain_known_pair, pair_places

        pair = pair_places(self.data, self.graph.num_nodes, u, v)
        known = self.learner, self.refined, self.data, pair
        return explain_known_pair(*known, self.edge_index, self.logits)

    def edge_probabilities(self, node: int) -> dict[int, float]:
        mine = self.edge_index[0] == node
        ends, probability = self.edge_index[1, mine], self.edge_probability[mine]
        return dict(zip(ends.tolist(), probability.tolist(), strict=True))

    def _against_input(self) -> Accuracies | None:
        return self.against_input or super()._against_input()

    def _homophily(self) -> Share | None:
        return homophily(self.data, self.edge_index)

    def _about(self) -> dict[str, Any]:
        return {
            "method": "evidence" if self.learner.trained else "untrained",
            "backbone": self.config.backbone,
            "input_weight": self.input_weight,
            "chosen_by": self.chosen_by,
            "refined_edges_in_training": self.edge_index.shape[1] // 2,
            "device": self.device.type,
            "seed": self.config.seed,
        }

    def _parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = prefixed("refined", {name: getattr(self, name) for name in REFINED_EDGES})
        tensors |= prefixed("learner", dict(self.learner.state_dict()))
        tensors |= prefixed("gnn", self.gnn.state_dict())
        facts = {
            "config": asdict(self.config),
            "learner": self.learner.facts(),
            **{name: getattr(self, name) for name in ("input_weight", "chosen_by")},
            "against_input": self.against_input,
        }
        return tensors, facts


class Trained(NamedTuple):
    """The GNN of one lambda.

    Shapes:
        right [K]: which validation nodes it predicts right
    """

    input_weight: float
    gnn: Backbone
    history: list[Epoch]
    right: Tensor

    @property
    def score(self) -> tuple[float, float]:
        """Of the epoch that was kept: validation accuracy, then the lower log-loss."""
        return max((epoch.val_accuracy, -epoch.val_loss) for epoch in self.history)


def transfer_evidence(
    data: Data,
    learner: EvidenceLearner,
    config: TransferConfig,
    *,
    on_epoch: OnEpoch | None = None,
) -> EvidenceResult:
    """See :func:`graphglow.transfer`."""
    began = time.perf_counter()
    device = resolve_device(config.device)
    data = check_graph(data, need_validation=False)
    _check_memory(data, config, device)
    reset_peak_memory(device)
    name = data.get("name", "graph")
    with out_of_memory_hint(f"refining {name}", "a smaller graph"):
        refined = refined_by(learner, data, config.seed, device)
        edges = _kept_edges(refined, config.top_k)
    graph = with_known_classes(training_graph(data), data).to(device)
    weights, chosen_by = _weights_to_try(config, graph, refined.channel_scores)
    del refined  # candidates and their evidence take many times the room of the graph
    with out_of_memory_hint(f"training on {name}", NEEDS_LESS):
        structure = _structure(edges["edge_index"], edges["edge_weight"], graph.num_nodes)
        train_began = time.perf_counter()
        trained = _train(graph, structure, config, weights, on_epoch)
        best = max(trained, key=lambda one: one.score)
        train_seconds = time.perf_counter() - train_began
    plain = [one.right for one in trained if one.input_weight == 1 and len(graph.val) > 0]
    result = EvidenceResult(
        data=data,
        graph=graph,
        config=config,
        learner=learner,
        gnn=best.gnn,
        **edges,
        input_weight=best.input_weight,
        chosen_by=chosen_by,
        against_input=Accuracies.of(plain[0], best.right) if plain else None,
        history=best.history,
        train_seconds=train_seconds,
        seconds=time.perf_counter() - began,
        peak_memory_bytes=peak_memory_bytes(device),
    )
    result._verdict().warn()
    return result


def _train(
    graph: Graph,
    structure: FixedStructure,
    config: TransferConfig,
    weights: Sequence[float],
    on_epoch: OnEpoch | None,
) -> list[Trained]:
    """Train a GNN for each lambda; without validation nodes, training nodes say when to stop."""
    unseen = len(graph.val) == 0
    epochs = min(config.epochs, EPOCHS_UNSEEN) if unseen else config.epochs
    graph = graph.with_labels(val=graph.train) if unseen else graph
    trained = []
    for weight in weights:
        run = config.run(weight)
        task = GNNTask(graph, config.hidden, run, given=structure, balanced=config.balanced)
        history = Loop(task, epochs, config.patience).run(on_epoch)
        right = task.logits()[graph.val].argmax(1) == task.val_labels
        trained.append(Trained(weight, freeze(task.gnn), history, right))
    return trained


def _weights_to_try(
    config: TransferConfig, graph: Graph, scores: Mapping[str, Mapping[str, float]]
) -> tuple[tuple[float, ...], str]:
    """Values of lambda to train with, and what chooses among them."""
    if config.input_weight is not None:
        return (float(config.input_weight),), "settings"
    if len(graph.val) == 0:
        return (input_weight_by_leave_one_out(scores),), "leave-one-out"
    return INPUT_WEIGHTS, "validation"


def input_weight_by_leave_one_out(
    scores: Mapping[str, Mapping[str, float]], *, margin: float = 0.05
) -> float:
    """Return lambda of ``lambda A + (1 - lambda) S`` without validation nodes.

    The channels of A^2 x and S^2 x are linear GNNs on the input graph and on the refined one; their
    leave-one-out log-loss gains on the training nodes are compared. The better graph is taken
    alone; within ``margin`` of each other both count alike. Where neither is as good as the
    features without a graph, the better one does the least harm, so this is not asked.

    Args:
        scores: ``channel_scores`` of a refined graph.
        margin: A smaller lead is none.
    """
    given, refined = (scores[name]["likelihood"] for name in ("aax", "ssx"))
    return 0.5 if abs(given - refined) <= margin else float(given > refined)


def refined_by(
    learner: EvidenceLearner, data: Data, seed: int, device: torch.device
) -> RefinedGraph:
    """Refine a checked graph."""
    return learner.refine(known_to_learner(data), seed=seed, device=device)


def known_to_learner(data: Data) -> Data:
    """The part of a checked graph that a learner reads; edges made up for want of any are left out.

    Only labels of the training nodes are read of it.
    """
    names = ["x", "y", "train_mask", "class_names"]
    if not data.get("knn_graph", False):
        names += ["edge_index", "edge_weight"]
    return Data(**{name: data[name] for name in names if data.get(name) is not None})


def with_known_classes(graph: Graph, data: Data) -> Graph:
    """The graph with the classes of training and validation nodes, and named ones.

    A class that only a test node has is none, or test labels would change what is trained.
    """
    known = graph.y[torch.cat([graph.train, graph.val])]
    count = max(int(known.max()) + 1, len(data.get("class_names") or ()))
    return graph.with_labels(num_classes=count)


def evidence_result(
    data: Data,
    tensors: dict[str, Tensor],
    meta: dict[str, Any],
    measured: dict[str, Any],
    origin: str,
) -> EvidenceResult:
    """The result that a file holds, on the CPU."""
    if "answers" in meta:
        raise InputError(
            f"{origin} holds a mixture of several GNNs, which only older versions of graphglow can "
            "read: run graphglow transfer again to train the one GNN that takes its place"
        )
    data = check_graph(data, need_validation=False)
    graph = with_known_classes(training_graph(data), data)
    config = TransferConfig(**(meta["config"] | {"device": "cpu"}))
    in_unit_interval("input_weight", meta["input_weight"])
    against = meta["against_input"]
    return EvidenceResult(
        data=data,
        graph=graph,
        config=config,
        learner=EvidenceLearner.from_tensors(within("learner", tensors), meta["learner"], origin),
        gnn=loaded_gnn(config, graph, config.hidden, within("gnn", tensors), origin),
        **_checked_edges(within("refined", tensors), graph.num_nodes, origin),
        input_weight=float(meta["input_weight"]),
        chosen_by=str(meta["chosen_by"]),
        against_input=None if against is None else Accuracies(*against),
        **measured,
    )


def _checked_edges(edges: dict[str, Tensor], nodes: int, origin: str) -> dict[str, Any]:
    count = edges["edge_index"].shape[-1]
    for name in REFINED_EDGES:
        shape = (2, count) if name == "edge_index" else (count,)
        if tuple(edges[name].shape) != shape or not bool(edges[name].isfinite().all()):
            raise InputError(f"{origin} must hold finite numbers of shape {shape} as {name}")
    ends = edges["edge_index"]
    if count and not 0 <= int(ends.min()) <= int(ends.max()) < nodes:
        raise InputError(f"{origin} must hold refined edges between nodes of its graph")
    return {name: edges[name] for name in REFINED_EDGES}


def _kept_edges(refined: RefinedGraph, top_k: int) -> dict[str, Any]:
    """:data:`REFINED_EDGES` of edges that are among the ``top_k`` strongest of either end."""
    kept = refined.only((refined.ranks() < top_k).any(0))
    return {name: getattr(kept, name) for name in REFINED_EDGES}


def _structure(edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> FixedStructure:
    return FixedStructure(normalised_adjacency(edge_index, edge_weight, num_nodes))


def _check_memory(data: Data, config: TransferConfig, device: torch.device) -> None:
    """Raise before anything is computed where a GNN's layers would need more than is free."""
    needed = 16 * config.num_layers * config.hidden * int(data.num_nodes or 0)
    check_fits("training", needed, str(data.get("name", "graph")), device, f" ({NEEDS_LESS})")
