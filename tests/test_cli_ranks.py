"""``graphglow shard`` and ``torchrun -m graphglow``: shards on disk, two processes, one voice."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from graphglow import load_graph
from graphglow.training.distributed import shard_folder

SMALL = ["--num-pivots", "20", "--epochs", "4", "--seed", "1", "--device", "cpu", "--json"]


def on_ranks(folder, *words):
    """Run graphglow on two processes."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [sys.executable, "-W", "ignore", *launch, "-m", "graphglow", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


def cut(run, out, *words):
    return run("shard", "--graph", "wine", "--parts", "2", "--out", out, *words)


@pytest.mark.slow
def test_shards_are_cut_trained_and_predicted(run, folder):
    count = load_graph("wine").num_nodes
    assert sum(cut(run, folder / "shards", "--json").json["nodes"]) == count
    words = ["transfer", "--learner", "paper", "--predictions", "found", *SMALL]
    done = on_ranks(folder, *words, "--target", "shards")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    two = json.loads(line)  # rank 0 alone speaks
    assert (two["ranks"], two["epochs"]) == (2, 4)
    assert two["bytes_sent"] > 0
    nodes = np.concatenate([np.load(folder / f"found/nodes-{rank}.npy") for rank in (0, 1)])
    assert sorted(nodes) == list(range(count))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["pretrain", "--kind", "paper", "--sources", "wine", "--out", "a.safetensors"],
            "must be together",
        ),
        (["transfer", "--target", "wine"], "under a learner of the paper's kind (--learner paper)"),
        (
            ["transfer", "--learner", "universal", "--target", "wine", "--out", "b.safetensors"],
            "must write --predictions FOLDER only; got --out b.safetensors",
        ),
    ],
)
def test_bad_input_is_one_sentence_on_several_processes_too(folder, words, message):
    done = on_ranks(folder, *words)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("graphglow: ")]
    assert len(said) == 1  # rank 0 alone speaks
    assert message in said[0]
    assert not (folder / "a.safetensors").exists()


@pytest.mark.slow
def test_torchrun_starts_a_killed_rank_again_and_the_run_goes_on(folder):
    """Rank 0, which keeps the checkpoints; ranks that start again must not look for the dead."""
    run = ["transfer", "--learner", "paper", "--target", "wine", *SMALL, "--epochs", "60"]
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
def test_what_processes_cannot_share_is_refused(run, command, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(command).refuses().endswith(f"got {command} on 2, which each would do whole\n")


def test_processes_that_torchrun_did_not_start_are_one_sentence(run, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    words = ["transfer", "--learner", "universal", "--target", "wine", "--device", "cpu"]
    assert run(*words).refuses() == (
        "graphglow: several processes must be started by torchrun; got WORLD_SIZE=2 alone\n"
    )


def test_a_folder_of_shards_is_trained_by_one_process_too(run, tmp_path):
    assert cut(run, tmp_path / "cut", "--parts", "1").status == 0
    words = ["transfer", "--learner", "paper", "--target", tmp_path / "cut", *SMALL]
    assert run(*words, "--predictions", tmp_path / "found").json["ranks"] == 1
    assert (tmp_path / "found" / "nodes-0.npy").exists()
    for more, said in (
        (["--predictions", tmp_path / "found"], "must not exist"),
        (["--predictions", tmp_path / "p.csv"], "must be a folder"),
        (["--out", tmp_path / "r.st"], "must write --predictions FOLDER only"),
        (["--resume"], "--resume must go with --predictions FOLDER"),
        (["--split-seed", "1"], "must keep their split and columns"),
    ):
        assert said in run(*words, *more).refuses()


# Cutting


@pytest.mark.parametrize("name", ["plain", "sp ace", "it's", "$(touch owned)", "caf\u00e9"])
def test_the_next_command_can_be_pasted(run, tmp_path, name):
    line = cut(run, tmp_path / name).out.rstrip("\n").splitlines()[-1]
    assert line.startswith(
        "next: torchrun --nproc-per-node 2 -m graphglow transfer --learner paper --target "
    )
    given = line.partition("--target ")[2].removesuffix(" ...")
    assert shlex.split(given) == [str(tmp_path / name)]


@pytest.mark.usefixtures("plain_sigterm")
def test_a_terminated_run_leaves_nothing(run, tmp_path, monkeypatch):
    def end(*_):
        assert [path.name for path in tmp_path.iterdir()] == [".out.unfinished"]
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(shard_folder, "_write_features", end)
    assert cut(run, tmp_path / "out") == (143, "", "graphglow: terminated\n")
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "--method", "gcn", "--target"],
        ["transfer", "--learner", "universal", "--target"],
        ["shard", "--parts", "2", "--out", "again", "--graph"],
        ["pretrain", "--out", "l.safetensors", "--sources"],
    ],
)
def test_each_command_says_what_a_folder_is(run, tmp_path, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cut(run, "cut").status == 0
    if words[0] == "transfer":  # reads whole ones
        (tmp_path / "cut" / "shards.json").unlink()
    kind = "shards without their" if words[0] == "transfer" else "a folder of shards, which"
    said = run(*words, "cut").refuses()
    assert f"must hold nodes.csv or nodes.parquet; got {kind}" in said


def test_what_is_no_target_is_refused(run, tmp_path):
    for name in ("x", "edge_index", "y"):
        np.save(tmp_path / f"{name}.npy", np.zeros(3))
    words = ["transfer", "--learner", "universal", "--target"]
    said = run(*words, tmp_path).refuses()
    assert "got a folder of arrays, which graphglow shard cuts" in said
    assert "must be a known name" in run(*words, "a" * 5000).refuses()
