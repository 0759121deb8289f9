"""Algorithm 2: train one structure learner on several source graphs.

graphglow pretrain --sources cora citeseer --out learner.safetensors
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs import prepare
from graphglow.structure import StructureLearner
from graphglow.training.adam import Adam
from graphglow.training.config import PretrainConfig
from graphglow.training.device import memory_advice, resolve_device
from graphglow.training.loop import Loop, OnEpoch
from graphglow.training.task import GraphTask, Trained


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
    theta = Adam(learner.parameters(), config.learner_learning_rate)
    tasks = [
        GraphTask(
            graph,
            learner,
            config.learner.embedding_size,
            [config],
            seeds=[config.seed + 1000 * i],
            trained=Trained(theta, config.objective),
        )
        for i, graph in enumerate(graphs)
    ]
    visits = [Loop(task, config.epochs, config.patience, read_every=1) for task in tasks]
    best_score, best_theta = -1.0, theta.flat.clone()
    scores: list[float] = []
    for _ in range(config.episodes):
        for visit in visits:
            with memory_advice(visit.task.graph.num_nodes, config):
                visit.run(on_epoch)  # theta and this GNN return to their best epoch
                score = sum(float(task.validate()[1]) for task in tasks) / len(tasks)
            scores.append(score)
            if score >= best_score:
                best_score, best_theta = score, theta.flat.clone()
    theta.flat.copy_(best_theta)
    best = StructureLearner(config.learner, seed=config.seed)
    best.load_state_dict(learner.state_dict())
    best.eval()
    best.provenance = {
        "trained": True,
        "sources": [graph.name for graph in graphs],
        "validation_accuracy": best_score,
        "visit_scores": scores,
        "config": asdict(replace(config, device="auto")),
    }
    return best
