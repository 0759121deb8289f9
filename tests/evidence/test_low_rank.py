"""Rows of low rank: as few columns as count."""

import pytest
import torch
from torch_geometric.data import Data

from graphglow.evidence.views import FIRST, WIDTH, first_views
from graphglow.graph.graph import known_graph
from graphglow.linalg.rows import LEFT, low_rank, unit


def of_spectrum(values: torch.Tensor) -> torch.Tensor:
    """[150, D] with these singular values."""
    g = torch.Generator().manual_seed(0)
    u, v = (
        torch.linalg.qr(torch.randn(n, len(values), generator=g))[0] for n in (150, len(values))
    )
    return (u * values) @ v.T


@pytest.mark.parametrize("fall", [0.0, 1.0, 3.0, 8.0])
def test_the_fewest_columns_that_leave_out_no_more_than_is_allowed(fall):
    values = torch.logspace(0, -fall, 100)
    kept = low_rank(of_spectrum(values), 64, torch.Generator().manual_seed(1))
    share = 1 - values.square().cumsum(0) / values.square().sum()
    assert kept.shape[1] == pytest.approx(min(64, 1 + int((share > LEFT).sum())), abs=1)
    torch.testing.assert_close(kept.norm(dim=1), torch.ones(150))


@pytest.mark.parametrize("fall", [1.0, 3.0])
def test_another_draw_gives_the_same_cosines(fall):
    rows = of_spectrum(torch.logspace(0, -fall, 140))
    first, second = (low_rank(rows, 64, torch.Generator().manual_seed(s)) for s in (1, 2))
    torch.testing.assert_close(first @ first.T, second @ second.T, atol=5e-3, rtol=0)


def test_singular_values_are_shrunk_by_the_first_that_is_left_out():
    """Against a dense SVD: s^2 - t s_cut^2 with t = 1 - 0.1 s_cut^2 / s_1^2, then unit rows."""
    values = torch.logspace(0, -1, 100)
    rows = of_spectrum(values)
    u, s, _ = torch.linalg.svd(rows.double(), full_matrices=False)
    cut = s[64] ** 2 * (1 - 0.1 * s[64] ** 2 / s[0] ** 2)
    wanted = u[:, :64] * (s[:64] ** 2 - cut).sqrt()
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    low = low_rank(rows, 64, torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(low @ low.T, wanted @ wanted.T, atol=2e-3, rtol=0)


def test_columns_that_are_dropped_are_not_missed(monkeypatch):
    """300 columns that are sums of 40: every cosine is that of 192 columns."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 40, generator=g) @ torch.randn(40, 300, generator=g)
    p = known_graph(Data(x=x, edge_index=torch.randint(400, (2, 900), generator=g)))
    found = []
    for left in (LEFT, -1.0):
        monkeypatch.setattr("graphglow.linalg.rows.LEFT", left)
        found.append(first_views(p, torch.Generator().manual_seed(0))[0])
    narrow, wide = found
    assert (narrow["x"].shape[1], wide["x"].shape[1]) == (40, WIDTH)
    for name in FIRST:
        cosines = [views[name] @ views[name].T for views in found]
        torch.testing.assert_close(*cosines, atol=1e-5, rtol=0)


def test_another_draw_gives_the_same_cosines_where_the_spectrum_is_flat():
    g = torch.Generator().manual_seed(0)
    rows = unit(torch.randn(500, 400, generator=g).relu())  # no gap after the first direction
    one, other = (low_rank(rows, 60, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    torch.testing.assert_close(one @ one.T, other @ other.T, atol=1e-3, rtol=0)
