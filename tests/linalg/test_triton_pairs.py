"""Of pairs of nodes: the plain form against dense matrices, the kernels against the plain form."""

from unittest import mock

import pytest
import torch

from graphglow.linalg import pairs as plain
from graphglow.linalg.sparse import SparseMatrix
from interpreted import DEVICE, KERNEL_TEST, kernels

pytest.importorskip("triton")
pytestmark = KERNEL_TEST
fused = kernels("graphglow.linalg.triton_pairs")

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
GRAPHS = ("random", "hub", "no edges", "one edge")


def links_of(kind, nodes=18):
    """A pattern without self-loops; the last node is alone."""
    g = torch.Generator().manual_seed(0)
    dense = torch.rand(nodes, nodes, generator=g) < (0.2 if kind in ("random", "hub") else 0)
    if kind == "hub":
        dense[:2] = True
    if kind == "one edge":
        dense[3, 5] = True
    dense[-1] = dense[:, -1] = False
    dense = (dense | dense.T).fill_diagonal_(False).float()
    csr = dense.to_sparse_csr()
    parts = csr.crow_indices(), csr.col_indices(), csr.values()
    return SparseMatrix.symmetric(*parts, nodes).to(DEVICE), dense


def all_pairs(nodes=18, dtype=torch.int64):
    return torch.triu_indices(nodes, nodes, 1, dtype=dtype).to(DEVICE)


def both(name, *args):
    """By kernels and by the plain form; the kernels leave nothing unwritten."""
    made = getattr(plain, name)(*args)
    with mock.patch.object(plain, "kernels_for", return_value=None):
        expected = getattr(plain, name)(*args)
    assert made.dtype == expected.dtype
    torch.testing.assert_close(made, expected, **CLOSE)
    return expected.cpu()


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("columns", [0, 7, 100])
def test_dots(columns, dtype):
    rows = torch.randn(18, columns, generator=torch.Generator().manual_seed(columns)).to(DEVICE)
    pairs = all_pairs(dtype=dtype)
    u, v = pairs.long().cpu()
    torch.testing.assert_close(both("dots", rows, pairs), (rows @ rows.T).cpu()[u, v], **CLOSE)
    assert both("dots", rows, pairs[:, :0]).shape == (0,)
    strided = torch.cat([rows, rows], 1)[:, columns // 2 : columns // 2 + columns]
    both("dots", strided, pairs[:, 5:40])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("kind", GRAPHS)
def test_edges_and_neighbours_in_common(kind, dtype, monkeypatch):
    monkeypatch.setattr(fused, "LONG", 7)  # some pairs are heavy
    monkeypatch.setattr(plain, "LIGHT", 4)
    monkeypatch.setitem(plain.LOOKUPS, DEVICE, 7)
    links, dense = links_of(kind)
    worth = torch.rand(18, 3, generator=torch.Generator().manual_seed(1))
    pairs = all_pairs(dtype=dtype)
    pairs = torch.where(pairs.sum(0) % 2 > 0, pairs, pairs.flip(0))
    u, v = pairs.long().cpu()
    assert torch.equal(both("is_edge", links, pairs), dense[u, v] > 0)
    found = both("common", links, worth.to(DEVICE), pairs)
    expected = torch.stack([((dense * w) @ dense)[u, v] for w in worth.T], 1)
    torch.testing.assert_close(found, expected, **CLOSE)
    assert both("common", links, worth[:, :1].to(DEVICE), pairs[:, :0]).shape == (0, 1)


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("kind", GRAPHS)
def test_edges_between_neighbours(kind):
    links, dense = links_of(kind)
    chosen = torch.full((18, 4), -1)
    for node in range(18):
        near = dense[node].nonzero()[:, 0].flip(0)[:4]
        chosen[node, : len(near)] = near
    pairs = all_pairs(dtype=torch.int32)
    total = torch.rand(pairs.shape[1], generator=torch.Generator().manual_seed(2)) + 30
    found = both("between", links, chosen.to(links.col), pairs, total.to(DEVICE))
    degree = dense.sum(1)
    for m in range(0, pairs.shape[1], 13):
        u, v = pairs[:, m].tolist()
        a, b = (
            [n for n in chosen[s].tolist() if n not in (-1, t)][:3] for s, t in ((u, v), (v, u))
        )
        ways = [(i, j) for i in a for j in b if i != j]
        likely = sum(min(1.0, float(degree[i] * degree[j] / total[m])) for i, j in ways)
        assert found[m, 0] == sum(float(dense[i, j]) for i, j in ways)
        assert found[m, 1] == pytest.approx(likely, rel=1e-5)


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("columns", [0, 70])
@pytest.mark.parametrize("kind", GRAPHS)
def test_cosines_of_hops(kind, columns):
    links, dense = links_of(kind)
    x = torch.randn(18, columns, generator=torch.Generator().manual_seed(columns))
    x[7] = 0
    x = torch.nn.functional.normalize(x, dim=1)
    degree = dense.sum(1)
    mean = (x + dense @ x) / (degree + 1)[:, None]
    rows = (t.to(DEVICE) for t in (x, dense @ x, mean + dense @ mean, degree))
    pairs = all_pairs()
    edge = plain.is_edge(links, pairs).float()
    found = both("hop_cosines", *rows, pairs, edge)
    assert found.shape == (pairs.shape[1], 5)
    torch.testing.assert_close(found[:, 0], (x @ x.T)[tuple(pairs.cpu())], **CLOSE)
