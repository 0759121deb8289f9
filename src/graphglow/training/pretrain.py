"""Algorithm 2: train one structure learner on several source graphs.

graphglow pretrain --sources cora citeseer --out learner.safetensors
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs import prepare
from graphglow.structure import StructureLearner
from graphglow.training.config import PretrainConfig
from graphglow.training.device import memory_advice, resolve_device
from graphglow.training.task import Epoch, GraphTask, OnEpoch, accuracy, improves, snapshot


def pretrain(
    sources: Sequence[Data],
    config: PretrainConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
) -> StructureLearner:
    """Train a structure learner on ``sources`` and return the best one seen (Algorithm 2).

    In each of E episodes each source is visited in turn: its own GNN and the shared theta are
    trained on it until the validation score stops improving, and go back to where it was best.
    After each visit theta is scored by the mean validation accuracy over all sources, and the
    best theta is kept. Differs from the paper's Algorithm 2 in zeroing both gradients at every
    step, and in taking the "Delta^(0)" of its sum as the first refinement's.

    Args:
        sources: The source graphs, each with labels and a split (or a seeded one is made).
        config: Learner, objective, model and schedule.
        on_epoch: Called after every epoch.

    Returns:
        The learner on the CPU, with ``provenance`` telling how it was made.
    """
    config = config or PretrainConfig()
    if not isinstance(config, PretrainConfig):
        raise InputError(f"config must be a PretrainConfig; got {type(config).__name__}")
    if isinstance(sources, Data):
        raise InputError("pretrain needs a list of source graphs; got a single graph")
    if len(sources) == 0:
        raise InputError("pretrain needs at least one source graph; got none")
    device = resolve_device(config.device)
    graphs = [prepare(data).to(device) for data in sources]
    learner = StructureLearner(config.learner, seed=config.seed).to(device)
    theta = torch.optim.Adam(learner.parameters(), lr=config.learner_learning_rate)
    tasks = [
        GraphTask(graph, config.learner.embedding_size, config, seed=config.seed + 1000 * i)
        for i, graph in enumerate(graphs)
    ]
    best_score, best_theta = -1.0, snapshot(learner)
    scores: list[float] = []
    for _ in range(config.episodes):
        for task in tasks:
            with memory_advice(task.graph.num_nodes, task.num_pivots):
                _visit(task, learner, theta, config, on_epoch)
                score = sum(
                    accuracy(t.logits(learner), t.graph.y, t.graph.val) for t in tasks
                ) / len(tasks)
            scores.append(score)
            if score >= best_score:
                best_score, best_theta = score, snapshot(learner)
    learner.load_state_dict(best_theta)
    learner.cpu().eval()
    learner.provenance = {
        "trained": True,
        "sources": [graph.name for graph in graphs],
        "validation_accuracy": best_score,
        "visit_scores": scores,
        "config": asdict(replace(config, device="auto")),
    }
    return learner


def _visit(
    task: GraphTask,
    learner: StructureLearner,
    theta: torch.optim.Optimizer,
    config: PretrainConfig,
    on_epoch: OnEpoch | None,
) -> None:
    """Train theta and one source's GNN together, and return both to their best epoch."""
    best: Epoch | None = None
    best_states = snapshot(learner), snapshot(task.gnn)
    for number in range(1, config.epochs + 1):
        epoch = task.run_epoch(number, learner, config.objective, theta)
        if on_epoch is not None:
            on_epoch(epoch)
        if improves(epoch, best):
            best, best_states = epoch, (snapshot(learner), snapshot(task.gnn))
        elif best is not None and number - best.epoch >= config.patience:
            break
    learner.load_state_dict(best_states[0])
    task.gnn.load_state_dict(best_states[1])
