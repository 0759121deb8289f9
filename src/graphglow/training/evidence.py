"""Transfer under an evidence learner: the graph is refined once, then small GNNs are trained.

Each reads some columns (the features; these and where a node is in the graph; or the closed-form
predictions) and passes messages over some graph: the input graph A, the refined one S, or none.
Their scores and the closed-form predictions are mixed by how well each does on validation nodes::

    logits = sum_a share_a sharpness_a GNN_a + share_0 sharpness_0 log P_instant + shift

where ``shift`` moves the classes' shares from those of the training labels towards those of the
validation nodes. Everything is linear in what the GNNs say, so that it can be explained exactly.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.answers import balancing, graph_by_leave_one_out, shares_by_validation
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.rows import entries, sparse_rows
from graphglow.gnn import Backbone
from graphglow.graphs import Graph, check_graph, graph_of
from graphglow.graphs.graph import normalised_adjacency
from graphglow.ops.sparse import SparseMatrix
from graphglow.storage import prefixed, within
from graphglow.structure import FixedStructure, Structure
from graphglow.training.batches import LIGHTER, HopTask, batched_task, check_batches, check_room
from graphglow.training.checkpoint import (
    Checkpoints,
    Part,
    Saved,
    graph_identity,
    held,
    learner_identity,
)
from graphglow.training.config import TransferConfig
from graphglow.training.device import (
    out_of_memory_says,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.training.loop import Epoch, Loop, OnEpoch, of_run
from graphglow.training.result import TransferResult, Voice, loaded_gnn
from graphglow.training.task import gnn_of
from graphglow.training.verdict import Share, homophily

GRAPHS = {"input": (1.0, 0.0), "refined": (0.0, 0.0), "none": (0.0, 1.0)}
"""By name: lambda, and how much of its own a node hears in the place of S."""
LINES: tuple[tuple[str, str], ...] = (
    ("features", "input"),
    ("wide", "input"),
    ("wide", "none"),
    ("wide", "refined"),
    ("votes", "refined"),
)
"""What a GNN reads, and over which graph its messages pass: chosen over graphs of many kinds. More
lines, several weight decays and graphs in between gained 0.3 points in all."""
EPOCHS_UNSEEN = 100
"""Epochs where no validation node says when to stop."""
SMALLEST_SHARE = 0.01
"""A GNN that counts less is left out."""
FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class Answer:
    """A trained GNN, and how much it counts."""

    inputs: str
    graph: str
    input_weight: float
    own: float
    gnn: Backbone
    history: list[Epoch]
    share: float = 0.0
    sharpness: float = 1.0

    def facts(self) -> dict[str, Any]:
        """All but the weights."""
        names = ("inputs", "graph", "input_weight", "own", "share", "sharpness")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Known:
    """What a learner made of a graph, as far as GNNs read it.

    Shapes:
        edge_index [2, E] both directions, edge_weight [E], edge_probability [E], edge_in_input [E];
        instant [N, C]; link, role [N, *] where a node is in the graph; prior [C] of training labels
    """

    edge_index: Tensor
    edge_weight: Tensor
    edge_probability: Tensor
    edge_in_input: Tensor
    instant: Tensor
    link: Tensor
    role: Tensor
    prior: Tensor

    @classmethod
    def of(cls, refined: RefinedGraph, graph: Graph, top_k: int) -> "Known":
        found = refined.probabilities
        assert found is not None  # there are training labels
        refined = refined.only((refined.ranks() < top_k).any(0))
        labels = torch.bincount(graph.y[graph.train], minlength=graph.num_classes)
        assert len(labels) == graph.num_classes >= found.shape[1]
        return cls(
            refined.edge_index,
            refined.edge_weight,
            refined.edge_probability,
            refined.edge_in_input,
            F.pad(found, (0, graph.num_classes - found.shape[1])),
            refined.link,
            refined.role,
            labels / labels.sum(),
        )

    def structure(self, num_nodes: int) -> SparseMatrix:
        """S: [N, N]."""
        return normalised_adjacency(self.edge_index, self.edge_weight, num_nodes)

    def read(self, graph: Graph, inputs: str) -> Graph:
        """The graph with the columns that a GNN reads."""
        if inputs == "features":
            return graph
        if inputs == "wide":
            return replace(graph, x=_beside(graph.x, torch.cat([self.link, self.role], 1)))
        seen = self.prior > 0
        odds = self.instant[:, seen].clamp_min(FLOOR) / self.prior[seen]
        return replace(graph, x=odds.log().clamp(-4, 4))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EvidenceResult(TransferResult):
    """A transfer under an evidence learner: the refined graph, and GNNs whose answers are mixed.

    Shapes:
        shift [C]
    """

    config: TransferConfig
    learner: EvidenceLearner
    known: Known
    answers: tuple[Answer, ...]
    instant_share: float
    instant_sharpness: float
    shift: Tensor
    chosen_by: str
    """``validation``, or ``leave-one-out`` where there are no validation nodes."""
    input_accuracy: float | None
    """On validation nodes, of the GNN that reads the features and the input graph alone."""

    @property
    def edge_index(self) -> Tensor:
        """Of the refined graph, both directions: [2, E]."""
        return self.known.edge_index

    @property
    def edge_weight(self) -> Tensor:
        return self.known.edge_weight

    @property
    def edge_probability(self) -> Tensor:
        return self.known.edge_probability

    @property
    def edge_in_input(self) -> Tensor:
        return self.known.edge_in_input

    @cached_property
    def logits(self) -> Tensor:
        with torch.no_grad():
            return self.scores_on(self.graph)

    @property
    def graph_weights(self) -> dict[str, float]:
        """How much is owed to messages over which graph, and to closed-form predictions."""
        found = {"input": 0.0, "refined": 0.0, "none": 0.0, "instant": self.instant_share}
        for answer in self.answers:
            weight, own = answer.input_weight, answer.own
            found["input"] += answer.share * weight
            found["refined"] += answer.share * (1 - weight) * (1 - own)
            found["none"] += answer.share * (1 - weight) * own
        return found

    @property
    def message_graph(self) -> tuple[Structure | None, float]:
        found = self.graph_weights
        learned = found["refined"] + found["none"]
        own = found["none"] / learned if learned else 0.0
        return FixedStructure(self._structure, own), self._input_weight

    @property
    def _input_weight(self) -> float:
        """lambda, among the GNNs."""
        messages = sum(answer.share for answer in self.answers)
        return self.graph_weights["input"] / messages if messages else 0.0

    def grown(self, data: Data, graph: Graph) -> "EvidenceResult":
        refined = refined_by(self.learner, data, self.config.seed, self.device)
        old, nodes = self.known, self.graph.num_nodes
        new = graph.neighbour_mean @ F.pad(old.link, (0, 0, 0, graph.num_nodes - nodes))
        link = torch.cat([old.link, F.normalize(new[nodes:], dim=1)])  # where its neighbours are
        known = replace(Known.of(refined, graph, self.config.top_k), link=link)
        return replace(self, data=data, graph=graph, known=known)

    def voices(self, graph: Graph) -> list[Voice]:
        return [
            Voice(
                answer.gnn,
                self.known.read(graph, answer.inputs),
                FixedStructure(self._structure, answer.own),
                answer.input_weight,
                answer.share * answer.sharpness,
            )
            for answer in self.answers
        ]

    def unvoiced(self) -> tuple[Tensor, Tensor]:
        scale = self.instant_share * self.instant_sharpness
        return scale * self.known.instant.clamp_min(FLOOR).log(), self.shift

    @cached_property
    def _structure(self) -> SparseMatrix:
        return self.known.structure(self.graph.num_nodes)

    @cached_property
    def looked_over(self) -> RefinedGraph:
        """All candidates with their evidence, computed again: a result keeps the edges only."""
        return self.looked_at(None)

    def looked_at(self, also: Tensor | None) -> RefinedGraph:
        """:attr:`looked_over`, and pairs ``also`` [2, K] besides."""
        return refined_by(self.learner, self.data, self.config.seed, self.device, also)

    def _input_accuracy(self) -> float | None:
        return self.input_accuracy

    def _homophily(self) -> Share | None:
        return homophily(self.data, self.edge_index)

    def _about(self) -> dict[str, Any]:
        answers = {"closed form": self.instant_share}
        for one in self.answers:
            name = f"{one.inputs} over {one.graph}"
            answers[name] = answers.get(name, 0.0) + one.share
        return {
            "method": "evidence" if self.learner.trained else "untrained",
            "backbone": self.config.backbone,
            "input_weight": self._input_weight,
            "graph_weights": {n: round(weight, 3) for n, weight in self.graph_weights.items()},
            "chosen_by": self.chosen_by,
            "answers": {name: round(share, 3) for name, share in answers.items()},
            "refined_edges_in_training": self.edge_index.shape[1] // 2,
            "device": self.device.type,
            "seed": self.config.seed,
        }

    def _parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = prefixed("refined", dict(vars(self.known))) | {"shift": self.shift}
        tensors |= prefixed("learner", dict(self.learner.state_dict()))
        for place, answer in enumerate(self.answers):
            tensors |= prefixed(f"answer{place}", answer.gnn.state_dict())
        facts = {
            "config": asdict(self.config),
            "learner": self.learner.facts(),
            "answers": [answer.facts() for answer in self.answers],
            "instant_share": self.instant_share,
            "instant_sharpness": self.instant_sharpness,
            "chosen_by": self.chosen_by,
            "input_accuracy": self.input_accuracy,
        }
        return tensors, facts


class _Trials:
    """Trains GNNs on what is known of a graph, one line after another.

    The number of a GNN is the ``run`` of its epochs.
    """

    def __init__(
        self,
        graph: Graph,
        known: Known,
        config: TransferConfig,
        on_epoch: OnEpoch | None,
        checkpoints: Checkpoints | None,
        identity: str,
    ) -> None:
        unseen = len(graph.val) == 0
        self.graph = replace(graph, val=graph.train) if unseen else graph
        self.epochs = min(config.epochs, EPOCHS_UNSEEN) if unseen else config.epochs
        self.config = config
        self.read = cache(lambda inputs: known.read(self.graph, inputs))
        self.structure = known.structure(graph.num_nodes)
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

    def train(self, inputs: str, name: str, weight: float, own: float) -> tuple[Answer, Tensor]:
        """One GNN, by what it reads and over which graph, and what it says of validation nodes."""
        graph = self.read(inputs)
        given, config = FixedStructure(self.structure, own), self.config
        task = batched_task(
            graph, config.hidden, config.run(weight), given,
            batch_nodes=config.batch_nodes, balanced=config.balanced,
        )  # fmt: skip
        loop = Loop(task, self.epochs, self.config.patience)
        parts: dict[str, Part] = {f"{inputs}-{name}-task": task, f"{inputs}-{name}-loop": loop}
        self.parts |= parts
        if self.found is not None and any(n.startswith(tuple(parts)) for n in self.found.tensors):
            self.found.restore(parts)
        if self.checkpoints is not None:
            keep = self.checkpoints
            loop.on_read = lambda now: keep.offer(self.parts)
        (history,) = loop.run(of_run(self.on_epoch, len(self.parts) // 2 - 1))
        loop.on_read = None
        said = task.val_logits()  # [K, C]
        if isinstance(task, HopTask):
            del task.hops  # the task stays, for checkpoints
        return Answer(inputs, name, weight, own, gnn_of(task, 0), history), said


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
    check_batches(config.backbone, config.batch_nodes)
    data = check_graph(data, need_validation=False)
    check_room(data, config, device)
    reset_peak_memory(device)
    nodes = f"must fit in memory; its {data.num_nodes} nodes do not"
    with held(checkpoints):
        with out_of_memory_says(f"refining the graph {nodes} on {device.type}"):
            refined = refined_by(learner, data, config.seed, device)
            graph = _judged(graph_of(data), data).to(device)
            known = Known.of(refined, graph, config.top_k)
        judged = len(graph.val) > 0
        lines = _lines(config, refined.channel_scores, judged=judged)
        del refined  # the candidates and their evidence are many times the graph
        with out_of_memory_says(f"training on the graph {nodes} on {device.type}{LIGHTER}"):
            trials = _Trials(graph, known, config, on_epoch, checkpoints, learner_identity(learner))
            before = 0.0 if checkpoints is None else checkpoints.seconds_before
            train_began = time.perf_counter() - before
            trained = [trials.train(inputs, name, *weights) for inputs, name, weights in lines]
            answers, instant, shift = _mixture(trained, known, graph, config.balanced)
            train_seconds = time.perf_counter() - train_began
    result = EvidenceResult(
        data=data,
        graph=graph,
        history=max(answers, key=lambda one: one.share).history,
        train_seconds=train_seconds,
        seconds=time.perf_counter() - began + before,
        peak_memory_bytes=peak_memory_bytes(device),
        config=config,
        learner=learner,
        known=known,
        answers=tuple(answers),
        instant_share=instant[0],
        instant_sharpness=instant[1],
        shift=shift,
        chosen_by="validation" if judged else "leave-one-out",
        input_accuracy=_of_input_alone(*trained[0], graph),
    )
    result._verdict().warn()
    return result


def _of_input_alone(answer: Answer, said: Tensor, graph: Graph) -> float | None:
    """Validation accuracy of the first GNN trained, where that is the plain one."""
    if len(graph.val) == 0 or (answer.inputs, answer.graph) != LINES[0]:
        return None
    return float((said.argmax(1) == graph.y[graph.val]).double().mean())


def evidence_result(
    data: Data,
    tensors: dict[str, Tensor],
    meta: dict[str, Any],
    measured: dict[str, Any],
    origin: str,
) -> EvidenceResult:
    """The result that a file holds, on the CPU."""
    data = check_graph(data, need_validation=False)
    graph = _judged(graph_of(data), data)
    config = TransferConfig(**(meta["config"] | {"device": "cpu"}))
    known, shift = Known(**within("refined", tensors)), tensors["shift"]
    nodes, classes, edges = graph.num_nodes, graph.num_classes, known.edge_index.shape[-1]
    for name, size in {
        "edge_index": (2, edges),
        "edge_weight": (edges,),
        "edge_probability": (edges,),
        "edge_in_input": (edges,),
        "instant": (nodes, classes),
        "link": (nodes, known.link.shape[-1]),
        "role": (nodes, known.role.shape[-1]),
        "prior": (classes,),
    }.items():
        part = getattr(known, name)
        if tuple(part.shape) != size or not bool(part.isfinite().all()):
            raise InputError(f"{origin} must hold finite numbers of shape {size} as {name}")
    ends = known.edge_index
    if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < nodes:
        raise InputError(f"{origin} must hold refined edges between nodes of its graph")
    if shift.shape != (classes,) or not bool(shift.isfinite().all()) or not meta["answers"]:
        raise InputError(f"{origin} must hold an answer and a shift of every class of its graph")
    answers = []
    for place, facts in enumerate(meta["answers"]):
        read, weights = known.read(graph, facts["inputs"]), within(f"answer{place}", tensors)
        gnn = loaded_gnn(config, read, config.hidden, weights, origin)
        numbers = ("input_weight", "own", "share", "sharpness")
        facts = facts | {name: float(facts[name]) for name in numbers}
        answers.append(Answer(**facts, gnn=gnn, history=[]))
    learner = within("learner", tensors)
    return EvidenceResult(
        data=data,
        graph=graph,
        config=config,
        learner=EvidenceLearner.from_tensors(learner, meta["learner"], origin),
        known=known,
        answers=tuple(answers),
        shift=shift,
        instant_share=float(meta["instant_share"]),
        instant_sharpness=float(meta["instant_sharpness"]),
        chosen_by=str(meta["chosen_by"]),
        input_accuracy=meta.get("input_accuracy"),  # older files have none
        **measured,
    )


def _judged(graph: Graph, data: Data) -> Graph:
    """With the classes that are known: those of training and validation nodes, and named ones.

    A class that only a test node has is none, or test labels would change what is trained.
    """
    known = graph.y[torch.cat([graph.train, graph.val])]
    return replace(graph, num_classes=max(int(known.max()) + 1, len(data.get("class_names") or ())))


def refined_by(
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


def _lines(
    config: TransferConfig, scores: Mapping[str, Mapping[str, float]], *, judged: bool
) -> Sequence[tuple[str, str, tuple[float, float]]]:
    """What to train: inputs, the graph's name, lambda and how much a node hears of its own."""
    if config.input_weight is not None:
        weights = config.input_weight, 0.0
        return [(inputs, "given", weights) for inputs in ("features", "wide", "votes")]
    lines = LINES
    if not judged and graph_by_leave_one_out(scores) is None:
        lines = LINES[2:3]  # no graph helps
    return [(inputs, name, GRAPHS[name]) for inputs, name in lines]


def _mixture(
    trained: Sequence[tuple[Answer, Tensor]], known: Known, graph: Graph, balanced: bool
) -> tuple[list[Answer], tuple[float, float], Tensor]:
    """GNNs that count, the closed form's share and sharpness, and the shift of the classes.

    Balanced, GNNs have been trained as if the classes had even shares; the closed form has not.
    """
    prior, labels = known.prior, graph.y[graph.val]
    uneven, weight = torch.zeros_like(prior), None
    if balanced:
        seen = prior > 0
        uneven = torch.where(seen, prior.clamp_min(FLOOR).log(), 0.0)
        prior, weight = seen / seen.sum(), balancing(labels)
    instant = known.instant[graph.val].clamp_min(FLOOR).log() - uneven
    mix = shares_by_validation([*(said for _, said in trained), instant], prior, labels, weight)
    shares = mix.shares.clone()
    small = shares < SMALLEST_SHARE
    small[int(shares[:-1].argmax())] = False  # a result has a GNN
    small[-1] = False
    shares[small] = 0
    shares /= shares.sum()
    answers = [
        replace(answer, share=float(shares[i]), sharpness=float(mix.sharpness[i]))
        for i, (answer, _) in enumerate(trained)
        if shares[i] > 0 or not small[i]
    ]
    share, sharpness = float(shares[-1]), float(mix.sharpness[-1])
    return answers, (share, sharpness), mix.shift - share * sharpness * uneven


def _beside(x: SparseMatrix | Tensor, more: Tensor) -> SparseMatrix | Tensor:
    """Columns side by side; sparse if the first are: [N, F], [N, Q] -> [N, F + Q]."""
    if isinstance(x, Tensor):
        return torch.cat([x, more], 1)
    row, col, values = entries(x)
    there = more.nonzero().T
    both = torch.cat([row, there[0]]), torch.cat([col, x.shape[1] + there[1]])
    numbers = torch.cat([values, more[there[0], there[1]]])
    return sparse_rows(*both, numbers, (x.shape[0], x.shape[1] + more.shape[1]))
