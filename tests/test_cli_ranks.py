"""``torchrun -m graphglow``: shards on disk, two processes, one voice."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphglow import load_graph

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
            "must write --predictions FOLDER only; got --out or --resume",
        ),
    ],
)
def test_bad_input_is_one_sentence_on_several_processes_too(folder, words, message):
    done = on_ranks(folder, 2, *words)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("graphglow: ")]
    assert said
    assert message in said[0]
    assert not (folder / "a.safetensors").exists()
