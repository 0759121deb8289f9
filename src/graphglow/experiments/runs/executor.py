"""Where jobs are done: in this process, in processes of this machine, or on a Ray cluster.

All three are a :class:`concurrent.futures.Executor`; :func:`result_of` takes a result out of a
future of any of them. On a Ray cluster nodes need graphglow and no common folder: what a job needs
travels with it, and what it makes travels back.
"""

import ctypes
import importlib
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch

from graphglow.errors import InputError
from graphglow.training.config import Device
from graphglow.training.device import resolve_device
from graphglow.version import __version__

PR_SET_PDEATHSIG = 1  # Linux's prctl: a signal for the child when its parent has died
RETRIES = 3
"""How often Ray gives the job of a worker that died to another one."""
RAY_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_task_oom_retries": str(RETRIES)}
"""Environment that Ray reads as it is imported; by itself it retries for ever where a node runs
out of memory."""
PATIENCE = 10
"""Seconds until somebody must answer at an address."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


class RunFailed(Exception):
    """A job could not be done; others may well be."""


class WorkerLost(RunFailed):
    """A process died, and with it all jobs of its pool: one of them may have been the reason."""


class Workers(Executor):
    """An executor that says what it has to offer."""

    processes: int
    """Jobs at the same time."""
    threads: int
    """Of torch, for each of them."""
    device: Device
    """Its kind."""
    elsewhere: bool = False
    """Whether jobs may be done on other machines than this one."""


def open_executor(
    processes: int | None = None, ray: str | None = None, *, device: Device = "auto"
) -> Workers:
    """Open an executor; leaving its block ends it, whatever it is doing.

    Args:
        processes: Jobs at the same time; None: one per core, one on a GPU; with ray, one per CPU of
            the cluster, or per GPU.
        ray: The address of a cluster, as ``ray.init`` takes it; empty joins the Ray of this
            machine, or starts one that ends with the executor; None stays on this machine, where a
            single process is this one.
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
    """What a job gave; its error as it was raised there, or :class:`RunFailed` if it was lost."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise WorkerLost(
            "the run must fit in memory; its process was killed, as the system does where it "
            "does not"
        ) from error
    except Exception as error:
        ray = sys.modules.get("ray")
        if ray is None or not isinstance(error, ray.exceptions.RayError):
            raise
        if "No module named 'graphglow'" in str(error):
            raise InputError("every node must have graphglow; got one without it") from None
        cause = getattr(error, "cause", None)
        raise cause or RunFailed(
            f"the run must end before its worker does; got {type(error).__name__} from Ray "
            f"after {RETRIES} more attempts"
        ) from None


class InThisProcess(Workers):
    """A job is done when ``submit`` returns."""

    def __init__(self) -> None:
        self.processes, self.threads = 1, torch.get_num_threads()

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes(Workers):
    """A pool of fresh interpreters that end with this one; where one is killed, a new pool."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.threads = max(1, torch.get_num_threads() // processes)
        self._others = multiprocessing.active_children()
        self._pool = self._opened()

    def _opened(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(self.threads, os.getpid()),
        )

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        with _unheard_ctrl_c():
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenProcessPool:
                self._pool = self._opened()
                if self._pool.submit(os.getpid).exception() is not None:
                    raise RuntimeError("worker processes must be able to start") from None
                return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the processes, whatever they are doing."""
        for child in multiprocessing.active_children():
            if child not in self._others:
                child.terminate()
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


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


def _begin(threads: int, parent: int) -> None:
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


class RayWorkers(Workers):
    """Jobs on a Ray cluster; Ray decides where each is done, and replaces workers that die."""

    def __init__(self, address: str, processes: int | None, device: Device) -> None:
        self._ray = _imported_ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray, address)
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        try:
            share = shared_out(nodes, device, processes)
        except InputError:
            self.shutdown()
            raise
        self.processes, self.threads, self.device = share.processes, share.threads, share.device
        self.elsewhere = len(nodes) > 1 or self._ray.util.client.ray.is_connected()
        self._task = self._ray.remote(_work).options(
            num_cpus=share.threads, num_gpus=share.gpus, max_retries=RETRIES
        )
        self._begun: set[Any] = set()

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        driver = (__version__, tuple(sys.argv), Path.cwd(), self.threads)
        task = self._task.remote(driver, fn, args, kwargs)
        self._begun.add(task)
        future: Future[Result] = task.future()
        future.add_done_callback(lambda _: self._begun.discard(task))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the jobs, whatever they are doing, and the connection if it is this one's."""
        for task in list(getattr(self, "_begun", ())):
            with suppress(Exception):  # it has ended, or the cluster has
                self._ray.cancel(task, force=True)
        if self._ours:
            self._ray.shutdown()


class Share(NamedTuple):
    """What each of so many jobs gets of a cluster."""

    device: Device
    processes: int
    threads: int
    gpus: float
    """Of one GPU, where several jobs have it together; 0 on CPUs."""


def shared_out(nodes: Sequence[dict[str, float]], device: Device, processes: int | None) -> Share:
    """Share out the resources of nodes, by their names in Ray."""
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if device == "cuda" and not gpus:
        raise InputError("device cuda must be in the Ray cluster; got one without a GPU")
    on_gpu = gpus > 0 and device != "cpu"
    cores = [int(node.get("CPU", 0)) for node in nodes if not on_gpu or node.get("GPU", 0) >= 1]
    cores = [count for count in cores if count]
    if not cores:
        raise InputError("the Ray cluster must have a node with a CPU for jobs; got none")
    processes = processes or (gpus if on_gpu else sum(cores))
    threads = max(1, min(sum(cores) // processes, *cores))  # more than a node has is never free
    each = 1 / math.ceil(processes / gpus) if on_gpu else 0
    return Share("cuda" if on_gpu else "cpu", processes, threads, each)


def _imported_ray() -> Any:
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise InputError(
            'the executor ray needs Ray; got a Python without it (pip install "graphglow[ray]")'
        ) from error


def _connect(ray: Any, address: str) -> None:
    on_terminate = signal.getsignal(signal.SIGTERM)  # Ray sets its own
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if host and port.isdecimal():  # where nobody listens, Ray tries for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quiet = {"include_dashboard": False, "log_to_driver": False}
            ray.init(address or None, logging_level=logging.CRITICAL, **quiet)
    except (ImportError, OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"the executor must be a Ray cluster that can be reached; "
            f"got {'ray:' + address if address else 'ray'} ({reason:.200})"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_terminate)


def _work(
    driver: tuple[str, tuple[str, ...], Path, int], fn: Callable[..., Result], args: Any, named: Any
) -> Result:
    """On the node: do a job as the driver, the process that asks, would."""
    version, words, folder, threads = driver
    if __version__ != version:
        raise InputError(
            f"every node must have graphglow {version}; got {__version__} on {socket.gethostname()}"
        )
    sys.argv = list(words)
    with suppress(OSError):  # not on this node
        os.chdir(folder)
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    try:
        return fn(*args, **named)
    except InputError as error:  # a graph that is not there
        raise InputError(f"{error} (on {socket.gethostname()})") from error
