"""Where to compute, how much memory that has and took, and what to say where it ends."""

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import torch

from graphglow.checks import one_of
from graphglow.errors import InputError
from graphglow.settings import Device

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
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
    """Measure a GPU's peak from here on; that of a process cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int:
    """Peak of the GPU's allocator since the last reset, or of the whole process on a CPU."""
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
    try:
        free = _numbers(MEMINFO)["MemAvailable:"] * 1024
    except (OSError, KeyError):  # not on Linux
        return None
    try:
        used = int((CGROUP / "memory.current").read_text())
        cached = _numbers(CGROUP / "memory.stat").get("inactive_file", 0)
        return min(free, int((CGROUP / "memory.max").read_text()) - used + cached)
    except (OSError, ValueError):  # no such limit
        return free


def _numbers(file: Path) -> dict[str, int]:
    """Read lines of a name and a number."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}


@contextmanager
def out_of_memory_hint(step: str, smaller: str) -> Iterator[None]:
    """Turn an allocator's failure into one sentence.

    Args:
        step: What was being done, as ``"training on cora"``.
        smaller: What makes it need less, as ``"fewer --num-pivots"``.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        on_gpu = isinstance(error, torch.OutOfMemoryError)
        if not (on_gpu or isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error))):
            raise
        helps = f"--device cpu, {smaller}" if on_gpu else smaller
        raise InputError(f"{step} must fit in memory; what helps: {helps}") from error
