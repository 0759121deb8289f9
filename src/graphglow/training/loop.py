"""Epochs: a training step, then a validation pass, as often as asked for."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.storage import prefixed, within
from graphglow.training.task import Task

READ_EVERY = 25
"""Epochs between two looks at a GPU's scores; a CPU's are read after each."""
SHORTEST_RECORDING = 8
"""Fewer epochs than this are not worth recording as a CUDA graph."""
WARM_UP = 1
"""Calls before recording: lazy initialisation (compilation, workspaces) must be over by then."""


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

    def check_finite(self, where: str) -> None:
        """Raise unless both losses are numbers."""
        if not (math.isfinite(self.loss) and math.isfinite(self.val_loss)):
            raise InputError(
                f"the loss must stay finite; got {self.loss} (training) and {self.val_loss} "
                f"(validation) at {where} (a smaller learning rate may help)"
            )


OnEpoch = Callable[[Epoch], None]
"""Called for each epoch in order, for progress and logging; on a GPU some epochs later."""


def of_run(on_epoch: OnEpoch | None, run: int) -> OnEpoch | None:
    """``on_epoch`` for the run at this place, where a batch is trained one after another."""
    return None if on_epoch is None else lambda epoch: on_epoch(epoch._replace(run=run))


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
    """

    def __init__(
        self, task: Task, epochs: int, patience: int, *, read_every: int | None = None
    ) -> None:
        self.task, self.epochs = task, epochs
        self.on_read: Callable[[Loop], None] | None = None
        """Called whenever scores have been read, and are finite: :meth:`state` and the task's own
        are then all that a run goes on from."""
        self._restored = False
        device = task.graph.y.device
        self.read_every = read_every or (1 if device.type == "cpu" else READ_EVERY)
        weights = task.weights
        self.best = Best(weights, patience)
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        batch = weights[0].shape[:-1]
        self.scores = torch.zeros(epochs, 4, *batch, dtype=torch.float64, device=device)
        worth_it = task.capture and epochs >= SHORTEST_RECORDING
        self._replay = Replay(task.generators, device, enabled=worth_it)

    def run(
        self, on_epoch: OnEpoch | None = None, look: Callable[[int], None] | None = None
    ) -> list[list[Epoch]]:
        """Train, and return the history of each run up to where it stopped.

        After :meth:`load_state` the epochs before are part of the history, and ``on_epoch`` hears
        of them again.

        Args:
            on_epoch: Called for each epoch.
            look: Called with the number of epochs done, 0 at first, while the weights are those;
                it must change nothing. After :meth:`load_state` it sees the later ones only.
        """
        history: list[list[Epoch]] = [[] for _ in range(self.task.count)]
        read = int(self.number) if self._restored else 0
        if self._restored:
            self._read(0, read, history, on_epoch)
        else:
            self.number.zero_()
            self.best.reset()
            if look is not None:
                look(0)
        self._restored = False
        while read < self.epochs and bool(self.best.running.any()):
            stop = min(read + self.read_every, self.epochs)
            for number in range(read + 1, stop + 1):
                self._replay(self._epoch)
                if look is not None:
                    look(number)
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

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Let the next run go on from what :meth:`state` gave, in place."""
        self.number.copy_(state["number"])
        self.scores[: len(state["scores"])] = state["scores"].to(self.scores.device)
        self.best.load_state(within("best", state))
        self._restored = True

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
        scores = self.scores[start:stop].reshape(stop - start, 4, -1).mT.tolist()  # [.., B, 4]
        for number, of_runs in enumerate(scores, start + 1):
            for run, (loss, val_loss, val_accuracy, refinements) in enumerate(of_runs):
                if number > last[run]:
                    continue
                name = self.task.graph.name
                epoch = Epoch(name, number, loss, val_loss, val_accuracy, int(refinements))
                which = f", run {run + 1} of {len(history)}" if len(history) > 1 else ""
                epoch.check_finite(f"epoch {number} on {name}{which}")
                history[run].append(epoch)
                if on_epoch is not None:
                    on_epoch(epoch._replace(run=run))


class Best:
    """Per run, the weights of the epoch with the best validation score, and when to stop.

    A score is better if the validation accuracy is higher, or the same with a lower loss. After
    ``patience`` epochs without a better one a run counts as stopped, and keeps what it has.

    Args:
        weights: Flat weights that are trained in place, [S] or [B, S] each.
        patience: In epochs.

    Shapes:
        accuracy, loss, epoch, last, running: [] or [B]
    """

    def __init__(self, weights: list[Tensor], patience: int) -> None:
        self.weights, self.patience = weights, patience
        self.kept = [w.clone() for w in weights]
        one = weights[0].detach()[..., 0]  # of the right shape and device
        self.accuracy, self.loss = (torch.empty_like(one, dtype=torch.float64) for _ in range(2))
        self.epoch, self.last = (torch.empty_like(one, dtype=torch.int64) for _ in range(2))
        self.running = torch.empty_like(one, dtype=torch.bool)  # last: the last epoch that ran
        self.reset()

    def reset(self) -> None:
        """Forget all scores, in place."""
        for tensor, value in ((self.accuracy, -1), (self.loss, 0), (self.epoch, 0), (self.last, 0)):
            tensor.fill_(value)
        self.running.fill_(True)
        for kept, w in zip(self.kept, self.weights, strict=True):
            kept.copy_(w)

    def update(self, epoch: Tensor, accuracy: Tensor, loss: Tensor) -> None:
        """Compare the score of an epoch (counted from 1) with the best so far."""
        better = (accuracy > self.accuracy) | ((accuracy == self.accuracy) & (loss < self.loss))
        better &= self.running
        self.accuracy.copy_(torch.where(better, accuracy, self.accuracy))
        self.loss.copy_(torch.where(better, loss, self.loss))
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        self.last.copy_(torch.where(self.running, epoch, self.last))
        for kept, w in zip(self.kept, self.weights, strict=True):
            kept.copy_(torch.where(better[..., None], w, kept))
        self.running &= epoch - self.epoch < self.patience

    def state(self) -> dict[str, Tensor]:
        """Scores and best weights as they stand, by name; nothing is copied."""
        kept = {f"kept_{i}": kept for i, kept in enumerate(self.kept)}
        names = ("accuracy", "loss", "epoch", "last", "running")
        return kept | {name: getattr(self, name) for name in names}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave, in place."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def restore(self) -> None:
        """Put the best weights back."""
        for kept, w in zip(self.kept, self.weights, strict=True):
            w.copy_(kept)


class Replay:
    """Do a step again and again; on a GPU, record it after a warm-up and then replay the record.

    The step works in place on tensors that stay where they are, draws only from ``generators``
    and never reads from the GPU. Warm-up calls are real ones: the numbers are the same with and
    without recording. Where recording fails, calls go on without it, with a warning. The step is
    given with each call and not kept: its owner holds this object, and a circle of the two would
    keep a GPU's memory until Python looks for circles.

    Args:
        generators: All random generators that the step draws from.
        device: Where it works.
        enabled: False never records.
    """

    def __init__(
        self, generators: Sequence[torch.Generator], device: torch.device, *, enabled: bool
    ) -> None:
        self.generators, self.device = generators, device
        self.calls = 0
        self.enabled = enabled and device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream: torch.cuda.Stream | None = None
        if self.enabled:
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, step: Callable[[], None]) -> None:
        """Do ``step``, the same in every call."""
        if self.graph is None and self.enabled and self.calls >= WARM_UP:
            self._record(step)
        if self.graph is not None:
            self.graph.replay()
        elif self.stream is not None:  # record where the warm-up ran: same workspaces
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self.stream):
                step()
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        else:
            step()
        self.calls += 1

    def _record(self, step: Callable[[], None]) -> None:
        assert self.stream is not None
        graph = torch.cuda.CUDAGraph()
        before = [generator.clone_state() for generator in self.generators]
        for generator in self.generators:
            graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                step()
        except RuntimeError as error:
            self.enabled = False
            for generator, state in zip(self.generators, before, strict=True):
                generator.graphsafe_set_state(state)  # the old one takes itself for recorded
            warnings.warn(f"training without a CUDA graph: {error}", stacklevel=2)
        else:
            self.graph = graph
            # Recording resets the generators' offsets on its stream; a replay must come after.
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
