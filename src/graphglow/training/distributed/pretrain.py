"""Algorithm 2 with all sources in every step, so that ranks can share them.

torchrun --nproc-per-node 2 -m graphglow pretrain --kind paper --schedule together \
    --sources A B --out L
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.graphs import check_graph, graph_of
from graphglow.structure import StructureLearner
from graphglow.training.adam import Adam
from graphglow.training.checkpoint import Checkpoints, Part, Saved, held
from graphglow.training.config import PretrainConfig
from graphglow.training.device import memory_advice
from graphglow.training.distributed.agreement import (
    agree,
    anyone_saves,
    begin_together,
    data_identity,
    settings_of,
    tensors_of,
)
from graphglow.training.distributed.ranks import Ranks
from graphglow.training.loop import Best, Epoch, OnEpoch
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
        table = self.flat.new_zeros(count, len(self.flat))
        mean = everyones(dict(zip(sources, self.handed_in, strict=True)), table, ranks).mean(0)
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
    checkpoints: Checkpoints | None = None,
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
        on_epoch: Called for every source after every step, on the ranks that give one; where a
            run goes on from a checkpoint, for the steps before it too.
        checkpoints: Rank 0's is where the run saves itself, to go on from there, on any number of
            ranks, if it is killed; the others may give None, and see no file of it.
    """
    checked = [check_graph(data) for data in sources]
    identities = [data_identity(data) for data in checked]
    facts = {f"source {i}": identity for i, identity in enumerate(identities, start=1)}
    agree(ranks, {"job": "pretrain together", **settings_of(config), **facts})
    with held(checkpoints if ranks.rank == 0 else None):
        course = Course(checked, config, ranks)
        if anyone_saves(checkpoints, ranks):
            run = {
                "command": "pretrain together",
                "config": asdict(config) | {"device": ranks.device.type},
                "sources": identities,
            }
            course.save_in(checkpoints, run)
        course.run(on_epoch)
        return course.result()


class Course:
    """All steps on all sources: what this rank trains, and how far all of them have come.

    The sources are checked, and the same on all ranks.
    """

    def __init__(self, sources: Sequence[Data], config: PretrainConfig, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks
        sizes = [(len(data.x), data.edge_index.shape[1]) for data in sources]
        costs = [n * min(config.num_pivots, n) + e for n, e in sizes]  # entries a step touches
        self.shares = balanced(costs, ranks.size)
        self.names = [str(data.get("name", "graph")) for data in sources]
        self.learner = StructureLearner(config.learner, seed=config.seed).to(ranks.device)
        self.theta = SharedTheta(self.learner, config.learner_learning_rate)
        self.tasks = {
            i: GraphTask(
                graph_of(sources[i]).to(ranks.device),
                self.learner,
                config.learner.embedding_size,
                [config],
                seeds=[config.seed + 1000 * i],
                trained=Trained(self.theta, config.objective),
            )
            for i in self.shares[ranks.rank]
        }
        self.best = Best([self.theta.flat], config.patience)
        self.scores: list[float] = []
        """Of theta after each step."""
        self.heard: list[Epoch] = []
        self._checkpoints: Checkpoints | None = None
        self._saving, self._last = False, 0.0

    def run(self, on_epoch: OnEpoch | None) -> None:
        """Make the steps that are left, and put the best theta back."""
        if on_epoch is not None:
            for epoch in self.heard:
                on_epoch(epoch)
        first, end = len(self.scores) + 1, self.config.episodes * self.config.epochs
        for number in range(first, end + 1):
            if not bool(self.best.running):
                break
            if self._step(number, on_epoch):
                self._save()
        self.best.restore()

    def _step(self, number: int, on_epoch: OnEpoch | None) -> bool:
        """One step of all sources; whether it is time to save, by the clock of rank 0."""
        count, device = len(self.names), self.ranks.device
        trained = {}
        for i, task in self.tasks.items():
            with memory_advice(task.graph.num_nodes, self.config):
                trained[i] = task.train_step()
        self.theta.step_together(list(self.tasks), count, self.ranks)
        rows = {}  # of each source: loss, validation loss and accuracy, refinements
        for i, (loss, refinements) in trained.items():
            values = (loss, *self.tasks[i].validate(), refinements)
            rows[i] = torch.stack([value.double() for value in values])
        zeros = torch.zeros(count + 1, 4, dtype=torch.float64, device=device)
        if self._checkpoints is not None:  # never before rank 0's own clock would save
            due = time.monotonic() - self._last >= self._checkpoints.every_seconds
            rows[count] = torch.full_like(zeros[0], float(due))
        table = everyones(rows, zeros, self.ranks)
        table, save = table[:-1], bool(table[-1, 0])
        for name, row in zip(self.names, table.tolist(), strict=True):
            epoch = Epoch(name, number, row[0], row[1], row[2], int(row[3]))
            epoch.check_finite(f"step {number} on {name}")
            if self._saving:
                self.heard.append(epoch)
            if on_epoch is not None:
                on_epoch(epoch)
        mean = table.mean(0)
        self.scores.append(float(mean[2]))
        self.best.update(torch.tensor(number, device=device), mean[2], mean[1])
        return save

    def save_in(self, checkpoints: Checkpoints | None, run: dict[str, Any]) -> None:
        """Let rank 0 save the run now and then, and let all go on where it was."""
        begin_together(checkpoints, run, self.ranks, self._go_on_from)
        self._checkpoints = checkpoints if self.ranks.rank == 0 else None
        self._saving, self._last = True, time.monotonic()

    def _save(self) -> None:
        """Bring the GNNs of all sources to rank 0, which saves them with the rest."""
        parts: dict[str, Part] = {"theta": self.theta, "best": self.best}
        for rank, share in enumerate(self.shares):
            for i in share:
                own = self.tasks[i].state() if i in self.tasks else {}
                parts[f"task_{i}"] = _Tensors(tensors_of(rank, own, self.ranks))
        if self._checkpoints is not None:
            self._checkpoints.offer(parts, {"scores": self.scores, "heard": self.heard})
        self._last = time.monotonic()

    def _go_on_from(self, found: Saved) -> None:
        scores = [float(score) for score in found.facts["scores"]]
        heard = [Epoch(*row) for row in found.facts["heard"]]
        tasks = {f"task_{i}": task for i, task in self.tasks.items()}
        found.restore({"theta": self.theta, "best": self.best, **tasks})
        self.scores, self.heard = scores, heard

    def result(self) -> StructureLearner:
        """The best learner, on the CPU."""
        best = StructureLearner(self.config.learner, seed=self.config.seed)
        best.load_state_dict(self.learner.state_dict())
        best.provenance = {
            "trained": True,
            "sources": self.names,
            "validation_accuracy": float(self.best.accuracy),
            "visit_scores": self.scores,
            "config": asdict(replace(self.config, device="auto")),
        }
        return best.eval()


class _Tensors(dict[str, Tensor]):
    """Another rank's tensors as a part of a checkpoint."""

    def state(self) -> dict[str, Tensor]:
        return self

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.update(state)


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


def everyones(rows: Mapping[int, Tensor], zeros: Tensor, ranks: Ranks) -> Tensor:
    """All rows, from the ranks that have them, by their places: [W] each, [count, W] -> the same.

    Each row is added to zeros, so that not a bit changes.
    """
    for place, row in rows.items():
        zeros[place] = row
    return ranks.total(zeros)
