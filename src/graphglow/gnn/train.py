"""The one training loop: epochs of a step and a validation pass, the best of which is kept."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.gnn.backbone import Backbone
from graphglow.gnn.backbones import build_gnn
from graphglow.gnn.propagation import Dropout, MixedPropagation, Structure
from graphglow.gnn.replay import Replay
from graphglow.graph import Graph
from graphglow.settings import ModelConfig
from graphglow.storage import prefixed

READ_EVERY = 25
"""Epochs between two looks at a GPU's scores; a CPU's are read after each."""
SHORTEST_RECORDING = 8
"""Fewer epochs than this are not worth recording as a CUDA graph."""


class Epoch(NamedTuple):
    """One epoch: a training step, then a validation pass."""

    graph: str
    epoch: int
    loss: float
    val_loss: float
    val_accuracy: float
    refinements: int

    def check_finite(self) -> None:
        """Raise unless both losses are numbers."""
        if not (math.isfinite(self.loss) and math.isfinite(self.val_loss)):
            raise InputError(
                f"the loss must stay finite; got {self.loss} (training) and {self.val_loss} "
                f"(validation) at epoch {self.epoch} on {self.graph} (a smaller learning rate may "
                "help)"
            )


OnEpoch = Callable[[Epoch], None]
"""Called for each epoch in order, for progress and logging; on a GPU some epochs later."""


class Task(ABC):
    """What a :class:`Loop` trains.

    Args:
        graph: On its device already.
        generators: All that a step draws from.
        capture: Whether an epoch may be recorded as a CUDA graph: then it works in place, on
            tensors that stay where they are, and never waits for the GPU.
    """

    val_weight: Tensor | None = None
    least_accuracy: float = 0.0
    """Validation accuracies up to this one count as equal, and the loss decides."""

    def __init__(
        self, graph: Graph, generators: Sequence[torch.Generator], *, capture: bool
    ) -> None:
        self.graph, self.generators, self.capture = graph, generators, capture
        self.val_labels = graph.y[graph.val]

    @property
    @abstractmethod
    def weights(self) -> list[Tensor]:
        """Everything that is trained, in place."""

    @abstractmethod
    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update the weights once; return the loss and the number of refinements, [] each."""

    @abstractmethod
    def logits(self) -> Tensor:
        """Evaluate all nodes: [N, C]. A function of weights and graph."""

    @torch.no_grad()
    def validate(self) -> tuple[Tensor, Tensor]:
        """Loss and accuracy on the validation nodes: [] each."""
        logits, labelled = self.logits(), (self.graph.val, self.val_labels, self.val_weight)
        return cross_entropy(logits, *labelled), accuracy(logits, *labelled)


class GNNTask(Task):
    """A GNN on a graph, or on ``lambda A + (1 - lambda) S`` with a structure S that is given.

    Args:
        graph: On its device already.
        hidden: Width of the GNN.
        config: Model and optimisation.
        given: S.
        balanced: Let each class count alike, in the loss and in validation.
    """

    def __init__(
        self,
        graph: Graph,
        hidden: int,
        config: ModelConfig,
        *,
        given: Structure | None = None,
        balanced: bool = False,
    ) -> None:
        device = graph.y.device
        generator = torch.Generator(device).manual_seed(config.seed)
        super().__init__(graph, (generator,), capture=config.capture)
        start = torch.Generator().manual_seed(config.seed)
        self.gnn = build_gnn(config, graph, hidden, start).to(device)
        share = 1.0 if given is None else config.input_weight
        self.mix = MixedPropagation(graph.adj, given, share)
        self.dropout = Dropout(config.dropout, generator)
        self.optimizer = adam(self.gnn, config.learning_rate, config.weight_decay)
        self.train_labels = graph.y[graph.train]
        self.train_weight = balancing(self.train_labels) if balanced else None
        self.val_weight = balancing(self.val_labels) if balanced else None
        self.one = torch.ones((), dtype=torch.int64, device=device)

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.gnn.parameters()]

    def train_step(self) -> tuple[Tensor, Tensor]:
        self.optimizer.zero_grad()
        _, logits = self.gnn(self.gnn.encode(self.graph, self.dropout), self.mix, self.dropout)
        loss = cross_entropy(logits, self.graph.train, self.train_labels, self.train_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach(), self.one

    @torch.no_grad()
    def logits(self) -> Tensor:
        logits: Tensor = self.gnn(self.gnn.encode(self.graph, None), self.mix, None)[1]
        return logits


class Loop:
    """Train a task for a number of epochs, and put the best weights back.

    An epoch is better if the validation accuracy is higher, or the same with a lower loss. Scores,
    best weights and early stopping live on the device: an epoch never waits for the host, which
    reads the scores every :data:`READ_EVERY` epochs. On a GPU an epoch is recorded as a CUDA graph
    and replayed. A loop can run again: pre-training visits a graph several times.

    Args:
        task: What to train.
        epochs: Most epochs of one run.
        patience: Epochs without a better score after which a run stops.
        read_every: Overrides how often scores are read.
    """

    def __init__(
        self, task: Task, epochs: int, patience: int | None, *, read_every: int | None = None
    ) -> None:
        self.task, self.epochs, self.patience = task, epochs, patience or epochs
        device = task.graph.y.device
        self.read_every = read_every or (1 if device.type == "cpu" else READ_EVERY)
        self.kept = [weight.clone() for weight in task.weights]
        count = torch.zeros((), dtype=torch.int64, device=device)
        self.number, self.best_epoch, self.last = (count.clone() for _ in range(3))
        self.best_accuracy = torch.zeros((), dtype=torch.float64, device=device)
        self.best_loss = self.best_accuracy.clone()
        self.running = torch.ones((), dtype=torch.bool, device=device)
        self.scores = torch.zeros(epochs, 4, dtype=torch.float64, device=device)
        worth_it = task.capture and epochs >= SHORTEST_RECORDING
        self._replay = Replay(task.generators, device, enabled=worth_it)
        self._restored = False

    def run(
        self,
        on_epoch: OnEpoch | None = None,
        *,
        look: Callable[[int], None] | None = None,
        on_read: Callable[[], None] | None = None,
    ) -> list[Epoch]:
        """Train, and return the history up to where it stopped.

        After :meth:`load_state` the epochs before are part of the history, and ``on_epoch`` hears
        of them again.

        Args:
            on_epoch: Called for each epoch.
            look: Called with the number of epochs done, 0 at first, while the weights are those;
                it must change nothing. After :meth:`load_state` it sees the later ones only.
            on_read: Called whenever scores have been read, and are finite: :meth:`state` and the
                task's are then all that a training goes on from.
        """
        history: list[Epoch] = []
        read = int(self.number) if self._restored else 0
        if self._restored:
            self._read(0, read, history, on_epoch)
        else:
            self._reset()
            if look is not None:
                look(0)
        self._restored = False
        while read < self.epochs and bool(self.running):
            stop = min(read + self.read_every, self.epochs)
            for number in range(read + 1, stop + 1):
                self._replay(self._epoch)
                if look is not None:
                    look(number)
            self._read(read, stop, history, on_epoch)
            read = stop
            if on_read is not None:
                on_read()
        for kept, weight in zip(self.kept, self.task.weights, strict=True):
            weight.copy_(kept)
        return history

    def state(self) -> dict[str, Tensor]:
        """Scores and best weights so far, by name; nothing is copied. The task has the rest."""
        kept = {str(place): kept for place, kept in enumerate(self.kept)}
        return self._counters() | {"scores": self.scores} | prefixed("kept", kept)

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Let the next run go on from what :meth:`state` gave, in place."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self._restored = True

    def _counters(self) -> dict[str, Tensor]:
        names = ("number", "best_epoch", "last", "best_accuracy", "best_loss", "running")
        return {name: getattr(self, name) for name in names}

    def _reset(self) -> None:
        for counter in self._counters().values():
            counter.zero_()
        self.best_accuracy.fill_(-1)
        self.running.fill_(True)
        for kept, weight in zip(self.kept, self.task.weights, strict=True):
            kept.copy_(weight)

    def _epoch(self) -> None:
        """One epoch, wholly on the device."""
        loss, refinements = self.task.train_step()
        val_loss, val_accuracy = self.task.validate()
        row = torch.stack([loss.double(), val_loss.double(), val_accuracy, refinements.double()])
        self.scores.index_copy_(0, self.number[None], row[None])
        self.number += 1
        self._keep_if_better(val_accuracy, val_loss.double())

    @torch.no_grad()
    def _keep_if_better(self, accuracy: Tensor, loss: Tensor) -> None:
        accuracy = accuracy.clamp_min(self.task.least_accuracy)
        better = (accuracy > self.best_accuracy) | (
            (accuracy == self.best_accuracy) & (loss < self.best_loss)
        )
        better &= self.running
        weights = zip(self.kept, self.task.weights, strict=True)
        best = (
            (self.best_accuracy, accuracy),
            (self.best_loss, loss),
            (self.best_epoch, self.number),
        )
        for kept, now in (*best, *weights):
            kept.copy_(torch.where(better, now, kept))
        self.last.copy_(torch.where(self.running, self.number, self.last))
        self.running &= self.number - self.best_epoch < self.patience

    def _read(self, start: int, stop: int, history: list[Epoch], on_epoch: OnEpoch | None) -> None:
        """Bring the scores of some epochs to the host: the only wait of the loop."""
        rows = self.scores[start : min(stop, int(self.last))].tolist()
        for number, (loss, val_loss, val_accuracy, refinements) in enumerate(rows, start + 1):
            name = self.task.graph.name
            epoch = Epoch(name, number, loss, val_loss, val_accuracy, int(refinements))
            epoch.check_finite()
            history.append(epoch)
            if on_epoch is not None:
                on_epoch(epoch)


def adam(
    module: torch.nn.Module, learning_rate: float, weight_decay: float = 0.0
) -> torch.optim.Adam:
    """Adam for all weights of a module on its device, such that a step can be recorded."""
    parameters = list(module.parameters())
    return torch.optim.Adam(
        parameters,
        learning_rate,
        weight_decay=weight_decay,
        capturable=parameters[0].is_cuda,
    )


def cross_entropy(
    logits: Tensor, nodes: Tensor, labels: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy on ``nodes``: [N, C], [M], [M], weight [M] of mean 1 -> []."""
    cost = F.cross_entropy(logits.index_select(0, nodes), labels, reduction="none")
    return (cost if weight is None else cost * weight).mean()


def freeze(gnn: Backbone) -> Backbone:
    """The GNN as training left it, without gradients."""
    gnn.zero_grad()
    return gnn.requires_grad_(False).eval()


def accuracy(logits: Tensor, nodes: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Share of ``nodes`` whose largest logit is their label: [] in float64; NaN for no nodes.

    Shapes:
        logits [N, C], nodes [M], labels [M], weight [M] of mean 1
    """
    right = (logits.index_select(0, nodes).argmax(1) == labels).double()
    return (right if weight is None else right * weight).mean()


def best_epoch(history: Sequence[Epoch], least_accuracy: float = 0.0) -> Epoch:
    """The epoch that :class:`Loop` keeps."""
    return max(history, key=lambda one: (max(one.val_accuracy, least_accuracy), -one.val_loss))


def accuracy_by_luck(labels: Tensor, weight: Tensor | None = None) -> float:
    """The accuracy of the majority class plus one standard error: [M], weight [M] of mean 1.

    Where a class is rare, untrained weights get this far if a few nodes are lucky.
    """
    weight = torch.ones(len(labels)) if weight is None else weight.cpu()
    share = min(1.0, float(torch.bincount(labels.cpu(), weight.double()).max()) / len(labels))
    spread = share * (1 - share) * float(weight.double().square().mean())
    return share + math.sqrt(spread / len(labels))


def balancing(labels: Tensor) -> Tensor:
    """A weight per node, by which each class that occurs counts alike: [M] -> [M], of mean 1."""
    counts = torch.bincount(labels)
    each = len(labels) / (counts.clamp_min(1) * (counts > 0).sum())
    return each[labels]
