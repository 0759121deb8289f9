"""How far a study is, for whoever watches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphglow.training.loop import Epoch


class Progress(NamedTuple):
    """Where a study stands; ``done`` has the share of the trial in hand as its fraction."""

    method: str
    target: str
    done: float
    total: int
    best: float | None


OnProgress = Callable[[Progress], None]


class Meter:
    """Epochs of the trials in hand, as a share of them."""

    def __init__(
        self, method: str, target: str, total: int, on_progress: OnProgress | None
    ) -> None:
        self.tell = on_progress
        self.now = Progress(method, target, 0, total, None)
        self.settled, self.seen, self.expected, self.trials = 0, 0, 1, 1

    def on_trial(self, settled: Sequence[Any]) -> None:
        best = max((trial.mean for trial in settled if trial.scores), default=None)
        self.settled, self.seen = len(settled), 0
        self.now = self.now._replace(best=best)
        self._show()

    def begin(self, epochs: int, trials: int) -> None:
        self.expected, self.trials = epochs, trials

    def on_epoch(self, epoch: Epoch) -> None:
        self.seen += 1
        self._show()

    def _show(self) -> None:
        if self.tell is not None:
            share = min(self.seen / self.expected, 1)
            self.tell(self.now._replace(done=self.settled + share * self.trials))
