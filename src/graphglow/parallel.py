"""Independent blocks of work: in a loop here, in processes of this machine, or on Ray.

A *block* is a part of a job, such as 100,000 of its pairs or one run of an experiment.
``function(shared, block)`` is a pure function of a module, so that a result has the same bytes
wherever it is computed.
"""

import importlib
import logging
import multiprocessing
import os
import pickle
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from graphglow.checks import at_least
from graphglow.device import resolve_device
from graphglow.errors import InputError, StoppedError
from graphglow.version import __version__

AHEAD = 4
"""Blocks handed out for each worker, those at work among them."""
RETRIES = 3
"""How often Ray gives a block to another worker when its worker dies."""

Shared = TypeVar("Shared")
Block = TypeVar("Block")
Result = TypeVar("Result")


class MapBlocks(Protocol):
    """:func:`map_blocks`, or a partial of it that knows the workers of a job."""

    def __call__(
        self,
        function: Callable[[Shared, Block], Result],
        shared: Shared,
        blocks: Iterable[Block],
        /,
    ) -> Iterator[Result]: ...


def map_blocks(
    function: Callable[[Shared, Block], Result],
    shared: Shared,
    blocks: Iterable[Block],
    /,
    *,
    workers: int | None = None,
    ray: str | None = None,
    gpus: float = 0,
    ordered: bool = True,
) -> Iterator[Result]:
    """Yield ``function(shared, block)`` of every block, in order.

    Ray and its workers stay until this process ends or calls ``ray.shutdown()``, ready for the
    next job. A job on Ray survives the death of a worker; one in processes does not.

    Args:
        function: A pure function that a worker can import.
        shared: What every block needs; each worker receives it once, and must not write to it.
        blocks: Taken as they are needed.
        workers: Blocks at the same time. None or 1 without ``ray`` is a loop in this process;
            None on Ray is one for each CPU of the cluster, or for each GPU where ``gpus`` is set.
        ray: ``"local"`` starts a Ray on this machine; or the address of a cluster.
        gpus: Share of a GPU that a block on Ray asks for.
        ordered: False: results come as they are finished.
    """
    if workers is not None:
        at_least("workers", workers, 1)
    if ray is None and workers in (None, 1):
        for block in blocks:
            yield function(shared, block)
    elif ray is None:
        yield from _in_processes(function, shared, blocks, workers or 1, ordered)
    else:
        yield from _on_ray(function, shared, blocks, workers, ray, gpus, ordered)


def where_to_compute(
    device: str, workers: int | None, ray: str | None
) -> tuple[torch.device, MapBlocks]:
    """Return the device of a job on one graph, and what maps its blocks: this process, or Ray.

    Ray computes on CPUs. Without an address, several workers are those of a local Ray, which share
    a large graph where processes would copy it.
    """
    if ray is None and workers in (None, 1):
        return resolve_device(device), map_blocks
    if device == "cuda":
        raise InputError(
            "Ray workers compute on CPUs. Use --device cpu, or leave out --workers and --ray."
        )
    return torch.device("cpu"), partial(map_blocks, workers=workers, ray=ray or "local")


def _results(
    submit: Callable[[Any], Future[Any]], blocks: Iterable[Any], at_once: int, ordered: bool
) -> Iterator[Any]:
    waiting, running = iter(blocks), deque[Future[Any]]()
    while True:
        running.extend(submit(block) for block in islice(waiting, at_once - len(running)))
        if not running:
            return
        done = {running[0]} if ordered else wait(running, return_when=FIRST_COMPLETED).done
        for future in done:
            running.remove(future)
            yield future.result()


# Processes


def _in_processes(
    function: Callable[[Any, Any], Any],
    shared: Any,
    blocks: Iterable[Any],
    workers: int,
    ordered: bool,
) -> Iterator[Any]:
    threads = max(1, torch.get_num_threads() // workers)
    given = (pickle.dumps((function, shared)), threads, torch.is_grad_enabled())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, given)
    try:
        results = _results(
            lambda block: pool.submit(_work, block), blocks, AHEAD * workers, ordered
        )
        yield from map(pickle.loads, results)
    except BrokenProcessPool as error:
        raise StoppedError(
            "A worker process died, perhaps for lack of memory. Use fewer workers, "
            "or Ray, which repeats the work of a worker that died."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_given: tuple[Callable[[Any, Any], Any], Any]
"""In a worker process: the function, and what every block needs."""


def _begin(given: bytes, threads: int, grad: bool) -> None:
    """Start a worker process, which ends with its parent."""
    global _given
    _given = pickle.loads(given)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _compute_like(threads, grad)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _compute_like(threads: int, grad: bool) -> None:
    warnings.simplefilter("ignore")  # the parent has shown them
    torch.set_num_threads(threads)
    torch.set_grad_enabled(grad)


def _work(block: Any) -> bytes:
    function, shared = _given
    return pickle.dumps(function(shared, block))  # or torch keeps a file open for every tensor


# Ray


def _on_ray(
    function: Callable[[Any, Any], Any],
    shared: Any,
    blocks: Iterable[Any],
    workers: int | None,
    address: str,
    gpus: float,
    ordered: bool,
) -> Iterator[Any]:
    ray = connect(address, workers)
    has = ray.cluster_resources()
    cores = int(has.get("CPU", 1))
    if gpus and not has.get("GPU"):
        raise InputError("The Ray cluster has no GPU. Compute on its CPUs: --device cpu.")
    workers = workers or (int(has["GPU"] / gpus) if gpus else cores)
    threads = max(1, cores // workers)
    task = ray.remote(_ray_work).options(num_cpus=threads, num_gpus=gpus, max_retries=RETRIES)
    given = [_put(ray, shared)], function, __version__, threads, torch.is_grad_enabled()

    def submit(block: Any) -> Future[Any]:
        block = block.clone() if isinstance(block, Tensor) else block  # or a view's whole storage
        future: Future[Any] = task.remote(block, *given).future()
        return future

    try:
        yield from _results(submit, blocks, AHEAD * workers, ordered)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # as the function raised it
    except ray.exceptions.RayError as error:
        raise StoppedError(
            f"Ray lost a block of work {RETRIES + 1} times ({type(error).__name__}), perhaps for "
            "lack of memory. Use fewer workers."
        ) from error


def connect(address: str, workers: int | None = None) -> Any:
    """Return the module ``ray``, connected to a cluster, or to a new Ray of this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))  # or Ray tries for ever
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise InputError('Ray is not installed: pip install "graphglow[ray]".') from error
    if not ray.is_initialized():
        asked: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if address == "local":
            asked |= {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(address, **asked)
        except (OSError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"No Ray cluster can be reached at {address!r} ({reason:.200}). Start one by "
                "'ray start --head', or use --ray local."
            ) from error
    return ray


def _put(ray: Any, shared: Any) -> Any:
    """Store what all blocks need; its tensors are arrays, which workers see without a copy."""
    ray.util.register_serializer(Tensor, serializer=_arrays, deserializer=_tensor)
    try:
        return ray.put(shared)
    finally:
        ray.util.deregister_serializer(Tensor)


def _arrays(tensor: Tensor) -> Any:
    tensor = tensor.detach().cpu()
    if tensor.layout == torch.strided:
        return tensor.numpy()
    tensor = tensor.to_sparse().coalesce()
    return tensor.indices().numpy(), tensor.values().numpy(), tensor.shape


def _tensor(arrays: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the memory is read-only
        if not isinstance(arrays, tuple):
            return torch.from_numpy(arrays)
        indices, values, shape = arrays
        return torch.sparse_coo_tensor(torch.from_numpy(indices), torch.from_numpy(values), shape)


_get = lru_cache(maxsize=1)(lambda reference: importlib.import_module("ray").get(reference))


def _ray_work(
    block: Any,
    shared: list[Any],
    function: Callable[[Any, Any], Any],
    version: str,
    threads: int,
    grad: bool,
) -> Any:
    if __version__ != version:
        raise InputError(
            f"A Ray node has graphglow {__version__}, and this process {version}. Install the same "
            "version on all nodes."
        )
    _compute_like(threads, grad)
    return function(_get(shared[0]), block)
