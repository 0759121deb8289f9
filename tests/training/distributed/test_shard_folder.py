"""A folder of shards holds the graph that a single process would train on, bit by bit."""

import hashlib
import resource

import numpy as np
import pytest
import torch

from graphglow.errors import InputError
from graphglow.graphs import prepare, scale_graph
from graphglow.ops.sparse import SparseMatrix
from graphglow.storage import try_lock
from graphglow.training.distributed import (
    GraphArrays,
    Ranks,
    is_shard_folder,
    read_shard,
    shards_info,
    write_shards,
)
from graphglow.training.distributed import (
    graph_arrays as arrays_module,
)
from graphglow.training.distributed import (
    shard_folder as folder_module,
)
from graphglow.training.distributed.graph_arrays import (
    file_checksum,
    is_array_folder,
    save_array,
)
from tiny_graphs import small_data


def messy(*, weighted, sparse_features=False):
    """A graph with duplicates, both directions, self-loops, and edges of weight zero."""
    data = small_data(num_nodes=40, sparse_features=sparse_features)
    extra = torch.tensor([[0, 1, 5, 5, 7], [1, 0, 5, 9, 9]])
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :20].flip(0), extra], dim=1)
    if weighted:
        weight = torch.rand(data.edge_index.shape[1], generator=torch.Generator().manual_seed(0))
        weight[3:6] = 0
        data.edge_weight = weight
    return data


def put_together(folder):
    """The whole adjacency, features, labels and split, in the order of the graph."""
    starts = shards_info(folder).starts
    parts = [folder / f"part-{p}" for p in range(len(starts) - 1)]
    nodes = np.concatenate([np.load(part / "nodes.npy") for part in parts])
    adj = np.zeros((len(nodes), len(nodes)), dtype=np.float32)
    features, labels, split = None, np.empty(len(nodes), int), np.empty(len(nodes), int)
    for part in parts:
        own, crow = np.load(part / "nodes.npy"), np.load(part / "crow.npy")
        rows = np.repeat(own, np.diff(crow))
        adj[rows, nodes[np.load(part / "col.npy")]] = np.load(part / "values.npy")
        labels[own], split[own] = np.load(part / "y.npy"), np.load(part / "split.npy")
        if (part / "x.npy").exists():
            x = np.load(part / "x.npy")
        else:
            x = np.zeros((len(own), shards_info(folder).num_features), dtype=np.float32)
            at = np.repeat(np.arange(len(own)), np.diff(np.load(part / "x_crow.npy")))
            x[at, np.load(part / "x_col.npy")] = np.load(part / "x_values.npy")
        features = np.zeros((len(nodes), x.shape[1]), np.float32) if features is None else features
        features[own] = x
    return adj, features, labels, split


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse_features", [False, True])
def test_the_parts_together_are_the_prepared_graph(
    tmp_path, monkeypatch, parts, weighted, sparse_features
):
    monkeypatch.setattr(folder_module, "BLOCK", 70)  # several blocks of edges and of features
    monkeypatch.setattr(arrays_module, "BLOCK", 70)
    data = messy(weighted=weighted, sparse_features=sparse_features)
    graph = prepare(data)
    assert isinstance(graph.x, SparseMatrix) == sparse_features
    written = write_shards(GraphArrays.of_data(data), tmp_path / "shards", parts)
    adj, x, y, split = put_together(tmp_path / "shards")
    exact = {"rtol": 0, "atol": 0} if not weighted else {"rtol": 2e-7, "atol": 0}
    torch.testing.assert_close(torch.from_numpy(adj), graph.adj.to_dense(), **exact)
    torch.testing.assert_close(torch.from_numpy(x), graph.x.to_dense(), rtol=0, atol=0)
    assert y.tolist() == data.y.tolist()
    for number, mask in enumerate((data.train_mask, data.val_mask, data.test_mask), start=1):
        assert (split == number).tolist() == mask.tolist()
    assert sum(part.entries for part in written.parts) == graph.adj.col.numel()
    assert written.split_counts[0] == int(data.train_mask.sum())
    assert written == shards_info(tmp_path / "shards")


@pytest.mark.parametrize("sparse_features", [False, True])
def test_one_rank_reads_the_prepared_graph(tmp_path, sparse_features):
    data = messy(weighted=True, sparse_features=sparse_features)
    write_shards(GraphArrays.of_data(data), tmp_path / "shards", 1)
    shard, graph = read_shard(tmp_path / "shards", Ranks()), prepare(data)
    assert shard.nodes.tolist() == list(range(40))
    assert (shard.graph.name, shard.num_nodes) == (graph.name, 40)
    assert shard.graph.num_classes == graph.num_classes
    v = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(shard.graph.adj @ v, graph.adj @ v)
    torch.testing.assert_close(shard.graph.x.to_dense(), graph.x.to_dense(), rtol=0, atol=0)
    for name in ("y", "train", "val", "test"):
        assert torch.equal(getattr(shard.graph, name), getattr(graph, name))


def save_arrays(folder, data, *names):
    folder.mkdir()
    for name in names:
        np.save(folder / f"{name}.npy", data[name].numpy())


MASKS = ("train_mask", "val_mask", "test_mask")


def test_mapped_files_give_the_same_shards_as_a_graph_in_memory(tmp_path):
    data = messy(weighted=True)
    save_arrays(tmp_path / "raw", data, "x", "edge_index", "edge_weight", "y", *MASKS)
    assert is_array_folder(tmp_path / "raw")
    mapped = GraphArrays.of_folder(tmp_path / "raw")
    assert isinstance(mapped.x, np.memmap)
    assert isinstance(mapped.edge_index, np.memmap)
    write_shards(mapped, tmp_path / "a", 2)
    write_shards(GraphArrays.of_data(data), tmp_path / "b", 2)
    for a in sorted((tmp_path / "a").rglob("*.npy")):
        b = tmp_path / "b" / a.relative_to(tmp_path / "a")
        assert np.array_equal(np.load(a), np.load(b)), a.name
    assert not list((tmp_path / "a").rglob("*.bin"))


def test_without_masks_the_split_is_drawn_as_for_any_graph(tmp_path):
    data = small_data()
    save_arrays(tmp_path / "raw", data, "x", "edge_index", "y")
    arrays = GraphArrays.of_folder(tmp_path / "raw", split_seed=4)
    for name in MASKS:
        del data[name]
    expected = GraphArrays.of_data(data, split_seed=4)
    for name in ("train", "val", "test"):
        assert np.array_equal(getattr(arrays, name), getattr(expected, name))


def test_a_prepared_graph_gives_its_arrays():
    graph = scale_graph(num_nodes=60, average_degree=4.0)
    arrays = GraphArrays.of_graph(graph)
    assert arrays.edge_index.shape[1] == (graph.adj.col.numel() - 60) // 2
    assert arrays.train.nonzero()[0].tolist() == graph.train.tolist()


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("x", np.ones((40, 0)), "x must be real numbers"),
        ("x", np.full((40, 8), np.nan), "x must be finite"),
        ("y", np.zeros(40), "y must be 40 integers"),
        ("y", np.full(40, -2), r"y, -1 for unlabelled nodes, must lie in \[-1, 39\]; got -2"),
        ("y", np.zeros(40, dtype=int), "training nodes must have at least two classes"),
        ("edge_index", np.zeros((3, 5), dtype=int), r"edge_index must be integers \[2, E\]"),
        ("edge_index", np.zeros((2, 0), dtype=int), "must have an edge; got none"),
        ("edge_index", np.full((2, 5), 40), r"edge_index must lie in \[0, 39\]; got 40"),
        ("edge_weight", np.ones(3), "edge_weight must be"),
        ("edge_weight", np.full(10**4, -1.0), r"edge_weight must lie in .*; got -1.0"),
        ("edge_weight", np.full(10**4, 1e31), r"must lie in \[0, 1e\+30\]; got 1e\+31"),
        ("train_mask", np.ones(40, dtype=int), "train_mask must be boolean"),
    ],
)
def test_bad_arrays_are_refused(tmp_path, name, value, rule):
    data = small_data()
    save_arrays(tmp_path / "raw", data, "x", "edge_index", "y", *MASKS)
    if name == "edge_weight":
        value = np.resize(value, data.edge_index.shape[1] if len(value) > 3 else 3)
    np.save(tmp_path / "raw" / f"{name}.npy", value)
    with pytest.raises(InputError, match=rule):
        GraphArrays.of_folder(tmp_path / "raw")


def test_a_damaged_or_missing_array_is_refused(tmp_path):
    data = small_data()
    save_arrays(tmp_path / "raw", data, "x", "y")
    with pytest.raises(InputError, match=r"must hold edge_index\.npy"):
        GraphArrays.of_folder(tmp_path / "raw")
    (tmp_path / "raw" / "edge_index.npy").write_bytes(b"\x93NUMPY junk")
    with pytest.raises(InputError, match="must be an array file"):
        GraphArrays.of_folder(tmp_path / "raw")
    with (tmp_path / "raw" / "edge_index.npy").open("wb") as file:
        np.savez(file, edge_index=data.edge_index.numpy())
    with pytest.raises(InputError, match="must be an array file"):
        GraphArrays.of_folder(tmp_path / "raw")


def test_a_folder_of_shards_is_new_and_complete_or_not_there(tmp_path):
    arrays = GraphArrays.of_data(small_data())
    (tmp_path / "old").mkdir()
    with pytest.raises(InputError, match="must not exist"):
        write_shards(arrays, tmp_path / "old", 2)
    with pytest.raises(InputError, match="parts must lie"):
        write_shards(arrays, tmp_path / "new", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be writable"):
        write_shards(arrays, tmp_path / "file" / "new", 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "old"]
    assert not is_shard_folder(tmp_path / "old")


def test_what_a_killed_writer_left_is_cleared(tmp_path):
    left = tmp_path / ".new.unfinished" / "part-1"
    left.mkdir(parents=True)
    (left.parent / "lock").touch()
    (left / "edges.bin").write_bytes(bytes(16))  # would be appended to
    (left.parent / "part-7").mkdir()
    arrays = GraphArrays.of_data(small_data())
    write_shards(arrays, tmp_path / "new", 2)
    write_shards(arrays, tmp_path / "other", 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "other"]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "part-0",
        "part-1",
        "shards.json",
    ]
    assert shards_info(tmp_path / "new") == shards_info(tmp_path / "other")


def test_a_folder_has_one_writer(tmp_path):
    arrays = GraphArrays.of_data(small_data())
    unfinished = tmp_path / ".new.unfinished"
    unfinished.mkdir()
    with try_lock(unfinished / "lock"), pytest.raises(InputError, match="must have one writer"):
        write_shards(arrays, tmp_path / "new", 2)
    assert (unfinished / "lock").exists()


@pytest.mark.parametrize("sparse_features", [False, True])
@pytest.mark.parametrize("limit", [300, 1200, 3000])
def test_a_full_disk_leaves_nothing_and_says_why(tmp_path, limit, sparse_features):
    arrays = GraphArrays.of_data(small_data(num_nodes=400, sparse_features=sparse_features))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(InputError, match=r"must be writable; got .*\(File too large\)"):
            write_shards(arrays, tmp_path / "new", 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_an_array_is_written_as_numpy_does(tmp_path):
    whole = np.arange(42, dtype=np.float32).reshape(21, 2)
    for array in (whole, whole[:, 0], whole[:0], whole.astype(np.int8)):
        np.save(tmp_path / "a.npy", array)
        said = save_array(tmp_path / "b.npy", [array[:8], array[8:]], len(array))
        assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
        assert said == hashlib.sha256((tmp_path / "a.npy").read_bytes()).hexdigest()
        assert said == file_checksum(tmp_path / "b.npy")
