"""Runs a command again and again, each time killed at a random moment, until it ends.

Each attempt is a process of its own, forked from one that has torch loaded: a kill then costs
milliseconds, not seconds.
"""

import json
import os
import random
import signal
import time
from importlib import import_module
from pathlib import Path

import torch

from graphglow.cli import main

SPAN = 0.4
"""Seconds that an attempt has at most, at first; more after each kill, so that all get done."""


def attempt(words: list[str], seconds: float) -> int | None:
    """Exit status of the command, or None if it was killed after so many seconds."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os._exit(main(words))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if status == -signal.SIGKILL else status  # it may have ended just then


def once(words: list[str], out: Path, moments: random.Random) -> tuple[int, int]:
    """One run to its end: kills, and how many of them were in the middle of a write."""
    folder = out.with_name(f"{out.name}.checkpoints")
    kills = torn = 0
    span = SPAN
    while not (out.exists() and not folder.exists()):
        status = attempt([*words, "--out", str(out), "--resume"], moments.uniform(0, span))
        if status is None:
            kills += 1
            span *= 1.05
            torn += any(folder.glob(".checkpoint-*"))
        else:
            assert status == 0, f"exit status {status}"
    return kills, torn


def repeat(wanted: int, seed: int, out: Path, words: list[str]) -> None:
    """Runs until there were so many kills; after each its output is moved to OUT.1, OUT.2, ..

    ``out`` is what ``--out`` names, made anew for each run. One JSON object is printed: kills,
    runs, and kills that left a half-written checkpoint.
    """
    import_module("graphglow.commands.train")
    torch.set_num_threads(1)
    moments = random.Random(seed)
    kills = torn = runs = 0
    while kills < wanted:
        here = once(words, out, moments)
        kills, torn, runs = kills + here[0], torn + here[1], runs + 1
        out.rename(out.with_name(f"{out.name}.{runs}"))
    print(json.dumps({"kills": kills, "runs": runs, "torn": torn}))
