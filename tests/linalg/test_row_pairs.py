"""Products, edges and common neighbours of pairs, against dense matrices."""

import pytest
import torch

from graphglow.linalg import sparse as ops
from graphglow.linalg.sparse import SparseMatrix

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
GRAPHS = ("random", "hub", "no edges", "one edge")
NODES = 18


def links_of(kind):
    """A pattern without self-loops, sparse and dense; the last node is alone."""
    g = torch.Generator().manual_seed(0)
    dense = torch.rand(NODES, NODES, generator=g) < (0.2 if kind in ("random", "hub") else 0)
    if kind == "hub":
        dense[:2] = True
    if kind == "one edge":
        dense[3, 5] = True
    dense[-1] = dense[:, -1] = False
    dense = (dense | dense.T).fill_diagonal_(False).float()
    csr = dense.to_sparse_csr()
    parts = csr.crow_indices(), csr.col_indices(), csr.values()
    return SparseMatrix.symmetric(*parts, NODES), dense


def all_pairs(dtype=torch.int64):
    return torch.triu_indices(NODES, NODES, 1, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("columns", [0, 7, 100])
def test_dots(columns, dtype):
    rows = torch.randn(NODES, columns, generator=torch.Generator().manual_seed(columns))
    pairs = all_pairs(dtype)
    u, v = pairs.long()
    torch.testing.assert_close(ops.dots(rows, pairs), (rows @ rows.T)[u, v], **CLOSE)
    assert ops.dots(rows, pairs[:, :0]).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("kind", GRAPHS)
def test_edges_and_neighbours_in_common(kind, dtype, monkeypatch):
    monkeypatch.setattr(ops, "LIGHT", 4)  # some rows are heavy
    monkeypatch.setitem(ops.LOOKUPS, "cpu", 7)
    links, dense = links_of(kind)
    weights = torch.rand(NODES, 3, generator=torch.Generator().manual_seed(1))
    pairs = all_pairs(dtype)
    pairs = torch.where(pairs.sum(0) % 2 > 0, pairs, pairs.flip(0))
    u, v = pairs.long()
    assert torch.equal(ops.is_edge(links, pairs), dense[u, v] > 0)
    expected = torch.stack([((dense * w) @ dense)[u, v] for w in weights.T], 1)
    torch.testing.assert_close(ops.common(links, weights, pairs), expected, **CLOSE)
    assert ops.common(links, weights[:, :1], pairs[:, :0]).shape == (0, 1)


@pytest.mark.parametrize("kind", GRAPHS)
def test_edges_between_neighbours(kind, monkeypatch):
    monkeypatch.setitem(ops.LOOKUPS, "cpu", 100)  # several blocks
    links, dense = links_of(kind)
    chosen = torch.full((NODES, 4), -1)
    for node in range(NODES):
        near = dense[node].nonzero()[:, 0].flip(0)[:4]
        chosen[node, : len(near)] = near
    pairs = all_pairs(torch.int32)
    total = torch.rand(pairs.shape[1], generator=torch.Generator().manual_seed(2)) + 30
    found = ops.between(links, chosen, pairs, total)
    degree = dense.sum(1)
    for m, (u, v) in enumerate(pairs.T.tolist()):
        a, b = (
            [n for n in chosen[s].tolist() if n not in (-1, t)][:3] for s, t in ((u, v), (v, u))
        )
        ways = [(i, j) for i in a for j in b if i != j]
        likely = sum(min(1.0, float(degree[i] * degree[j] / total[m])) for i, j in ways)
        assert found[m, 0] == sum(float(dense[i, j]) for i, j in ways)
        assert found[m, 1] == pytest.approx(likely, rel=1e-5)


@pytest.mark.parametrize("columns", [0, 70])
@pytest.mark.parametrize("kind", GRAPHS)
def test_cosines_of_hops_are_those_of_a_graph_without_the_edge(kind, columns):
    _, dense = links_of(kind)
    x = torch.randn(NODES, columns, generator=torch.Generator().manual_seed(columns))
    x[7] = 0
    x = torch.nn.functional.normalize(x, dim=1)
    degree = dense.sum(1)
    mean = (x + dense @ x) / (degree + 1)[:, None]
    pairs = all_pairs()[:, ::5]
    edge = dense[tuple(pairs)]
    found = ops.hop_cosines(x, dense @ x, mean + dense @ mean, degree, pairs, edge)
    for (u, v), row in zip(pairs.T.tolist(), found, strict=True):
        without = dense.clone()
        without[u, v] = without[v, u] = 0
        one = (x + without @ x) / (without.sum(1) + 1)[:, None]
        two = one + without @ one
        sums = without @ x
        cosine = torch.nn.functional.cosine_similarity
        cross = sorted((cosine(x[u], sums[v], 0), cosine(x[v], sums[u], 0)))
        expected = [x[u] @ x[v], *cross, cosine(one[u], one[v], 0), cosine(two[u], two[v], 0)]
        for got, wanted in zip(row, expected, strict=True):
            assert float(got) == pytest.approx(float(wanted), abs=1e-4)
