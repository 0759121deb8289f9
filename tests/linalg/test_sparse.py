"""Sparse products and their gradients against dense ones, alone and in a batch."""

import pytest
import torch

from graphglow.linalg.sparse import WIDE, SparseMatrix
from tiny_graphs import FLOAT64, sparse_matrix


def random_dense(rows, cols, density, seed=0):
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, cols, generator=g, dtype=FLOAT64)
    return values * (torch.rand(rows, cols, generator=g) < density)


def symmetric(size):
    half = random_dense(size, size, 0.3, seed=1)
    csr = (half + half.T).to_sparse_csr()
    return SparseMatrix.symmetric(csr.crow_indices(), csr.col_indices(), csr.values(), size)


def assert_multiplies_like(matrix, dense, *shape):
    v = torch.randn(*shape, dtype=FLOAT64, requires_grad=True)
    product = matrix @ v
    torch.testing.assert_close(product, dense @ v)
    g = torch.randn_like(product)
    (got,) = torch.autograd.grad(product, v, g)
    torch.testing.assert_close(got, dense.mT @ g)


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 5), (63, 60), (5, 200)])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("width", [4, WIDE + 1])
def test_product_and_gradient_equal_the_dense_ones(rows, cols, density, width):
    dense = random_dense(rows, cols, density)
    matrix = sparse_matrix(dense)
    torch.testing.assert_close(matrix.to_dense(), dense)
    assert_multiplies_like(matrix, dense, cols, width)
    assert matrix.density == pytest.approx(float((dense != 0).double().mean()))


@pytest.mark.parametrize("batch", [(1,), (3,), (2, 3)])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 5), (63, 60)])
def test_a_batch_is_multiplied_like_each_of_it(rows, cols, batch):
    dense = random_dense(rows, cols, 0.3)
    assert_multiplies_like(sparse_matrix(dense), dense, *batch, cols, 4)


@pytest.mark.parametrize("kind", ["symmetric", "general"])
def test_each_of_a_batch_may_have_values_of_its_own(kind):
    shared = symmetric(8) if kind == "symmetric" else sparse_matrix(random_dense(9, 8, 0.4))
    scale = torch.tensor([[1.0], [-2.0], [0.5]], dtype=FLOAT64)
    dense = scale[:, :, None] * shared.to_dense()
    assert_multiplies_like(shared.with_values(shared.values * scale), dense, 3, 8, 2)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_symmetric_matrix_is_its_own_transpose(batch):
    matrix = symmetric(13)
    dense = matrix.to_dense()
    assert matrix.order is None
    assert (matrix.crow_t, matrix.col_t) == (matrix.crow, matrix.col)
    assert (dense != 0).sum() == matrix.values.numel() > 20
    assert_multiplies_like(matrix, dense, *batch, 13, 4)
    moved = matrix.to("cpu", torch.float32)
    assert moved.order is None
    torch.testing.assert_close(moved.to_dense(), dense.float())


def test_new_values_reach_the_gradient_too():
    matrix = sparse_matrix(random_dense(8, 8, 0.4))
    other = matrix.with_values(torch.randn(matrix.values.shape, dtype=FLOAT64))
    assert_multiplies_like(other, other.to_dense(), 8, 2)
