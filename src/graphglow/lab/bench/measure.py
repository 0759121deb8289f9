"""The instruments: a clock, peak memory, fresh processes, and what the machine itself can do."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch.utils.benchmark import Timer

from graphglow.errors import InputError
from graphglow.settings import Precision
from graphglow.training.device import out_of_memory_says, peak_memory_bytes
from graphglow.workers.executor import Processes, WorkerLost, result_of

MATMUL_SIDE = {"cpu": 2048, "cuda": 8192}
COPY_BYTES = {"cpu": 2**28, "cuda": 2**31}
Given = ParamSpec("Given")
Result = TypeVar("Result")


def median_seconds(step: Callable[[], object], min_seconds: float = 1.0) -> float:
    """Seconds of one warm call, with the GPU waited for; timed for at least about so long."""
    step()
    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=min_seconds).median)


def in_fresh_process(
    function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result | None:
    """Call ``function`` in a new interpreter, whose peak memory is not another's.

    None where it ran out of memory or was killed for it; its other exceptions come back as they
    are. The function and its arguments must be importable.
    """
    with Processes(1) as process:
        try:
            return result_of(process.submit(_unless_out_of_memory, function, args, kwargs))
        except WorkerLost:
            return None


def _unless_out_of_memory(function: Callable[..., Result], args: Any, named: Any) -> Result | None:
    try:
        with out_of_memory_says("the case must fit in memory"):
            return function(*args, **named)
    except InputError as error:
        if isinstance(error.__cause__, (MemoryError, RuntimeError)):
            return None
        raise


# Memory


def tensor_peak(step: Callable[[], object], device: torch.device) -> int:
    """Most bytes of tensors alive during ``step``, above those alive before it.

    On a GPU that is the allocator's peak; on a CPU the largest sum of live allocations that the
    profiler saw.
    """
    if device.type == "cuda":
        before = reset_peak(device)
        step()
        return peak_since_reset(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes to standard error
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def reset_peak(device: torch.device) -> int:
    """Forget earlier peaks, as far as the system can (a GPU's allocator; Linux); bytes in use now:
    allocated on the GPU, or resident on a CPU.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.memory_allocated())
    with suppress(OSError):  # not on other systems, nor in every container
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS:")


def peak_since_reset(device: torch.device) -> int:
    """Peak of the GPU's allocator, or resident bytes of the process at its worst on a CPU."""
    return peak_memory_bytes(device) if device.type == "cuda" else _status("VmHWM:")


def _status(name: str) -> int:
    """A field of Linux's /proc/self/status.

    Unlike ru_maxrss, these do not begin with what the parent had in use.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return peak_memory_bytes(torch.device("cpu"))


# The roof that a figure is held against


class Ceilings(NamedTuple):
    """Measured on the same machine in the same run."""

    flop_per_second: float
    """Of a large square matmul of the same precision."""
    bytes_per_second: float
    """Of a large copy, read and written bytes together."""


def ceilings(device: torch.device, precision: Precision, min_seconds: float = 1.0) -> Ceilings:
    """Of a matmul and a copy that are large enough to reach them."""
    side = MATMUL_SIDE[device.type]
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a = torch.randn(side, side, device=device).to(dtype)
    product = torch.empty_like(a)
    with tf32_allowed(precision == "tf32"):
        matmul = median_seconds(lambda: torch.mm(a, a, out=product), min_seconds)
    source = torch.zeros(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = median_seconds(lambda: target.copy_(source), min_seconds)
    return Ceilings(2 * side**3 / matmul, 2 * source.numel() / copy)


@contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    """Let the GPU's matmuls of float32 round to TF32, or forbid it; as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
