"""Where to compute, and how much memory it took."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graphglow.errors import InputError
from graphglow.training.config import ModelConfig


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
def memory_advice(num_nodes: int, config: ModelConfig) -> Iterator[None]:
    """Turn an allocator's failure into one sentence that says what would fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        out = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not out and "allocate memory" not in str(error):
            raise
        pivots = min(config.num_pivots, num_nodes)
        raise InputError(
            f"the graph must fit in memory; {num_nodes} nodes with {pivots} pivots and "
            f"{config.refinements} refinements do not: {_what_would_fit(num_nodes, pivots, config)}"
        ) from error


def _what_would_fit(num_nodes: int, pivots: int, config: ModelConfig) -> str:
    """Name the settings that lower the peak, the one that lowers it most first."""
    advice = []
    if config.backend in ("eager", "dense"):
        gigabytes = 4e-9 * num_nodes * pivots
        advice.append(f"--backend chunked (each refinement keeps {gigabytes:.2g} GB without it)")
    if config.refinements > 1:
        advice.append(f"--refinements {max(1, config.refinements // 2)}")
    if pivots > 1:
        advice.append(f"--num-pivots {max(1, pivots // 4)} (fewer pivots)")
    return "try " + ", then ".join(advice) if advice else "a larger machine is needed"
