import re
import shutil

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph import DATASETS, datasets, load_graph, write_graph
from graphglow.graph.graph import prepare

FREE = sorted(name for name, info in DATASETS.items() if not info.needs_data)
PAPER = sorted(name for name, info in DATASETS.items() if info.kind in ("citation", "social"))


def undirected_edges(data: Data) -> int:
    low, high = data.edge_index.min(0)[0], data.edge_index.max(0)[0]
    return len((low * data.num_nodes + high)[low != high].unique())


@pytest.mark.parametrize("name", FREE)
def test_names_that_need_no_files(name, tmp_path):
    info, data = DATASETS[name], load_graph(name, data_root=tmp_path)
    assert data.name == name
    assert (data.num_nodes, data.x.shape[1]) == (info.nodes, info.features)
    assert int(data.y.max()) + 1 == info.classes
    assert undirected_edges(data) == pytest.approx(info.edges, rel=0.01)  # kNN ties
    assert torch.equal(data.x, load_graph(name).x)
    assert prepare(data).num_nodes == info.nodes
    assert not list(tmp_path.iterdir())


def test_cora_of_the_package_is_that_of_the_raw_files(data_root, tmp_path):
    raw, own = load_graph("cora", data_root=data_root), load_graph("cora", data_root=tmp_path)
    assert set(raw.keys()) == set(own.keys())
    for name, value in own:
        same = torch.equal(raw[name], value) if torch.is_tensor(value) else raw[name] == value
        assert same, name
    assert own.split == "public"


def test_raw_files_of_cora_go_first_if_they_are_complete(tmp_path, monkeypatch):
    raw = tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    (raw / "ind.cora.x").touch()
    assert load_graph("cora", data_root=tmp_path).num_nodes == 2708  # of the package
    for file in datasets.RAW_FILE_NAMES["citation"]:
        (raw / file.format("cora")).touch()
    with pytest.raises(InputError, match=r"raw files in .* must be those of the data set cora"):
        load_graph("cora", data_root=tmp_path)


@pytest.mark.parametrize("name", PAPER)
def test_graphs_of_the_paper(name, data_root):
    info, data = DATASETS[name], load_graph(name, data_root=data_root)
    assert (data.num_nodes, data.x.shape[1]) == (info.nodes, info.features)
    assert undirected_edges(data) == info.edges
    assert int(data.y.max()) + 1 == info.classes
    assert data.name == name
    if info.kind == "citation":
        assert (int(data.val_mask.sum()), int(data.test_mask.sum())) == (500, 1000)
        assert int(data.train_mask.sum()) == 20 * info.classes
    else:
        labelled = int((data.y >= 0).sum())
        assert (data.y == -1).any()
        assert int(data.train_mask.sum()) == labelled // 2
        assert int(data.val_mask.sum()) == labelled // 4
        assert not (data.train_mask | data.val_mask | data.test_mask)[data.y < 0].any()


def test_any_case_the_environment_and_the_working_folder(data_root, monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHGLOW_DATA", str(data_root))
    assert load_graph("Reed98").name == "reed98"
    monkeypatch.delenv("GRAPHGLOW_DATA")
    (tmp_path / "data").symlink_to(data_root)
    monkeypatch.chdir(tmp_path)
    assert load_graph("REED98").num_nodes == 962


def test_the_split_seed_reaches_random_splits_only(data_root):
    masks = [load_graph("reed98", data_root=data_root, split_seed=s).train_mask for s in (0, 0, 1)]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    cora = [load_graph("cora", data_root=data_root, split_seed=s).train_mask for s in (0, 1)]
    assert torch.equal(*cora)


@pytest.fixture
def reed(data_root, tmp_path, monkeypatch):
    """A private data root with one graph, and a private cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(data_root / "reed98" / "raw", tmp_path / "root" / "Reed98" / "raw")
    return tmp_path / "root"


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_data_root_is_only_read(reed, tmp_path, capfd):
    before = files(reed)
    first = load_graph("reed98", data_root=reed)  # the folder is called Reed98 here
    assert files(reed) == before
    again = load_graph("reed98", data_root=reed)
    assert all(torch.equal(first[k], again[k]) for k in ("x", "y", "edge_index", "train_mask"))
    assert capfd.readouterr() == ("", "")


def test_damaged_raw_files(reed):
    (reed / "Reed98" / "raw" / "data.mat").write_bytes(b"MATLAB 5.0 not really")
    with pytest.raises(InputError, match=r"raw files in .* must be those of the data set reed98"):
        load_graph("reed98", data_root=reed)


@pytest.mark.parametrize("name", ["citeseer", "reed98"])
def test_missing_raw_files_and_no_network(name, tmp_path, monkeypatch, capfd):
    def refuse(*args, **kwargs):
        raise OSError("no network in tests")

    for module in ("planetoid.fs.cp", "linkx_dataset.download_url"):
        monkeypatch.setattr(f"torch_geometric.datasets.{module}", refuse)
    with pytest.raises(InputError) as caught:
        load_graph(name, data_root=tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "--data-root or GRAPHGLOW_DATA" in message
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_a_download_lands_in_the_root(reed, tmp_path, monkeypatch):
    def fetch(url, folder, filename):
        shutil.copy(reed / "Reed98" / "raw" / "data.mat", f"{folder}/{filename}")

    monkeypatch.setattr("torch_geometric.datasets.linkx_dataset.download_url", fetch)
    assert load_graph("reed98", data_root=tmp_path / "new").num_nodes == 962
    assert files(tmp_path / "new") == ["reed98/raw/data.mat"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("kora", "nearest: cora"),
        ("pubmud", "nearest: pubmed"),
        ("synthetik", "nearest: synthetic"),
        ("qqqq", "Give a known name (amherst41, breast_cancer"),
        ("nowhere/graph.npz", "There is no graph file nowhere/graph.npz"),
        ("", "There is no graph ''"),
        (7, "A int is no graph. Give a name, a path, a pair of tables"),
        ((1, 2), "A tuple is no graph"),
        (("a.csv", None), "There is no table a.csv"),
        ("os.path.Evil", "'os.path.Evil' is no data set of PyG; other code is not run"),
        (None, "A NoneType is no graph"),
    ],
)
def test_unknown_sources(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(source)


@pytest.mark.parametrize("suffix", ["pt", "npz"])
def test_files_without_labels(suffix, tmp_path, small_graph):
    file = tmp_path / f"g.{suffix}"
    if suffix == "pt":
        torch.save({"x": small_graph.x, "edge_index": small_graph.edge_index}, file)
    else:
        np.savez(file, x=small_graph.x.numpy(), edge_index=small_graph.edge_index.numpy())
    assert load_graph(file, need_labels=False).y.tolist() == [-1] * 12
    with pytest.raises(InputError, match="must have labels y"):
        load_graph(file)


def test_columns_and_arrays_where_they_do_not_belong(tmp_path, small_graph):
    torch.save(small_graph, tmp_path / "g.pt")
    with pytest.raises(InputError, match="has no columns to choose"):
        load_graph(tmp_path / "g.pt", columns={"id": "a"})
    for given in ("wine", small_graph):
        with pytest.raises(InputError, match="has no columns to choose"):
            load_graph(given, columns={"id": "person"}, data_root=tmp_path)
    with pytest.raises(
        InputError, match="x and y go with a SciPy adjacency matrix, not with a Data"
    ):
        load_graph(small_graph, x=[[1.0]])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("people.csv+gone.csv", "There is no table gone.csv. Check the path."),
        ("gone.csv+people.csv", "There is no table gone.csv. Check the path."),
        ("a.csv+b.parquet", "There is no table a.csv and no b.parquet. Check the path."),
        ("people.csv+gone", "There is no table gone. Check the path."),
    ],
)
def test_half_a_pair_of_tables(source, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("id,label,f\na,0,1\nb,1,2\n")
    with pytest.raises(InputError) as caught:
        load_graph(source)
    assert str(caught.value) == said


def test_every_class_has_a_name_whatever_the_door(tmp_path, small_graph):
    nodes = pd.DataFrame({"id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1], "f": [1, 2, 3, 4]})
    named = nx.Graph([("a", "b")])
    nx.set_node_attributes(named, {"a": {"y": 0, "f": 1.0}, "b": {"y": 1, "f": 2.0}})
    write_graph(load_graph(small_graph), tmp_path / "g.npz")
    for door in (small_graph, "synthetic-small", nodes, named, tmp_path / "g.npz"):
        data = load_graph(door)
        assert data.class_names == [str(c) for c in range(int(data.y.max()) + 1)]
    assert load_graph(nodes).node_id == ["a", "b", "c", "d"]
    small_graph.y[:] = -1
    assert load_graph(small_graph, need_labels=False).class_names == []


def test_which_split_it_got_is_said(tmp_path, small_graph, data_root):
    index = {"train": np.arange(4), "val": np.arange(4, 8), "test": np.arange(8, 11)}
    np.savez(tmp_path / "s.npz", **index)
    assert load_graph(small_graph, split_seed=4).split == "random seed 4"
    assert load_graph("wine", split_seed=2).split == "random seed 2"
    assert load_graph("cora", data_root=data_root).split == "public"
    own = load_graph(small_graph, split_file=tmp_path / "s.npz")
    assert own.split == f"file:{tmp_path / 's.npz'}"
    write_graph(own, tmp_path / "g.npz")
    for door in (tmp_path / "g.npz", own):
        assert load_graph(door).split == "own"
    assert load_graph("torch_geometric.datasets.KarateClub").split == "own, validation by seed 0"


def test_no_split_is_drawn_where_none_is_wanted():
    data = load_graph("wine", split_seed=None)
    assert "train_mask" not in data
    assert "split" not in data
    data.train_mask = torch.arange(data.num_nodes) % 2 == 0
    assert load_graph(data, split_seed=None).train_mask.equal(data.train_mask)
