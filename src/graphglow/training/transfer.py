"""Algorithm 3: train a small GNN on a new graph under a frozen learner.

graphglow transfer --target reed98

Under an evidence learner that is :mod:`graphglow.training.evidence`; under one of the paper's kind
it is here.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import with_settings
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.graph import as_graph, check_graph, training_graph
from graphglow.paper import Structure, StructureLearner
from graphglow.paper.learner import stack_learners
from graphglow.pretrained import UNIVERSAL, Learner, LearnerName, load_learner
from graphglow.settings import PaperConfig, TransferConfig
from graphglow.training.checkpoint import Checkpoints, graph_identity, held, learner_identity
from graphglow.training.device import (
    memory_advice,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.training.evidence import transfer_evidence
from graphglow.training.loop import Loop, OnEpoch, of_run
from graphglow.training.result import PaperResult, TransferResult
from graphglow.training.runs import check_same_shape
from graphglow.training.task import GraphTask, gnn_of


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


@overload
def transfer(
    data: Any,
    learner: StructureLearner,
    config: PaperConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    observer: StructureObserver | None = None,
    checkpoints: Checkpoints | None = None,
    **settings: Any,
) -> PaperResult: ...
@overload
def transfer(
    data: Any,
    learner: LearnerName = UNIVERSAL,
    config: TransferConfig | PaperConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    observer: StructureObserver | None = None,
    checkpoints: Checkpoints | None = None,
    **settings: Any,
) -> TransferResult: ...
def transfer(
    data: Any,
    learner: LearnerName = UNIVERSAL,
    config: TransferConfig | PaperConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    observer: StructureObserver | None = None,
    checkpoints: Checkpoints | None = None,
    **settings: Any,
) -> TransferResult:
    """Train a small GNN on ``data`` under a frozen learner, which is never changed.

    An evidence learner (``universal``) refines the graph first, in closed form; then a GNN is
    trained over ``lambda A + (1 - lambda) S``, with A the input graph and S the refined one. Labels
    of validation nodes choose the epoch, and lambda (0, 0.5 or 1) where ``input_weight`` is None;
    without validation nodes the training nodes choose lambda, by leave-one-out. A learner of the
    paper's kind (``paper``) infers the structure from the GNN's own embeddings in every pass
    (Algorithm 3). (GraphGLOW*, the oracle of the paper, whose learner is trained on the target, is
    ``fit("graphglow-star", data)``.)

    Args:
        data: The target graph: a ``Data``, or anything else that :func:`load_graph` takes.
        learner: What :func:`load_learner` takes: a name, a file, or the learner itself.
        config: A :class:`TransferConfig`; under a learner of the paper's kind a
            :class:`PaperConfig`.
        on_epoch: Called after every epoch.
        observer: Looks at the structure that the paper's learner infers now and then; what is
            trained stays the same.
        checkpoints: Where the run saves itself, to go on from there if it is killed. Times of
            the result are then sums over its parts.
        settings: Settings by name, as ``epochs=10``, which go before those of ``config``.
    """
    found = load_learner(learner, seed=settings.get("seed", getattr(config, "seed", 0)))
    config = with_settings(config_for(found, config), settings)
    data = as_graph(data)
    if isinstance(found, EvidenceLearner):
        if observer is not None:
            raise InputError("an observer needs a learner of the paper's kind; got an evidence one")
        assert isinstance(config, TransferConfig)
        return transfer_evidence(data, found, config, on_epoch=on_epoch, checkpoints=checkpoints)
    assert isinstance(config, PaperConfig)
    with held(checkpoints):
        return _train([found], data, [config], on_epoch, observer, checkpoints)[0]


def config_for(
    learner: Learner, config: TransferConfig | PaperConfig | None
) -> TransferConfig | PaperConfig:
    """The settings of a transfer under this learner: those given, if of its kind, or defaults."""
    paper = isinstance(learner, StructureLearner)
    kind: type[TransferConfig | PaperConfig] = PaperConfig if paper else TransferConfig
    if config is None:
        return kind()
    if not isinstance(config, kind):
        whose = "of the paper's kind" if paper else "that reads evidence"
        raise InputError(
            f"config must be a {kind.__name__} under a learner {whose}; got {type(config).__name__}"
        )
    return config


def transfer_many(
    data: Data,
    learner: LearnerName | Sequence[LearnerName],
    configs: Sequence[TransferConfig | PaperConfig],
    *,
    on_epoch: OnEpoch | None = None,
) -> list[TransferResult]:
    """Train on ``data`` several times, each as :func:`transfer` does alone, up to rounding.

    Under a learner of the paper's kind the runs are one batched program; they may differ in seed,
    learning rate, weight decay, dropout, lambda and momentum, and on a GPU, ten take three to four
    times as long as one. A run whose loss is not finite ends them all, with its place in the
    message. ``seconds`` of a result are those of the whole batch. With several learners that do not
    compare by cosine, and under evidence learners, the runs are made one after another.

    Args:
        data: The target graph of all runs.
        learner: As in :func:`transfer`, for all runs; or a list with one for each, all of one
            kind and configuration.
        configs: One per run.
        on_epoch: Called for every epoch of every run.
    """
    if isinstance(learner, str) or not isinstance(learner, Sequence):
        learner = [learner]
    found = [load_learner(one) for one in learner]
    learners = [one for one in found if isinstance(one, StructureLearner)]
    if 0 < len(learners) < len(found):
        raise InputError("the learners of a batch must be of one kind; got both")
    paper = _checked(found, configs)
    if not learners:
        each = learner if len(learner) > 1 else [*learner] * len(configs)
        return [  # by name, so that an untrained one has the seed of its run
            transfer(data, each[run], config, on_epoch=of_run(on_epoch, run))
            for run, config in enumerate(configs)
        ]
    kind = learners[0].config
    batched = len(learners) == 1 or not kind.weighted or kind.similarity == "cosine"
    if len(configs) > 1 and not batched:
        return [
            _train([theta], data, [config], of_run(on_epoch, run))[0]
            for run, (theta, config) in enumerate(zip(learners, paper, strict=True))
        ]
    return [*_train(learners, data, paper, on_epoch)]


def _train(
    learners: Sequence[StructureLearner],
    data: Data,
    configs: Sequence[PaperConfig],
    on_epoch: OnEpoch | None,
    observer: StructureObserver | None = None,
    checkpoints: Checkpoints | None = None,
) -> list[PaperResult]:
    """Train a batch of runs under one learner, or under one each."""
    began = time.perf_counter()
    first = configs[0]
    device = resolve_device(first.device)
    data = check_graph(data)
    graph = training_graph(data)
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
        PaperResult(
            data=data,
            graph=graph,
            config=config,
            learner=frozen[run if len(frozen) > 1 else 0],
            gnn=gnn_of(task, run),
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


def _checked(
    learners: Sequence[Learner], configs: Sequence[TransferConfig | PaperConfig]
) -> list[PaperConfig]:
    """Raise unless the runs fit together; return those settings that are of the paper's kind."""
    if not isinstance(configs, Sequence) or len(configs) == 0:
        raise InputError(f"transfer_many needs a list of one config or more; got {configs}")
    if len(learners) not in (1, len(configs)):
        raise InputError(
            f"transfer_many needs one learner, or one per config ({len(configs)}); "
            f"got {len(learners)}"
        )
    paper = [one for one in learners if isinstance(one, StructureLearner)]
    if any(learner.config != paper[0].config for learner in paper):
        raise InputError("the learners of a batch must have one configuration; got several")
    found = [config_for(learners[0], config) for config in configs]
    of_paper = [config for config in found if isinstance(config, PaperConfig)]
    if of_paper:
        check_same_shape(of_paper)
    return of_paper
