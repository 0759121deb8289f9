"""Many small runs on one GPU at once: in several processes, and in each on streams of their own.

Processes take turns on a GPU, unless its driver shares it (MPS); streams of one process do not.
"""

import multiprocessing
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from graphglow.gnn.train import READ_EVERY, Epoch, Loop

GRACE = 30.0


def as_they_end(
    function: Callable[[Any], Any],
    next_job: Callable[[], Any],
    *,
    processes: int,
    seconds: float,
) -> Iterator[Any]:
    """Yield ``function(job)``, or the error it raised, as jobs end; start none after ``seconds``.

    ``next_job`` is asked whenever a process is free; None means that there is none for now. What
    runs when the time is over has ``GRACE`` seconds more: a process that is killed while it uses
    a GPU can make the GPU refuse the next ones.
    """
    stop, ended, running = time.monotonic() + seconds, queue.SimpleQueue[Any](), 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, torch.set_num_threads, (1,)) as pool:  # its end kills what runs
        while (left := stop + GRACE - time.monotonic()) > 0:
            while left > GRACE and running < processes and (job := next_job()) is not None:
                pool.apply_async(function, (job,), callback=ended.put, error_callback=ended.put)
                running += 1
            if running == 0:
                return
            try:
                result = ended.get(timeout=left)
            except queue.Empty:
                return
            running -= 1
            yield result


class Interleaved(Loop):
    """A loop that is trained some epochs at a time, on a stream of its own."""

    history: list[Epoch]
    ended = False

    def on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._replay is None else torch.cuda.stream(self._replay.stream)

    def next_epoch(self) -> None:
        with self.on_stream():
            if self._replay is None:
                self._epoch()
            else:
                self._replay(self._epoch)

    def read(self, start: int, stop: int) -> None:
        """Wait for epochs ``start + 1`` to ``stop``, and put the best weights back at the end."""
        with self.on_stream():
            self.history += self._read(start, stop, None)
            self.ended = stop == self.epochs or stop - int(self.best) >= self.patience
            if self.ended:
                for best, weight in zip(self.best_weights, self.task.weights, strict=True):
                    weight.copy_(best)


def train_together(loops: Sequence[Interleaved]) -> None:
    """Train all, epoch by epoch in turn; each has a ``history`` then, and its best weights."""
    done, running = 0, list(loops)
    _wait()  # what loops were made of is there on all streams
    for loop in loops:
        loop.history = []
    while running:
        most = max(loop.epochs for loop in running)
        stop = min(done + READ_EVERY, most)
        for number in range(done + 1, stop + 1):
            for loop in running:
                if number <= loop.epochs:
                    loop.next_epoch()
                if number == 1:
                    _wait()  # graphs keep what was computed of them, and loops share graphs
        for loop in running:
            loop.read(done, min(stop, loop.epochs))
        running, done = [loop for loop in running if not loop.ended], stop
    _wait()


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
