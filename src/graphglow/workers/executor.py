"""Where jobs are done: in this process, in processes of this machine, or on a Ray cluster.

All three are a :class:`concurrent.futures.Executor`. On a Ray cluster nodes need graphglow and no
common folder: what a job needs travels with it, and what it makes travels back.
"""

import importlib
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

import torch

from graphglow.device import resolve_device
from graphglow.errors import InputError, StoppedError
from graphglow.settings import Device
from graphglow.version import __version__

RETRIES = 3
"""How often the job of a worker that died is given to another one."""
Result = TypeVar("Result")


class RunFailed(Exception):
    """A job could not be done; others may well be."""


class WorkerLost(StoppedError):
    """A process died, and with it all jobs of its pool."""


class Workers(Executor):
    """An executor that says what it has to offer: jobs at the same time, and torch's threads."""

    processes: int
    threads: int
    device: Device


def open_executor(
    processes: int | None = None, ray: str | None = None, *, device: Device = "auto"
) -> Workers:
    """Open an executor; leaving its block ends it, whatever it is doing.

    Args:
        processes: Jobs at the same time; None: one per core, one on a GPU; with ray, one per CPU of
            the cluster, or per GPU.
        ray: The address of a cluster, as ``ray.init`` takes it; empty joins the Ray of this
            machine, or starts one; None stays here, where a single process is this one.
        device: What jobs compute on; auto takes GPUs if there are any.
    """
    if ray is not None:
        return RayWorkers(ray, processes, device)
    kind: Device = "cuda" if resolve_device(device).type == "cuda" else "cpu"
    processes = processes or (1 if kind == "cuda" else torch.get_num_threads())
    workers = InThisProcess() if processes == 1 else Processes(processes)
    workers.device = kind
    return workers


def ray_address(executor: str) -> str | None:
    """The address in ``ray:ADDRESS``, empty for ``ray``; None for ``local``."""
    if executor == "local":
        return None
    kind, colon, address = executor.partition(":")
    if kind != "ray" or (colon and not address.strip()):
        raise InputError(f"executor must be local, ray or ray:ADDRESS; got {executor!r}")
    return address


def result_of(future: Future[Result]) -> Result:
    """What a job gave; its error as it was raised there, or :class:`RunFailed` if Ray lost it."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise WorkerLost("a worker died; the same command goes on where it was") from error
    except Exception as error:
        ray = sys.modules.get("ray")
        if ray is None or not isinstance(error, ray.exceptions.RayError):
            raise
        lost = f"a run must end before its worker; got {type(error).__name__} from Ray"
        raise getattr(error, "cause", None) or RunFailed(lost) from None


class InThisProcess(Workers):
    """A job is done when ``submit`` returns."""

    def __init__(self) -> None:
        self.processes, self.threads = 1, torch.get_num_threads()

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes(ProcessPoolExecutor, Workers):
    """A pool of processes that end with this one.

    They are forked from one that has libraries loaded; not where there is a GPU, which such a
    process cannot use.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.threads = max(1, torch.get_num_threads() // processes)
        start = "spawn" if torch.cuda.is_available() else "forkserver"
        context = multiprocessing.get_context(start)
        context.set_forkserver_preload(["torch", "torch_geometric.data"])
        super().__init__(processes, context, initializer=_begin, initargs=(self.threads,))
        self._others = multiprocessing.active_children()
        if threading.current_thread() is threading.main_thread():
            try:
                with _interrupted_later():
                    for _ in range(processes):  # each starts one
                        self.submit(os.getpid)
            except BaseException:
                self.shutdown()
                raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the processes, whatever they are doing."""
        for child in multiprocessing.active_children():
            if child not in self._others:
                child.terminate()
        super().shutdown(wait, cancel_futures=True)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Ctrl-C and SIGTERM in the block are heard after it, when what it starts can be ended;
    processes that it starts never hear the first.
    """
    came: list[int] = []
    resource_tracker.ensure_running()  # its start would unblock the signal
    both = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in both}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which is inherited
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for one, heard in before.items():
            signal.signal(one, heard)
    if came:
        signal.raise_signal(came[0])


def _begin(threads: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # should it not be inherited
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


class RayWorkers(Workers):
    """Jobs on a Ray cluster; Ray decides where each is done, and replaces workers that die."""

    def __init__(self, address: str, processes: int | None, device: Device) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
        os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))  # or Ray tries for ever
        on_terminate = signal.getsignal(signal.SIGTERM)  # Ray sets its own
        try:
            ray: Any = importlib.import_module("ray")
            quiet = {"include_dashboard": False, "log_to_driver": False}
            ours = not ray.is_initialized()
            if ours:
                ray.init(address or None, logging_level=logging.CRITICAL, **quiet)
        except ModuleNotFoundError as error:
            raise InputError(
                'the executor ray needs Ray; got a Python without it (pip install "graphglow[ray]")'
            ) from error
        except (OSError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())
            raise InputError(
                f"the executor must be a Ray cluster that can be reached; got {said:.200}"
            ) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_terminate)
        has = ray.cluster_resources()
        cores, gpus = int(has.get("CPU", 1)), int(has.get("GPU", 0)) if device != "cpu" else 0
        if device == "cuda" and not gpus:
            raise InputError("device cuda must be in the Ray cluster; got one without a GPU")
        self.device = "cuda" if gpus else "cpu"
        self.processes = processes or gpus or cores
        smallest = min(int(n["Resources"].get("CPU", cores)) for n in ray.nodes() if n["Alive"])
        self.threads = max(1, min(cores // self.processes, smallest))
        self._task = ray.remote(_work).options(
            num_cpus=self.threads,
            num_gpus=1 / math.ceil(self.processes / gpus) if gpus else 0,
            max_retries=RETRIES,
        )
        self._end = ray.shutdown if ours else None

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        job = self._task.remote(__version__, sys.argv, self.threads, fn, args, kwargs)
        future: Future[Result] = job.future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the connection, if it is this one's, and with it the jobs."""
        if self._end is not None:
            self._end()


def _work(
    version: str, words: list[str], threads: int, fn: Callable[..., Result], args: Any, named: Any
) -> Result:
    """On the node: do a job as the process that asks would."""
    if __version__ != version:
        raise InputError(f"every node must have graphglow {version}; got {__version__}")
    sys.argv = words
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    return fn(*args, **named)
