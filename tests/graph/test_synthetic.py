"""Random graphs."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphglow.errors import InputError
from graphglow.graph import check_graph, scale_graph, synthetic_graph


def edge_homophily(data) -> float:
    u, v = data.edge_index
    return float((data.y[u] == data.y[v]).float().mean())


@pytest.mark.parametrize("homophily", [0.0, 0.1, 0.35, 0.8, 1.0])
@pytest.mark.parametrize("num_classes", [2, 7])
def test_homophily_and_degree_are_as_asked(homophily, num_classes):
    data = synthetic_graph(
        num_nodes=500, num_classes=num_classes, homophily=homophily, average_degree=6
    )
    assert edge_homophily(data) == pytest.approx(homophily, abs=0.001)
    u, v = data.edge_index
    assert len(u) / 500 == 6
    assert (u != v).all()
    assert data.edge_index.unique(dim=1).shape[1] == len(u)
    assert (torch.bincount(data.y).max() - torch.bincount(data.y).min()) <= 1
    check_graph(data)


def test_the_seed_fixes_everything():
    a, b, c = (synthetic_graph(seed=s) for s in (4, 4, 5))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.edge_index, b.edge_index)
    assert not torch.equal(a.x, c.x)


def test_features_gather_around_their_class():
    data = synthetic_graph(feature_noise=0.0)
    for c in range(5):
        assert (data.x[data.y == c] == data.x[data.y == c][0]).all()


def test_as_dense_as_allowed():
    data = synthetic_graph(num_nodes=20, num_classes=2, homophily=0.5, average_degree=9)
    assert data.edge_index.shape[1] == 180


def test_large_graphs_are_drawn_in_linear_memory():
    data = synthetic_graph(num_nodes=200_000, num_features=2, average_degree=10)
    assert data.edge_index.shape == (2, 2_000_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "num_classes must be >= 2; got 1"),
        ({"num_nodes": 9}, "num_nodes must be at least two per class (10); got 9"),
        ({"num_nodes": 0}, "got 0"),
        ({"num_features": 0}, "num_features must be >= 1; got 0"),
        ({"homophily": 1.1}, "homophily must lie in [0, 1]; got 1.1"),
        ({"homophily": float("nan")}, "homophily must lie in [0, 1]; got nan"),
        ({"feature_noise": -1.0}, "feature_noise must lie in [0, 1e+30]; got -1.0"),
        ({"average_degree": 0.0}, "average_degree must give at least one edge"),
        ({"average_degree": float("inf")}, "at least one edge"),
        ({"num_nodes": 20, "average_degree": 9}, "at most half of the pairs"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        synthetic_graph(**arguments)


def off_diagonal(graph):
    row = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.adj.crow.diff().long())
    col = graph.adj.col.long()
    return row[row != col], col[row != col]


def test_degree_and_homophily_are_about_as_asked():
    graph = scale_graph(num_nodes=5003, average_degree=20, num_classes=7, seed=1)
    row, col = off_diagonal(graph)
    assert len(row) / graph.num_nodes == pytest.approx(20, rel=0.03)
    assert float((graph.y[row] == graph.y[col]).float().mean()) == pytest.approx(0.8, abs=0.02)
    assert int(torch.bincount(row, minlength=5003).max()) < 60


@settings(max_examples=30, deadline=None)
@given(n=st.integers(4, 60), c=st.integers(2, 5), degree=st.floats(1, 3), seed=st.integers(0, 99))
def test_it_is_a_graph(n, c, degree, seed):
    if n < 2 * c:
        return
    graph = scale_graph(
        num_nodes=n, average_degree=degree, num_classes=c, num_features=3, seed=seed
    )
    adj = graph.adj.to_dense()
    assert torch.equal(adj, adj.T)
    assert (adj.diagonal() > 0).all()
    assert graph.x.shape == (n, 3)
    torch.testing.assert_close(graph.x.norm(dim=1), torch.ones(n))
    assert graph.y.max() < c
    split = torch.cat([graph.train, graph.val, graph.test])
    assert sorted(split.tolist()) == list(range(n))
    assert (len(graph.train), len(graph.val)) == (n // 2, n // 4)


def test_scale_features_gather_around_their_class():
    graph = scale_graph(num_nodes=4001, num_features=16, num_classes=4)
    mean = torch.stack([graph.x[graph.y == c].mean(0) for c in range(4)])
    near = torch.cdist(graph.x, mean).argmin(1)
    assert float((near == graph.y).float().mean()) > 0.5  # 0.25 by chance


def test_the_seed_fixes_a_scale_graph():
    a, b, c = (scale_graph(num_nodes=100, seed=s) for s in (4, 4, 5))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.adj.col, b.adj.col)
    assert torch.equal(a.train, b.train)
    assert not torch.equal(a.adj.col, c.adj.col)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 9}, "num_nodes must be at least two per class (10); got 9"),
        ({"num_nodes": 100, "num_classes": 1}, "num_classes must be >= 2; got 1"),
        ({"num_nodes": 100, "num_features": 0}, "num_features must be >= 1; got 0"),
        ({"num_nodes": 100, "average_degree": 0.0}, "must give at least one edge"),
        ({"num_nodes": 100, "average_degree": 100.0}, "below the number of nodes (100); got 100.0"),
        ({"num_nodes": 100, "average_degree": float("nan")}, "at least one edge"),
    ],
)
def test_bad_scale_arguments(arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        scale_graph(**arguments)


@pytest.mark.gpu
def test_on_the_gpu_it_never_touches_the_host():
    torch.cuda.reset_peak_memory_stats()
    graph = scale_graph(num_nodes=1_000_000, device="cuda")
    tensors = (graph.x, graph.y, graph.adj.col, graph.adj.crow, graph.adj.values, graph.train)
    assert all(t.is_cuda for t in tensors)
    assert graph.adj.col.dtype == torch.int32
    assert len(graph.adj.col) == pytest.approx(21_000_000, rel=0.001)
    assert torch.cuda.max_memory_allocated() < 4e9  # so that 10 M nodes fit in 40 GB
