"""One graph with a GNN and an optimizer of its own: the unit that both algorithms train."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.gnn import backbone_class
from graphglow.graphs import Graph
from graphglow.structure import ObjectiveConfig, StructureLearner
from graphglow.structure.objective import sketch, supervised_loss
from graphglow.training.config import ModelConfig
from graphglow.training.refine import last_refinement, refine
from graphglow.training.supervision import LearnerLoss

State = dict[str, Tensor]


class Epoch(NamedTuple):
    """One epoch: a training step, then a validation pass."""

    graph: str
    epoch: int
    loss: float
    val_loss: float
    val_accuracy: float
    refinements: int


OnEpoch = Callable[[Epoch], None]
"""Called after each epoch, for progress and logging."""


class GraphTask:
    """A graph, its GNN h_w, the optimizer of w, and the pivots of evaluation.

    Args:
        graph: On its device already.
        hidden: d, the learner's embedding size.
        config: Model and optimisation.
        seed: Of this task's weights, dropout and pivots.
    """

    def __init__(self, graph: Graph, hidden: int, config: ModelConfig, seed: int) -> None:
        device = graph.y.device
        self.graph, self.config = graph, config
        self.num_pivots = min(config.num_pivots, graph.num_nodes)
        start = torch.Generator().manual_seed(seed)
        self.gnn = backbone_class(config.backbone)(
            graph.num_features, graph.num_classes, config.backbone_shape(hidden), start
        ).to(device)
        self.optimizer = torch.optim.Adam(
            self.gnn.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        order = torch.randperm(graph.num_nodes, generator=start)
        self.pivots = order[: self.num_pivots].to(device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def train_step(
        self,
        learner: StructureLearner | None,
        objective: ObjectiveConfig | None = None,
        theta: torch.optim.Optimizer | None = None,
    ) -> tuple[float, int]:
        """One update of w, and of theta where its optimizer is given; returns loss and refinements.

        The loss is the first refinement's plus the mean of the others'.
        """
        pivots = self._training_pivots()
        self.optimizer.zero_grad(set_to_none=True)
        trained: LearnerLoss | None = None
        if theta is not None:
            assert learner is not None
            assert objective is not None
            theta.zero_grad(set_to_none=True)
            features = sketch(self.graph.x, objective.sketch, self.generator)[pivots]
            trained = LearnerLoss(learner, objective, pivots, features, self.generator)
        losses = []
        for step in refine(self.gnn, learner, self.graph, pivots, self.config, self.generator):
            if trained is None:
                loss = supervised_loss(step.logits, self.graph.y, self.graph.train)
            else:
                loss = trained.supervised(step, self.gnn, self.graph, self.config)
                loss = loss + trained.regularisers(step)
            losses.append(loss)
        total = losses[0]
        if len(losses) > 1:
            total = total + torch.stack(losses[1:]).mean()
        total.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if theta is not None:
            theta.step()
        return float(total.detach()), len(losses)

    def logits(self, learner: StructureLearner | None) -> Tensor:
        """Evaluate all nodes: [N, C]. A function of weights, graph and fixed pivots only."""
        return last_refinement(self.gnn, learner, self.graph, self.pivots, self.config).logits

    def run_epoch(
        self,
        number: int,
        learner: StructureLearner | None,
        objective: ObjectiveConfig | None = None,
        theta: torch.optim.Optimizer | None = None,
    ) -> Epoch:
        """Train one step, then validate."""
        loss, refinements = self.train_step(learner, objective, theta)
        logits = self.logits(learner)
        val_loss = float(supervised_loss(logits, self.graph.y, self.graph.val))
        if not (math.isfinite(loss) and math.isfinite(val_loss)):
            raise InputError(
                f"the loss must stay finite; got {loss} (training) and {val_loss} (validation) at "
                f"epoch {number} on {self.graph.name} (a smaller learning rate may help)"
            )
        val_accuracy = accuracy(logits, self.graph.y, self.graph.val)
        return Epoch(self.graph.name, number, loss, val_loss, val_accuracy, refinements)

    def _training_pivots(self) -> Tensor:
        if not self.config.redraw_pivots:
            return self.pivots
        device = self.graph.y.device
        order = torch.randperm(self.graph.num_nodes, generator=self.generator, device=device)
        return order[: self.num_pivots]


def accuracy(logits: Tensor, y: Tensor, nodes: Tensor) -> float:
    """Share of ``nodes`` whose largest logit is their label; NaN for no nodes."""
    if len(nodes) == 0:
        return math.nan
    return float((logits[nodes].argmax(1) == y[nodes]).double().mean())


def snapshot(module: torch.nn.Module) -> State:
    """Copy a module's tensors, to be restored by ``load_state_dict``."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def improves(epoch: Epoch, best: Epoch | None) -> bool:
    """Higher validation accuracy, or the same with a lower validation loss."""
    if best is None:
        return True
    return (epoch.val_accuracy, -epoch.val_loss) > (best.val_accuracy, -best.val_loss)
