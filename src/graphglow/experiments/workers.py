"""Processes that do one job at a time each, and end with the one that started them."""

import ctypes
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from graphglow.errors import InputError

if TYPE_CHECKING:
    from graphglow.experiments.cell_run import Job, Place

PR_SET_PDEATHSIG = 1  # Linux's prctl: a signal for the child when its parent has died

Given = ParamSpec("Given")
Result = TypeVar("Result")


def ray_address(executor: str) -> str | None:
    """The address in ``ray:ADDRESS``, empty for ``ray``; None for ``local``."""
    if executor == "local":
        return None
    kind, colon, address = executor.partition(":")
    if kind != "ray" or (colon and not address.strip()):
        raise InputError(f"executor must be local, ray or ray:ADDRESS; got {executor!r}")
    return address


class Worker:
    """A process of its own that is started with its first job; if that kills it, with the next.

    One process per worker, not a pool of many: where one is killed (out of memory), only its own
    job is lost, and it is known which that was.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ProcessPoolExecutor | None = None
        self._context = _Remembering()
        self._begun: Future[int] | None = None

    def submit(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        """Begin a job; its future raises ``BrokenProcessPool`` if the process is killed."""
        if self._pool is None:
            self._context = _Remembering()
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=self._context,
                initializer=_begin,
                initargs=(self.threads, os.getpid()),
            )
            with _unheard_ctrl_c():
                self._begun = self._pool.submit(os.getpid)
        return self._pool.submit(function, *args, **kwargs)

    def lose(self) -> None:
        """The process was killed: the next job starts another. One that never began is a bug."""
        assert self._pool is not None
        assert self._begun is not None
        if not self._begun.done() or self._begun.exception() is not None:
            raise RuntimeError("worker processes must be able to start; got one that ended at once")
        self._pool.shutdown(wait=False)
        self._pool = None

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._pool is None:
            return
        for process in self._context.started:
            process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None


class _Remembering(SpawnContext):
    """Starts fresh interpreters, and remembers them: an executor tells nobody its processes."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]
        process = SpawnProcess(*args, **kwargs)
        self.started.append(process)
        return process


@contextmanager
def _unheard_ctrl_c() -> Iterator[None]:
    """Let processes that are started in the block begin deaf to Ctrl-C, which is the parent's."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only there can it be said
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Here:
    """The same without a process: a job is done when ``submit`` returns."""

    def submit(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        future: Future[Result] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def lose(self) -> None:
        """It cannot be lost."""

    def stop(self) -> None:
        """Nothing to end."""


def threads_for(processes: int) -> int:
    """Of torch, in each of so many processes: the cores shared out among them."""
    return max(1, torch.get_num_threads() // processes)


class Workers:
    """A number of workers, ended with the block; a single one works in this process."""

    def __init__(self, processes: int) -> None:
        self.threads = threads_for(processes)
        self.all: list[Worker] | list[Here] = (
            [Here()] if processes == 1 else [Worker(self.threads) for _ in range(processes)]
        )

    def perform(self, worker: Worker | Here, job: "Job", place: "Place") -> Future[Any]:
        """Begin a job of a reproduction; what it gives."""
        return worker.submit(job.perform, place)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.all:
            worker.stop()


def _begin(threads: int, parent: int) -> None:
    """Ctrl-C is the parent's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)


def end_with(parent: int) -> None:
    """Let this process end when the one that started it does, however that ends (on Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended before this one could ask to be told
        os._exit(1)
