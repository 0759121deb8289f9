"""Medians of warm calls, by the clock of the device that works."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.utils.benchmark import Timer

FEWEST, MOST = 3, 500
"""Times that a median is taken of."""


class Timing(NamedTuple):
    """Seconds of one call: median and distance of the quartiles over ``calls`` of them."""

    median: float
    iqr: float
    calls: int


def time_calls(
    step: Callable[[], object], device: torch.device, *, min_seconds: float = 1.0
) -> Timing:
    """Time ``step`` for at least about ``min_seconds``, after a warm-up outside the clock."""
    step()
    if device.type == "cuda":
        return _on_cuda(step, min_seconds)
    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    measured = timer.blocked_autorange(min_run_time=min_seconds)
    seconds = list(measured.times)  # of one call, each the mean of a block
    while len(seconds) < FEWEST:
        seconds.append(timer.timeit(1).median)
    return _timing(seconds, len(seconds) * measured.number_per_run)


def _on_cuda(step: Callable[[], object], min_seconds: float) -> Timing:
    first = statistics.median(_events(step, 3))
    seconds = _events(step, max(FEWEST, min(MOST, int(min_seconds / max(first, 1e-6)))))
    return _timing(seconds, len(seconds))


def _timing(seconds: list[float], calls: int) -> Timing:
    low, _, high = statistics.quantiles(seconds, n=4)
    return Timing(statistics.median(seconds), high - low, calls)


def _events(step: Callable[[], object], calls: int) -> list[float]:
    """Seconds between events around each call; the host waits once, at the end."""
    pairs = []
    for _ in range(calls):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")  # type: ignore[no-untyped-call]
        begin.record()
        step()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]
