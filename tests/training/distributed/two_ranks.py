"""Run a function in several processes at once, and get back what each returned."""

import multiprocessing
import pickle
import tempfile
import traceback
from pathlib import Path

import torch

from graphglow.training.distributed import join

PATIENCE = 120
"""Seconds after which a test that hangs fails."""


def in_ranks(function, size, *args):
    """``[function(ranks, *args) of rank 0, of rank 1, ..]`` of gloo ranks; all must succeed."""
    results = in_processes(_joined, size, function, *args)
    for result in results:
        if isinstance(result, str):
            raise AssertionError(result)
    return [value for (value,) in results]


def in_processes(function, size, *args):
    """``(function(rank, size, folder, *args),)`` of each process, or its traceback as text.

    The folder is empty, new and shared. What is called must be importable.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(size):
            here, there = context.Pipe(duplex=False)
            job = (there, function, rank, size, Path(folder), *args)
            processes.append(context.Process(target=_answer, args=job, daemon=True))
            processes[-1].start()
            there.close()
            pipes.append(here)
        results = [_received(pipe) for pipe in pipes]
        for process in processes:
            process.join(PATIENCE)
            process.terminate()
    return results


def _received(pipe):
    assert pipe.poll(PATIENCE), "a process did not answer"
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return "ended without an answer"


def _answer(pipe, function, *args):
    torch.set_num_threads(1)
    try:
        result = (function(*args),)
    except Exception:
        result = traceback.format_exc()
    pipe.send_bytes(pickle.dumps(result))  # whole: the sender may be gone when it is read


def _joined(rank, size, folder, function, *args):
    meeting = (folder / "meeting").as_uri()
    with join("cpu", timeout_seconds=60, init_method=meeting, rank=rank, size=size) as ranks:
        return function(ranks, *args)
