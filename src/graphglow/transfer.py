"""Algorithm 3: train a small GNN on a new graph under a frozen learner.

graphglow transfer --target reed98

Under a learner of the paper's kind the structure is inferred from the GNN's embeddings in every
pass. An evidence learner makes a structure S of the graph once, in closed form; a GNN is trained
over ``lambda A + (1 - lambda) S`` (Eq. 12).
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checkpoint import Checkpoint
from graphglow.checks import with_settings
from graphglow.device import (
    check_fits,
    out_of_memory_hint,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.gnn import Backbone, FixedStructure, Structure
from graphglow.gnn.train import Epoch, GNNTask, Loop, OnEpoch, freeze
from graphglow.graph import Graph, as_graph, check_graph, training_graph
from graphglow.graph.graph import normalised_adjacency
from graphglow.paper import StructureLearner
from graphglow.paper.algorithms import NEEDS_LESS, PaperTask, train_under
from graphglow.pretrained import UNIVERSAL, Learner, LearnerName, load_learner
from graphglow.result import TransferResult
from graphglow.settings import PaperConfig, TransferConfig
from graphglow.transfer_results import (
    EvidenceResult,
    PaperResult,
    refined_by,
    strongest_edges,
    with_known_classes,
)
from graphglow.verdict import Accuracies

INPUT_WEIGHTS = (0.0, 0.5, 1.0)
"""lambda: the refined graph alone, both graphs, the input graph alone."""
EPOCHS_UNSEEN = 100
"""Epochs where no validation node says when to stop."""
NARROWER = "a smaller --hidden, fewer --num-layers"


@dataclass(frozen=True)
class StructureObserver:
    """Sees the learned structure while the GNN trains."""

    every: int
    """In epochs."""
    look: Callable[[int, Structure, Tensor], None]
    """Called with the epochs done, 0 at first, the structure as the model has it then, and its
    pivots [P]."""

    def __call__(self, task: PaperTask, epoch: int) -> None:
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
        return _transfer_evidence(data, chosen, config, on_epoch)
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


class Trained(NamedTuple):
    """The GNN of one lambda.

    Shapes:
        right [K]: which validation nodes it predicts right
    """

    input_weight: float
    gnn: Backbone
    history: list[Epoch]
    right: Tensor

    @property
    def score(self) -> tuple[float, float]:
        """Of the epoch that was kept: validation accuracy, then the lower log-loss."""
        return max((epoch.val_accuracy, -epoch.val_loss) for epoch in self.history)


def _transfer_evidence(
    data: Data, learner: EvidenceLearner, config: TransferConfig, on_epoch: OnEpoch | None
) -> EvidenceResult:
    """Refine the graph once, then train one GNN for each lambda that is tried; keep the best.

    Differs from the paper: S does not change while the GNN trains, and lambda may be chosen.
    """
    began = time.perf_counter()
    device = resolve_device(config.device)
    data = check_graph(data, need_validation=False)
    name = str(data.get("name", "graph"))
    needed = 16 * config.num_layers * config.hidden * int(data.num_nodes or 0)  # of a GNN's layers
    check_fits("training", needed, name, device, f" ({NARROWER})")
    reset_peak_memory(device)
    with out_of_memory_hint(f"refining {name}", "a smaller graph"):
        refined = refined_by(learner, data, config.seed, device)
        edges = strongest_edges(refined, config.top_k)
    graph = with_known_classes(training_graph(data), data).to(device)
    weights, chosen_by = _weights_to_try(config, graph, refined.channel_scores)
    del refined  # candidates and their evidence take many times the room of the graph
    with out_of_memory_hint(f"training on {name}", NARROWER):
        strength = edges["edge_index"], edges["edge_weight"]
        structure = FixedStructure(normalised_adjacency(*strength, graph.num_nodes))
        train_began = time.perf_counter()
        trained = _train(graph, structure, config, weights, on_epoch)
        best = max(trained, key=lambda one: one.score)
        train_seconds = time.perf_counter() - train_began
    plain = [one.right for one in trained if one.input_weight == 1 and len(graph.val) > 0]
    result = EvidenceResult(
        data=data,
        graph=graph,
        config=config,
        learner=learner,
        gnn=best.gnn,
        **edges,
        input_weight=best.input_weight,
        chosen_by=chosen_by,
        against_input=Accuracies.of(plain[0], best.right) if plain else None,
        history=best.history,
        train_seconds=train_seconds,
        seconds=time.perf_counter() - began,
        peak_memory_bytes=peak_memory_bytes(device),
    )
    result.judged().warn()
    return result


def _train(
    graph: Graph,
    structure: FixedStructure,
    config: TransferConfig,
    weights: Sequence[float],
    on_epoch: OnEpoch | None,
) -> list[Trained]:
    """Train a GNN for each lambda; without validation nodes, training nodes say when to stop."""
    unseen = len(graph.val) == 0
    epochs = min(config.epochs, EPOCHS_UNSEEN) if unseen else config.epochs
    graph = graph.with_labels(val=graph.train) if unseen else graph
    trained = []
    for weight in weights:
        run = config.run(weight)
        task = GNNTask(graph, config.hidden, run, given=structure, balanced=config.balanced)
        history = Loop(task, epochs, config.patience).run(on_epoch)
        right = task.logits()[graph.val].argmax(1) == task.val_labels
        trained.append(Trained(weight, freeze(task.gnn), history, right))
    return trained


def _weights_to_try(
    config: TransferConfig, graph: Graph, scores: Mapping[str, Mapping[str, float]]
) -> tuple[tuple[float, ...], str]:
    """Values of lambda to train with, and what chooses among them."""
    if config.input_weight is not None:
        return (float(config.input_weight),), "settings"
    if len(graph.val) == 0:
        return (input_weight_by_leave_one_out(scores),), "leave-one-out"
    return INPUT_WEIGHTS, "validation"


def input_weight_by_leave_one_out(
    scores: Mapping[str, Mapping[str, float]], *, margin: float = 0.05
) -> float:
    """Return lambda of ``lambda A + (1 - lambda) S`` without validation nodes.

    The channels of A^2 x and S^2 x are linear GNNs on the input graph and on the refined one; their
    leave-one-out log-loss gains on the training nodes are compared. The better graph is taken
    alone; within ``margin`` of each other both count alike. Where neither is as good as the
    features without a graph, the better one does the least harm, so this is not asked.

    Args:
        scores: ``channel_scores`` of a refined graph.
        margin: A smaller lead is none.
    """
    given, refined = (scores[name]["likelihood"] for name in ("aax", "ssx"))
    return 0.5 if abs(given - refined) <= margin else float(given > refined)
