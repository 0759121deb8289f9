"""What a competitor is: a model with a loss to descend on and logits to be judged by."""

import torch
from torch import Tensor, nn

from graphglow.gnn import Dropout
from graphglow.graphs import Graph
from graphglow.structure.objective import supervised_loss
from graphglow.training.adam import Adam
from graphglow.training.config import RunConfig
from graphglow.training.task import accuracy


class Model(nn.Module):
    """A competitor on one graph.

    To add one: subclass, give it ``forward(dropout)``, logits [N, C] where dropout is None in
    evaluation, or a ``loss`` and ``logits`` of its own, and add a line to ``METHODS``; the command
    line, the checks and the tests pick it up from there. Weights are drawn from a generator seeded
    with ``config.seed``; what a training step draws comes from ``dropout`` and its generator alone,
    and evaluation draws nothing, or the same every time.

    Args:
        graph: On its device already, in the dtype to compute in.
        config: The method's own settings.
    """

    def __init__(self, graph: Graph, config: RunConfig) -> None:
        super().__init__()
        self.graph = graph

    def loss(self, dropout: Dropout) -> Tensor:
        """The training objective, to descend on; of labels it reads the training nodes' only."""
        return self.training_loss(self(dropout))

    def logits(self) -> Tensor:
        """Evaluate all nodes: [N, C]. A function of weights and graph."""
        out: Tensor = self(None)
        return out

    def optimizers(self, config: RunConfig) -> list[Adam]:
        """Those that train it: by default one, for all weights."""
        return [Adam(self.parameters(), config.learning_rate, config.weight_decay)]

    def training_loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy on the training nodes, of logits [.., N, C]: [..]."""
        graph = self.graph
        return supervised_loss(logits, graph.train, graph.y[graph.train])


class ModelTask:
    """A competitor in training: what :class:`~graphglow.training.loop.Loop` drives.

    Args:
        model: On its device already.
        config: How to train it.
        capture: False where a step reads from the GPU, and so cannot be recorded.
    """

    count = 1

    def __init__(self, model: Model, config: RunConfig, *, capture: bool = True) -> None:
        self.model, self.graph = model, model.graph
        self.capture = config.capture and capture
        generator = torch.Generator(self.graph.y.device).manual_seed(config.seed)
        self.dropout = Dropout((config.dropout,), (generator,))
        self.optimizers = model.optimizers(config)
        self.val_labels = self.graph.y[self.graph.val]
        self.one = torch.ones((), dtype=torch.int64, device=self.graph.y.device)

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return self.dropout.generators

    @property
    def weights(self) -> list[Tensor]:
        return [optimizer.flat for optimizer in self.optimizers]

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update all weights once."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.model.loss(self.dropout)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach(), self.one

    @torch.no_grad()
    def validate(self) -> tuple[Tensor, Tensor]:
        """Loss and accuracy on the validation nodes."""
        logits = self.model.logits()
        loss = supervised_loss(logits, self.graph.val, self.val_labels)
        return loss, accuracy(logits, self.graph.val, self.val_labels)

    @torch.no_grad()
    def logits(self) -> Tensor:
        return self.model.logits()
