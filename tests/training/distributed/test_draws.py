"""Draws that do not know of ranks: the same for a node wherever it is, and fair."""

import torch

from graphglow.gnn.dropout import drop, drop_features
from graphglow.ops.sparse import SparseMatrix
from graphglow.training.distributed import Ranks
from graphglow.training.distributed import task as module
from graphglow.training.distributed.task import (
    NodeDropout,
    _entries,
    draw_key,
    draw_pivots,
    hashed,
    own_pivots,
    uniform,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def dropout(nodes, rate=0.5, seed=0, entries=None):
    return NodeDropout((rate,), (generator(seed),), nodes, entries)


def test_a_node_has_the_same_mask_wherever_it_is(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 100)  # several blocks
    x = torch.ones(60, 7)
    whole = dropout(torch.arange(60))
    parts = [torch.arange(0, 60, 2), torch.arange(1, 60, 2)]
    split = [dropout(nodes) for nodes in parts]
    for _ in range(3):
        expected = drop(x, whole)
        for nodes, own in zip(parts, split, strict=True):
            assert torch.equal(drop(x[nodes], own), expected[nodes])


def test_draws_differ_from_each_other_and_follow_the_seed():
    nodes, x = torch.arange(50), torch.ones(50, 20)
    one = dropout(nodes)
    first, second = drop(x, one), drop(x, one)
    assert not torch.equal(first, second)
    assert torch.equal(drop(x, dropout(nodes)), first)
    assert not torch.equal(drop(x, dropout(nodes, seed=1)), first)


def test_the_share_dropped_is_the_rate_in_every_row_and_column():
    n, f, rate = 4000, 500, 0.3
    mask = drop(torch.ones(n, f), dropout(torch.arange(n), rate))
    assert set(mask.unique().tolist()) == {0.0, float(torch.tensor(1.0) / (1 - rate))}
    kept = (mask > 0).double()
    for dim, count in ((0, n), (1, f)):
        deviation = (kept.mean(dim) - (1 - rate)) / (rate * (1 - rate) / count) ** 0.5
        assert deviation.abs().max() < 5
        assert 0.9 < deviation.std() < 1.1  # as of independent draws
    centred = kept[:, :50] - kept[:, :50].mean(0)
    correlation = torch.corrcoef(centred.T) - torch.eye(50)
    assert correlation.abs().max() < 5 / n**0.5


def test_sparse_features_are_dropped_by_node_and_column():
    dense = (torch.rand(30, 9, generator=generator()) > 0.7).float()
    nodes = torch.arange(30)

    def dropped(rows):
        x = SparseMatrix.from_scipy(dense[rows].numpy())
        own = dropout(rows, entries=_entries(x, rows))
        return drop_features(x, own).to_dense()

    whole = dropped(nodes)
    assert 0 < (whole > 0).sum() < (dense > 0).sum()
    for rows in (nodes[:10], nodes[10:]):
        assert torch.equal(dropped(rows), whole[rows])


def test_hashes_are_those_of_splitmix():
    """The reference of splitmix64, in Python's integers."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    numbers = [0, 1, 5, 2**40]
    for number, got in zip(numbers, hashed(77, torch.tensor(numbers)).tolist(), strict=True):
        z = (number * golden + 77) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        assert got & mask == z ^ (z >> 31)


def test_uniform_numbers_are_uniform():
    u = uniform(3, torch.arange(20_000))
    assert 0 < u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    histogram = torch.histc(u, 20, 0, 1)
    assert (histogram - 1000).abs().max() < 5 * 1000**0.5


def test_pivots_are_different_nodes_drawn_alike():
    nodes = torch.arange(40)
    g = generator()
    counts = torch.zeros(40)
    for _ in range(2000):
        pivots = draw_pivots(draw_key(g), nodes, None, 10, Ranks())
        assert len(pivots.nodes.unique()) == 10
        assert torch.equal(pivots.nodes, pivots.rows)
        counts[pivots.nodes] += 1
    assert (counts - 500).abs().max() < 5 * (500 * 0.75) ** 0.5


def test_pivots_by_weight_are_drawn_in_proportion():
    weight = torch.tensor([1, 2, 3, 4])
    g = generator()
    counts = torch.zeros(4)
    for _ in range(1000):
        counts[draw_pivots(draw_key(g), torch.arange(4), weight, 1, Ranks()).nodes] += 1
    assert (counts / 1000 - weight / 10).abs().max() < 4 * 0.5 / 1000**0.5


def test_given_pivots_are_found_among_the_own_nodes():
    own = own_pivots(torch.tensor([9, 2, 30, 4]), torch.tensor([1, 2, 4, 8, 9]))
    assert own.rows.tolist() == [4, 1, 2]
    assert own.places.tolist() == [0, 1, 3]
