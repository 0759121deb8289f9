"""``graphglow shard``: what it prints can be pasted, and what ends it leaves nothing."""

import os
import shlex
import signal
import subprocess

import numpy as np
import pytest

from graphglow import cli
from graphglow.training.distributed import shard_folder


def shard(out, *words):
    return cli.main(["shard", "--graph", "wine", "--parts", "2", "--out", str(out), *words])


@pytest.mark.parametrize(
    "name", ["plain", "sp ace", "it's", "two\nlines\t'\\", "$(touch owned)", "caf\u00e9", "\udcff"]
)
def test_the_next_command_can_be_pasted(tmp_path, capfd, name):
    assert shard(tmp_path / name) == 0
    line = capfd.readouterr().out.rstrip("\n").splitlines()[-1]
    assert line.isprintable()
    assert line.startswith("next: torchrun --nproc-per-node 2 -m graphglow transfer --target ")
    given = line.partition("--target ")[2].removesuffix(" ...")
    command = ["bash", "-c", f"printf %s {given}"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert os.fsdecode(shown.stdout) == str(tmp_path / name)
    if name == "sp ace":
        assert given == shlex.quote(str(tmp_path / name))


@pytest.mark.usefixtures("plain_sigterm")
def test_a_terminated_run_leaves_nothing(tmp_path, monkeypatch, capsys):
    def end(*_):
        assert [path.name for path in tmp_path.iterdir()] == [".out.unfinished"]
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(shard_folder, "_write_features", end)
    assert shard(tmp_path / "out") == 143
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == "graphglow: terminated\n"
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
def test_each_command_says_what_a_folder_is(tmp_path, capsys, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shard("cut") == 0
    if words[0] == "transfer":  # reads whole ones
        (tmp_path / "cut" / "shards.json").unlink()
    assert cli.main([*words, "cut"]) == 2
    said = capsys.readouterr().err
    kind = "shards without their" if words[0] == "transfer" else "a folder of shards, which"
    assert f"must hold nodes.csv or nodes.parquet; got {kind}" in said


def test_a_folder_of_arrays_must_be_cut_first(tmp_path, capsys):
    for name in ("x", "edge_index", "y"):
        np.save(tmp_path / f"{name}.npy", np.zeros(3))
    assert cli.main(["transfer", "--learner", "universal", "--target", str(tmp_path)]) == 2
    assert "got a folder of arrays, which graphglow shard cuts" in capsys.readouterr().err


def test_a_name_that_no_file_can_have_is_refused(capsys):
    assert cli.main(["transfer", "--learner", "universal", "--target", "a" * 5000]) == 2
    assert "must be a known name" in capsys.readouterr().err
