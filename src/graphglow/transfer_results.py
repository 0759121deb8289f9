"""A transfer under either kind of learner: how its learned graph comes about, and its file."""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.device import out_of_memory_hint
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.gnn import Backbone, FixedStructure, Structure, build_gnn
from graphglow.graph import Graph, check_graph, training_graph
from graphglow.graph.graph import normalised_adjacency
from graphglow.paper import StructureLearner
from graphglow.paper.algorithms import NEEDS_LESS, Refinement, last_refinement
from graphglow.result import TransferResult
from graphglow.settings import BackboneConfig, PaperConfig, TransferConfig, delta_facts
from graphglow.storage import fill, prefixed, within
from graphglow.verdict import NO_PAIRS, Accuracies, Verdict, homophily, verdict_of

if TYPE_CHECKING:  # which imports results
    from graphglow.explain import Explanation

REFINED_EDGES = ("edge_index", "edge_weight", "edge_probability", "edge_in_input")
Tensors = dict[str, Tensor]
Facts = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PaperResult(TransferResult):
    """A transfer under the paper's structure learner, with its fixed pivots [P]."""

    config: PaperConfig
    learner: StructureLearner
    pivots: Tensor

    @cached_property
    def refinement(self) -> Refinement:
        """The last step of an evaluation pass: embeddings, learned structure, logits."""
        with out_of_memory_hint(f"predicting {self.graph.name}", NEEDS_LESS):
            return last_refinement(self.gnn, self.learner, self.graph, self.pivots, self.config)

    @property
    def logits(self) -> Tensor:
        return self.refinement.logits

    @property
    def message_graph(self) -> tuple[Structure | None, float]:
        return self.refinement.latent, self.config.input_weight

    def on_graph(self, data: Data, graph: Graph) -> "PaperResult":
        return replace(self, data=data, graph=graph)

    def explain_pair(self, u: int | str, v: int | str) -> "Explanation":
        raise InputError(
            "Pairs are explained under an evidence learner only: the paper's compares embeddings "
            "and has no evidence to name. Transfer with the learner universal."
        )

    def _about(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "backbone": self.config.backbone,
            **delta_facts(self.learner.config.delta),
            "device": self.device.type,
            "seed": self.config.seed,
        }

    @property
    def method(self) -> str:
        if not self.learner.config.weighted:
            kept = self.learner.config.neighbours
            return f"graphglow-{self.learner.config.similarity if kept is None else 'knn'}"
        return "graphglow" if self.learner.provenance.get("trained") else "random-theta"

    def _structure(self) -> tuple[Tensors, Facts]:
        learner = {"config": asdict(self.learner.config), "provenance": self.learner.provenance}
        tensors = prefixed("learner", self.learner.state_dict()) | {"pivots": self.pivots}
        return tensors, {"learner": learner}

    @classmethod
    def from_tensors(
        cls, data: Data, tensors: Tensors, meta: Facts, measured: Facts, origin: str
    ) -> "PaperResult":
        data = check_graph(data)
        graph = training_graph(data)
        learner = StructureLearner.from_tensors(within("learner", tensors), meta["learner"], origin)
        config = PaperConfig(**(meta["config"] | {"device": "cpu"}))
        return cls(
            data=data,
            graph=graph,
            config=config,
            learner=learner.requires_grad_(False).eval(),
            gnn=_loaded_gnn(config, graph, learner.config.embedding_size, tensors, origin),
            pivots=_nodes(tensors["pivots"], graph, origin),
            **measured,
        )


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
    """Which rule chose lambda: ``settings``, ``validation``, or ``leave-one-out`` without
    validation nodes."""
    against_input: Accuracies | None
    """On validation nodes, against the GNN with lambda 1; None where that was not trained."""

    @cached_property
    def logits(self) -> Tensor:
        with torch.no_grad():
            return self.scores_on(self.graph)

    @cached_property
    def message_graph(self) -> tuple[FixedStructure, float]:
        edges = self.edge_index, self.edge_weight
        adjacency = normalised_adjacency(*edges, self.graph.num_nodes)
        return FixedStructure(adjacency), self.input_weight

    def on_graph(self, data: Data, graph: Graph) -> "EvidenceResult":
        refined = refined_by(self.learner, data, self.config.seed, self.device)
        return replace(self, data=data, graph=graph, **strongest_edges(refined, self.config.top_k))

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

    def judged(self) -> Verdict:
        right = self.against_input
        return verdict_of(
            homophily(self.data, self.edge_index) if right is None else None,
            right,
            whose="validation accuracy {}, against {} of a GNN on the input graph",
            unknown=NO_PAIRS,
        )

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

    def _structure(self) -> tuple[Tensors, Facts]:
        tensors = prefixed("refined", {name: getattr(self, name) for name in REFINED_EDGES})
        tensors |= prefixed("learner", dict(self.learner.state_dict()))
        names = ("input_weight", "chosen_by", "against_input")
        facts = {name: getattr(self, name) for name in names}
        return tensors, {"learner": self.learner.facts(), **facts}

    @classmethod
    def from_tensors(
        cls, data: Data, tensors: Tensors, meta: Facts, measured: Facts, origin: str
    ) -> "EvidenceResult":
        data = check_graph(data, need_validation=False)
        graph = with_known_classes(training_graph(data), data)
        config = TransferConfig(**(meta["config"] | {"device": "cpu"}))
        learner = within("learner", tensors)
        edges: Any = within("refined", tensors)
        _nodes(edges["edge_index"], graph, origin)
        against = meta["against_input"]
        return cls(
            data=data,
            graph=graph,
            config=config,
            learner=EvidenceLearner.from_tensors(learner, meta["learner"], origin),
            gnn=_loaded_gnn(config, graph, config.hidden, tensors, origin),
            **edges,
            input_weight=float(meta["input_weight"]),
            chosen_by=str(meta["chosen_by"]),
            against_input=None if against is None else Accuracies(*against),
            **measured,
        )


def refined_by(
    learner: EvidenceLearner, data: Data, seed: int, device: torch.device
) -> RefinedGraph:
    """Refine a checked graph; of the labels only those of the training nodes are read.

    Edges that were made for want of any are no evidence, and are left out.
    """
    names = ["x", "y", "train_mask", "class_names"]
    if not data.get("knn_graph", False):
        names += ["edge_index", "edge_weight"]
    known = Data(**{name: data[name] for name in names if data.get(name) is not None})
    return learner.refine(known, seed=seed, device=device)


def strongest_edges(refined: RefinedGraph, top_k: int) -> dict[str, Any]:
    """:data:`REFINED_EDGES` of edges that are among the ``top_k`` strongest of either end."""
    kept = refined.only((refined.ranks() < top_k).any(0))
    return {name: getattr(kept, name) for name in REFINED_EDGES}


def with_known_classes(graph: Graph, data: Data) -> Graph:
    """The graph with the classes of training and validation nodes, and named ones.

    A class that only a test node has is none, or test labels would change what is trained.
    """
    known = int(graph.y[torch.cat([graph.train, graph.val])].max()) + 1
    return graph.with_labels(num_classes=max(known, len(data.get("class_names") or ())))


def _nodes(found: Tensor, graph: Graph, origin: str) -> Tensor:
    """Node indices of a file."""
    if len(found.flatten()) and not 0 <= int(found.min()) <= int(found.max()) < graph.num_nodes:
        raise InputError(f"{origin} must hold nodes of its own graph; got others")
    return found


def _loaded_gnn(
    config: BackboneConfig, graph: Graph, hidden: int, tensors: Tensors, origin: str
) -> Backbone:
    gnn = build_gnn(config, graph, hidden, torch.Generator())
    fill(gnn, within("gnn", tensors), origin)
    return gnn.requires_grad_(False).eval()
