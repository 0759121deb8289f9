"""Nearest rows: exact ones are exact, and lists find nearly all of them."""

import time

import pytest
import torch
from torch.nn import functional as F

from graphglow.linalg import neighbours as search
from graphglow.linalg.neighbours import Search


def clustered(rows=6000, width=48, seed=0):
    """Rows around several hundred centres that lie in a few dimensions themselves, and noise."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(400, 12, generator=g) @ torch.randn(12, width, generator=g)
    here = centres[torch.randint(400, (rows,), generator=g)]
    return F.normalize(here + 0.5 * torch.randn(rows, width, generator=g), dim=1)


def of_truth(rows, k):
    similar = rows @ rows.T
    similar.fill_diagonal_(-1)
    return similar.topk(k, 1).values.clamp_min(1e-4)


@pytest.mark.parametrize("similarities", [2**21, 900])
def test_exact_ones_are_exact(similarities, monkeypatch):
    monkeypatch.setitem(search.SIMILARITIES, "cpu", similarities)  # in one block or many
    rows = clustered(500)
    pairs = Search.of(rows).nearest(range(100, 200), 5)
    assert str(Search.of(rows)) == "exact"
    assert torch.equal(pairs[0].unique(), torch.arange(100, 200))
    product = (rows[pairs[0]] * rows[pairs[1]]).sum(1)
    torch.testing.assert_close(product.view(-1, 5), of_truth(rows, 5)[100:200])


@pytest.mark.parametrize("cell", [512, 16])
@pytest.mark.parametrize("together", [0, 2**16, 2**25])
def test_lists_find_nine_of_ten(cell, together, monkeypatch):
    """In one cell or three, list by list or many at once; 16 lists hold a third of the rows."""
    monkeypatch.setattr(search, "CELL", cell)
    monkeypatch.setitem(search.TOGETHER, "cpu", together)
    monkeypatch.setattr(search, "PART", 1024)
    monkeypatch.setitem(search.SIMILARITIES, "cpu", 2**22)
    rows = clustered()
    found = Search.of(rows, exact=1000)
    assert str(found).startswith("16 of ")
    assert int(found.starts.diff().max()) <= search.LONGEST
    blocks = [found.nearest(range(a, a + 1500), 8) for a in range(0, 6000, 1500)]
    pairs = torch.cat(blocks, 1)
    assert torch.equal(pairs[0].unique(), torch.arange(6000))
    assert not bool((pairs[0] == pairs[1]).any())
    assert torch.unique(pairs, dim=1).shape == pairs.shape
    product = (rows[pairs[0]] * rows[pairs[1]]).sum(1)
    recall = (product >= of_truth(rows, 8)[pairs[0], -1] - 1e-6).sum() / (8 * len(rows))
    assert recall > 0.9


def test_threads_share_parts_and_find_the_same(monkeypatch):
    monkeypatch.setattr(search, "PART", 256)
    found, threads = Search.of(clustered(3000), exact=1000), torch.get_num_threads()
    alone = []
    for count in (1, 3):
        torch.set_num_threads(count)
        alone.append(found.nearest(range(3000), 8))
        assert torch.get_num_threads() == count
    torch.set_num_threads(threads)
    assert torch.equal(*alone)


def test_lists_at_once_find_what_they_find_one_by_one(monkeypatch):
    found = Search.of(clustered(3000), exact=1000)
    one_by_one = found.nearest(range(3000), 8)
    monkeypatch.setitem(search.TOGETHER, "cpu", 2**25)
    at_once = found.nearest(range(3000), 8)
    missed = set(map(tuple, one_by_one.T.tolist())) ^ set(map(tuple, at_once.T.tolist()))
    assert len(missed) < 10  # products differ in their last digit


def test_the_largest_are_the_largest():
    rows = torch.randn(50, 500, generator=torch.Generator().manual_seed(0))
    value, column = search.largest(rows, 9)
    assert torch.equal(value, rows.topk(9, 1).values)
    assert torch.equal(rows.gather(1, column), value)


def test_equal_and_empty_rows_are_no_trouble():
    rows = torch.cat([torch.ones(1500, 4) / 2, torch.zeros(1500, 4)])
    pairs = Search.of(rows, exact=1000).nearest(range(3000), 8)
    assert bool((pairs < 1500).all())  # a row of zeros is near to none
    assert not bool((pairs[0] == pairs[1]).any())
    assert Search.of(torch.zeros(5000, 0), exact=10).nearest(range(9), 8).shape == (2, 0)
    assert Search.of(torch.ones(1, 3)).nearest(range(1), 8).shape == (2, 0)
    assert Search.of(torch.zeros(0, 3), exact=0).nearest(range(0), 8).shape == (2, 0)


def test_zeros_take_no_room_in_lists_and_no_probes():
    """Nine of ten rows are zeros: the others are found as if they were alone."""
    real = clustered(3000)
    where = torch.randperm(30000, generator=torch.Generator().manual_seed(1))[:3000].sort()[0]
    rows = torch.zeros(30000, 48).index_copy_(0, where, real)
    among, alone = Search.of(rows, exact=1000), Search.of(real, exact=1000)
    assert (among.many, len(among.rows)) == (30000, 3000)
    assert torch.equal(among.nearest(range(30000), 8), where[alone.nearest(range(3000), 8)])


def test_one_row_many_times_does_not_cost_its_square():
    rows = torch.cat([torch.ones(300_000, 4) / 2, clustered(3000, 4)])
    began = time.process_time()
    found = Search.of(rows, exact=1000)
    assert time.process_time() - began < 30
    assert int(found.starts.diff().max()) <= search.LONGEST


def test_knn_edges_are_the_nearest_by_cosine():
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(x, dim=1)
    nearest = (unit @ unit.T - 2 * torch.eye(40)).topk(3, dim=1).indices
    expected = {(u, v) for u in range(40) for v in nearest[u].tolist()}
    found = set(map(tuple, search.knn_edges(x, k=3).T.tolist()))
    assert found == expected | {(v, u) for u, v in expected}
    assert search.knn_edges(torch.ones(1, 2)).shape == (2, 0)
    assert search.knn_edges(torch.zeros(3, 2)).shape == (2, 6)  # ties and zero rows do no harm
