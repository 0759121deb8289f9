"""What the machine itself can do: the roof that a figure is held against."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from graphglow.experiments.bench.clock import time_calls
from graphglow.ops import Precision

MATMUL_SIDE = {"cpu": 2048, "cuda": 8192}
COPY_BYTES = {"cpu": 2**28, "cuda": 2**31}


class Ceilings(NamedTuple):
    """Measured on the same machine in the same run."""

    flop_per_second: float
    """Of a large square matmul of the same precision."""
    bytes_per_second: float
    """Of a large copy, read and written bytes together."""


def measure_ceilings(
    device: torch.device, precision: Precision, *, min_seconds: float = 1.0
) -> Ceilings:
    return Ceilings(_matmul_rate(device, precision, min_seconds), _copy_rate(device, min_seconds))


def _matmul_rate(device: torch.device, precision: Precision, min_seconds: float) -> float:
    side = MATMUL_SIDE[device.type]
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a = torch.randn(side, side, device=device).to(dtype)
    product = torch.empty_like(a)
    with tf32_allowed(precision == "tf32"):
        timing = time_calls(lambda: torch.mm(a, a, out=product), device, min_seconds=min_seconds)
    return 2 * side**3 / timing.median


def _copy_rate(device: torch.device, min_seconds: float) -> float:
    source = torch.zeros(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    timing = time_calls(lambda: target.copy_(source), device, min_seconds=min_seconds)
    return 2 * source.numel() / timing.median


@contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    """Let the GPU's matmuls of float32 round to TF32, or forbid it; as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
