"""Algorithm 3: train a small GNN on a new graph under a frozen structure learner.

graphglow transfer --learner learner.safetensors --target reed98
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.gnn import Backbone
from graphglow.graphs import check_graph, graph_of
from graphglow.pretrained import load_learner
from graphglow.structure import Structure, StructureLearner
from graphglow.structure.learner import stack_learners
from graphglow.training.checkpoint import Checkpoints, graph_identity, held, learner_identity
from graphglow.training.config import TransferConfig, check_same_shape
from graphglow.training.device import (
    memory_advice,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.training.loop import Loop, OnEpoch, of_run
from graphglow.training.result import TransferResult
from graphglow.training.task import GraphTask


class StructureObserver(NamedTuple):
    """Sees the learned structure of a run while its GNN trains."""

    every: int
    """In epochs."""
    look: Callable[[int, Structure, Tensor], None]
    """Called with the epochs done, 0 at first, the structure as the model has it then, and its
    pivots [P]."""

    def at(self, epoch: int, task: GraphTask) -> None:
        """Look at a task after this many epochs, if it is time to."""
        if epoch % self.every == 0:
            latent = task.evaluate().latent
            assert latent is not None  # there is a learner
            self.look(epoch, latent, task.pivots)


Learner = StructureLearner | str | Path
"""A learner itself, the name of one of the package's, or a file."""


def transfer(
    learner: Learner,
    data: Data,
    config: TransferConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    observer: StructureObserver | None = None,
    checkpoints: Checkpoints | None = None,
) -> TransferResult:
    """Train a GNN on ``data`` under the given structure learner (Algorithm 3).

    The learner is copied and frozen; the caller's is never changed. (GraphGLOW*, the oracle of the
    paper, whose learner is trained on the target, is ``fit("graphglow-star", data)``.)

    Args:
        learner: From :func:`pretrain` or a new, random one; or what :func:`load_learner` takes.
        data: The target graph.
        config: Model and schedule.
        on_epoch: Called after every epoch.
        observer: Looks at the learned structure now and then; what is trained stays the same.
        checkpoints: Where the run saves itself, to go on from there if it is killed. Times of
            the result are then sums over its parts.
    """
    learners, configs = [load_learner(learner)], [TransferConfig() if config is None else config]
    _check(learners, configs)
    with held(checkpoints):
        return _train(learners, data, configs, on_epoch, observer, checkpoints)[0]


def transfer_many(
    learner: Learner | Sequence[Learner],
    data: Data,
    configs: Sequence[TransferConfig],
    *,
    on_epoch: OnEpoch | None = None,
) -> list[TransferResult]:
    """Train several GNNs on ``data`` at once, as one batched program.

    The runs may differ in seed, learning rate, weight decay, dropout, lambda and momentum. Each
    gives what :func:`transfer` gives alone, up to rounding; on a GPU, ten take three to four times
    as long as one. A run whose loss is not finite ends them all, with its place in the message.
    ``seconds`` of a result are those of the whole batch. With several learners that do not compare
    by cosine, the runs are made one after another.

    Args:
        learner: As in :func:`transfer`, for all runs; or a list with one for each, all of one
            configuration.
        data: The target graph of all runs.
        configs: One per run.
        on_epoch: Called for every epoch of every run.
    """
    if isinstance(learner, str) or not isinstance(learner, Sequence):
        learner = [learner]
    learners = [load_learner(one) for one in learner]
    _check(learners, configs)
    kind = learners[0].config
    batched = len(learners) == 1 or not kind.weighted or kind.similarity == "cosine"
    if len(configs) > 1 and not batched:
        each = learners if len(learners) > 1 else learners * len(configs)
        return [
            _train([theta], data, [config], of_run(on_epoch, run))[0]
            for run, (theta, config) in enumerate(zip(each, configs, strict=True))
        ]
    return _train(learners, data, configs, on_epoch)


def _train(
    learners: Sequence[StructureLearner],
    data: Data,
    configs: Sequence[TransferConfig],
    on_epoch: OnEpoch | None,
    observer: StructureObserver | None = None,
    checkpoints: Checkpoints | None = None,
) -> list[TransferResult]:
    """Train a batch of runs under one learner, or under one each."""
    began = time.perf_counter()
    first = configs[0]
    device = resolve_device(first.device)
    data = check_graph(data)
    graph = graph_of(data)
    frozen = [copy.deepcopy(one).to(device).requires_grad_(False).eval() for one in learners]
    learner = stack_learners(frozen)
    reset_peak_memory(device)
    with memory_advice(graph.num_nodes, first, runs=len(configs)):
        graph = graph.to(device)
        task = GraphTask(graph, learner, learner.config.embedding_size, configs)
        loop = Loop(task, first.epochs, first.patience or first.epochs)
        before = 0.0
        if checkpoints is not None:
            before = _save_in(checkpoints, learners[0], task, loop)
        train_began = time.perf_counter() - before
        look = None if observer is None else partial(observer.at, task=task)
        histories = loop.run(on_epoch, look)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        train_seconds = time.perf_counter() - train_began
    return [
        TransferResult(
            data=data,
            graph=graph,
            config=config,
            learner=frozen[run if len(frozen) > 1 else 0],
            gnn=_gnn_of(task, run),
            pivots=task.pivots if len(configs) == 1 else task.pivots[run],
            history=histories[run],
            train_seconds=train_seconds,
            seconds=time.perf_counter() - began + before,
            peak_memory_bytes=peak_memory_bytes(device),
        )
        for run, config in enumerate(configs)
    ]


def _save_in(
    checkpoints: Checkpoints, learner: StructureLearner, task: GraphTask, loop: Loop
) -> float:
    """Let a run save itself, and go on where it was; return the seconds that it took so far."""
    graph = task.graph
    run = {  # all that its result depends on, and by which its checkpoints know it
        "command": "transfer",
        "config": asdict(task.runs.shared) | {"device": graph.y.device.type},
        "learner": learner_identity(learner),
        "graph": graph_identity(graph),
    }
    checkpoints.begin(run, lambda found: found.restore({"task": task, "loop": loop}))
    loop.on_read = lambda now: checkpoints.offer({"task": task, "loop": now})
    return checkpoints.seconds_before


def _check(learners: Sequence[StructureLearner], configs: Sequence[TransferConfig]) -> None:
    if not isinstance(configs, Sequence) or len(configs) == 0:
        raise InputError(f"transfer_many needs a list of one config or more; got {configs}")
    for config in configs:
        if not isinstance(config, TransferConfig):
            raise InputError(f"config must be a TransferConfig; got {type(config).__name__}")
    check_same_shape(configs)
    if len(learners) not in (1, len(configs)):
        raise InputError(
            f"transfer_many needs one learner, or one per config ({len(configs)}); "
            f"got {len(learners)}"
        )
    if any(learner.config != learners[0].config for learner in learners):
        raise InputError("the learners of a batch must have one configuration; got several")


def _gnn_of(task: GraphTask, run: int) -> Backbone:
    """The trained GNN of one run, out of a batch: no batch dimension, memory of its own."""
    gnn = type(task.gnn)(task.gnn.shape, torch.Generator()).to(task.pivots.device)
    state = task.gnn.state_dict()
    gnn.load_state_dict({n: t if task.runs.count == 1 else t[run] for n, t in state.items()})
    return gnn.requires_grad_(False).eval()
