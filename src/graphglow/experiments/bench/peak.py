"""How much memory something took at its worst."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from graphglow.errors import InputError
from graphglow.training.device import peak_memory_bytes


def tensor_peak(step: Callable[[], object], device: torch.device) -> int:
    """Most bytes of tensors alive during ``step``, above those alive before it.

    On a GPU that is the allocator's peak; on a CPU the largest sum of live allocations that the
    profiler saw.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return int(torch.cuda.max_memory_allocated() - before)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes to standard error
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def reset_peak(device: torch.device) -> None:
    """Forget earlier peaks, as far as the system can (a GPU's allocator; Linux)."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        with suppress(OSError):  # not on other systems, nor in every container
            Path("/proc/self/clear_refs").write_text("5")


def peak_since_reset(device: torch.device) -> int:
    """Peak of the GPU's allocator, or resident bytes of the process at its worst on a CPU."""
    return peak_memory_bytes(device) if device.type == "cuda" else _status("VmHWM:")


def bytes_now(device: torch.device) -> int:
    """What is allocated on the GPU now, or resident on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated())
    return _status("VmRSS:")


def ran_out(error: InputError) -> bool:
    """Whether training gave up for want of memory, and not for another reason."""
    return isinstance(error.__cause__, (MemoryError, RuntimeError))


def _status(name: str) -> int:
    """A field of Linux's /proc/self/status.

    Unlike ru_maxrss, these do not begin with what the parent had in use.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return peak_memory_bytes(torch.device("cpu"))
