"""Workers of a Ray cluster, on this machine or on many; Ray starts another where one dies.

Only the process that asks (the driver) writes: what a worker makes, rows and learners, travels
back, and the learners that a job needs travel with it. So nodes need no common folder; they need
graphglow, and the raw files of the graphs in the same folder as the driver.
"""

import hashlib
import importlib
import math
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from graphglow.errors import InputError
from graphglow.experiments.cell_run import Job, Learning, Place, RunFailed
from graphglow.experiments.provenance import provenance
from graphglow.experiments.ray_cluster import RETRIES, connected
from graphglow.graphs.load import data_folder
from graphglow.storage import atomic_path
from graphglow.training.config import Device
from graphglow.version import __version__

Given = ParamSpec("Given")
Result = TypeVar("Result")
After = TypeVar("After")


@contextmanager
def ray_workers(
    address: str, *, device: Device = "auto", processes: int | None = None
) -> Iterator["RayWorkers"]:
    """Connect to a Ray cluster for the block, and share it out.

    Args:
        address: As ``ray.init`` takes it; empty joins the Ray of this machine, or starts one that
            ends with the block.
        device: What jobs compute on; auto takes GPUs if the cluster has any.
        processes: Jobs at the same time; None: one per CPU of the cluster, or per GPU.
    """
    with connected(address) as ray:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        share = shared_out(nodes, device, processes)
        elsewhere = len(nodes) > 1 or ray.util.client.ray.is_connected()
        workers = RayWorkers(ray, share, elsewhere=elsewhere)
        try:
            yield workers
        finally:
            for worker in workers.all:
                worker.stop()


@dataclass(frozen=True, kw_only=True)
class Share:
    """What each of so many jobs gets of a cluster."""

    device: Device
    processes: int
    threads: int
    gpus: float
    """Of one GPU, where several jobs have it together; 0 on CPUs."""


def shared_out(nodes: Sequence[dict[str, float]], device: Device, processes: int | None) -> Share:
    """Share out the resources of nodes, by their names in Ray, as ``ray_workers`` says."""
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if device == "cuda" and not gpus:
        raise InputError("device cuda must be in the Ray cluster; got one without a GPU")
    on_gpu = gpus > 0 and device != "cpu"
    cores = [int(node.get("CPU", 0)) for node in nodes if not on_gpu or node.get("GPU", 0) >= 1]
    cores = [count for count in cores if count]
    if not cores:
        raise InputError("the Ray cluster must have a node with a CPU for jobs; got none")
    processes = processes or (gpus if on_gpu else sum(cores))
    return Share(
        device="cuda" if on_gpu else "cpu",
        processes=processes,
        threads=max(1, min(sum(cores) // processes, *cores)),  # more than a node has is never free
        gpus=1 / math.ceil(processes / gpus) if on_gpu else 0,
    )


class RayWorkers:
    """As many jobs at once as a share says; Ray decides where each is done.

    Args:
        ray: The module, connected.
        share: What each job gets.
        elsewhere: Whether jobs may be done on other machines than this one.
    """

    def __init__(self, ray: Any, share: Share, *, elsewhere: bool) -> None:
        self.elsewhere, self.device, self.threads = elsewhere, share.device, share.threads
        task = ray.remote(_work).options(
            num_cpus=share.threads, num_gpus=share.gpus, max_retries=RETRIES
        )
        driver = _Driver(
            version=__version__,
            commit=provenance()["commit"],
            words=tuple(sys.argv),
            folder=Path.cwd(),
            threads=share.threads,
        )
        self.all = [RayWorker(ray, task, driver) for _ in range(share.processes)]

    def perform(self, worker: "RayWorker", job: Job, place: Place) -> Future[Any]:
        """Begin a job of a reproduction; what it gives, and its learner in the driver's folder."""
        sources = job.sources if isinstance(job, Learning) else job.cell.sources
        files = place.learners.glob(f"{'+'.join(sources)}-*.safetensors") if sources else ()
        learners = {file.name: file.read_bytes() for file in files}
        there = replace(place, data_root=data_folder(place.data_root).absolute())
        return _then(worker.submit(_perform, job, there, learners), partial(_land, place.learners))


class RayWorker:
    """One task in flight, in whatever process of the cluster Ray has for it."""

    def __init__(self, ray: Any, task: Any, driver: "_Driver") -> None:
        self._ray, self._task, self._driver = ray, task, driver
        self._begun: Any = None

    def submit(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        """Begin a job; its future raises ``RunFailed`` if one worker after another dies of it."""
        self._begun = self._task.remote(self._driver, function, args, kwargs)
        return _then(self._begun.future(), lambda result: result)

    def lose(self) -> None:
        """It cannot be lost: Ray has another process for the next job."""

    def stop(self) -> None:
        """End the job, whatever it is doing."""
        if self._begun is not None:
            with suppress(Exception):  # it has ended, or the cluster has
                self._ray.cancel(self._begun, force=True)


@dataclass(frozen=True, kw_only=True)
class _Driver:
    """What a worker takes over from the process that asks."""

    version: str
    commit: str
    words: tuple[str, ...]
    folder: Path
    threads: int


def _work(
    driver: _Driver, function: Callable[..., Result], args: Any, kwargs: dict[str, Any]
) -> Result:
    """On the node: do a job as the driver would; rows say its command and its commit."""
    if __version__ != driver.version:
        raise InputError(
            f"every node must have graphglow {driver.version}; "
            f"got {__version__} on {socket.gethostname()}"
        )
    os.environ["GRAPHGLOW_COMMIT"] = driver.commit
    sys.argv = list(driver.words)
    with suppress(OSError):  # not on this node
        os.chdir(driver.folder)
    warnings.simplefilter("ignore")
    torch.set_num_threads(driver.threads)
    return function(*args, **kwargs)


def _perform(job: Job, place: Place, learners: dict[str, bytes]) -> tuple[Any, dict[str, bytes]]:
    """On the node: what the job gives, and the learner that it made; rows say which machine."""
    origin = provenance() | {"date": place.provenance["date"]}
    with tempfile.TemporaryDirectory(prefix="graphglow-") as name:
        folder = Path(name)
        for file, content in learners.items():
            (folder / file).write_bytes(content)
        try:
            result = job.perform(replace(place, learners=folder, provenance=origin))
        except InputError as error:  # a graph that is not there
            raise InputError(f"{error} (on {socket.gethostname()})") from error
        made = [path for path in folder.glob("*.safetensors") if path.name not in learners]
        return result, {path.name: path.read_bytes() for path in made}


def _land(folder: Path, came: tuple[Any, dict[str, bytes]]) -> Any:
    """Put learners into the driver's folder; by their content, as others may write there too."""
    result, learners = came
    for name, content in learners.items():
        digest = hashlib.sha256(content).hexdigest()[:12]
        with atomic_path(folder / f"{name.rpartition('-')[0]}-{digest}.safetensors") as path:
            path.write_bytes(content)
    return result


def _then(future: Future[Result], after: Callable[[Result], After]) -> Future[After]:
    """What comes of ``after`` when a future is done, its errors without Ray's wrapping."""
    out: Future[After] = Future()

    def settle(done: Future[Result]) -> None:
        try:
            out.set_result(after(done.result()))
        except Exception as error:
            out.set_exception(_unwrapped(error))

    future.add_done_callback(settle)
    return out


def _unwrapped(error: Exception) -> Exception:
    ray = importlib.import_module("ray")
    if isinstance(error, ray.exceptions.RayTaskError):
        if "No module named 'graphglow'" in str(error):
            return InputError("every node must have graphglow; got one without it")
        cause = error.cause
        return cause if isinstance(cause, Exception) else error
    if isinstance(error, ray.exceptions.RayError):
        return RunFailed(
            f"the run must end before its worker does; got {type(error).__name__} from Ray "
            f"after {RETRIES} more attempts"
        )
    return error
