"""Graphs in .npz and .pt files, in our names and in the field's."""

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning
from graphglow.graph import load_graph
from graphglow.graph.check import SPLITS
from graphglow.graph.load import READERS

ARRAYS = {
    "x": np.arange(12.0).reshape(6, 2),
    "y": np.array([0, 1, 0, 1, 0, -1]),
    "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
}


def npz(path: Path, **changes) -> Path:
    arrays = {**ARRAYS, **changes}
    np.savez(path / "g.npz", **{k: v for k, v in arrays.items() if v is not None})
    return path / "g.npz"


def test_npz_with_everything(tmp_path):
    data = load_graph(
        npz(
            tmp_path,
            edge_weight=np.array([1.0, 0.5, 2.0]),
            train=np.array([0, 1]),
            val=np.array([False, False, True, False, False, False]),
            test=np.array([3]),
            node_id=np.array(list("abcdef")),
        )
    )
    assert data.name == "g"
    assert data.x.tolist() == ARRAYS["x"].tolist()
    assert data.directed_edge_weight.tolist() == [1.0, 0.5, 2.0]
    assert data.train_mask.nonzero().flatten().tolist() == [0, 1]
    assert data.val_mask.nonzero().flatten().tolist() == [2]
    assert data.node_id == list("abcdef")


def test_npz_without_edges_or_split(tmp_path):
    data = load_graph(str(npz(tmp_path, edge_index=None)), split_seed=3)
    assert data.knn_graph
    assert int(data.train_mask.sum()) == 2


def test_npz_with_text_labels_and_foreign_byte_order(tmp_path):
    data = load_graph(npz(tmp_path, y=np.array([*"abab", "", "a"]), x=ARRAYS["x"].astype(">f4")))
    assert data.y.tolist() == [0, 1, 0, 1, -1, 0]
    assert data.class_names == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "must hold x; got edge_index, y"),
        ({"y": None}, "must have labels y [N]"),
        ({"x": np.array([["a"]] * 6)}, "must hold numbers; got <U1"),
        ({"x": np.array(1.0)}, "a row per node [N, D]; got shape ()"),
        ({"y": np.full(6, 0.5)}, "are text or whole numbers from 0"),
        ({"train": np.array([9]), "val": np.array([0])}, "must lie in [0, 5]; got 9"),
        ({"x": np.array([[{}]] * 6, dtype=object)}, "is damaged, foreign or holds objects"),
    ],
)
def test_bad_arrays(changes, message, tmp_path):
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(npz(tmp_path, **changes))


def tensors() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in ARRAYS.items()}


@pytest.mark.parametrize("make", [lambda t: t, lambda t: Data(**t)], ids=["dict", "Data"])
def test_pt_with_a_dict_or_a_data(make, tmp_path):
    content = {**tensors(), "train": torch.tensor([0]), "val_mask": torch.arange(6) == 1}
    torch.save(make(content), tmp_path / "g.pt")
    data = load_graph(tmp_path / "g.pt")
    assert data.directed_edge_index.tolist() == ARRAYS["edge_index"].tolist()
    assert data.train_mask.nonzero().flatten().tolist() == [0]
    assert data.val_mask.nonzero().flatten().tolist() == [1]


@pytest.mark.parametrize("content", [7, [torch.ones(2)], torch.ones(3), "text"])
def test_pt_with_something_else(content, tmp_path):
    torch.save(content, tmp_path / "g.pt")
    with pytest.raises(InputError, match="holds no torch_geometric Data and no dict of tensors"):
        load_graph(tmp_path / "g.pt")


@pytest.mark.parametrize("suffix", ["pt", "npz"])
@pytest.mark.parametrize("keep", [1, 30, 200, 700])
def test_truncated_files(suffix, keep, tmp_path):
    file = tmp_path / f"g.{suffix}"
    torch.save(tensors(), file) if suffix == "pt" else npz(tmp_path)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError, match="damaged, foreign") as caught:
        load_graph(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("wrong", "right"), [("tarin", "train"), ("edge_idx", "edge_index")])
def test_a_misspelt_array_is_refused(tmp_path, wrong, right):
    arrays = {"x": np.eye(4, dtype=np.float32), "y": np.array([0, 1, 0, 1])}
    np.savez(tmp_path / "g.npz", **arrays, **{wrong: np.array([[0], [1]])})
    with pytest.raises(InputError, match=rf"has '{wrong}' \(nearest: {right}\), which is not read"):
        load_graph(tmp_path / "g.npz")


@pytest.mark.parametrize("suffix", sorted(READERS))
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "foreign"),
        (b"hello\nworld", "foreign"),
        (b"\x00" * 100, "foreign"),
        (b"\x80\x04\x95", "foreign"),
        (b"<graphml><node", "foreign"),
    ],
)
def test_empty_and_foreign_files(suffix, content, message, tmp_path):
    file = tmp_path / f"g{suffix}"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_graph(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["g.txt", "g", "g.xlsx"])
def test_unknown_suffix(name, tmp_path):
    (tmp_path / name).write_text("id,label\n")
    with pytest.raises(InputError, match=r"is no graph file. Give .pt, .npz, .graphml, a"):
        load_graph(tmp_path / name)


def sparse_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The field's convention for a graph of 20 nodes on a ring, some of them unlabelled."""
    ring = sp.csr_array(nx.to_scipy_sparse_array(nx.cycle_graph(20), dtype=np.float32))
    words = sp.csr_array((rng.random((20, 30)) < 0.2).astype(np.float32))
    arrays = {"labels": np.where(np.arange(20) < 16, np.arange(20) % 2, -1)}
    for name, matrix in (("adj", ring), ("attr", words)):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{name}_{part}"] = np.asarray(getattr(matrix, part))
    return arrays


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_the_sparse_convention_of_the_field(dense, split, tmp_path):
    arrays = sparse_arrays(np.random.default_rng(0))
    x = sp.csr_array(
        (arrays["attr_data"], arrays["attr_indices"], arrays["attr_indptr"]), shape=(20, 30)
    ).toarray()
    if dense:
        arrays = {k: v for k, v in arrays.items() if not k.startswith("attr_")}
        arrays["attr_matrix"] = x
    if split:
        arrays |= {"train": np.arange(4), "val": np.arange(4, 8), "test": np.arange(8, 20)}
    np.savez(tmp_path / "g.npz", **arrays)
    data = load_graph(tmp_path / "g.npz")
    assert torch.equal(data.x, torch.from_numpy(x))
    assert data.y.tolist() == arrays["labels"].tolist()
    assert data.edge_index.shape == (2, 40)
    assert data.get("edge_weight") is None
    assert data.split == ("own" if split else "random seed 0")
    assert int(data.train_mask.sum()) == (4 if split else 8)
    assert int(data.test_mask.sum()) == (8 if split else 4)  # without the unlabelled


def test_directions_masks_and_objects_beside_the_graph(tmp_path):
    arrays = sparse_arrays(np.random.default_rng(0))
    one_way = sp.csr_array((np.ones(20), np.roll(np.arange(20), -1), np.arange(21)))
    arrays |= {f"adj_{part}": getattr(one_way, part) for part in ("data", "indices", "indptr")}
    arrays |= {f"{part}_mask": np.arange(20) % 3 == at for at, part in enumerate(SPLITS)}
    arrays |= {name: np.array([{}], dtype=object) for name in ("metadata", "class_names")}
    np.savez(tmp_path / "g.npz", **arrays)
    data = load_graph(tmp_path / "g.npz")
    assert data.edge_index.shape == (2, 40)
    assert data.directed_edge_index.tolist() == [list(range(20)), [*range(1, 20), 0]]
    assert data.split == "own"
    assert data.val_mask.nonzero()[:, 0].tolist() == [1, 4, 7, 10, 13]
    assert data.class_names == ["0", "1"]


def test_without_attributes_each_node_is_a_feature(tmp_path):
    arrays = sparse_arrays(np.random.default_rng(0))
    np.savez(tmp_path / "g.npz", **{k: v for k, v in arrays.items() if not k.startswith("attr")})
    with pytest.warns(InputWarning, match="holds no attributes: each node is a feature of its own"):
        assert torch.equal(load_graph(tmp_path / "g.npz").x, torch.eye(20))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adj_indices": np.full(40, 99)}, "has no CSR matrix of numbers in adj_data, adj_ind"),
        ({"adj_shape": None}, "no CSR matrix of numbers in adj_data"),
        ({"adj_shape": np.array([20, 21])}, "adj of .* shape .20, 21"),
        ({"attr_indptr": None}, "no CSR matrix of numbers in attr_data"),
        ({"tarin": np.arange(4)}, "has 'tarin'"),
        (
            {"attr_matrix": np.ones((3, 2))},
            r"one label per node \(3\); got shape \(20,\)",
        ),
        ({"labels": None}, "must have labels y"),
        ({"labels": np.array([None] * 20)}, "is damaged, foreign or holds objects"),
    ],
)
def test_bad_files_in_the_sparse_convention(change, message, tmp_path):
    arrays = sparse_arrays(np.random.default_rng(0)) | change
    np.savez(tmp_path / "g.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(InputError, match=message):
        load_graph(tmp_path / "g.npz")
