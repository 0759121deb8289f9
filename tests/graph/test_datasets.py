"""Data sets of PyG by class path, and tiny ones in OGB's own layout; nothing is downloaded."""

import importlib.util
import re
import shutil
import sys
import types
import urllib.request
import zipfile
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
import torch_geometric.datasets as pyg
from torch_geometric.data import Data, HeteroData

from graphglow.errors import InputError
from graphglow.graph import datasets, load_graph

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
FACTS = {
    "ogbn-arxiv": {"add_inverse_edge": "False", "split": "time", "binary": "False"},
    "ogbn-products": {"add_inverse_edge": "True", "split": "sales_ranking", "binary": "False"},
    "ogbn-papers100M": {"add_inverse_edge": "False", "split": "time", "binary": "True"},
}


def to_csv(values, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(values).to_csv(path, header=False, index=False)


def make(folder, name):
    """Write raw files and split as the archives of OGB hold them."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    if FACTS[name]["binary"] == "True":
        sizes = {"num_nodes_list": [NODES], "num_edges_list": [EDGES.shape[1]]}
        np.savez(raw / "data.npz", node_feat=X, edge_index=EDGES, **sizes)
        labels = np.where(Y == 2, np.nan, Y)[:, None]
        np.savez(raw / "node-label.npz", node_label=labels)
    else:
        to_csv(EDGES.T, raw / "edge.csv.gz")
        to_csv([NODES], raw / "num-node-list.csv.gz")
        to_csv([EDGES.shape[1]], raw / "num-edge-list.csv.gz")
        to_csv(X, raw / "node-feat.csv.gz")
        to_csv(Y, raw / "node-label.csv.gz")
    for part, index in SPLIT.items():
        to_csv(index, folder / "split" / FACTS[name]["split"] / f"{part}.csv.gz")


def stand_in(monkeypatch, tmp_path):
    """Those functions of the package that are used, as short as they can be."""

    def read_csv_graph_raw(raw, add_inverse_edge):
        print("Loading necessary files...")
        edges = pd.read_csv(f"{raw}/edge.csv.gz", header=None).values.T
        if add_inverse_edge:  # beside each edge, not behind them all
            edges = np.stack([edges, edges[::-1]], axis=2).reshape(2, -1)
        x = pd.read_csv(f"{raw}/node-feat.csv.gz", header=None).values.astype(np.float32)
        return [{"edge_index": edges, "node_feat": x}]

    def download_url(url, folder):
        return urllib.request.urlretrieve(url, f"{folder}/fetched.zip")[0]

    modules = {
        "ogb": {},
        "ogb.nodeproppred": {"__file__": str(tmp_path / "package" / "__init__.py")},
        "ogb.io": {},
        "ogb.io.read_graph_raw": {
            "read_csv_graph_raw": read_csv_graph_raw,
            "read_binary_graph_raw": lambda raw: [dict(np.load(f"{raw}/data.npz"))],
        },
        "ogb.utils": {},
        "ogb.utils.url": {
            "decide_download": lambda url: True,
            "download_url": download_url,
            "extract_zip": lambda path, folder: zipfile.ZipFile(path).extractall(folder),
        },
    }
    for name, values in modules.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    (tmp_path / "package").mkdir()
    pd.DataFrame(FACTS).to_csv(tmp_path / "package" / "master.csv")


@pytest.fixture
def package(monkeypatch, tmp_path):
    if importlib.util.find_spec("ogb") is None:
        stand_in(monkeypatch, tmp_path)


@pytest.fixture
def root(package, tmp_path):
    for name in FACTS:
        make(tmp_path / "ogb" / name.replace("-", "_"), name)
    return tmp_path


def test_the_graph_and_its_official_split(root, capfd):
    data = load_graph("ogb:ogbn-arxiv", data_root=root)
    assert data.name == "ogbn-arxiv"
    assert torch.equal(data.x, torch.from_numpy(X))
    assert data.y.tolist() == Y.tolist()
    assert data.directed_edge_index.tolist() == EDGES.tolist()
    masks = [data[f"{name}_mask"].nonzero()[:, 0].tolist() for name in ("train", "val", "test")]
    assert masks == list(SPLIT.values())
    assert capfd.readouterr() == ("", "")


def test_edges_that_are_stored_once(root):
    edges = load_graph("ogb:ogbn-products", data_root=root).edge_index
    pairs = set(map(tuple, EDGES.T.tolist()))
    assert set(map(tuple, edges.T.tolist())) == pairs | {(b, a) for a, b in pairs}


def test_blank_labels(root):
    data = load_graph("ogb:ogbn-papers100M", data_root=root)
    assert data.y.tolist() == np.where(Y == 2, -1, Y).tolist()
    assert not data.test_mask[11]


def test_the_pickle_that_ogb_keeps_is_not_opened(root, monkeypatch):
    kept = root / "ogb" / "ogbn_arxiv" / "processed" / "data_processed"
    kept.parent.mkdir()
    kept.write_bytes(b"a pickle")
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("opened"))
    assert load_graph("ogb:ogbn-arxiv", data_root=root).num_nodes == NODES
    assert kept.read_bytes() == b"a pickle"


def test_a_download(package, tmp_path, monkeypatch):
    make(tmp_path / "there" / "arxiv", "ogbn-arxiv")
    archive = shutil.make_archive(str(tmp_path / "arxiv"), "zip", tmp_path / "there")
    facts = {"url": f"file://{archive}", "download_name": "arxiv", **FACTS["ogbn-arxiv"]}
    monkeypatch.setattr(datasets, "ogb_facts", lambda name: facts)
    data = load_graph("ogb:ogbn-arxiv", data_root=tmp_path / "data")
    assert torch.equal(data.x, torch.from_numpy(X))
    assert [path.name for path in (tmp_path / "data" / "ogb").iterdir()] == ["ogbn_arxiv"]


@pytest.mark.parametrize("gone", ["raw/edge.csv.gz", "raw/node-label.csv.gz", "split"])
def test_a_missing_file_is_one_sentence(root, gone):
    path = root / "ogb" / "ogbn_arxiv" / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(
        InputError, match=r"the files of ogbn-arxiv must be in .*; got an error"
    ) as e:
        load_graph("ogb:ogbn-arxiv", data_root=root)
    assert "\n" not in str(e.value)


def test_other_names():
    with pytest.raises(InputError, match="There is no OGB data set 'arxiv'"):
        load_graph("ogb:arxiv")
    with pytest.raises(InputError, match="Give one of ogbn-arxiv"):
        load_graph("ogb:ogbl-ppa")


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(InputError, match=r'the package ogb.*pip install "graphglow\[ogb\]"'):
        load_graph("ogb:ogbn-arxiv", data_root=tmp_path)
