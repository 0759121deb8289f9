"""Algorithm 3: train a small GNN on a new graph under a frozen learner.

graphglow transfer --target reed98

Under an evidence learner that is :mod:`graphglow.training.evidence`; under one of the paper's kind
it is here.
"""

import copy
import time
from collections.abc import Callable
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checkpoint import Checkpoint
from graphglow.checks import with_settings
from graphglow.device import (
    out_of_memory_hint,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.gnn import Structure
from graphglow.gnn.train import OnEpoch, freeze
from graphglow.graph import as_graph, check_graph
from graphglow.graph.graph import training_graph
from graphglow.paper import StructureLearner
from graphglow.paper.algorithms import NEEDS_LESS, PaperTask, train_under
from graphglow.pretrained import UNIVERSAL, Learner, LearnerName, load_learner
from graphglow.settings import PaperConfig, TransferConfig
from graphglow.training.evidence import transfer_evidence
from graphglow.training.result import PaperResult, TransferResult


class StructureObserver(NamedTuple):
    """Sees the learned structure while the GNN trains."""

    every: int
    """In epochs."""
    look: Callable[[int, Structure, Tensor], None]
    """Called with the epochs done, 0 at first, the structure as the model has it then, and its
    pivots [P]."""

    def __call__(self, epoch: int, task: PaperTask) -> None:
        if epoch % self.every == 0:
            self.look(epoch, task.evaluate().latent, task.pivots)


@overload
def transfer(
    data: Any,
    learner: StructureLearner,
    config: PaperConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    observer: StructureObserver | None = None,
    checkpoint: Checkpoint | None = None,
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
    checkpoint: Checkpoint | None = None,
    **settings: Any,
) -> TransferResult: ...
def transfer(
    data: Any,
    learner: LearnerName = UNIVERSAL,
    config: TransferConfig | PaperConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    observer: StructureObserver | None = None,
    checkpoint: Checkpoint | None = None,
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
        checkpoint: Under the paper's learner: the file from which a training that was stopped goes
            on. Times of the result are then sums over its parts.
        settings: Settings by name, as ``epochs=10``, which go before those of ``config``.
    """
    chosen = load_learner(learner, seed=settings.get("seed", getattr(config, "seed", 0)))
    config = with_settings(config_for(chosen, config), settings)
    data = as_graph(data)
    if isinstance(chosen, EvidenceLearner):
        if observer is not None or checkpoint is not None:
            raise InputError(
                "observer and checkpoint must go with a learner of the paper's kind; got an "
                "evidence learner, under which a training takes seconds"
            )
        assert isinstance(config, TransferConfig)
        return transfer_evidence(data, chosen, config, on_epoch=on_epoch)
    assert isinstance(config, PaperConfig)
    return _transfer_paper(data, chosen, config, on_epoch, observer, checkpoint)


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


def _transfer_paper(
    data: Data,
    learner: StructureLearner,
    config: PaperConfig,
    on_epoch: OnEpoch | None,
    observer: StructureObserver | None,
    checkpoint: Checkpoint | None,
) -> PaperResult:
    began = time.perf_counter()
    device = resolve_device(config.device)
    data = check_graph(data)
    graph = training_graph(data)
    frozen = copy.deepcopy(learner).to(device).requires_grad_(False).eval()
    reset_peak_memory(device)
    with out_of_memory_hint(f"training on {graph.name}", NEEDS_LESS):
        graph = graph.to(device)
        train_began = time.perf_counter()
        task, history = train_under(
            frozen, graph, config, on_epoch=on_epoch, look=observer, checkpoint=checkpoint
        )
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    now, before = time.perf_counter(), 0.0 if checkpoint is None else checkpoint.seconds_before
    return PaperResult(
        data=data,
        graph=graph,
        config=config,
        learner=frozen,
        gnn=freeze(task.gnn),
        pivots=task.pivots,
        history=history,
        train_seconds=now - train_began + before,
        seconds=now - began + before,
        peak_memory_bytes=peak_memory_bytes(device),
    )
