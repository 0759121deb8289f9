"""Run something in a process of its own, so that its peak memory is not another's."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

import torch

from graphglow.experiments.runs.executor import end_with

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
        initargs=(torch.get_num_threads(), os.getpid()),
    ) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool:
            return None


def _begin(threads: int, parent: int) -> None:
    end_with(parent)
    torch.set_num_threads(threads)
