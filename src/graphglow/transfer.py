"""Algorithm 3: train a small GNN on a new graph under a frozen learner.

graphglow transfer --target reed98
"""

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.device import (
    check_fits,
    out_of_memory_hint,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.errors import InputError, warn, with_settings
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.views import link_rows
from graphglow.gnn.propagation import FixedStructure
from graphglow.gnn.train import (
    Epoch,
    GNNTask,
    Loop,
    OnEpoch,
    accuracy_by_luck,
)
from graphglow.graph import Graph, as_graph, check_graph, training_graph
from graphglow.graph.check import edges_were_made
from graphglow.graph.graph import normalised_adjacency
from graphglow.linalg.rows import low_rank_map, times, unit_unless_short
from graphglow.paper.algorithms import NEEDS_LESS, PaperTask, train_under
from graphglow.paper.learner import StructureLearner
from graphglow.predict import run_frozen
from graphglow.pretrained import UNIVERSAL, LearnerName, load_learner
from graphglow.result import RefinedEdges, TransferResult, method_under, with_known_classes
from graphglow.scores import compare_accuracies
from graphglow.settings import PaperConfig, TransferConfig
from graphglow.storage import Checkpoint

INPUT_WEIGHTS: tuple[float, ...] = (0.0, 0.5, 1.0)
"""Values of lambda that are tried: the refined graph alone, both graphs, the input graph alone."""
EPOCHS_UNSEEN = 100
"""Most epochs where no validation node says when to stop."""
COLUMNS = 32
"""Spectral columns of graphs without features."""
NARROWER = "a smaller --hidden, fewer --num-layers"


def transfer(
    data: Any,
    learner: LearnerName = UNIVERSAL,
    config: TransferConfig | PaperConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    look: Callable[[PaperTask, int], None] | None = None,
    checkpoint: Checkpoint | None = None,
    **settings: Any,
) -> TransferResult:
    """Train a small GNN on ``data`` under a frozen learner, which is never changed.

    An evidence learner (``universal``) refines the graph first, in closed form. Then a GNN is
    trained over ``lambda A + (1 - lambda) S`` (Eq. 12), with A the input graph and S the refined.
    Validation nodes choose the epoch, and lambda (0, 0.5 or 1) where ``input_weight`` is None;
    without validation nodes the training nodes choose lambda, by leave-one-out. Accuracies within
    one standard error of the majority class, or below, count as equal, and the loss decides.

    The paper's learner (``paper``) infers the structure from the GNN's own embeddings in every pass
    (Algorithm 3); its oracle GraphGLOW*, trained on the target, is ``fit("graphglow-star", data)``.

    On a graph without features, or with the same ones for all nodes, the GNN reads 32 spectral
    columns: the leading singular vectors of the adjacency.

    Args:
        data: The target graph: a ``Data``, or anything else that :func:`load_graph` takes.
        learner: What :func:`load_learner` takes: a name, a file, or the learner itself.
        config: A :class:`TransferConfig`; under the paper's learner a :class:`PaperConfig`.
        on_epoch: Called after every epoch.
        look: Called with the task and the number of epochs done, 0 at first, under the paper's
            learner: ``task.evaluate().latent`` is the structure. It must change nothing.
        checkpoint: Under the paper's learner: the file from which a stopped training goes on. Times
            of the result are then sums over its parts.
        settings: Settings by name, as ``epochs=10``; they override those of ``config``.
    """
    chosen = load_learner(learner, seed=settings.get("seed", getattr(config, "seed", 0)))
    paper = isinstance(chosen, StructureLearner)
    kind: type[TransferConfig | PaperConfig] = PaperConfig if paper else TransferConfig
    if config is not None and not isinstance(config, kind):
        whose = "of the paper's kind" if paper else "that reads evidence"
        raise InputError(
            f"config must be a {kind.__name__} under a learner {whose}; got {type(config).__name__}"
        )
    config = with_settings(config or kind(), settings)
    if not paper and (look is not None or checkpoint is not None):
        raise InputError(
            "look and checkpoint must go with a learner of the paper's kind; leave them out "
            "under an evidence learner, where a training takes seconds"
        )
    data = as_graph(data)
    began, device = time.perf_counter(), resolve_device(config.device)
    data = check_graph(data, need_validation=paper)
    reset_peak_memory(device)
    smaller = NEEDS_LESS if paper else NARROWER
    with out_of_memory_hint(f"training on {data.get('name', 'graph')}", smaller):
        graph = training_graph(data).to(device)
        graph, spectral = _with_spectral_features(data, graph, config.seed)
        if isinstance(chosen, StructureLearner):
            assert isinstance(config, PaperConfig)
            chosen = copy.deepcopy(chosen).to(device).requires_grad_(False).eval()
            trained = _under_paper(graph, chosen, config, on_epoch, look, checkpoint)
        else:
            assert isinstance(config, TransferConfig)
            graph = with_known_classes(graph, data)
            trained = _over_refined(data, graph, chosen, config, on_epoch)
    before = 0.0 if checkpoint is None else checkpoint.seconds_before
    trained["train_seconds"] += before
    result = TransferResult(
        method=method_under(chosen),
        backbone=config.backbone,
        data=data,
        graph=graph,
        spectral=spectral,
        learner=chosen,
        config=config,
        seconds=time.perf_counter() - began + before,
        peak_memory_bytes=peak_memory_bytes(device),
        **trained,
    )
    if result.verdict.startswith("worse"):
        warn(result.verdict)
    return result


def _under_paper(
    graph: Graph,
    learner: StructureLearner,
    config: PaperConfig,
    on_epoch: OnEpoch | None,
    look: Callable[[PaperTask, int], None] | None,
    checkpoint: Checkpoint | None,
) -> dict[str, Any]:
    """Train a GNN whose structure the frozen learner infers in every pass."""
    began = time.perf_counter()
    task, history, best = train_under(
        learner, graph, config, on_epoch=on_epoch, look=look, checkpoint=checkpoint
    )
    seconds = time.perf_counter() - began
    found = _trained(task, history, config.input_weight)
    return found | {"best": best, "pivots": task.pivots, "train_seconds": seconds}


def _trained(task: GNNTask | PaperTask, history: list[Epoch], weight: float) -> dict[str, Any]:
    """Return what a result keeps of each training."""
    task.gnn.zero_grad()
    gnn, logits = task.gnn.requires_grad_(False).eval(), task.logits().cpu()
    return {"gnn": gnn, "logits": logits, "history": history, "input_weight": weight}


def _over_refined(
    data: Data,
    graph: Graph,
    learner: EvidenceLearner,
    config: TransferConfig,
    on_epoch: OnEpoch | None,
) -> dict[str, Any]:
    """Refine the graph once, then train one GNN for each lambda that is tried; keep the best.

    Differs from the paper: S does not change while the GNN trains, and lambda may be chosen.
    """
    device = graph.device
    needed = 16 * config.num_layers * config.hidden * graph.num_nodes  # of a GNN's layers
    check_fits("training", needed, graph.name, device, f" ({NARROWER})")
    refined, order = run_frozen(learner, data, seed=config.seed, device=config.device)
    kept = refined.only((refined.ranks() < config.top_k).any(0))  # by either of its ends
    edges = RefinedEdges(order.to(device)[kept.edge_index], kept.edge_weight)
    weights, chosen_by = INPUT_WEIGHTS, "validation"
    if config.input_weight is not None:
        weights, chosen_by = (float(config.input_weight),), "settings"
    elif len(graph.val) == 0:
        weights = (input_weight_by_leave_one_out(refined.channel_scores),)
        chosen_by = "leave-one-out"
    del refined, kept  # candidates and their evidence take many times the room of the graph
    unseen = len(graph.val) == 0  # then training nodes say when to stop
    epochs = min(config.epochs, EPOCHS_UNSEEN) if unseen else config.epochs
    seen = graph.with_labels(val=graph.train) if unseen else graph
    structure = FixedStructure(normalised_adjacency(*edges, graph.num_nodes))
    trained, scores = dict[float, dict[str, Any]](), dict[float, tuple[float, float]]()
    began = time.perf_counter()
    for weight in weights:
        task = GNNTask(seen, config, given=structure, input_weight=weight)
        least = task.least_accuracy = accuracy_by_luck(task.val_labels)
        loop = Loop(task, epochs, config.patience)
        history = loop.run(on_epoch)
        trained[weight] = _trained(task, history, weight) | {"best": int(loop.best)}
        at_best = history[int(loop.best) - 1]
        scores[weight] = max(at_best.val_accuracy, least), -at_best.val_loss
    seconds = time.perf_counter() - began
    best, against_input = trained[max(trained, key=scores.__getitem__)], None
    if not unseen and 1.0 in trained:
        nodes, known = graph.val.cpu(), graph.y[graph.val].cpu()
        plain, chosen = (one["logits"][nodes].argmax(1) == known for one in (trained[1.0], best))
        whose = "validation accuracy {}, against {} of a GNN on the input graph"
        against_input = compare_accuracies(plain, chosen, whose)
    return best | {
        "edges": edges,
        "chosen_by": chosen_by,
        "against_input": against_input,
        "train_seconds": seconds,
    }


def _with_spectral_features(data: Data, graph: Graph, seed: int) -> tuple[Graph, Tensor | None]:
    """Give the nodes of a graph without features a spectral embedding; return it too, if any.

    It has the rows of the normalised adjacency in its leading singular vectors, at unit length.
    """
    if edges_were_made(data) or bool((data.x != data.x[:1]).any()):
        return graph, None
    rows = link_rows(graph)
    if rows is None:
        return graph, None
    generator = torch.Generator().manual_seed(seed)
    basis = low_rank_map(rows, COLUMNS, generator)[1].matrix
    basis = torch.eye(graph.num_nodes, device=graph.device) if basis is None else basis
    spectral = unit_unless_short(times(rows, basis))
    return graph.with_x(spectral), spectral


def input_weight_by_leave_one_out(
    scores: Mapping[str, Mapping[str, float]], *, margin: float = 0.05
) -> float:
    """Choose lambda of ``lambda A + (1 - lambda) S`` by ``channel_scores`` of a refined graph.

    The channels of A^2 x and S^2 x are linear GNNs on the input graph and on the refined one. The
    one with the larger leave-one-out gain in log-loss on the training nodes is taken alone; within
    ``margin`` of each other both count alike.
    """
    given, refined = (scores[name]["likelihood"] for name in ("aax", "ssx"))
    return 0.5 if abs(given - refined) <= margin else float(given > refined)
