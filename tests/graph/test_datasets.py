"""Data sets of PyG by class path, and tiny ones in OGB's own layout; nothing is downloaded."""

import re
import shutil
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
import torch_geometric.datasets as pyg
from torch_geometric.data import Data, HeteroData

from graphglow.errors import InputError
from graphglow.graph import load_graph

HOME = "torch_geometric.datasets"


def test_a_data_set_that_comes_with_pyg(tmp_path):
    data = load_graph(f"{HOME}.KarateClub", data_root=tmp_path)
    assert data.name == "KarateClub"
    assert data.num_nodes == 34
    assert int(data.train_mask.sum()) == 4  # PyG's own; validation and test are drawn
    assert int(data.val_mask.sum()) == 7
    assert int((data.train_mask | data.val_mask | data.test_mask).sum()) == 34
    again = load_graph(f"{HOME}.KarateClub", data_root=tmp_path)
    other = load_graph(f"{HOME}.KarateClub", data_root=tmp_path, split_seed=1)
    assert torch.equal(data.val_mask, again.val_mask)
    assert not torch.equal(data.val_mask, other.val_mask)
    assert not list(tmp_path.iterdir())


class Fake:
    """One graph; ``made`` keeps the arguments."""

    made: ClassVar[dict] = {}
    graph = Data()
    count = 1

    def __init__(self, root: str, name: str, size: int = 3, shuffle: bool = False, transform=None):
        if name == "none":
            raise RuntimeError("unknown name\nand more")
        type(self).made = {"root": root, "name": name, "size": size, "shuffle": shuffle}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.graph


@pytest.fixture
def fake(monkeypatch, small_graph):
    monkeypatch.setattr(pyg, "Amazon", Fake)
    monkeypatch.setattr(Fake, "graph", small_graph)
    return Fake


def test_arguments_and_where_files_go(fake, tmp_path):
    data = load_graph(f"{HOME}.Amazon:name=Photo,size=5,shuffle=true", data_root=tmp_path)
    folder = tmp_path / "pyg" / "Amazon_name=Photo,size=5,shuffle=true"
    assert fake.made == {"root": str(folder), "name": "Photo", "size": 5, "shuffle": True}
    assert data.num_nodes == 12


def test_one_of_several_splits(fake, small_graph):
    train = torch.eye(12, dtype=torch.bool)[:, :2]
    small_graph.train_mask, small_graph.val_mask = train, train.roll(5, 0)
    small_graph.test_mask = train[:, 0].roll(9)
    for seed, node in ((0, 0), (1, 1), (2, 0)):
        data = load_graph(f"{HOME}.Amazon:name=x", split_seed=seed)
        assert data.train_mask.nonzero()[:, 0].tolist() == [node]
        assert data.val_mask.nonzero()[:, 0].tolist() == [node + 5]


def test_validation_nodes_are_taken_from_training_where_test_is_given(fake, small_graph):
    small_graph.train_mask = torch.arange(12) < 8
    small_graph.test_mask = ~small_graph.train_mask
    data = load_graph(f"{HOME}.Amazon:name=x")
    assert int(data.train_mask.sum()) == 6
    assert int(data.val_mask.sum()) == 2
    assert data.test_mask.tolist() == (small_graph.test_mask & (small_graph.y >= 0)).tolist()


BAD = {
    "os.path.Join": "'os.path.Join' is no data set of PyG; other code is not run by its name",
    "torch_geometric.transforms.ToUndirected": "is no data set of PyG; other code is not run",
    f"{HOME}.planetoid.Planetoid": "is no data set of PyG; other code is not run",
    f"{HOME}.Karate": "PyG has no data set 'Karate'",
    f"{HOME}.Any": "PyG has no data set 'Any'",
    f"{HOME}.Amazon": "missing 1 required positional argument: 'name'",
    f"{HOME}.Amazon:name=a,colour=red": "got an unexpected keyword argument 'colour'",
    f"{HOME}.Amazon:Photo": "have 'Photo'. Write KEY=VALUE,KEY=VALUE",
    f"{HOME}.Amazon:name=a,root=/": "none of them root, transform, pre_transform, pre_filter",
    f"{HOME}.Amazon:name=none": "name=none (unknown name",
}


@pytest.mark.parametrize("source", BAD)
def test_what_is_refused(source, fake):
    with pytest.raises(InputError, match=re.escape(BAD[source])) as caught:
        load_graph(source)
    assert "\n" not in str(caught.value)


def test_only_one_plain_graph(fake, monkeypatch):
    monkeypatch.setattr(Fake, "count", 600)
    with pytest.raises(InputError, match=r"is 600 graphs. Give one graph"):
        load_graph(f"{HOME}.Amazon:name=x")
    monkeypatch.setattr(Fake, "count", 1)
    monkeypatch.setattr(Fake, "graph", HeteroData())
    with pytest.raises(InputError, match=r"is a HeteroData. Give one graph"):
        load_graph(f"{HOME}.Amazon:name=x")


NODES = 12
X = np.arange(NODES * 2, dtype=np.float32).reshape(NODES, 2) + 0.5
Y = np.arange(NODES) % 3
EDGES = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
SPLIT = {"train": list(range(6)), "valid": [6, 7, 8], "test": [9, 10, 11]}


def make(folder):
    """Write raw files and split as the archives of OGB hold them."""
    tables = {"raw/edge": EDGES.T, "raw/node-feat": X, "raw/node-label": Y}
    tables |= {f"split/time/{part}": index for part, index in SPLIT.items()}
    for name, values in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(values).to_csv(path, header=False, index=False)


def test_ogb_graph_and_its_official_split(tmp_path, capfd):
    make(tmp_path / "ogb" / "ogbn_arxiv")
    data = load_graph("ogb:ogbn-arxiv", data_root=tmp_path)
    assert data.name == "ogbn-arxiv"
    assert torch.equal(data.x, torch.from_numpy(X))
    assert data.y.tolist() == Y.tolist()
    assert data.directed_edge_index.tolist() == EDGES.tolist()
    masks = [data[f"{name}_mask"].nonzero()[:, 0].tolist() for name in ("train", "val", "test")]
    assert masks == list(SPLIT.values())
    assert capfd.readouterr() == ("", "")


def test_ogb_is_downloaded_where_it_is_missing(tmp_path, monkeypatch):
    make(tmp_path / "there" / "arxiv")
    archive = shutil.make_archive(str(tmp_path / "arxiv"), "zip", tmp_path / "there")
    fetched = []

    def fetch(url, folder):
        fetched.append(url)
        return shutil.copy(archive, folder)

    monkeypatch.setattr("graphglow.graph.datasets.download_url", fetch)
    data = load_graph("ogb:ogbn-arxiv", data_root=tmp_path / "data")
    assert torch.equal(data.x, torch.from_numpy(X))
    assert [path.name for path in (tmp_path / "data" / "ogb").iterdir()] == ["ogbn_arxiv"]
    assert fetched[0].endswith("/nodeproppred/arxiv.zip")


@pytest.mark.parametrize("gone", ["raw/edge.csv.gz", "split"])
def test_a_missing_file_is_one_sentence(tmp_path, gone):
    make(tmp_path / "ogb" / "ogbn_arxiv")
    path = tmp_path / "ogb" / "ogbn_arxiv" / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InputError, match="The files of ogbn-arxiv are not in") as caught:
        load_graph("ogb:ogbn-arxiv", data_root=tmp_path)
    assert "\n" not in str(caught.value)


def test_other_names_of_ogb():
    with pytest.raises(InputError, match=r"There is no OGB data set 'ogbl-ppa'. Give one of ogbn"):
        load_graph("ogb:ogbl-ppa")
