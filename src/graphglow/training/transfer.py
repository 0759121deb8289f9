"""Algorithm 3: train a small GNN on a new graph under a frozen structure learner.

graphglow transfer --learner learner.safetensors --target reed98
"""

import copy
import time
from collections.abc import Sequence

import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.gnn import Backbone
from graphglow.graphs import check_graph, graph_of
from graphglow.structure import StructureLearner
from graphglow.training.adam import Adam
from graphglow.training.config import TransferConfig
from graphglow.training.device import (
    memory_advice,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.training.loop import Loop, OnEpoch
from graphglow.training.result import TransferResult
from graphglow.training.runs import check_same_shape
from graphglow.training.task import GraphTask, Trained


def transfer(
    learner: StructureLearner,
    data: Data,
    config: TransferConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
) -> TransferResult:
    """Train a GNN on ``data`` under the given structure learner (Algorithm 3).

    The learner is copied and frozen; the caller's is never changed. With
    ``config.train_learner`` the copy is trained too, with the full objective: from a random
    learner this is GraphGLOW*, the oracle of the paper.

    Args:
        learner: From :func:`pretrain` or :meth:`StructureLearner.load`, or a new, random one.
        data: The target graph.
        config: Model and schedule.
        on_epoch: Called after every epoch.
    """
    return transfer_many(learner, data, [config or TransferConfig()], on_epoch=on_epoch)[0]


def transfer_many(
    learner: StructureLearner,
    data: Data,
    configs: Sequence[TransferConfig],
    *,
    on_epoch: OnEpoch | None = None,
) -> list[TransferResult]:
    """Train several GNNs on ``data`` at once, as one batched program.

    The runs may differ in seed, learning rate, weight decay, dropout, lambda and momentum. Each
    gives what :func:`transfer` gives alone, up to rounding; on a GPU, ten take three to four times
    as long as one. A run whose loss is not finite ends them all, with its place in the message.
    ``seconds`` of a result are those of the whole batch. With ``train_learner`` the runs are
    made one after another.

    Args:
        learner: As in :func:`transfer`.
        data: The target graph of all runs.
        configs: One per run.
        on_epoch: Called for every epoch of every run.
    """
    if not isinstance(learner, StructureLearner):
        raise InputError(f"transfer needs a StructureLearner; got {type(learner).__name__}")
    _check_configs(configs)
    first = configs[0]
    if first.train_learner and not learner.config.weighted:
        raise InputError("train_learner must go with a learner that has weights; got one without")
    if first.train_learner and len(configs) > 1:
        return [transfer_many(learner, data, [c], on_epoch=on_epoch)[0] for c in configs]
    began = time.perf_counter()
    device = resolve_device(first.device)
    data = check_graph(data)
    graph = graph_of(data).to(device)
    learner = copy.deepcopy(learner).to(device).requires_grad_(first.train_learner)
    trained: Trained | None = None
    if first.train_learner:
        theta = Adam(learner.parameters(), first.learner_learning_rate)
        trained = Trained(theta, first.objective)
    reset_peak_memory(device)
    with memory_advice(graph.num_nodes, first, runs=len(configs)):
        task = GraphTask(graph, learner, learner.config.embedding_size, configs, trained=trained)
        loop = Loop(task, first.epochs, first.patience or first.epochs)
        train_began = time.perf_counter()
        histories = loop.run(on_epoch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        train_seconds = time.perf_counter() - train_began
    learner.requires_grad_(False).eval()
    return [
        TransferResult(
            data=data,
            graph=graph,
            config=config,
            learner=learner,
            gnn=_gnn_of(task, run),
            pivots=task.pivots if len(configs) == 1 else task.pivots[run],
            history=histories[run],
            train_seconds=train_seconds,
            seconds=time.perf_counter() - began,
            peak_memory_bytes=peak_memory_bytes(device),
        )
        for run, config in enumerate(configs)
    ]


def _check_configs(configs: Sequence[TransferConfig]) -> None:
    if not isinstance(configs, Sequence):
        raise InputError(f"transfer_many needs a list of configs; got {type(configs).__name__}")
    if len(configs) == 0:
        raise InputError("transfer_many needs at least one config; got none")
    for config in configs:
        if not isinstance(config, TransferConfig):
            raise InputError(f"config must be a TransferConfig; got {type(config).__name__}")
    check_same_shape(configs)


def _gnn_of(task: GraphTask, run: int) -> Backbone:
    """The trained GNN of one run, out of a batch: no batch dimension, memory of its own."""
    gnn = type(task.gnn)(
        task.graph.num_features, task.graph.num_classes, task.gnn.shape, torch.Generator()
    ).to(task.pivots.device)
    state = task.gnn.state_dict()
    gnn.load_state_dict({n: t if task.runs.count == 1 else t[run] for n, t in state.items()})
    return gnn.requires_grad_(False).eval()
