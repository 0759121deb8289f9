"""Training by batches of nodes: hops made once, on disk if they are many; neighbours drawn."""

import errno
import os
import tempfile
import warnings
from types import SimpleNamespace

import pytest
import torch
from dying_runs import Dying, Killed, eager
from torch_geometric.utils import k_hop_subgraph

from graphglow.errors import InputError
from graphglow.gnn import BACKBONES, MixedPropagation, Shape
from graphglow.graphs.graph import normalised_adjacency
from graphglow.structure import FixedStructure
from graphglow.training import (
    ModelConfig,
    TransferConfig,
    TransferResult,
    batches,
    device,
    evidence,
    transfer,
)
from graphglow.training.batches import HopTask, SampledTask, hops_of
from graphglow.training.task import GraphTask
from tiny_graphs import float64, same_tensors, small_data

SIGN = BACKBONES["sign"]
MIXES = [(0.0, 0.0), (0.3, 0.5), (1.0, 0.0), (0.0, 1.0)]


def config(**changes):
    base = {"epochs": 6, "hidden": 8, "device": "cpu", "backbone": "sign"}
    return TransferConfig(**(base | changes))


def refined(graph, own=0.0):
    """Another graph over the same nodes."""
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(graph.num_nodes, (2, 3 * graph.num_nodes), generator=generator)
    matrix = normalised_adjacency(edges, None, graph.num_nodes)
    return FixedStructure(matrix.to("cpu", graph.adj.values.dtype), own)


def assert_same(one, other):
    assert one.history == other.history
    for mine, its in zip(one.answers, other.answers, strict=True):
        assert same_tensors(mine.gnn, its.gnn)
    assert torch.equal(one.predict_proba(), other.predict_proba())


# Hops


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("weight", "own"), MIXES)
def test_hops_made_once_are_the_layers_products_in_value_and_gradients(
    sparse, weight, own, monkeypatch
):
    monkeypatch.setattr(batches, "COLUMNS", 3)
    graph = float64(small_data(sparse_features=sparse))
    mix = MixedPropagation(graph.adj, refined(graph, own), weight)
    x = v = graph.x if isinstance(graph.x, torch.Tensor) else graph.x.to_dense()
    nodes = torch.tensor([5, 0, 17])
    hops = hops_of(graph.x, mix, 3, nodes)
    for hop in hops:
        torch.testing.assert_close(hop, v[nodes])
        v = mix(v)
    assert hops.shape == (4, 3, x.shape[1])
    shape = Shape(num_features=x.shape[1], num_classes=3, num_nodes=40, hidden=6, num_layers=3)
    gnn = SIGN(shape, torch.Generator().manual_seed(0)).double()
    fast = gnn.of_hops(hops, None)
    _, logits = gnn(gnn.encode(graph, None), mix, None)
    torch.testing.assert_close(fast, logits[nodes])
    found, expected = (
        torch.autograd.grad(out.square().sum(), list(gnn.parameters()))
        for out in (fast, logits[nodes])
    )
    for mine, its in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, its)


def test_without_dropout_an_epoch_is_that_of_the_plain_task():
    graph = float64(small_data()).to("cpu", torch.float32)
    run = ModelConfig(backbone="sign", dropout=0.0, input_weight=0.3, refinements=1)
    given = refined(graph)
    plain = GraphTask(graph, None, 8, [run], given=given, balanced=True)
    fast = HopTask(graph, 8, run, given, True, 10_000)
    for _ in range(3):
        for mine, its in zip(fast.train_step(), plain.train_step(), strict=True):
            torch.testing.assert_close(mine, its)
        for mine, its in zip(fast.validate(), plain.validate(), strict=True):
            torch.testing.assert_close(mine, its)
    torch.testing.assert_close(fast.weights, plain.weights)


def test_a_batch_of_all_nodes_is_no_batch():
    data = small_data()
    whole = transfer(data, config=config())
    for size in (int(data.train_mask.sum()), 4096):
        assert_same(transfer(data, config=config(batch_nodes=size)), whole)
    assert transfer(data, config=config(batch_nodes=3)).history != whole.history


def test_an_epoch_goes_over_every_training_node_once():
    graph = float64(small_data()).to("cpu", torch.float32)
    task = HopTask(graph, 8, ModelConfig(backbone="sign"), refined(graph), False, 7)
    one, other = (list(task._batches()) for _ in range(2))
    for epoch in (one, other):
        assert torch.equal(torch.cat(epoch).sort().values, torch.arange(len(graph.train)))
        assert max(map(len, epoch)) <= 7
    assert not torch.equal(torch.cat(one), torch.cat(other))


def test_batches_learn_and_can_be_kept_and_asked(tmp_path):
    data = small_data(num_nodes=120)
    found = transfer(data, config=config(batch_nodes=16, epochs=20, class_weight="balanced"))
    assert found.test_accuracy >= 0.9
    found.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert torch.equal(loaded.predict_proba(), found.predict_proba())
    assert found.predict_new(data.x[:2]).predict_proba().shape == (2, 3)
    nobody = data.clone()
    nobody.val_mask[:] = False
    assert transfer(nobody, config=config(batch_nodes=16)).val_accuracy is None


def test_a_killed_run_goes_on_from_its_batches(tmp_path):
    data, given = small_data(), config(batch_nodes=7, epochs=3)
    whole = transfer(data, config=given)
    for after in (2, 7, 14):
        folder = tmp_path / str(after)
        with pytest.raises(Killed):
            transfer(data, config=given, checkpoints=Dying(folder, after))
        again = eager(folder)
        assert_same(transfer(data, config=given, checkpoints=again), whole)
        assert again.resumed


# Files


@pytest.mark.parametrize("size", [None, 7])
def test_hops_in_a_file_are_the_same_and_leave_nothing_behind(size, monkeypatch, tmp_path):
    data, given = small_data(), config(batch_nodes=size)
    whole = transfer(data, config=given)
    monkeypatch.setattr(batches, "LARGEST_IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []
    found = transfer(data, config=given, on_epoch=lambda _: seen.extend(tmp_path.iterdir()))
    assert_same(found, whole)
    assert not seen  # the file has no name even while it is read
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve a file")
def test_a_full_disk_is_one_sentence(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(batches, "LARGEST_IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        InputError, match=r"hops of sign must fit on the disk .*TMPDIR names"
    ) as caught:
        transfer(small_data(), config=config())
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("backbone", ["gcn", "sign"])
def test_too_little_memory_is_said_beforehand_and_which_flags_need_less(backbone, monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda device: 100)
    with pytest.raises(InputError, match=r"all nodes at once must fit .*--backbone sign --batch-n"):
        transfer(small_data(), config=config(backbone=backbone))
    assert transfer(small_data(), config=config(batch_nodes=8, epochs=1)).epochs == 1


@pytest.mark.parametrize(
    ("stage", "rule"),
    [
        ("refined_by", "refining the graph must fit"),
        ("batched_task", "training .*--backbone sign"),
    ],
)
def test_out_of_memory_says_in_which_stage(stage, rule, monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    monkeypatch.setattr(evidence, stage, fails)
    with pytest.raises(InputError, match=rule) as caught:
        transfer(small_data(), config=config())
    assert "\n" not in str(caught.value)


# Other backbones


def test_other_backbones_need_a_library_and_the_sentence_names_sign(monkeypatch):
    monkeypatch.setattr(batches.torch_geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(batches.torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    with pytest.raises(InputError, match=r"needs pyg-lib or torch-sparse.*sign needs none"):
        transfer(small_data(), config=config(backbone="gcn", batch_nodes=8))
    with pytest.raises(InputError, match=r"without a weight for each node .*; got linkx"):
        transfer(small_data(), config=config(backbone="linkx", batch_nodes=8))
    with pytest.raises(InputError, match="batch_nodes must be >= 1; got 0"):
        config(batch_nodes=0)


def all_neighbours(colptr, row, seeds, num_neighbors, replace, directed):
    """What torch-sparse's ``neighbor_sample`` gives where all are drawn, without the edges."""
    ends = torch.stack([row, torch.arange(len(colptr) - 1).repeat_interleave(colptr.diff())])
    around, *_ = k_hop_subgraph(seeds, len(num_neighbors), ends, num_nodes=len(colptr) - 1)
    none = row[:0]
    return torch.cat([seeds, around[~torch.isin(around, seeds)]]), none, none, none


@pytest.fixture
def whole(monkeypatch):
    """PyG's loader draws all neighbours: by its library where one is installed, or as above."""
    monkeypatch.setattr(batches, "NEIGHBOURS", -1)
    typing = batches.torch_geometric.typing
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        op = SimpleNamespace(neighbor_sample=all_neighbours)
        monkeypatch.setattr(torch.ops, "torch_sparse", op, raising=False)
        monkeypatch.setattr(typing, "WITH_TORCH_SPARSE", True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*without a 'pyg-lib' installation")
        yield


@pytest.mark.parametrize(("weight", "own"), MIXES)
@pytest.mark.parametrize("sparse", [True, False])
def test_with_all_neighbours_drawn_an_epoch_is_that_of_the_plain_task(whole, weight, own, sparse):
    graph = float64(small_data(num_nodes=80, sparse_features=sparse)).to("cpu", torch.float32)
    run = ModelConfig(dropout=0.0, input_weight=weight, refinements=1)
    given = refined(graph, own)
    plain = GraphTask(graph, None, 8, [run], given=given, balanced=True)
    sampled = SampledTask(graph, 8, run, given, True, len(graph.train))
    for _ in range(3):
        for mine, its in zip(sampled.train_step(), plain.train_step(), strict=True):
            torch.testing.assert_close(mine, its)
    torch.testing.assert_close(sampled.weights, plain.weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backbone", sorted(n for n, kind in BACKBONES.items() if kind.inductive))
def test_every_inductive_backbone_trains_by_batches(whole, backbone):
    given = config(backbone=backbone, batch_nodes=9, epochs=2)
    assert transfer(small_data(), config=given).predict_proba().isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("size", [None, 7])
def test_hops_train_on_a_gpu_with_and_without_a_recording(size, monkeypatch):
    """A failed recording warns, and a warning fails here."""
    one, other = (
        transfer(
            small_data(), config=config(device="cuda", epochs=30, batch_nodes=size, capture=on)
        ).predict_proba()
        for on in (True, False)
    )
    torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    monkeypatch.setattr(batches, "LARGEST_IN_MEMORY", 0)
    monkeypatch.setattr(batches, "free_bytes", lambda device: 0)  # then they lie in a file
    there = transfer(small_data(), config=config(device="cuda", epochs=30, batch_nodes=size))
    torch.testing.assert_close(there.predict_proba(), one, rtol=1e-2, atol=1e-3)
