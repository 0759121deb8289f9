"""OGB: tiny data sets in its own layout, read by its package, or where absent by a stand-in."""

import importlib.util
import shutil
import sys
import types
import urllib.request
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError
from graphglow.graphs import datasets, load_graph

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
    assert data.edge_index.tolist() == EDGES.tolist()
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


@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_second_time_neither_the_package_nor_raw_files_are_needed(name, root, monkeypatch):
    first = load_graph(f"ogb:{name}", data_root=root)
    shutil.rmtree(root / "ogb" / name.replace("-", "_") / "raw")
    monkeypatch.setitem(sys.modules, "ogb", None)
    second = load_graph(f"ogb:{name}", data_root=root)
    assert set(second.keys()) == set(first.keys())
    for key in ("x", "y", "edge_index", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(first[key], second[key])


def test_the_pickle_that_ogb_keeps_is_not_opened(root, monkeypatch):
    kept = root / "ogb" / "ogbn_arxiv" / "processed" / "data_processed"
    kept.parent.mkdir()
    kept.write_bytes(b"a pickle")
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("opened"))
    assert load_graph("ogb:ogbn-arxiv", data_root=root).num_nodes == NODES
    assert kept.read_bytes() == b"a pickle"


def test_a_folder_that_may_only_be_read(root, monkeypatch):
    def refuse(*args):
        raise InputError("the output path must be writable; got it")

    monkeypatch.setattr(datasets, "save_tensors", refuse)
    assert load_graph("ogb:ogbn-arxiv", data_root=root).num_nodes == NODES


def test_a_download(package, tmp_path, monkeypatch):
    make(tmp_path / "there" / "arxiv", "ogbn-arxiv")
    archive = shutil.make_archive(str(tmp_path / "arxiv"), "zip", tmp_path / "there")
    facts = {"url": f"file://{archive}", "download_name": "arxiv", **FACTS["ogbn-arxiv"]}
    monkeypatch.setattr(datasets, "ogb_facts", lambda name: facts)
    data = load_graph("ogb:ogbn-arxiv", data_root=tmp_path / "data")
    assert torch.equal(data.x, torch.from_numpy(X))
    assert [path.name for path in (tmp_path / "data" / "ogb").iterdir()] == ["ogbn_arxiv"]


def test_a_question_that_nobody_sees_is_a_sentence(package, tmp_path, monkeypatch):
    from ogb.utils import url

    facts = {"url": "file:///nothing", **FACTS["ogbn-products"]}
    monkeypatch.setattr(datasets, "ogb_facts", lambda name: facts)
    monkeypatch.setattr(url, "decide_download", lambda url: input("Will you proceed?") == "y")
    with pytest.raises(InputError, match=r"downloaded by ogb, which asks first: python -c .*; got"):
        load_graph("ogb:ogbn-products", data_root=tmp_path)


@pytest.mark.parametrize("gone", ["raw/edge.csv.gz", "raw/node-label.csv.gz", "split"])
def test_a_missing_file_is_one_sentence(root, gone):
    path = root / "ogb" / "ogbn_arxiv" / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(
        InputError, match=r"the files of ogbn-arxiv must be in .*; got an error"
    ) as e:
        load_graph("ogb:ogbn-arxiv", data_root=root)
    assert "\n" not in str(e.value)
    assert not (root / "ogb" / "ogbn_arxiv" / datasets.OGB_KEPT).exists()


def test_other_names():
    with pytest.raises(
        InputError, match=r"must be one of ogbn-arxiv, .*nearest: ogbn-arxiv.*; got"
    ):
        load_graph("ogb:arxiv")
    with pytest.raises(InputError, match="must be one of ogbn-arxiv"):
        load_graph("ogb:ogbl-ppa")


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(InputError, match=r'needs the package ogb.*pip install "graphglow\[ogb\]"'):
        load_graph("ogb:ogbn-arxiv", data_root=tmp_path)
