"""Sparse products and their gradients against dense ones, alone and in a batch."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphglow.linalg import sparse
from graphglow.linalg.sparse import WIDE, SparseMatrix


def random_matrix(rows: int, cols: int, density: float, seed: int = 0) -> sp.csr_array:
    return sp.random_array((rows, cols), density=density, rng=np.random.default_rng(seed)).tocsr()


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 5), (63, 60), (5, 200)])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("width", [4, WIDE + 1])
def test_matmul_and_gradient_equal_the_dense_ones(rows, cols, density, width):
    matrix = SparseMatrix.from_scipy(random_matrix(rows, cols, density)).to("cpu", torch.float64)
    dense = matrix.to_dense()
    v = torch.randn(cols, width, dtype=torch.float64, requires_grad=True)
    g = torch.randn(rows, width, dtype=torch.float64)
    product = matrix @ v
    torch.testing.assert_close(product, dense @ v)
    (got,) = torch.autograd.grad(product, v, g)
    torch.testing.assert_close(got, dense.T @ g)


@pytest.mark.parametrize("batch", [(1,), (3,), (2, 3)])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 5), (63, 60)])
def test_a_batch_of_runs_is_multiplied_like_each_of_them(rows, cols, batch):
    matrix = SparseMatrix.from_scipy(random_matrix(rows, cols, 0.3)).to("cpu", torch.float64)
    dense = matrix.to_dense()
    v = torch.randn(*batch, cols, 4, dtype=torch.float64, requires_grad=True)
    g = torch.randn(*batch, rows, 4, dtype=torch.float64)
    product = matrix @ v
    assert product.shape == g.shape
    torch.testing.assert_close(product, dense @ v)
    (got,) = torch.autograd.grad(product, v, g)
    torch.testing.assert_close(got, dense.T @ g)


@pytest.mark.parametrize("symmetric", [True, False])
def test_each_run_of_a_batch_may_have_values_of_its_own(symmetric):
    shared = symmetric_matrix(8) if symmetric else SparseMatrix.from_scipy(random_matrix(9, 8, 0.4))
    shared = shared.to("cpu", torch.float64)
    scale = torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    each = shared.with_values(shared.values * scale)
    v = torch.randn(3, 8, 2, dtype=torch.float64, requires_grad=True)
    g = torch.randn(3, shared.shape[0], 2, dtype=torch.float64)
    product = each @ v
    (got,) = torch.autograd.grad(product, v, g)
    for run in range(3):
        alone = shared.with_values(each.values[run]).to_dense()
        torch.testing.assert_close(product[run], alone @ v[run])
        torch.testing.assert_close(got[run], alone.T @ g[run])


def symmetric_matrix(size: int) -> SparseMatrix:
    """A + A^T by its CSR parts."""
    half = random_matrix(size, size, 0.3, seed=1)
    csr = sp.csr_array(half + half.T)
    csr.sort_indices()
    parts = (torch.from_numpy(np.asarray(part)) for part in (csr.indptr, csr.indices, csr.data))
    return SparseMatrix.symmetric(*parts, size)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_symmetric_matrix_is_its_own_transpose(batch):
    matrix = symmetric_matrix(13)
    dense = matrix.to_dense()
    assert matrix.order is None
    assert matrix.crow_t is matrix.crow
    assert matrix.col_t is matrix.col
    torch.testing.assert_close(dense, dense.T)
    assert (dense != 0).sum() == matrix.values.numel() > 20
    v = torch.randn(*batch, 13, 4, dtype=torch.float64, requires_grad=True)
    g = torch.randn(*batch, 13, 4, dtype=torch.float64)
    torch.testing.assert_close(matrix @ v, dense @ v)
    (got,) = torch.autograd.grad(matrix @ v, v, g)
    torch.testing.assert_close(got, dense @ g)
    moved = matrix.to("cpu", torch.float32)
    assert moved.order is None
    assert moved.col_t is moved.col
    torch.testing.assert_close(moved.to_dense(), dense.float())


@pytest.mark.parametrize("kind", ["general", "symmetric"])
def test_indices_are_32_bits_wide_where_that_is_enough(monkeypatch, kind):
    def build():
        if kind == "symmetric":
            return symmetric_matrix(8)
        return SparseMatrix.from_scipy(random_matrix(8, 8, 0.4))

    def index_types(matrix):
        parts = (matrix.crow, matrix.col, matrix.crow_t, matrix.col_t, matrix.order)
        return {part.dtype for part in parts if part is not None}

    narrow = build()
    assert index_types(narrow) == {torch.int32}
    assert index_types(narrow.to("cpu", torch.float64)) == {torch.int32}
    monkeypatch.setattr(sparse, "INT32_LIMIT", narrow.col.numel() - 1)
    wide = build()
    assert index_types(wide) == {torch.int64}
    monkeypatch.setattr(sparse, "INT32_LIMIT", narrow.col.numel())
    assert index_types(build()) == {torch.int32}
    v = torch.randn(8, 2, dtype=narrow.values.dtype, requires_grad=True)
    for one, other in ((narrow @ v, wide @ v), (gradient(narrow, v), gradient(wide, v))):
        torch.testing.assert_close(one, other)


def gradient(matrix: SparseMatrix, v: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((matrix @ v).square().sum(), v)[0]


def test_gradcheck():
    matrix = SparseMatrix.from_scipy(random_matrix(9, 6, 0.3)).to("cpu", torch.float64)
    v = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: matrix @ t, (v,))


def test_new_values_reach_the_gradient_too():
    matrix = SparseMatrix.from_scipy(random_matrix(8, 8, 0.4))
    other = matrix.with_values(torch.randn(matrix.values.shape))
    v = torch.randn(8, 2, requires_grad=True)
    (other @ v).sum().backward()
    torch.testing.assert_close(v.grad, other.to_dense().T @ torch.ones(8, 2))


def test_duplicate_entries_are_summed_and_density_counts_entries():
    coo = sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2))
    matrix = SparseMatrix.from_scipy(coo)
    assert matrix.to_dense().tolist() == [[0.0, 3.0], [0.0, 0.0]]
    assert matrix.density == 0.25


def test_matrices_compare_by_identity():
    a = SparseMatrix.from_scipy(random_matrix(3, 3, 0.5))
    assert a == a
    assert a != a.to("cpu", torch.float64)
