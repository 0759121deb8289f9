"""Where to compute, and how much memory it took."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graphglow.errors import InputError


def resolve_device(name: str) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device; a GPU that is not there is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda must be present; got a machine without a usable GPU")
    return torch.device(name)


def reset_peak_memory(device: torch.device) -> None:
    """Begin to measure a GPU's peak anew; that of a process cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int:
    """Peak of the GPU's allocator since the last reset, or of the whole process on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


@contextmanager
def memory_advice(num_nodes: int, num_pivots: int) -> Iterator[None]:
    """Turn an allocator's failure into one sentence that says what would fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        out = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not out and "allocate memory" not in str(error):
            raise
        raise InputError(
            f"the graph must fit in memory; {num_nodes} nodes with {num_pivots} pivots do not: "
            "use fewer pivots, fewer refinements or --backend chunked"
        ) from error
