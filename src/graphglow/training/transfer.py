"""Algorithm 3: train a small GNN on a new graph under a frozen structure learner.

graphglow transfer --learner learner.safetensors --target reed98
"""

import copy
import time

import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs import check_graph, graph_of
from graphglow.structure import StructureLearner
from graphglow.structure.config import at_least
from graphglow.training.config import TransferConfig
from graphglow.training.device import memory_advice, peak_memory_bytes, resolve_device
from graphglow.training.result import TransferResult
from graphglow.training.task import Epoch, GraphTask, OnEpoch, improves, snapshot


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
    if not isinstance(learner, StructureLearner):
        raise InputError(f"transfer needs a StructureLearner; got {type(learner).__name__}")
    return _train(learner, learner.config.embedding_size, data, config, on_epoch)


def fit_backbone(
    data: Data,
    config: TransferConfig | None = None,
    *,
    hidden: int = 64,
    on_epoch: OnEpoch | None = None,
) -> TransferResult:
    """Train the same backbone of the same size on the input graph alone: the plain GNN control."""
    at_least("hidden", hidden, 1)
    return _train(None, hidden, data, config, on_epoch)


def _train(
    learner: StructureLearner | None,
    hidden: int,
    data: Data,
    config: TransferConfig | None,
    on_epoch: OnEpoch | None,
) -> TransferResult:
    began = time.perf_counter()
    config = config or TransferConfig()
    if not isinstance(config, TransferConfig):
        raise InputError(f"config must be a TransferConfig; got {type(config).__name__}")
    if learner is None and config.train_learner:
        raise InputError("train_learner must go with a learner to train; got none")
    device = resolve_device(config.device)
    data = check_graph(data)
    graph = graph_of(data).to(device)
    theta: torch.optim.Optimizer | None = None
    if learner is not None:
        learner = copy.deepcopy(learner).to(device).requires_grad_(config.train_learner)
        if config.train_learner:
            theta = torch.optim.Adam(learner.parameters(), lr=config.learner_learning_rate)
    task = GraphTask(graph, hidden, config, seed=config.seed)
    history: list[Epoch] = []
    best: Epoch | None = None
    best_gnn = snapshot(task.gnn)
    best_learner = None if learner is None else snapshot(learner)
    patience = config.patience or config.epochs
    train_began = time.perf_counter()
    with memory_advice(graph.num_nodes, task.num_pivots):
        for number in range(1, config.epochs + 1):
            epoch = task.run_epoch(number, learner, config.objective, theta)
            history.append(epoch)
            if on_epoch is not None:
                on_epoch(epoch)
            if improves(epoch, best):
                best, best_gnn = epoch, snapshot(task.gnn)
                if learner is not None and theta is not None:
                    best_learner = snapshot(learner)
            elif best is not None and number - best.epoch >= patience:
                break
        train_seconds = time.perf_counter() - train_began
        task.gnn.load_state_dict(best_gnn)
        if learner is not None and best_learner is not None:
            learner.load_state_dict(best_learner)
        return TransferResult(
            data=data,
            graph=graph,
            config=config,
            hidden=hidden,
            learner=None if learner is None else learner.requires_grad_(False).eval(),
            gnn=task.gnn.requires_grad_(False).eval(),
            pivots=task.pivots,
            history=history,
            train_seconds=train_seconds,
            seconds=time.perf_counter() - began,
            peak_memory_bytes=peak_memory_bytes(device),
        )
