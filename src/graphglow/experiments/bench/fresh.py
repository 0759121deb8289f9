"""Run something in a process of its own, so that its peak memory is not another's."""

import ctypes
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import ParamSpec, TypeVar

import torch

PR_SET_PDEATHSIG = 1  # Linux's prctl: a signal for the child when its parent has died

Given = ParamSpec("Given")
Result = TypeVar("Result")


def in_fresh_process(
    function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result | None:
    """Call ``function`` in a new interpreter; None if the system killed it (out of memory).

    The function and its arguments must be importable; its exceptions come back as they are.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1,
        mp_context=context,
        initializer=_begin,
        initargs=(torch.get_num_threads(),),
    ) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool:
            return None


def _begin(threads: int) -> None:
    """Take over the number of threads, and (on Linux) end when the parent does, however it ends."""
    torch.set_num_threads(threads)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
