"""Runs graphglow on several ranks, job after job, without torchrun; some ranks are killed."""

import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import torch

import graphglow.commands.train
import graphglow.training.distributed  # noqa: F401 (all that a child would import)
from graphglow.cli import main

PATIENCE = 60
"""Seconds after which a job counts as one that hangs."""


def start(words, rank, size, port, out, limit, env):
    """A child that runs the command as this rank; its process id."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        for number in (1, 2):
            os.dup2(os.open(out / f"{rank}.{number}", os.O_WRONLY | os.O_CREAT), number)
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(size), **meeting, **env})
        if limit and limit[0] == rank:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit[1], limit[1]))
        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def run(words, kill, when, limit, env):
    words = words if isinstance(words[0], list) else [words, words]
    size, statuses = len(words), {}
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port, out = free.getsockname()[1], Path(folder)
        free.close()
        sys.stdout.flush()
        ranks = [start(words[r], r, size, port, out, limit, env) for r in range(size)]
        end, killed = time.monotonic() + PATIENCE, not kill
        while len(statuses) < size:
            if time.monotonic() > end or (not killed and list(Path().glob(when))):
                killed = True
                doomed = range(size) if time.monotonic() > end else kill
                for rank in set(doomed) - set(statuses):
                    os.kill(ranks[rank], signal.SIGKILL)
            for rank in set(range(size)) - set(statuses):
                done, status = os.waitpid(ranks[rank], os.WNOHANG)
                if done:
                    statuses[rank] = os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        said = [[(out / f"{r}.{n}").read_text() for n in (1, 2)] for r in range(size)]
    return [[statuses[r], *said[r]] for r in range(size)]


def run_all(jobs):
    """In a process of its own, which this may fork for each rank: a job takes a second, not ten.

    Printed is, per job, a list of ``[exit status, standard output, standard error]`` by rank; a job
    that hangs has the status -9.
    """
    torch.set_num_threads(1)
    print(json.dumps([run(**each) for each in jobs]))
