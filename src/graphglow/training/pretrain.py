"""Pre-training: an evidence learner by default; here is Algorithm 2, which trains the paper's.

graphglow pretrain --kind paper --sources cora citeseer --out learner.safetensors
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import one_of, with_settings
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pretraining import EvidencePretrainConfig, Progress, pretrain_evidence
from graphglow.graph import Graph, as_graph, prepare
from graphglow.graph.graph import known_graph
from graphglow.paper import StructureLearner
from graphglow.settings import PretrainConfig
from graphglow.training.adam import Adam
from graphglow.training.checkpoint import Checkpoints, Part, Saved, graph_identity, held
from graphglow.training.device import memory_advice, resolve_device
from graphglow.training.loop import Epoch, Loop, OnEpoch
from graphglow.training.sharing import workers_or_here
from graphglow.training.task import GraphTask, Trained


@overload
def pretrain(
    sources: Sequence[Any],
    config: EvidencePretrainConfig | None = None,
    *,
    kind: Literal["evidence"] | None = None,
    on_progress: Progress | None = None,
    workers: int | None = None,
    **settings: Any,
) -> EvidenceLearner: ...
@overload
def pretrain(
    sources: Sequence[Any],
    config: PretrainConfig,
    *,
    kind: Literal["paper"] | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoints: Checkpoints | None = None,
    **settings: Any,
) -> StructureLearner: ...
@overload
def pretrain(
    sources: Sequence[Any],
    config: PretrainConfig | None = None,
    *,
    kind: Literal["paper"],
    on_epoch: OnEpoch | None = None,
    checkpoints: Checkpoints | None = None,
    **settings: Any,
) -> StructureLearner: ...
def pretrain(
    sources: Sequence[Any],
    config: EvidencePretrainConfig | PretrainConfig | None = None,
    *,
    kind: Literal["evidence", "paper"] | None = None,
    on_progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoints: Checkpoints | None = None,
    workers: int | None = None,
    **settings: Any,
) -> EvidenceLearner | StructureLearner:
    """Train a learner on source graphs: an evidence learner, unless the paper's is asked for.

    Args:
        sources: The source graphs, each a ``Data`` or anything else that :func:`load_graph` takes.
            For an evidence learner all labels ``y`` are used (-1 where
            unknown), whatever their split; the paper's has training and validation nodes.
        config: An :class:`EvidencePretrainConfig`, or a :class:`PretrainConfig` for the paper's.
        kind: ``"evidence"`` or ``"paper"``; by default what ``config`` is of.
        on_progress: Of an evidence learner: called with the stage, and how far it is.
        on_epoch: Of the paper's: called after every epoch.
        checkpoints: Of the paper's: where the run saves itself, to go on if it is killed.
        workers: Of an evidence learner: processes that draw the episodes, on their CPU cores; None:
            this one. On a CPU the learner is the same. See :func:`graphglow.refine` for what a
            script must begin with.
        settings: Settings by name, which go before those of ``config``.

    Returns:
        The learner on the CPU, with ``provenance`` telling how it was made.
    """
    kind = kind or ("paper" if isinstance(config, PretrainConfig) else "evidence")
    one_of("kind", kind, ("evidence", "paper"))
    if isinstance(sources, Data | str | Path):
        raise InputError("pretrain needs a list of source graphs; got a single graph")
    if len(sources) == 0:
        raise InputError("pretrain needs at least one source graph; got none")
    if kind == "paper":
        if not isinstance(config, PretrainConfig | None):
            raise InputError(f"config must be a PretrainConfig; got {type(config).__name__}")
        if on_progress is not None or workers is not None:
            raise InputError("on_progress and workers must go with kind evidence; got kind paper")
        paper = with_settings(config or PretrainConfig(), settings)
        sources = [as_graph(source) for source in sources]
        return pretrain_structure(sources, paper, on_epoch=on_epoch, checkpoints=checkpoints)
    if not isinstance(config, EvidencePretrainConfig | None):
        raise InputError(f"config must be an EvidencePretrainConfig; got {type(config).__name__}")
    if on_epoch is not None or checkpoints is not None:
        raise InputError("on_epoch and checkpoints must go with kind paper; got kind evidence")
    config = with_settings(config or EvidencePretrainConfig(), settings)
    sources = [as_graph(source, split=False) for source in sources]
    for source in sources:
        known_graph(source)  # one bad graph is said now, and not after minutes
    device = resolve_device(config.device)
    told = on_progress or (lambda stage, done, total: None)
    alone = workers is None or workers == 1
    draw_on = device if alone else torch.device("cpu")  # cores draw faster together than a GPU
    with workers_or_here(workers, None, draw_on) as each:
        made = pretrain_evidence(
            sources, config, device=device, draw_on=draw_on, on_progress=told, each=each
        )
    return made.to("cpu")


def pretrain_structure(
    sources: Sequence[Data],
    config: PretrainConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    checkpoints: Checkpoints | None = None,
) -> StructureLearner:
    """Train the paper's learner, as :func:`pretrain`, and return the best one seen (Algorithm 2).

    In each of E episodes each source is visited in turn: its own GNN and the shared theta are
    trained on it until the validation score stops improving, and go back to where it was best.
    After each visit theta is scored by the mean validation accuracy over all sources, and the
    best theta is kept. Differs from the paper's Algorithm 2 in zeroing both gradients at every
    step, and in taking the "Delta^(0)" of its sum as the first refinement's. Where a run goes on
    from a checkpoint, ``on_epoch`` hears of the epochs before it too.
    """
    config = config or PretrainConfig()
    graphs = [prepare(data) for data in sources]
    with held(checkpoints):
        with memory_advice(max(graph.num_nodes for graph in graphs), config):
            course = _Course(graphs, config)
        if checkpoints is not None:
            course.save_in(checkpoints)
        course.run(on_epoch)
        return course.result()


class _Course:
    """All visits to all sources: what is trained, and how far it has come."""

    def __init__(self, graphs: Sequence[Graph], config: PretrainConfig) -> None:
        self.graphs, self.config, self.device = graphs, config, resolve_device(config.device)
        self.learner = StructureLearner(config.learner, seed=config.seed).to(self.device)
        self.theta = Adam(self.learner.parameters(), config.learner_learning_rate)
        self.tasks = [
            GraphTask(
                graph.to(self.device),
                self.learner,
                config.learner.embedding_size,
                [config],
                seeds=[config.seed + 1000 * i],
                trained=Trained(self.theta, config.objective),
            )
            for i, graph in enumerate(graphs)
        ]
        self.visits = [
            Loop(task, config.epochs, config.patience, read_every=1) for task in self.tasks
        ]
        self.scores: list[float] = []
        """Of theta after each visit."""
        self.best_theta = self.theta.flat.clone()
        self.heard: list[Epoch] = []
        """The epochs of the visits that are over."""

    def run(self, on_epoch: OnEpoch | None) -> None:
        """Make the visits that are left."""
        if on_epoch is not None:
            for epoch in self.heard:
                on_epoch(epoch)
        for number in range(len(self.scores), self.config.episodes * len(self.visits)):
            visit = self.visits[number % len(self.visits)]
            with memory_advice(visit.task.graph.num_nodes, self.config):
                (history,) = visit.run(on_epoch)  # theta and this GNN return to their best
                score = sum(float(task.validate()[1]) for task in self.tasks) / len(self.tasks)
            if score >= max(self.scores, default=-1.0):
                self.best_theta = self.theta.flat.clone()
            self.scores.append(score)
            self.heard += history
        for visit in self.visits:
            visit.on_read = None  # or a circle keeps a GPU's memory until Python looks for circles

    def result(self) -> StructureLearner:
        """The best learner seen, on the CPU."""
        self.theta.flat.copy_(self.best_theta)
        best = StructureLearner(self.config.learner, seed=self.config.seed)
        best.load_state_dict(self.learner.state_dict())
        best.provenance = {
            "trained": True,
            "sources": [graph.name for graph in self.graphs],
            "validation_accuracy": max(self.scores),
            "visit_scores": self.scores,
            "config": asdict(replace(self.config, device="auto")),
            "date": datetime.now(timezone.utc).date().isoformat(),
        }
        return best.eval()

    def save_in(self, checkpoints: Checkpoints) -> None:
        """Let the run save itself now and then, and go on where it was."""
        run = {  # all that its result depends on, and by which its checkpoints know it
            "command": "pretrain",
            "config": asdict(self.config) | {"device": self.device.type},
            "sources": [graph_identity(graph) for graph in self.graphs],
        }
        checkpoints.begin(run, self._go_on_from)

        def offer(visit: Loop) -> None:
            facts = {"scores": self.scores, "heard": self.heard}
            checkpoints.offer(self._parts(visit), facts)

        for visit in self.visits:
            visit.on_read = offer

    def _go_on_from(self, found: Saved) -> None:
        scores = [float(score) for score in found.facts["scores"]]
        heard = [Epoch(*row) for row in found.facts["heard"]]
        found.restore(self._parts(self.visits[len(scores) % len(self.visits)]))
        self.scores, self.heard = scores, heard

    def _parts(self, visit: Loop) -> dict[str, Part]:
        """What a run goes on from in the middle of a visit."""
        tasks = {f"task_{i}": task for i, task in enumerate(self.tasks)}
        return {"course": self, "theta": self.theta, "visit": visit, **tasks}

    def state(self) -> dict[str, Tensor]:
        """The best theta after a visit; the other parts have the rest."""
        return {"best_theta": self.best_theta}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave."""
        self.best_theta = state["best_theta"].to(self.device)
