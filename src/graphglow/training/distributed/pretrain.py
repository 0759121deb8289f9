"""Algorithm 2 with all sources in every step, so that ranks can share them.

torchrun --nproc-per-node 2 -m graphglow pretrain --schedule together --sources A B --out L
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs import Graph, check_graph, graph_of
from graphglow.structure import StructureLearner
from graphglow.training.adam import Adam
from graphglow.training.best import Best
from graphglow.training.config import PretrainConfig
from graphglow.training.device import memory_advice
from graphglow.training.distributed.ranks import Ranks
from graphglow.training.loop import Epoch, OnEpoch
from graphglow.training.task import GraphTask, Trained


class SharedTheta(Adam):
    """Adam for theta that many sources push at once: a source's step only hands its gradient in.

    :meth:`step_together` then moves by the mean over all sources of all ranks. It gets every
    gradient from every rank and adds them up itself, in one order: the result has the same bits
    on any number of ranks.
    """

    def __init__(self, learner: StructureLearner, learning_rate: float) -> None:
        super().__init__(learner.parameters(), learning_rate)
        self.handed_in: list[Tensor] = []

    def step(self) -> None:
        """Keep this source's gradient for the common step."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        self.handed_in.append(torch.cat([g.flatten() for g in grads]))

    def step_together(self, sources: Sequence[int], count: int, ranks: Ranks) -> None:
        """Move by the mean gradient of ``count`` sources, of which these are this rank's."""
        mean = everyones(self.handed_in, sources, count, self.flat, ranks).mean(0)
        self.handed_in.clear()
        parts = torch.split(mean, [p.numel() for p in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)
        super().step()


def pretrain_together(
    sources: Sequence[Data],
    config: PretrainConfig,
    ranks: Ranks,
    *,
    on_epoch: OnEpoch | None = None,
) -> StructureLearner:
    """Train a structure learner on all sources at once and return the best one seen.

    In every step each source trains its own GNN and hands in its gradient of theta, which moves
    by the mean. Theta is scored by the mean validation accuracy over the sources, and the best is
    kept. There are E times as many steps as a visit has epochs, at most; training ends after
    ``patience`` of them without a better score. Ranks share the sources by cost; all get the same
    learner, and the same as one rank with the same seed.

    Args:
        sources: The same on all ranks; each prepares only its own.
        config: Learner, objective, model and schedule.
        ranks: This rank and the others.
        on_epoch: Called for every source after every step, on the ranks that give one.
    """
    checked = [check_graph(data) for data in sources]
    own = balanced([_cost(data, config) for data in checked], ranks.size)[ranks.rank]
    graphs = {i: graph_of(checked[i]).to(ranks.device) for i in own}
    names = [str(data.get("name", "graph")) for data in checked]
    count = len(checked)
    learner = StructureLearner(config.learner, seed=config.seed).to(ranks.device)
    theta = SharedTheta(learner, config.learner_learning_rate)
    tasks = {i: _task(graph, i, learner, theta, config) for i, graph in graphs.items()}
    best = Best([theta.flat], config.patience)
    scores: list[float] = []
    for number in range(1, config.episodes * config.epochs + 1):
        rows = [_step(task, config) for task in tasks.values()]
        theta.step_together(own, count, ranks)
        for task, row in zip(tasks.values(), rows, strict=True):
            row[1], row[2] = task.validate()
        table = everyones(rows, own, count, theta.flat.double(), ranks, width=4)  # [S, 4]
        for name, row in zip(names, table.tolist(), strict=True):
            epoch = Epoch(name, number, row[0], row[1], row[2], int(row[3]))
            _check_finite(epoch)
            if on_epoch is not None:
                on_epoch(epoch)
        mean = table.mean(0)
        scores.append(float(mean[2]))
        best.update(torch.tensor(number, device=ranks.device), mean[2], mean[1])
        if not bool(best.running):
            break
    best.restore()
    return _result(learner, config, names, float(best.accuracy), scores)


def balanced(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Share jobs among parts: the costliest first, each to the part with least to do so far.

    No part then has more than 4/3 of what the best sharing gives (Graham, 1969).
    """
    shares: list[list[int]] = [[] for _ in range(parts)]
    loads = [0.0] * parts
    for job in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        part = min(range(parts), key=lambda p: (loads[p], p))
        shares[part].append(job)
        loads[part] += costs[job]
    return [sorted(share) for share in shares]


def everyones(
    rows: Sequence[Tensor],
    places: Sequence[int],
    count: int,
    like: Tensor,
    ranks: Ranks,
    *,
    width: int | None = None,
) -> Tensor:
    """All ``count`` rows, from the ranks that have them: rows [W] at ``places`` -> [count, W].

    Each row is added to zeros, so that not a bit changes.
    """
    table = like.new_zeros(count, len(like) if width is None else width)
    for place, row in zip(places, rows, strict=True):
        table[place] = row
    return ranks.total(table)


def _cost(data: Data, config: PretrainConfig) -> float:
    """Entries that a step touches: node-pivot pairs, and edges."""
    num_nodes = data.x.shape[0]
    return float(num_nodes * min(config.num_pivots, num_nodes) + data.edge_index.shape[1])


def _check_finite(epoch: Epoch) -> None:
    if not (math.isfinite(epoch.loss) and math.isfinite(epoch.val_loss)):
        raise InputError(
            f"the loss must stay finite; got {epoch.loss} (training) and {epoch.val_loss} "
            f"(validation) at step {epoch.epoch} on {epoch.graph} "
            "(a smaller learning rate may help)"
        )


def _task(
    graph: Graph, number: int, learner: StructureLearner, theta: Adam, config: PretrainConfig
) -> GraphTask:
    return GraphTask(
        graph,
        learner,
        config.learner.embedding_size,
        [config],
        seeds=[config.seed + 1000 * number],
        trained=Trained(theta, config.objective),
    )


def _step(task: GraphTask, config: PretrainConfig) -> Tensor:
    """Train one source's GNN; loss and refinements in a row [loss, 0, 0, refinements]."""
    with memory_advice(task.graph.num_nodes, config):
        loss, refinements = task.train_step()
    row = torch.zeros(4, dtype=torch.float64, device=loss.device)
    row[0], row[3] = loss, refinements
    return row


def _result(
    learner: StructureLearner,
    config: PretrainConfig,
    names: list[str],
    score: float,
    scores: list[float],
) -> StructureLearner:
    best = StructureLearner(config.learner, seed=config.seed)
    best.load_state_dict(learner.state_dict())
    best.eval()
    best.provenance = {
        "trained": True,
        "sources": names,
        "validation_accuracy": score,
        "visit_scores": scores,
        "config": asdict(replace(config, device="auto")),
    }
    return best
