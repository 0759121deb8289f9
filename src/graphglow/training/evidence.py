"""Transfer under an evidence learner: the graph is refined once, then small GNNs are trained.

They pass messages over ``lambda A + (1 - lambda) S``, with lambda of 1 (the input graph A), 1/2 and
0 (the refined graph S), or over no graph at all; then the best of these is trained with two other
settings. Validation chooses; with few validation nodes, the learner's leave-one-out record chooses
the graph. The closed-form predictions then speak beside the GNN, by how well each did::

    logits = share * GNN + (1 - share) * log P_instant
"""

import time
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.answers import graph_by_leave_one_out, mixing_weights
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.gnn import Backbone, LastLayer
from graphglow.graphs import Graph, check_graph, graph_of
from graphglow.graphs.graph import normalised_adjacency
from graphglow.storage import prefixed, within
from graphglow.structure import FixedStructure, PivotStructure
from graphglow.training.checkpoint import (
    Checkpoints,
    Part,
    Saved,
    graph_identity,
    held,
    learner_identity,
)
from graphglow.training.config import ModelConfig, Runs, TransferConfig
from graphglow.training.device import (
    out_of_memory_says,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.training.loop import Epoch, Loop, OnEpoch
from graphglow.training.refine import Refinement, last_refinement
from graphglow.training.result import TransferResult, loaded_gnn
from graphglow.training.task import GraphTask, accuracy, gnn_of

GRAPHS = {"input": (1.0, 0.0), "both": (0.5, 0.0), "refined": (0.0, 0.0), "none": (0.0, 1.0)}
"""By name: lambda, and how much of its own a node hears in the place of S."""
Settings = tuple[tuple[float, float], ...]
SETTINGS: Settings = ((5e-4, 0.5), (5e-3, 0.5), (5e-5, 0.0))
"""Weight decay and dropout; the graph is chosen by the first."""
FEW = 50
"""Fewer validation nodes than this do not choose between graphs and settings."""
EPOCHS_UNSEEN = 100
"""Epochs where no validation node says when to stop."""
FLOOR = 1e-6


class Choice(NamedTuple):
    """Which of the GNNs was kept, and by what."""

    graph: str
    """Of :data:`GRAPHS`, or ``given``."""
    input_weight: float
    own: float
    weight_decay: float
    dropout: float
    by: str
    """``validation``, ``leave-one-out``, or ``given``."""
    share: float
    """Of the GNN beside the closed-form predictions."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EvidenceResult(TransferResult):
    """A transfer under an evidence learner, with the refined graph and the instant predictions.

    Shapes:
        edge_index [2, E] both directions, edge_weight [E], edge_probability [E], edge_in_input [E];
        instant [N, C]
    """

    config: TransferConfig
    learner: EvidenceLearner
    choice: Choice
    edge_index: Tensor
    edge_weight: Tensor
    edge_probability: Tensor
    edge_in_input: Tensor
    instant: Tensor

    @property
    def run(self) -> ModelConfig:
        c = self.choice
        return self.config.run(c.input_weight, c.weight_decay, c.dropout)

    @property
    def provenance(self) -> dict[str, Any]:
        return self.learner.provenance

    def evaluated(self, data: Data, graph: Graph) -> Refinement[PivotStructure]:
        edges, weight, instant = self.edge_index, self.edge_weight, self.instant
        if graph is not self.graph:
            refined = _refined(self.learner, data, self.config.seed, self.device)
            edges, weight = refined.edge_index, refined.edge_weight
            instant = _instant(refined, instant.shape[1])
        given = FixedStructure(
            normalised_adjacency(edges, weight, graph.num_nodes), self.choice.own
        )
        step = last_refinement(
            self.gnn, None, graph, torch.empty(0), Runs.of([self.run]), wait=True, given=given
        )
        return replace(step, logits=_beside(step.logits, instant, self.choice.share))

    def last_layer(self) -> LastLayer:
        layer, share = super().last_layer(), self.choice.share
        own = _beside(layer.own, self.instant, share)
        return layer._replace(said=share * layer.said, own=own, bias=share * layer.bias)

    @cached_property
    def looked_over(self) -> RefinedGraph:
        """All candidates with their evidence, computed again: a result keeps the edges only."""
        return self.looked_at(None)

    def looked_at(self, also: Tensor | None) -> RefinedGraph:
        """:attr:`looked_over`, and pairs ``also`` [2, K] besides."""
        return _refined(self.learner, self.data, self.config.seed, self.device, also)

    def _about(self) -> dict[str, Any]:
        return {
            "method": "evidence" if self.learner.trained else "untrained",
            "backbone": self.config.backbone,
            "graph": self.choice.graph,
            "input_weight": self.choice.input_weight if self.choice.own == 0 else None,
            "chosen_by": self.choice.by,
            "weight_decay": self.choice.weight_decay,
            "dropout": self.choice.dropout,
            "gnn_share": self.choice.share,
            "refined_edges": self.edge_index.shape[1] // 2,
            "device": self.device.type,
            "seed": self.config.seed,
        }

    def _parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        names = ("edge_index", "edge_weight", "edge_probability", "edge_in_input", "instant")
        tensors = prefixed("refined", {name: getattr(self, name) for name in names})
        tensors |= prefixed("learner", dict(self.learner.state_dict()))
        facts = {"config": asdict(self.config), "learner": self.learner.facts()}
        return tensors, facts | {"choice": self.choice._asdict()}


class _Trained(NamedTuple):
    """One of the GNNs that are chosen from."""

    choice: Choice
    score: tuple[float, float]
    """Validation accuracy, and the loss with a minus."""
    gnn: Backbone
    history: list[Epoch]
    logits: Tensor


class _Trials:
    """Trains GNNs on the graph and its refined form, one graph after another.

    Args:
        graph: On its device.
        refined: What the learner made of it.
        config: What is not to be chosen.
        on_epoch: Called for the epochs of each graph's first run.
        checkpoints: Where the trials save themselves.
        identity: Of the learner.
    """

    def __init__(
        self,
        graph: Graph,
        refined: RefinedGraph,
        config: TransferConfig,
        on_epoch: OnEpoch | None,
        checkpoints: Checkpoints | None,
        identity: str,
    ) -> None:
        unseen = len(graph.val) == 0
        self.graph = replace(graph, val=graph.train) if unseen else graph
        self.epochs = min(config.epochs, EPOCHS_UNSEEN) if unseen else config.epochs
        self.structure, self.config = refined.adjacency(), config
        self.on_epoch, self.checkpoints = on_epoch, checkpoints
        self.parts: dict[str, Part] = {}
        self.found: Saved | None = None
        if checkpoints is not None:
            run = {  # all that the result depends on, and by which its checkpoints know it
                "command": "transfer",
                "config": asdict(config) | {"device": graph.y.device.type},
                "learner": identity,
                "graph": graph_identity(graph),
            }
            self.found = checkpoints.begin(run, lambda found: None)

    def train(self, name: str, weight: float, own: float, settings: Settings) -> list[_Trained]:
        """On one graph, a batch with a GNN for each of the settings."""
        runs = [self.config.run(weight, decay, dropout) for decay, dropout in settings]
        given = FixedStructure(self.structure, own)
        task = GraphTask(self.graph, None, self.config.hidden, runs, given=given)
        loop = Loop(task, self.epochs, self.config.patience)
        called = f"{name}-{len(self.parts)}"
        own_parts: dict[str, Part] = {f"{called}-task": task, f"{called}-loop": loop}
        self.parts |= own_parts
        if self.found is not None and any(n.startswith(called) for n in self.found.tensors):
            self.found.restore(own_parts)
        if self.checkpoints is not None:
            keep = self.checkpoints
            loop.on_read = lambda now: keep.offer(self.parts)
        told = self.on_epoch
        histories = loop.run(None if told is None else lambda e: told(e) if e.run == 0 else None)
        loop.on_read = None
        accuracies, losses = loop.best.accuracy.reshape(-1), loop.best.loss.reshape(-1)
        logits = task.logits().reshape(len(runs), self.graph.num_nodes, -1)
        return [
            _Trained(
                Choice(name, weight, own, decay, dropout, "", 1.0),
                (float(accuracies[i]), -float(losses[i])),
                gnn_of(task, i),
                histories[i],
                logits[i],
            )
            for i, (decay, dropout) in enumerate(settings)
        ]


def transfer_evidence(
    data: Data,
    learner: EvidenceLearner,
    config: TransferConfig,
    *,
    on_epoch: OnEpoch | None = None,
    checkpoints: Checkpoints | None = None,
) -> EvidenceResult:
    """See :func:`graphglow.transfer`."""
    began = time.perf_counter()
    device = resolve_device(config.device)
    data = check_graph(data, need_validation=False)
    reset_peak_memory(device)
    with (
        held(checkpoints),
        out_of_memory_says(
            f"the graph must fit in memory; {data.num_nodes} nodes do not with GNNs of width "
            f"{config.hidden} (a smaller --hidden needs less)"
        ),
    ):
        refined = _refined(learner, data, config.seed, device)
        graph = graph_of(data).to(device)
        identity = learner_identity(learner)
        trials = _Trials(graph, refined, config, on_epoch, checkpoints, identity)
        before = 0.0 if checkpoints is None else checkpoints.seconds_before
        train_began = time.perf_counter() - before
        graphs, by = _graphs(config, refined, len(graph.val))
        settings = _settings(config, len(graph.val))
        trained = [
            one
            for name, (weight, own) in graphs.items()
            for one in trials.train(name, weight, own, settings[:1])
        ]
        best = max(trained, key=lambda one: one.score)
        if settings[1:]:
            chosen = best.choice
            more = trials.train(chosen.graph, chosen.input_weight, chosen.own, settings[1:])
            best = max([best, *more], key=lambda one: one.score)
        instant = _instant(refined, graph.num_classes)
        choice = best.choice._replace(by=by, share=_share(best.logits, instant, graph))
        train_seconds = time.perf_counter() - train_began
    return EvidenceResult(
        data=data,
        graph=graph,
        gnn=best.gnn,
        history=best.history,
        train_seconds=train_seconds,
        seconds=time.perf_counter() - began + before,
        peak_memory_bytes=peak_memory_bytes(device),
        config=config,
        learner=learner,
        choice=choice,
        edge_index=refined.edge_index,
        edge_weight=refined.edge_weight,
        edge_probability=refined.edge_probability,
        edge_in_input=refined.edge_in_input,
        instant=instant,
    )


def evidence_result(
    data: Data,
    tensors: dict[str, Tensor],
    meta: dict[str, Any],
    measured: dict[str, Any],
    origin: str,
) -> EvidenceResult:
    """The result that a file holds, on the CPU."""
    data = check_graph(data, need_validation=False)
    graph = graph_of(data)
    config = TransferConfig(**(meta["config"] | {"device": "cpu"}))
    parts: dict[str, Any] = within("refined", tensors)
    ends = parts["edge_index"]
    if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < graph.num_nodes:
        raise InputError(f"{origin} must hold refined edges between nodes of its graph")
    if parts["instant"].shape != (graph.num_nodes, graph.num_classes):
        raise InputError(f"{origin} must hold predictions of every node and class of its graph")
    learner = within("learner", tensors)
    return EvidenceResult(
        data=data,
        graph=graph,
        gnn=loaded_gnn(config, graph, config.hidden, tensors, origin),
        config=config,
        learner=EvidenceLearner.from_tensors(learner, meta["learner"], origin),
        choice=Choice(**meta["choice"]),
        **parts,
        **measured,
    )


def _refined(
    learner: EvidenceLearner,
    data: Data,
    seed: int,
    device: torch.device,
    also: Tensor | None = None,
) -> RefinedGraph:
    """What the learner makes of a checked graph, looking at pairs ``also`` [2, K] besides."""
    return learner.refine(known_to_learner(data), seed=seed, device=device, also=also)


def known_to_learner(data: Data) -> Data:
    """What a learner reads of a checked graph; edges that were made up for want of any are none.

    Only labels of the training nodes are read of it.
    """
    names = ["x", "y", "train_mask", "class_names"]
    if not data.get("knn_graph", False):
        names += ["edge_index", "edge_weight"]
    return Data(**{name: data[name] for name in names if data.get(name) is not None})


def _graphs(
    config: TransferConfig, refined: RefinedGraph, validation: int
) -> tuple[dict[str, tuple[float, float]], str]:
    """The graphs to try, as in :data:`GRAPHS`, and what chooses among them."""
    if config.input_weight is not None:
        return {"given": (config.input_weight, 0.0)}, "given"
    if validation >= FEW:
        return GRAPHS, "validation"
    share = graph_by_leave_one_out(refined.channel_scores)
    name = {None: "none", 1.0: "input", 0.5: "both", 0.0: "refined"}[share]
    return {name: GRAPHS[name]}, "leave-one-out"


def _settings(config: TransferConfig, validation: int) -> Settings:
    """Weight decays and dropouts to try; what is given is held."""
    tried = SETTINGS if validation >= FEW else SETTINGS[:1]
    found = (
        (
            decay if config.weight_decay is None else config.weight_decay,
            dropout if config.dropout is None else config.dropout,
        )
        for decay, dropout in tried
    )
    return tuple(dict.fromkeys(found))


def _instant(refined: RefinedGraph, num_classes: int) -> Tensor:
    """The closed-form predictions, with classes that no training node has: [N, C]."""
    found = refined.probabilities
    assert found is not None  # there are training labels
    return F.pad(found, (0, num_classes - found.shape[1]))


def _share(logits: Tensor, instant: Tensor, graph: Graph) -> float:
    """How much the GNN counts: by accuracy on validation nodes; half without any."""
    if len(graph.val) == 0:
        return 0.5
    labels = graph.y[graph.val]
    scores = [float(accuracy(one, graph.val, labels)) for one in (logits, instant)]
    return float(mixing_weights(scores, len(labels))[0])


def _beside(logits: Tensor, instant: Tensor, share: float) -> Tensor:
    """``share * logits + (1 - share) * log P``: [N, C] each."""
    return share * logits + (1 - share) * instant.clamp_min(FLOOR).log()
