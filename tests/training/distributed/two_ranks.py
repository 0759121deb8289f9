"""Run a function, or graphglow, in several processes at once, and get back what came of it."""

import json
import pickle
import tempfile
import traceback
from pathlib import Path

import numpy as np
import torch

from forked import CONTEXT, Forked
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
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(size):
            here, there = CONTEXT.Pipe(duplex=False)
            job = (there, function, rank, size, Path(folder), *args)
            processes.append(CONTEXT.Process(target=_answer, args=job, daemon=True))
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


def job(words, *, kill=(), when="", limit=None, env=None):
    """One job, as ``rank_jobs.run`` takes it.

    Args:
        words: The command line of every rank; one list for all, or a list of lists.
        kill: Ranks that are killed as soon as there is a file ``when`` (a pattern).
        when: See ``kill``.
        limit: (rank, bytes): no file that this rank writes may be larger.
        env: More of the environment.
    """
    return {"words": words, "kill": list(kill), "when": when, "limit": limit, "env": env or {}}


def of_ranks(folder, jobs):
    """What ``rank_jobs.py`` says of the jobs, which have files in this folder."""
    import rank_jobs  # with all commands, which a rank of in_ranks needs not

    done = Forked(rank_jobs.run_all, list(jobs.values()), folder=folder).wait()
    return dict(zip(jobs, json.loads(done.splitlines()[-1]), strict=True))


def write_graph(path, seed, num_nodes):
    numbers, ring = np.random.default_rng(seed), np.arange(num_nodes)
    np.savez(
        path,
        x=numbers.normal(size=(num_nodes, 4)).astype(np.float32),
        y=ring % 2,
        edge_index=np.stack([ring, (ring + 2) % num_nodes]),
    )


def statuses(job):
    return [status for status, _, _ in job]


def sentences(job):
    """What was said on standard error, by all ranks."""
    return [line for _, _, errors in job for line in errors.splitlines()]


def facts(job):
    assert statuses(job) == [0] * len(job), sentences(job)
    spoken = [out for _, out, _ in job if out]
    assert spoken == [job[0][1]]  # rank 0 alone
    return json.loads(spoken[0].splitlines()[-1])
