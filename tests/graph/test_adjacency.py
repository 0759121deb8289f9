"""The adjacency in torch against the plain construction in numpy and scipy."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphglow.graph.graph import normalised_adjacency, undirected_edges


def plain(edge_index, edge_weight, num_nodes):
    """D^-1/2 (A + I) D^-1/2 by sorting and adding sparse matrices, in float64."""
    row, col = edge_index.numpy()
    weight = np.ones(len(row)) if edge_weight is None else edge_weight.double().numpy()
    keep = row != col
    row, col, weight = row[keep], col[keep], weight[keep]
    low, high = np.minimum(row, col), np.maximum(row, col)
    order = np.lexsort((-weight, high, low))
    low, high, weight = low[order], high[order], weight[order]
    first = np.ones(len(low), dtype=bool)
    first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    upper = sp.coo_array((weight[first], (low[first], high[first])), shape=(num_nodes, num_nodes))
    adj = sp.csr_array(upper + upper.T + sp.eye_array(num_nodes))
    scale = sp.diags_array(1.0 / np.sqrt(adj.sum(axis=1)))
    out = sp.csr_array(scale @ adj @ scale)
    out.eliminate_zeros()
    out.sort_indices()
    return out


def edges_of(data, n, weighted):
    """A multigraph with duplicates, both directions, self-loops and zero weights."""
    node = st.integers(0, n - 1)
    weight = st.sampled_from([0.0, 0.5, 1.0, 3.0]) | st.floats(0.125, 10, width=32)
    edges = data.draw(st.lists(st.tuples(node, node, weight), max_size=60))
    edge_index = torch.tensor([e[:2] for e in edges], dtype=torch.int64).reshape(-1, 2).T
    return edge_index, torch.tensor([e[2] for e in edges]) if weighted else None


@settings(max_examples=100, deadline=None)
@given(data=st.data(), n=st.integers(1, 20), weighted=st.booleans())
def test_it_is_the_plain_construction(data, n, weighted):
    edge_index, edge_weight = edges_of(data, n, weighted)
    got, expected = (
        normalised_adjacency(edge_index, edge_weight, n),
        plain(edge_index, edge_weight, n),
    )
    assert got.crow.tolist() == expected.indptr.tolist()
    assert got.col.tolist() == expected.indices.tolist()  # sorted, and nothing stored in vain
    np.testing.assert_allclose(got.values.numpy(), expected.data, rtol=1e-6)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), n=st.integers(1, 20), weighted=st.booleans())
def test_it_is_symmetric_to_the_last_bit(data, n, weighted):
    adj = normalised_adjacency(*edges_of(data, n, weighted), n)
    dense = adj.to_dense()
    assert torch.equal(dense, dense.T)
    assert adj.order is None
    assert adj.crow_t is adj.crow
    assert adj.col_t is adj.col


def test_edges_once_sorted_with_the_largest_weight():
    edge_index = torch.tensor([[2, 0, 1, 1, 3, 1, 0], [0, 2, 1, 0, 1, 3, 1]])
    weight = torch.tensor([1.0, 4.0, 9.0, 0.0, 2.0, 0.5, 0.0])
    low, high, largest = undirected_edges(edge_index, weight, 5)
    assert (low.tolist(), high.tolist(), largest.tolist()) == ([0, 1], [2, 3], [4.0, 2.0])
    low, high, none = undirected_edges(edge_index, None, 5)
    assert (low.tolist(), high.tolist(), none) == ([0, 0, 1], [1, 2, 3], None)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_edge_numbers_beyond_32_bits(dtype):
    n = 100_000  # low * n + high needs 34 bits
    edge_index = torch.tensor([[n - 1, n - 2, 0], [n - 2, n - 1, n - 1]], dtype=dtype)
    adj = normalised_adjacency(edge_index, None, n)
    assert adj.col.dtype == adj.crow.dtype == torch.int32
    assert adj.crow.diff()[[0, 1, n - 2, n - 1]].tolist() == [2, 1, 2, 3]
    assert adj.col[-3:].tolist() == [0, n - 2, n - 1]


@pytest.mark.gpu
def test_on_the_gpu_it_is_the_same_matrix():
    edge_index = torch.randint(1000, (2, 20_000), generator=torch.Generator().manual_seed(0))
    weight = torch.rand(20_000, generator=torch.Generator().manual_seed(1))
    for w in (None, weight):
        here = normalised_adjacency(edge_index, w, 1000)
        there = normalised_adjacency(edge_index.cuda(), None if w is None else w.cuda(), 1000)
        assert there.values.is_cuda
        assert torch.equal(there.col.cpu(), here.col)
        assert torch.equal(there.crow.cpu(), here.crow)
        torch.testing.assert_close(there.values.cpu(), here.values)
