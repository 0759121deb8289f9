"""The one training loop: epochs of a step and a validation pass, the best of which is kept."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.gnn.backbones import BACKBONES
from graphglow.gnn.propagation import Dropout, MixedPropagation, Structure
from graphglow.graph import Graph
from graphglow.settings import GNNConfig, RunConfig

READ_EVERY = 25
"""Epochs between two looks at a GPU's scores; a CPU's are read after each."""
SHORTEST_RECORDING = 8
"""Shorter trainings are not worth recording as a CUDA graph."""


class Epoch(NamedTuple):
    """One epoch: a training step, then a validation pass."""

    graph: str
    epoch: int
    loss: float
    val_loss: float
    val_accuracy: float
    refinements: int


OnEpoch = Callable[[Epoch], None]
"""Called for each epoch in order, for progress and logging; on a GPU some epochs later."""


class Task(ABC):
    """A model on a graph, as :class:`Loop` trains it: ``loss`` trains, ``logits`` evaluates.

    Weights are updated in place, and evaluation draws nothing, or the same every time. ``seed``, by
    default the config's, seeds ``start``, which draws initial weights, and ``generator``, which
    draws whatever training steps need.
    """

    capturable: ClassVar[bool] = True
    """Whether an epoch never waits for the GPU, so that it can be recorded as a CUDA graph."""
    optimizer: torch.optim.Optimizer
    least_accuracy: float = 0.0
    """Validation accuracies up to this one count as equal, and the loss decides."""

    def __init__(self, graph: Graph, config: RunConfig, seed: int | None = None) -> None:
        seed = config.seed if seed is None else seed
        self.graph, self.capture = graph, config.capture and self.capturable
        self.start = torch.Generator().manual_seed(seed)
        self.generator = torch.Generator(graph.device).manual_seed(seed)
        self.dropout = Dropout(config.dropout, self.generator)
        self.train_labels, self.val_labels = graph.y[graph.train], graph.y[graph.val]

    @property
    @abstractmethod
    def weights(self) -> list[Tensor]:
        """Everything that is trained."""

    @abstractmethod
    def loss(self) -> Tensor:
        """The training objective; of the labels it reads only those of training nodes."""

    @abstractmethod
    def logits(self) -> Tensor:
        """Scores of all nodes in evaluation: [N, C]."""

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update the weights once; return the loss and the number of refinements, [] each."""
        loss = self.descend(self.loss())
        return loss, torch.ones_like(loss)

    def descend(self, loss: Tensor) -> Tensor:
        """Take one step of the optimizer; return the loss before it."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def validate(self) -> tuple[Tensor, Tensor]:
        """Loss and accuracy on the validation nodes: [] each."""
        logits, labelled = self.logits(), (self.graph.val, self.val_labels)
        return cross_entropy(logits, *labelled), accuracy(logits, *labelled)


class GNNTask(Task):
    """A GNN on a graph A, or on ``lambda A + (1 - lambda) S`` with a given S."""

    def __init__(
        self,
        graph: Graph,
        config: GNNConfig,
        *,
        given: Structure | None = None,
        input_weight: float = 1.0,
    ) -> None:
        super().__init__(graph, config)
        gnn = BACKBONES[config.backbone](config, graph, config.hidden, self.start)
        self.gnn = gnn.to(graph.device)
        self.mix = MixedPropagation(graph.adj, given, input_weight)
        self.optimizer = adam(self.gnn, config.learning_rate, config.weight_decay)

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.gnn.parameters()]

    def loss(self) -> Tensor:
        _, logits = self.gnn(self.gnn.encode(self.graph, self.dropout), self.mix, self.dropout)
        return cross_entropy(logits, self.graph.train, self.train_labels)

    @torch.no_grad()
    def logits(self) -> Tensor:
        logits: Tensor = self.gnn(self.gnn.encode(self.graph, None), self.mix, None)[1]
        return logits


class Loop:
    """Train a task for a number of epochs, and put the best weights back.

    An epoch is better if the validation accuracy is higher, or the same with a lower loss; after
    ``patience`` epochs without a better one training stops. Scores and the best weights live on the
    device: on a GPU an epoch is recorded as a CUDA graph and replayed, and never waits for the
    host, which reads the scores every ``read_every`` epochs.
    """

    def __init__(
        self, task: Task, epochs: int, patience: int | None, *, read_every: int | None = None
    ) -> None:
        self.task, self.epochs, self.patience = task, epochs, patience or epochs
        device = task.graph.device
        self.read_every = read_every or (1 if device.type == "cpu" else READ_EVERY)
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self.best = self.number.clone()
        self.best_weights = [weight.clone() for weight in task.weights]
        self.scores = torch.zeros(epochs + 1, 4, dtype=torch.float64, device=device)
        self.scores[0, 1] = math.inf  # the loss before any training: every epoch is better
        recorded = task.capture and epochs >= SHORTEST_RECORDING and device.type == "cuda"
        self._replay = Replay(task.generator, device) if recorded else None

    def run(
        self,
        on_epoch: OnEpoch | None = None,
        *,
        look: Callable[[int], None] | None = None,
        on_read: Callable[[], None] | None = None,
    ) -> list[Epoch]:
        """Train, and return the history up to where it stopped.

        After :meth:`load_state_dict` the epochs before are part of the history, and ``on_epoch`` is
        called for them again.

        Args:
            on_epoch: Called for each epoch.
            look: Called with the number of epochs done, while the weights are those of that epoch,
                before the first epoch (0) and after each; it must change nothing.
            on_read: Called whenever scores have been read and are finite: this is the moment to
                save :meth:`state_dict`.
        """
        done = int(self.number)
        history = self._read(0, done, on_epoch)
        if look is not None and done == 0:
            look(0)
        while done < self.epochs and done - int(self.best) < self.patience:
            stop = min(done + self.read_every, self.epochs)
            for number in range(done + 1, stop + 1):
                if self._replay is None:
                    self._epoch()
                else:
                    self._replay(self._epoch)
                if look is not None:
                    look(number)
            history += self._read(done, stop, on_epoch)
            done = stop
            if on_read is not None:
                on_read()
        for best, weight in zip(self.best_weights, self.task.weights, strict=True):
            weight.copy_(best)
        return history

    def _epoch(self) -> None:
        """Run one epoch, wholly on the device; after the last that counts, keep nothing more."""
        loss, refinements = self.task.train_step()
        val_loss, val_accuracy = self.task.validate()
        goes_on = self.number - self.best < self.patience
        self.number += 1
        row = torch.stack([loss.double(), val_loss.double(), val_accuracy, refinements.double()])
        self.scores.index_copy_(0, self.number[None], row[None])
        _, best_loss, best_accuracy, _ = self.scores.index_select(0, self.best[None])[0]
        accuracy = val_accuracy.clamp_min(self.task.least_accuracy)
        best_accuracy = best_accuracy.clamp_min(self.task.least_accuracy)
        as_accurate = (accuracy == best_accuracy) & (row[1] < best_loss)
        better = goes_on & ((accuracy > best_accuracy) | as_accurate)
        self.best.copy_(torch.where(better, self.number, self.best))
        with torch.no_grad():
            for best, weight in zip(self.best_weights, self.task.weights, strict=True):
                best.copy_(torch.where(better, weight, best))

    def _read(self, start: int, stop: int, on_epoch: OnEpoch | None) -> list[Epoch]:
        """Bring the scores of some epochs to the host: the only wait of the loop."""
        last, epochs, name = min(stop, int(self.best) + self.patience), [], self.task.graph.name
        rows = self.scores[start + 1 : last + 1].tolist()
        for number, (loss, val_loss, val_accuracy, refinements) in enumerate(rows, start + 1):
            if not (math.isfinite(loss) and math.isfinite(val_loss)):
                raise InputError(
                    f"the loss must stay finite; got {loss} (training) and {val_loss} (validation) "
                    f"at epoch {number} on {name} (a smaller learning rate may help)"
                )
            epochs.append(Epoch(name, number, loss, val_loss, val_accuracy, int(refinements)))
            if on_epoch is not None:
                on_epoch(epochs[-1])
        return epochs

    def state_dict(self) -> dict[str, Tensor]:
        """Scores and best weights so far, by name, not copied; the task has the rest."""
        best = {f"best.{place}": weight for place, weight in enumerate(self.best_weights)}
        return {"number": self.number, "best": self.best, "scores": self.scores} | best

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Let :meth:`run` go on from what :meth:`state_dict` gave, in place."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


class Replay:
    """Do a step again and again on a GPU: record it after the first time and replay the record.

    The step works in place on tensors that stay where they are, draws only from ``generator`` and
    never waits for the GPU; the numbers are then the same with and without recording. Where
    recording fails, steps go on without it, with a warning. The step is given with each call and
    not kept, since its owner holds this object: a circle of references would keep a GPU's memory.
    """

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self.generator, self.device, self.steps = generator, device, 0
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, step: Callable[[], None]) -> None:
        """Do ``step``, the same in every call."""
        self.steps += 1
        if self.steps == 2:
            self._record(step)
        if self.graph is not None:
            self.graph.replay()
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):  # where it is recorded: same workspaces
            step()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _record(self, step: Callable[[], None]) -> None:
        graph, before = torch.cuda.CUDAGraph(), self.generator.clone_state()
        graph.register_generator_state(self.generator)
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                step()
        except RuntimeError as error:
            self.stream = torch.cuda.current_stream(self.device)
            self.generator.graphsafe_set_state(before)  # the old one takes itself for recorded
            warnings.warn(f"training without a CUDA graph: {error}", stacklevel=2)
        else:
            self.graph = graph
            # Recording resets the generator's offset on its stream; a replay must come after.
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


def adam(
    module: torch.nn.Module, learning_rate: float, weight_decay: float = 0.0
) -> torch.optim.Adam:
    """Adam for all weights of a module on its device, in a form that a CUDA graph can record."""
    parameters = list(module.parameters())
    return torch.optim.Adam(
        parameters,
        learning_rate,
        weight_decay=weight_decay,
        capturable=parameters[0].is_cuda,
    )


def cross_entropy(logits: Tensor, nodes: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy on ``nodes``: [N, C], [M], [M] -> []."""
    return F.cross_entropy(logits.index_select(0, nodes), labels, reduction="none").mean()


def accuracy(logits: Tensor, nodes: Tensor, labels: Tensor) -> Tensor:
    """Share of ``nodes`` whose largest logit is their label: likewise; NaN for no nodes."""
    return (logits.index_select(0, nodes).argmax(1) == labels).double().mean()


def accuracy_by_luck(labels: Tensor) -> float:
    """The accuracy of the majority class of labels [M] plus one standard error.

    Where a class is rare, untrained weights get this far if a few nodes are lucky.
    """
    share = float(labels.bincount().max()) / len(labels)
    return share + math.sqrt(share * (1 - share) / len(labels))
