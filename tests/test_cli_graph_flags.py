"""The flags that say how graphs are read, where one file cannot be the split of several graphs."""

import numpy as np
import pytest

from graphglow.cli import main
from graphglow.commands.flags import GraphFlags, ManyGraphFlags
from graphglow.errors import InputError


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "--sources", "wine", "--out", "l.safetensors"],
        ["search", "--methods", "gcn", "--targets", "wine"],
    ],
    ids=lambda words: words[0],
)
def test_a_split_file_is_of_one_graph(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert main([words[0], "--help"]) == 0
    assert "--split-file" not in capsys.readouterr().out
    assert main([*words, "--split-file", "s.npz"]) == 2
    assert "unknown options: --split-file, s.npz;" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_split_is_read_and_named(tmp_path):
    parts = {"train": np.arange(10), "val": np.arange(10, 30), "test": np.arange(30, 178)}
    np.savez(tmp_path / "s.npz", **parts)
    data, split = GraphFlags(split_file=tmp_path / "s.npz").read("wine")
    assert split == f"file:{tmp_path / 's.npz'}"
    assert data.train_mask.nonzero()[:, 0].tolist() == parts["train"].tolist()
    again, split = ManyGraphFlags(split_seed=7).read("wine")
    assert split == "random seed 7"
    assert again.train_mask.sum() != data.train_mask.sum()
    assert GraphFlags().read("wine")[1] == "random seed 0"
    with pytest.raises(InputError, match=r"split_seed must lie in \[0, .*; got -1"):
        GraphFlags(split_seed=-1).read("wine")


@pytest.mark.parametrize(
    "words",
    [["fit", "--method", "mlp"], ["transfer", "--learner", "random"]],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("seed", ["0", "3"])
def test_a_split_is_drawn_or_read_but_not_both(capsys, tmp_path, words, seed):
    parts = {name: np.arange(at, 178, 3) for at, name in enumerate(("train", "val", "test"))}
    np.savez(tmp_path / "s.npz", **parts)
    words = [*words, "--target", "wine", "--epochs", "1", "--split-file", str(tmp_path / "s.npz")]
    assert main([*words, "--split-seed", seed]) == 2
    assert capsys.readouterr().err == (
        "graphglow: --split-seed draws a split and must not go with --split-file, which is one; "
        f"got --split-seed {seed} and --split-file {tmp_path / 's.npz'}\n"
    )
    assert main([*words, "--json"]) == 0
