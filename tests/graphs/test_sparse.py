import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphglow.graphs.sparse import SparseMatrix


def random_matrix(rows: int, cols: int, density: float, seed: int = 0) -> sp.csr_array:
    return sp.random_array((rows, cols), density=density, rng=np.random.default_rng(seed)).tocsr()


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 5), (63, 60), (5, 200)])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_matmul_and_gradient_equal_the_dense_ones(rows, cols, density):
    matrix = SparseMatrix.from_scipy(random_matrix(rows, cols, density)).to("cpu", torch.float64)
    dense = matrix.to_dense()
    v = torch.randn(cols, 4, dtype=torch.float64, requires_grad=True)
    g = torch.randn(rows, 4, dtype=torch.float64)
    product = matrix @ v
    torch.testing.assert_close(product, dense @ v)
    (got,) = torch.autograd.grad(product, v, g)
    torch.testing.assert_close(got, dense.T @ g)


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
