"""Nearest rows: exact ones are exact, and lists find nearly all of them."""

import pytest
import torch
from torch.nn import functional as F

from graphglow.ops import search
from graphglow.ops.search import Search


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


def test_exact_ones_are_exact():
    rows = clustered(500)
    pairs = Search.of(rows).nearest(range(100, 200), 5)
    assert str(Search.of(rows)) == "exact"
    assert torch.equal(pairs[0].unique(), torch.arange(100, 200))
    product = (rows[pairs[0]] * rows[pairs[1]]).sum(1)
    torch.testing.assert_close(product.view(-1, 5), of_truth(rows, 5)[100:200])


@pytest.mark.parametrize("centroids", [1024, 16])
def test_lists_find_nine_of_ten(centroids, monkeypatch):
    """One level of centroids, or two; 16 lists of 47 hold a third of the rows."""
    monkeypatch.setattr(search, "CENTROIDS", centroids)
    rows = clustered()
    found = Search.of(rows, exact=1000)
    assert str(found) == "16 of 47 lists"
    pairs = found.nearest(range(len(rows)), 8)
    assert not bool((pairs[0] == pairs[1]).any())
    assert torch.unique(pairs, dim=1).shape == pairs.shape
    product = (rows[pairs[0]] * rows[pairs[1]]).sum(1)
    recall = (product >= of_truth(rows, 8)[pairs[0], -1] - 1e-6).sum() / (8 * len(rows))
    assert recall > 0.9


def test_what_lists_find_depends_on_the_rows_alone():
    rows = clustered(3000)
    one, other = (Search.of(rows, exact=1000) for _ in range(2))
    assert torch.equal(one.nearest(range(3000), 8), other.nearest(range(3000), 8))


def test_equal_and_empty_rows_are_no_trouble():
    rows = torch.cat([torch.ones(1500, 4) / 2, torch.zeros(1500, 4)])
    pairs = Search.of(rows, exact=1000).nearest(range(3000), 8)
    assert bool((pairs < 1500).all())  # a row of zeros is near to none
    assert not bool((pairs[0] == pairs[1]).any())
    assert Search.of(torch.zeros(5000, 0), exact=10).nearest(range(9), 8).shape == (2, 0)
    assert Search.of(torch.ones(1, 3)).nearest(range(1), 8).shape == (2, 0)
