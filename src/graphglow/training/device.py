"""Where to compute, and how much memory it took."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from graphglow.errors import InputError
from graphglow.evidence.stages import no_room
from graphglow.ops import available_backends
from graphglow.paper import StructureLearner
from graphglow.parallel import resolve_device as resolve_device
from graphglow.settings import ModelConfig

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def check_runnable(
    config: ModelConfig, learner: StructureLearner | None, device: torch.device
) -> None:
    """Raise unless the backend and the precision that were named can run here."""
    if config.precision == "tf32" and device.type != "cuda":
        raise InputError(f"precision tf32 must go with a GPU; got device {device.type}")
    if config.backend == "auto" or learner is None:
        return
    if learner.config.neighbours is not None:
        raise InputError(
            f"backend must be auto for a learner with neighbours; got {config.backend!r}"
        )
    usable = available_backends(device)
    if config.backend not in usable:
        raise InputError(
            f"backend must be auto or one that runs on {device.type} ({', '.join(usable)}); "
            f"got {config.backend!r}"
        )
    if config.backend == "linear" and learner.config.delta != "affine":
        raise InputError(
            "backend linear must go with a learner whose delta is affine; "
            f"got {learner.config.delta!r}"
        )
    if config.backend == "triton" and learner.config.similarity in ("rbf", "attention"):
        raise InputError(
            "backend triton must go with a similarity that is one inner product (cosine, dot); "
            f"got {learner.config.similarity!r}"
        )


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


def check_fits(name: str, needed: int, graph: str, device: torch.device, advice: str) -> None:
    """Raise unless ``needed`` bytes are free on ``device``: said from sizes, never from a crash."""
    free = free_bytes(device)
    if free is not None and needed > free:
        raise InputError(
            f"{name} must fit in memory; on {graph}, with these settings, it would need about "
            f"{needed / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free on {device.type}{advice}"
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be had on ``device``; None where the system does not say.

    On a CPU: what the kernel says can be had without swapping, and what a container's limit leaves;
    cached files can be dropped, so they do not count.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        free = _facts(MEMINFO)["MemAvailable:"] * 1024
    except (OSError, KeyError):  # not on Linux
        return None
    try:
        used = int((CGROUP / "memory.current").read_text())
        cached = _facts(CGROUP / "memory.stat").get("inactive_file", 0)
        return min(free, int((CGROUP / "memory.max").read_text()) - used + cached)
    except (OSError, ValueError):  # no such limit
        return free


def _facts(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}


@contextmanager
def out_of_memory_says(sentence: str) -> Iterator[None]:
    """Turn an allocator's failure into one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        asked = no_room(error)
        if asked is None:
            raise
        raise InputError(
            f"{sentence}; {asked} more were asked for" if asked else sentence
        ) from error


@contextmanager
def memory_advice(num_nodes: int, config: ModelConfig, *, runs: int = 1) -> Iterator[None]:
    """Turn an allocator's failure into one sentence that says which settings lower the peak."""
    pivots = min(config.num_pivots, num_nodes)
    batch = f" in {runs} runs at once" if runs > 1 else ""
    with out_of_memory_says(
        f"the graph must fit in memory; {num_nodes} nodes with {pivots} pivots and "
        f"{config.refinements} refinements{batch} do not (--backend chunked, fewer --refinements, "
        f"--num-pivots{' and runs' if batch else ''} need less)"
    ):
        yield
