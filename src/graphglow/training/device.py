"""Where to compute, and how much memory it took."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graphglow.checks import one_of
from graphglow.errors import InputError
from graphglow.ops import available_backends
from graphglow.structure import StructureLearner
from graphglow.training.config import ModelConfig


def resolve_device(name: str) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device; a GPU that is not there is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    one_of("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda must be present; got a machine without a usable GPU")
    return torch.device(name)


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


@contextmanager
def out_of_memory_says(sentence: str) -> Iterator[None]:
    """Turn an allocator's failure into one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        out = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not out and "allocate memory" not in str(error):
            raise
        raise InputError(sentence) from error


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
