"""Epochs: a training step, then a validation pass, as often as asked for."""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs import Graph
from graphglow.storage import prefixed, within
from graphglow.training.best import Best
from graphglow.training.replay import Replay

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
    run: int = 0
    """For ``on_epoch`` only: the place of its run in a batch. A history is that of one run."""


OnEpoch = Callable[[Epoch], None]
"""Called for each epoch in order, for progress and logging; on a GPU some epochs later."""


def of_run(on_epoch: OnEpoch | None, run: int) -> OnEpoch | None:
    """``on_epoch`` for the run at this place, where a batch is trained one after another."""
    return None if on_epoch is None else lambda epoch: on_epoch(epoch._replace(run=run))


class Observer(NamedTuple):
    """Looks at a model while it trains: before the first epoch, then after every so many."""

    every: int
    look: Callable[[int], None]
    """Called with the number of epochs done, 0 at first; it must change nothing."""


class Task(Protocol):
    """What a loop trains: one run on one graph, or a batch of runs.

    ``graph`` gives the name and the device, ``count`` the number of runs, ``generators`` all
    that a step draws from. ``capture`` says whether an epoch may be recorded as a CUDA graph: then
    it works in place, on tensors that stay where they are, and never waits for the GPU.
    """

    @property
    def graph(self) -> Graph: ...

    @property
    def count(self) -> int: ...

    @property
    def capture(self) -> bool: ...

    @property
    def generators(self) -> tuple[torch.Generator, ...]: ...

    @property
    def weights(self) -> list[Tensor]:
        """Everything that is trained, in place, as flat tensors: [S] or [B, S] each."""
        ...

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update the weights once; return loss [..] and number of refinements [..]."""
        ...

    def validate(self) -> tuple[Tensor, Tensor]:
        """Loss [..] and accuracy [..] on the validation nodes."""
        ...

    def logits(self) -> Tensor:
        """Evaluate all nodes: [.., N, C]."""
        ...


class Loop:
    """Train a task for a number of epochs, and put the best weights back.

    Scores, best weights and early stopping live on the device: an epoch never waits for the host,
    which reads the scores every :data:`READ_EVERY` epochs. On a GPU an epoch is recorded as a
    CUDA graph and replayed. A loop can run again: pre-training visits a graph several times.

    Args:
        task: What to train.
        epochs: Most epochs of one run.
        patience: Epochs without a better score after which a run stops.
        read_every: Overrides how often scores are read.
        on_read: Called with the loop whenever scores have been read, and are finite: its
            :meth:`state` and the task's own are then all that a run goes on from.
    """

    def __init__(
        self,
        task: Task,
        epochs: int,
        patience: int,
        *,
        read_every: int | None = None,
        on_read: Callable[["Loop"], None] | None = None,
    ) -> None:
        self.task, self.epochs, self.on_read = task, epochs, on_read
        self._restored = False
        device = task.graph.y.device
        self.read_every = read_every or (1 if device.type == "cpu" else READ_EVERY)
        weights = task.weights
        self.best = Best(weights, patience)
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        batch = weights[0].shape[:-1]
        self.scores = torch.zeros(epochs, 4, *batch, dtype=torch.float64, device=device)
        self._replay = Replay(
            task.generators,
            device,
            enabled=task.capture and epochs >= SHORTEST_RECORDING,
        )

    def run(
        self, on_epoch: OnEpoch | None = None, observer: Observer | None = None
    ) -> list[list[Epoch]]:
        """Train, and return the history of each run up to where it stopped.

        After :meth:`load_state` the epochs before are part of the history, and ``on_epoch`` hears
        of them again; an observer sees the later ones only.
        """
        history: list[list[Epoch]] = [[] for _ in range(self.task.count)]
        read = self._begin(observer)
        if read:
            self._read(0, read, history, on_epoch)
        while read < self.epochs and bool(self.best.running.any()):
            stop = min(read + self.read_every, self.epochs)
            for number in range(read + 1, stop + 1):
                self._replay(self._epoch)
                if observer is not None and number % observer.every == 0:
                    observer.look(number)
            self._read(read, stop, history, on_epoch)
            read = stop
            if self.on_read is not None:
                self.on_read(self)
        self.best.restore()
        return history

    def state(self) -> dict[str, Tensor]:
        """Scores and best weights so far, by name; nothing is copied. The task has the rest."""
        done = int(self.number)
        own = {"number": self.number, "scores": self.scores[:done]}
        return own | prefixed("best", self.best.state())

    def check_state(self, state: dict[str, Tensor]) -> None:
        """Raise unless it is of a run of so many epochs at most, with the scores of each."""
        number, scores = int(state["number"]), len(state["scores"])
        if not 0 <= number == scores <= self.epochs:
            raise InputError(
                f"a saved run must have scores of each epoch, {self.epochs} at most; "
                f"got {scores} for {number}"
            )

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Let the next run go on from what :meth:`state` gave, in place."""
        self.number.copy_(state["number"])
        self.scores[: len(state["scores"])] = state["scores"].to(self.scores.device)
        self.best.load_state(within("best", state))
        self._restored = True

    def _begin(self, observer: Observer | None) -> int:
        """Forget the last run, unless it is the one to go on with; return its epochs so far."""
        if self._restored:
            self._restored = False
            return int(self.number)
        if observer is not None:
            observer.look(0)
        self.number.zero_()
        self.best.reset()
        return 0

    def _epoch(self) -> None:
        """One epoch, wholly on the device."""
        loss, refinements = self.task.train_step()
        val_loss, val_accuracy = self.task.validate()
        row = torch.stack([loss.double(), val_loss.double(), val_accuracy, refinements.double()])
        self.scores.index_copy_(0, self.number[None], row[None])
        self.number += 1
        self.best.update(self.number, val_accuracy, val_loss.double())

    def _read(
        self, start: int, stop: int, history: list[list[Epoch]], on_epoch: OnEpoch | None
    ) -> None:
        """Bring the scores of some epochs to the host: the only wait of the loop."""
        last = self.best.last.reshape(-1).tolist()
        scores = self.scores[start:stop].reshape(stop - start, 4, -1).tolist()
        for number, (losses, val_losses, accuracies, refinements) in enumerate(scores, start + 1):
            for run, runs_history in enumerate(history):
                if number > last[run]:
                    continue
                epoch = Epoch(
                    self.task.graph.name,
                    number,
                    losses[run],
                    val_losses[run],
                    accuracies[run],
                    int(refinements[run]),
                )
                _check_finite(epoch, run, len(history))
                runs_history.append(epoch)
                if on_epoch is not None:
                    on_epoch(epoch._replace(run=run))


def _check_finite(epoch: Epoch, run: int, runs: int) -> None:
    if not (math.isfinite(epoch.loss) and math.isfinite(epoch.val_loss)):
        which = f", run {run + 1} of {runs}" if runs > 1 else ""
        raise InputError(
            f"the loss must stay finite; got {epoch.loss} (training) and {epoch.val_loss} "
            f"(validation) at epoch {epoch.epoch} on {epoch.graph}{which} "
            "(a smaller learning rate may help)"
        )
