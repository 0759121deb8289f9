"""The commands under torchrun: two processes, one voice, and the results of one process."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torchrun_job import pretrain_settings, pretrained, transferred

from graphglow.commands.files import CheckpointFlags
from graphglow.commands.flags import GraphFlags, parse
from graphglow.commands.graphs import shard
from graphglow.commands.train import pretrain, pretrain_paper
from graphglow.errors import InputError
from graphglow.evidence.pretrain import EvidencePretrainConfig
from graphglow.structure import StructureLearner

HERE = Path(__file__).parent


def cut(*words):
    parse(shard, [str(word) for word in words])()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder that the job of two processes wrote to."""
    out = tmp_path_factory.mktemp("torchrun")
    cut("--graph", "wine", "--out", out / "shards", "--parts", 2)
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job = [str(HERE / "torchrun_job.py"), str(out / "shards"), str(out)]
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *run, *job],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_a_folder_of_shards_and_a_name_give_the_result_of_one_process(two, monkeypatch):
    monkeypatch.setattr("graphglow.commands.train.topology", lambda *_, **__: "ranks")
    said = json.loads((two / "said.json").read_text())
    alone = transferred("wine")
    for facts in (said["shards"], said["name"]):
        assert facts["ranks"] == 2
        assert facts["bytes_sent"] > 0
        for name in ("target", "method", "val_accuracy", "test_accuracy", "epochs", "seed"):
            assert facts[name] == alone[name]
    assert said["name"]["split"] == alone["split"]


def test_all_ranks_write_their_predictions(two):
    files = sorted(path.name for path in (two / "predictions").iterdir())
    assert files == [
        "nodes-0.npy", "nodes-1.npy", "probabilities-0.npy", "probabilities-1.npy",
    ]  # fmt: skip
    nodes = np.concatenate([np.load(two / "predictions" / name) for name in files[:2]])
    assert sorted(nodes) == list(range(178))


def test_the_learner_of_two_processes_is_that_of_one(two, tmp_path):
    pretrained(tmp_path / "alone.safetensors")
    alone = StructureLearner.load(tmp_path / "alone.safetensors")
    learner = StructureLearner.load(two / "learner.safetensors")
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(learner.state_dict()[name], weight, rtol=1e-4, atol=1e-5)
    assert learner.provenance["sources"] == ["wine", "synthetic"]
    assert len(learner.provenance["splits"]) == 2


def test_sources_in_turn_cannot_be_shared(tmp_path, monkeypatch):
    monkeypatch.setattr("graphglow.commands.train.topology", lambda: "ranks")
    config = replace(pretrain_settings(), schedule="in turn")
    with pytest.raises(InputError, match=r"--schedule must be together .* got 'in turn'"):
        pretrain_paper(["wine"], tmp_path / "a.st", GraphFlags(), config, CheckpointFlags())
    with pytest.raises(InputError, match=r"several processes must share a pretrain --kind paper"):
        pretrain(["wine"], tmp_path / "a.st", GraphFlags(), EvidencePretrainConfig())


def test_shard_says_what_it_wrote(tmp_path, capsys):
    cut("--graph", "wine", "--out", tmp_path / "a", "--parts", 3, "--json")
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sum(facts["nodes"]) == 178
    assert len(facts["entries"]) == len(facts["halo"]) == 3
    assert (tmp_path / "a" / "shards.json").exists()
    cut("--graph", "wine", "--out", tmp_path / "b", "--parts", 2)
    assert "torchrun --nproc-per-node 2" in capsys.readouterr().out
    with pytest.raises(InputError, match="must not exist"):
        cut("--graph", "wine", "--out", tmp_path / "b", "--parts", 2)


def test_shard_reads_a_folder_of_arrays(tmp_path, capsys):
    raw = tmp_path / "raw"
    raw.mkdir()
    rng = np.random.default_rng(0)
    np.save(raw / "x.npy", rng.random((30, 4)))
    np.save(raw / "edge_index.npy", rng.integers(0, 30, (2, 60)))
    np.save(raw / "y.npy", np.arange(30) % 3)
    cut("--graph", raw, "--out", tmp_path / "out", "--parts", 2, "--partition", "given", "--json")
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["graph"] == "raw"
    assert sum(facts["nodes"]) == 30
    with pytest.raises(InputError, match="must hold its split as masks"):
        cut("--graph", raw, "--out", tmp_path / "b", "--parts", 2, "--split-file", "s.npz")
