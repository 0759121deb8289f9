"""Data sets of PyG by class path; nothing is downloaded."""

import re
from typing import ClassVar

import pytest
import torch
from torch_geometric import datasets
from torch_geometric.data import Data, HeteroData

from graphglow.errors import InputError
from graphglow.graphs import load_graph

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
    monkeypatch.setattr(datasets, "Amazon", Fake)
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
    "os.path.Join": "a class path must be torch_geometric.datasets.NAME (other code is not run",
    "torch_geometric.transforms.ToUndirected": "a class path must be torch_geometric.datasets.NAME",
    f"{HOME}.planetoid.Planetoid": "a class path must be torch_geometric.datasets.NAME",
    f"{HOME}.Karate": "must name a data set of PyG (nearest: KarateClub); got 'Karate'",
    f"{HOME}.Any": "must name a data set of PyG",
    f"{HOME}.Amazon": "missing 1 required positional argument: 'name'",
    f"{HOME}.Amazon:name=a,colour=red": "got an unexpected keyword argument 'colour'",
    f"{HOME}.Amazon:Photo": "must be written KEY=VALUE,KEY=VALUE, and none",
    f"{HOME}.Amazon:name=a,root=/": "none of them be of root, transform, pre_transform, pre_filter",
    f"{HOME}.Amazon:name=none": "must be a data set that PyG can build; got an error (unknown name",
}


@pytest.mark.parametrize("source", BAD)
def test_what_is_refused(source, fake):
    with pytest.raises(InputError, match=re.escape(BAD[source])) as caught:
        load_graph(source)
    assert "\n" not in str(caught.value)


def test_only_one_plain_graph(fake, monkeypatch):
    monkeypatch.setattr(Fake, "count", 600)
    with pytest.raises(InputError, match=r"must be one graph with one kind .* got 600 graphs"):
        load_graph(f"{HOME}.Amazon:name=x")
    monkeypatch.setattr(Fake, "count", 1)
    monkeypatch.setattr(Fake, "graph", HeteroData())
    with pytest.raises(InputError, match=r"must be one graph .* got a HeteroData"):
        load_graph(f"{HOME}.Amazon:name=x")
