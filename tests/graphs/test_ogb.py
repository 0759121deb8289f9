"""OGB, by a stand-in for its package: no download, no network."""

import sys
import types

import numpy as np
import pytest
import torch

from graphglow.errors import InputError
from graphglow.graphs import load_graph

GRAPH = {
    "edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 0]]),
    "node_feat": np.arange(8, dtype=np.float32).reshape(4, 2),
    "num_nodes": 4,
}
LABELS = np.array([[0], [1], [0], [1]])
SPLIT = {"train": np.array([0, 1]), "valid": np.array([2]), "test": np.array([3])}


@pytest.fixture
def asked(monkeypatch):
    """What the package was asked for; ``labels`` and ``fail`` change what it answers."""
    asked = types.SimpleNamespace(calls=[], labels=LABELS, fail=None)

    class NodePropPredDataset:
        def __init__(self, name, root):
            print("Downloading ...")
            asked.calls.append((name, root))
            if asked.fail:
                raise asked.fail

        def __getitem__(self, index):
            return GRAPH, asked.labels

        def get_idx_split(self):
            return SPLIT

    module = types.ModuleType("ogb.nodeproppred")
    module.NodePropPredDataset = NodePropPredDataset
    monkeypatch.setitem(sys.modules, "ogb", types.ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)
    return asked


def test_the_graph_and_its_official_split(asked, tmp_path, capfd):
    data = load_graph("ogb:ogbn-arxiv", data_root=tmp_path)
    assert asked.calls == [("ogbn-arxiv", str(tmp_path / "ogb"))]
    assert data.name == "ogbn-arxiv"
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.x.tolist() == GRAPH["node_feat"].tolist()
    assert data.edge_index.tolist() == GRAPH["edge_index"].tolist()
    masks = [data[f"{name}_mask"].nonzero()[:, 0].tolist() for name in ("train", "val", "test")]
    assert masks == [[0, 1], [2], [3]]
    assert capfd.readouterr() == ("", "")


def test_blank_labels(asked):
    asked.labels = np.array([[0.0], [1.0], [0.0], [np.nan]])
    data = load_graph("ogb:ogbn-papers100M")
    assert data.y.tolist() == [0, 1, 0, -1]
    assert not data.test_mask.any()


def test_what_ogb_keeps_is_read_without_unpickling(asked, tmp_path):
    """The package keeps arrays by torch.save and reads them with torch's safe default."""
    torch.save({"graph": GRAPH, "labels": LABELS}, tmp_path / "kept.pt")

    class Again(sys.modules["ogb.nodeproppred"].NodePropPredDataset):
        def __getitem__(self, index):
            kept = torch.load(tmp_path / "kept.pt", weights_only=True)
            return kept["graph"], kept["labels"]

    sys.modules["ogb.nodeproppred"].NodePropPredDataset = Again
    assert load_graph("ogb:ogbn-products").num_nodes == 4


@pytest.mark.parametrize("error", [OSError("no network"), SystemExit(), EOFError("EOF")])
def test_what_goes_wrong_there_is_one_sentence(asked, error, tmp_path):
    asked.fail = error
    with pytest.raises(
        InputError, match=r"the files of ogbn-arxiv must be in .*ogb .*; got: "
    ) as e:
        load_graph("ogb:ogbn-arxiv", data_root=tmp_path)
    assert "\n" not in str(e.value)


def test_other_names(asked):
    with pytest.raises(
        InputError, match=r"must be one of ogbn-arxiv, .*nearest: ogbn-arxiv.*; got"
    ):
        load_graph("ogb:arxiv")
    with pytest.raises(InputError, match="must be one of ogbn-arxiv"):
        load_graph("ogb:ogbl-ppa")
    assert asked.calls == []


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(
        InputError, match=r"needs the package ogb: pip install graphglow\[ogb\]; got"
    ):
        load_graph("ogb:ogbn-arxiv")
