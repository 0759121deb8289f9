"""``torchrun -m graphglow``: shards on disk, two processes, one voice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from graphglow import load_graph
from graphglow.cli import main

SMALL = ["--num-pivots", "20", "--epochs", "4", "--seed", "1", "--device", "cpu", "--json"]


def on_ranks(folder: Path, count: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run graphglow on so many processes; one of them is a plain run."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command = [sys.executable, "-W", "ignore", *(launch if count > 1 else ()), "-m", "graphglow"]
    return subprocess.run(
        [*command, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def facts(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1  # rank 0 alone speaks
    return json.loads(lines[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


def test_shards_are_cut_trained_and_predicted(folder):
    cut = ["shard", "--graph", "wine", "--parts", "2", "--out", "shards", "--json"]
    assert sum(facts(on_ranks(folder, 1, *cut))["nodes"]) == load_graph("wine").num_nodes
    run = ["transfer", "--learner", "universal", "--predictions", "found", *SMALL]
    two = facts(on_ranks(folder, 2, *run, "--target", "shards"))
    assert (two["ranks"], two["epochs"]) == (2, 4)
    assert two["bytes_sent"] > 0
    nodes = np.concatenate([np.load(folder / f"found/nodes-{rank}.npy") for rank in (0, 1)])
    assert sorted(nodes) == list(range(load_graph("wine").num_nodes))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrain", "--sources", "wine", "--out", "a.safetensors"], "must be together"),
        (
            ["transfer", "--learner", "universal", "--target", "wine", "--out", "b.safetensors"],
            "must write --predictions FOLDER only; got --out b.safetensors",
        ),
    ],
)
def test_bad_input_is_one_sentence_on_several_processes_too(folder, words, message):
    done = on_ranks(folder, 2, *words)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("graphglow: ")]
    assert len(said) == 1  # rank 0 alone speaks
    assert message in said[0]
    assert not (folder / "a.safetensors").exists()


@pytest.mark.slow
def test_torchrun_starts_a_killed_rank_again_and_the_run_goes_on(folder):
    """Rank 0, which keeps the checkpoints; ranks that start again must not look for the dead."""
    run = ["transfer", "--learner", "universal", "--target", "wine", *SMALL, "--epochs", "60"]
    saved = ["--predictions", "again", "--resume", "--checkpoint-seconds", "0"]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    job = subprocess.Popen(
        [sys.executable, *launch, "--standalone", "-m", "graphglow", *run, *saved],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        end, checkpoints = time.monotonic() + 60, folder / "again.checkpoints"
        while not list(checkpoints.glob("checkpoint-*3.safetensors")):
            assert job.poll() is None, job.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(children(job.pid)[0], signal.SIGKILL)
        out, errors = job.communicate(timeout=120)
    finally:
        job.kill()
    assert job.returncode == 0, errors
    (line,) = [line for line in out.splitlines() if line.startswith("{")]
    assert json.loads(line)["resumed"] is True
    assert len(list((folder / "again").iterdir())) == 4


def children(pid: int) -> list[int]:
    """The processes that a process has started, in that order."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


@pytest.mark.parametrize("command", ["fit", "refine", "shard", "reproduce"])
def test_what_processes_cannot_share_is_refused(command, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([command]) == 2
    said = capsys.readouterr().err
    assert said.endswith(f"got {command} on 2, which each would do whole\n")
    assert said.count("\n") == 1
