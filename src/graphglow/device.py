"""Where to compute: on a CPU or a GPU, in what memory, and here or by the workers of Ray.

A *block* is a part of a job, such as 100,000 of its pairs or one run of an experiment.
``function(shared, block)`` is a pure function of a module, so that a result has the same bytes
wherever it is computed.
"""

import importlib
import logging
import os
import re
import resource
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor

from graphglow.errors import InputError, StoppedError, at_least, one_of
from graphglow.settings import Device

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
PEAK = Path("/proc/self/clear_refs")
OUT_OF_MEMORY = re.compile(r"allocate memory|bad_alloc|out of memory|ALLOC_FAILED")
SMALLER = "fewer columns of features, a smaller graph"
"""What needs less memory where nothing is trained."""


def resolve_device(name: str) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device; a GPU that is not there is refused."""
    one_of("device", name, get_args(Device))
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise InputError("device cuda must be present; got a machine without a usable GPU")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def reset_peak_memory(device: torch.device) -> None:
    """Measure the peak from here on: a GPU's, or on Linux that of the process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif PEAK.exists():
        with suppress(OSError):
            PEAK.write_text("5")


def peak_memory_bytes(device: torch.device) -> int:
    """Peak of the GPU's allocator, or on a CPU of the process, since the last reset."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def check_fits(name: str, needed: int, graph: str, device: torch.device, advice: str = "") -> None:
    """Raise unless ``needed`` bytes, which follow from sizes, are free on ``device``."""
    free = free_bytes(device)
    if free is not None and needed > free:
        raise InputError(
            f"{name} must fit in memory; on {graph}, with these settings, it would need about "
            f"{needed / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free on {device.type}{advice}"
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be had on ``device``; None where the system does not say.

    On a CPU it is what the kernel has without swapping, and at most what a container's limit
    leaves, where cached files count as free.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])

    if not MEMINFO.exists():  # not on Linux
        return None
    free = 1024 * int(MEMINFO.read_text().partition("MemAvailable:")[2].split()[0])
    try:
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        cached = (CGROUP / "memory.stat").read_text().partition("inactive_file")[2].split()[0]
        return min(free, limit - used + int(cached))
    except (OSError, ValueError, IndexError):  # no such limit
        return free


@contextmanager
def out_of_memory_hint(step: str, smaller: str) -> Iterator[None]:
    """Turn an allocator's failure at a step into one sentence: what is ``smaller`` helps."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        on_gpu = isinstance(error, torch.OutOfMemoryError)
        if not (on_gpu or isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error))):
            raise
        helps = f"--device cpu, {smaller}" if on_gpu else smaller
        raise InputError(f"{step} must fit in memory; what helps: {helps}") from error


# Blocks of work

AHEAD = 4
"""Blocks handed out for each worker, including the one it works on."""
RETRIES = 3
"""How often Ray gives a block to another worker when its worker dies."""

Result = TypeVar("Result")


MapBlocks = Callable[..., Iterator[Any]]
""":func:`map_blocks`, or a partial of it that knows the workers of a job."""


def map_blocks(
    function: Callable[[Any, Any], Result],
    shared: Any,
    blocks: Iterable[Any],
    /,
    *,
    workers: int | None = None,
    ray: str | None = None,
    gpus: float = 0,
    ordered: bool = True,
) -> Iterator[Result]:
    """Return an iterator over ``function(shared, block)`` of all blocks, in order.

    Ray and its workers stay until this process ends or calls ``ray.shutdown()``. If a worker dies,
    another one repeats its block.

    Args:
        function: A pure function that a worker can import.
        shared: What every block needs; each worker receives it once, and must not write to it.
        blocks: Taken as they are needed.
        workers: Blocks computed at the same time. Without ``ray``, None or 1 is a loop in this
            process; on a cluster, None is one for each CPU, or GPU if ``gpus`` is set.
        ray: ``"local"`` starts a Ray on this machine; or the address of a cluster.
        gpus: Share of a GPU that a block on Ray asks for.
        ordered: False yields results as they are finished.
    """
    if workers is not None:
        at_least("workers", workers, 1)
    if ray is None and workers in (None, 1):
        return (function(shared, block) for block in blocks)
    return _on_ray(function, shared, blocks, workers, ray or "local", gpus, ordered)


def where_to_compute(
    device: str, workers: int | None, ray: str | None
) -> tuple[torch.device, MapBlocks]:
    """Return the device of a job on one graph, and what maps its blocks: a loop, or Ray's CPUs."""
    if ray is None and workers in (None, 1):
        return resolve_device(device), map_blocks
    if device == "cuda":
        raise InputError(
            "Ray workers compute on CPUs. Use --device cpu, or leave out --workers and --ray."
        )
    return torch.device("cpu"), partial(map_blocks, workers=workers, ray=ray)


def _on_ray(
    function: Callable[[Any, Any], Any],
    shared: Any,
    blocks: Iterable[Any],
    workers: int | None,
    address: str,
    gpus: float,
    ordered: bool,
) -> Iterator[Any]:
    ray = connect(address)
    has = ray.cluster_resources()
    if gpus and not has.get("GPU"):
        raise InputError("The Ray cluster has no GPU. Compute on its CPUs: --device cpu.")
    cores = int(has.get("CPU", 1))
    workers = workers or (int(has["GPU"] / gpus) if gpus else cores)
    cpus = cores // workers or cores / workers  # whole ones, or a share of one
    task = ray.remote(_run_block).options(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
    ray.util.register_serializer(Tensor, serializer=_arrays, deserializer=_tensor)
    try:
        stored = ray.put(shared)
    finally:
        ray.util.deregister_serializer(Tensor)
    given = [stored], function, max(1, int(cpus)), torch.is_grad_enabled()
    waiting, running = iter(blocks), list[Any]()
    try:
        while True:
            for block in islice(waiting, AHEAD * workers - len(running)):
                whole = block.clone() if isinstance(block, Tensor) else block  # not a view
                running.append(task.remote(whole, *given))
            if not running:
                return
            ended = running[0] if ordered else ray.wait(running)[0][0]
            running.remove(ended)
            yield ray.get(ended)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # as the function raised it
    except ray.exceptions.RayError as error:
        raise StoppedError(
            f"Ray lost a block of work {RETRIES + 1} times ({type(error).__name__}), perhaps for "
            "lack of memory. Use fewer workers."
        ) from error


def connect(address: str) -> Any:
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
            asked["include_dashboard"] = False
        try:
            ray.init(address, **asked)
        except (OSError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"No Ray cluster can be reached at {address!r} ({reason:.200}). Start one by "
                "'ray start --head', or use --ray local."
            ) from error
    return ray


def _arrays(tensor: Tensor) -> Any:
    """Turn a tensor into arrays, which workers read without a copy."""
    tensor = tensor.detach().cpu()
    if tensor.layout == torch.strided:
        return tensor.numpy()
    tensor = tensor.to_sparse().coalesce()
    return tensor.indices().numpy(), tensor.values().numpy(), tensor.shape


def _tensor(arrays: Any) -> Tensor:
    if not isinstance(arrays, tuple):
        return torch.from_numpy(arrays)
    indices, values, shape = arrays
    return torch.sparse_coo_tensor(torch.from_numpy(indices), torch.from_numpy(values), shape)


_get = lru_cache(maxsize=1)(lambda reference: importlib.import_module("ray").get(reference))


def _run_block(
    block: Any, shared: list[Any], function: Callable[[Any, Any], Any], threads: int, grad: bool
) -> Any:
    """Compute a block on a worker, with as many threads and as much autograd as the caller."""
    warnings.simplefilter("ignore")  # the caller has shown them, and shared memory is read-only
    torch.set_num_threads(threads)
    torch.set_grad_enabled(grad)
    return function(_get(shared[0]), block)
