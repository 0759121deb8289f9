"""The commands, as real processes that are killed at random moments.

GRAPHGLOW_KILLS=200 pytest tests/training/test_checkpoint_kills.py

kills each command that often; by default a few times.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import kill_commands
import numpy as np
import pytest

from forked import Forked
from graphglow.cli import main
from graphglow.storage import load_tensors

KILLS = int(os.environ.get("GRAPHGLOW_KILLS", "8"))
MODEL = ["--num-pivots", "8", "--refinements", "2", "--checkpoint-seconds", "0", "--device", "cpu"]
TIMES = ("train_seconds", "seconds", "peak_memory_bytes")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with two graphs and what the commands make of them when nobody kills them."""
    folder = tmp_path_factory.mktemp("kills")
    for seed, num_nodes in ((0, 60), (1, 80)):
        random_numbers, ring = np.random.default_rng(seed), np.arange(num_nodes)
        np.savez(
            folder / f"g{seed}.npz",
            x=random_numbers.normal(size=(num_nodes, 4)).astype(np.float32),
            y=ring % 2,
            edge_index=np.stack([ring, (ring + 2) % num_nodes]),
        )
    for name, command in commands(folder).items():
        assert main([*command, "--out", str(folder / f"{name}.st")]) == 0
    return folder


def commands(folder):
    graphs = [str(folder / "g0.npz"), str(folder / "g1.npz")]
    learner = ["--learner.embedding-size", "6"]
    return {
        "pretrain": [
            *("pretrain", "--kind", "paper", "--sources", *graphs, "--epochs", "15"),
            *(*learner, *MODEL),
        ],
        "transfer": [
            *("transfer", "--learner", str(folder / "pretrain.st"), "--target", graphs[0]),
            *("--epochs", "60", *MODEL),
        ],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pretrain", "transfer"])
def test_killed_at_random_moments_the_end_is_the_same(home, tmp_path, name):
    job = Forked(
        kill_commands.repeat, KILLS, 7, tmp_path / "o.st", commands(home)[name], folder=tmp_path
    )
    facts = json.loads(job.wait(seconds=60 + 10 * KILLS).splitlines()[-1])
    print(name, facts)
    assert facts["kills"] >= KILLS
    for run in range(1, facts["runs"] + 1):
        assert_same(tmp_path / f"o.st.{run}", home / f"{name}.st")
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".o.st.")}
    assert left == {f"o.st.{run}" for run in range(1, facts["runs"] + 1)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pretrain", "transfer"])
def test_killed_as_a_user_would(home, tmp_path, name):
    out, moments = tmp_path / "o.st", random.Random(3)
    folder = tmp_path / "o.st.checkpoints"
    words = [*commands(home)[name], "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "graphglow", *words], env=ENVIRONMENT)
    try:
        end = time.monotonic() + 60
        while not list(folder.glob("checkpoint-*")) and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.1))
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    assert main(words) == 2  # not silently used
    assert main([*words, "--resume"]) == 0
    assert_same(out, home / f"{name}.st")
    assert not folder.exists()


def assert_same(one, other):
    """The same file; of a transfer, apart from its times."""
    if one.read_bytes() == other.read_bytes():
        return
    (tensors, meta), (expected, known) = (load_tensors(path, "result") for path in (one, other))
    assert {n: t.tolist() for n, t in tensors.items()} == {
        n: t.tolist() for n, t in expected.items()
    }
    assert meta["train_seconds"] > 0
    assert {n: v for n, v in meta.items() if n not in TIMES} == {
        n: v for n, v in known.items() if n not in TIMES
    }
