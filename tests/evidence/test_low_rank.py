"""Rows of low rank: as few columns as count."""

import pytest
import torch
from torch_geometric.data import Data

from graphglow.evidence.problem import problem_of
from graphglow.evidence.rows import LEFT, low_rank
from graphglow.evidence.views import FIRST, WIDTH, first_views


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
    whole = of_spectrum(values)
    kept = low_rank(whole, 64, torch.Generator().manual_seed(1))
    share = 1 - values.square().cumsum(0) / values.square().sum()
    assert kept.shape[1] == pytest.approx(min(64, 1 + int((share > LEFT).sum())), abs=1)
    missed = 1 - kept.square().sum() / whole.square().sum()
    assert float(missed) == pytest.approx(float(share[kept.shape[1] - 1]), rel=0.1, abs=LEFT)


def test_columns_that_are_dropped_are_not_missed(monkeypatch):
    """300 columns that are sums of 40: every cosine is that of 192 columns."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 40, generator=g) @ torch.randn(40, 300, generator=g)
    p = problem_of(Data(x=x, edge_index=torch.randint(400, (2, 900), generator=g)))
    found = []
    for left in (LEFT, -1.0):
        monkeypatch.setattr("graphglow.evidence.rows.LEFT", left)
        found.append(first_views(p, torch.Generator().manual_seed(0)))
    narrow, wide = found
    assert (narrow["x"].shape[1], wide["x"].shape[1]) == (40, WIDTH)
    for name in FIRST:
        cosines = [views[name] @ views[name].T for views in found]
        torch.testing.assert_close(*cosines, atol=1e-5, rtol=0)
