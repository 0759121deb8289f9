"""The kernel for sparse products against dense ones: on the GPU, or in the interpreter."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphglow.ops.sparse import SparseMatrix
from interpreted import DEVICE, KERNEL_TEST, kernels

pytest.importorskip("triton")
pytestmark = KERNEL_TEST
spmm = kernels("graphglow.ops.triton_spmm")

FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


def random_matrix(rows, cols, density):
    rng = np.random.default_rng(0)
    scipy = sp.random_array((rows, cols), density=density, rng=rng, data_sampler=rng.normal)
    return SparseMatrix.from_scipy(scipy).to(DEVICE)


def symmetric_matrix(size):
    half = random_matrix(size, size, 0.2).to_dense()
    csr = (half + half.mT).to_sparse_csr()
    return SparseMatrix.symmetric(csr.crow_indices(), csr.col_indices(), csr.values(), size)


def indexed_by(matrix, dtype):
    names = ("crow", "col", "crow_t", "col_t", "order")
    parts = {name: getattr(matrix, name) for name in names}
    return dataclasses.replace(
        matrix, **{name: part if part is None else part.to(dtype) for name, part in parts.items()}
    )


def assert_equals_dense(matrix, features, batch=()):
    """``matrix @ v`` and its gradient, where the matrix may be one per run."""
    generator = torch.Generator().manual_seed(1)
    rows, cols = matrix.shape
    v = torch.randn(*batch, cols, features, generator=generator)
    g = torch.randn(*batch, rows, features, generator=generator)
    leaf = v.to(DEVICE).requires_grad_()
    product = matrix @ leaf
    (gradient,) = torch.autograd.grad(product, leaf, g.to(DEVICE))
    here = matrix.to("cpu", torch.float64)
    if here.values.ndim == 1:
        dense = here.to_dense()
    else:
        dense = torch.stack([here.with_values(own).to_dense() for own in here.values])
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.detach().cpu().double(), dense @ v.double(), **FLOAT32)
    torch.testing.assert_close(gradient.cpu().double(), dense.mT @ g.double(), **FLOAT32)


@pytest.mark.parametrize("features", [1, 2, 5, 70])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 5), (13, 60)])
def test_matmul_and_gradient_equal_the_dense_ones(rows, cols, features):
    assert_equals_dense(random_matrix(rows, cols, 1.0 if rows == 1 else 0.3), features)


@pytest.mark.parametrize(("cols", "features"), [(150, 1), (40, 64)])
def test_rows_longer_than_a_block(cols, features):
    assert_equals_dense(random_matrix(2, cols, 1.0), features)


@pytest.mark.parametrize("batch", [(1,), (3,), (2, 3)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_batch_of_runs_shares_the_values(symmetric, batch):
    matrix = symmetric_matrix(8) if symmetric else random_matrix(9, 8, 0.4)
    assert_equals_dense(matrix, 5, batch)


@pytest.mark.parametrize("features", [1, 70])
@pytest.mark.parametrize("symmetric", [True, False])
def test_each_run_of_a_batch_may_have_values_of_its_own(symmetric, features):
    matrix = symmetric_matrix(8) if symmetric else random_matrix(9, 8, 0.4)
    scale = torch.tensor([[1.0], [-2.0], [0.5]], device=DEVICE)
    assert_equals_dense(matrix.with_values(matrix.values * scale), features, (3,))


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("batch", [(), (2,)])
def test_rows_without_entries_give_exactly_zero(batch):
    coo = sp.coo_array(([1.5, -2.0, 3.0], ([1, 1, 4], [0, 2, 2])), shape=(6, 5))
    matrix = SparseMatrix.from_scipy(coo).to(DEVICE)
    assert_equals_dense(matrix, 3, batch)
    leaf = torch.randn(*batch, 5, 3, device=DEVICE, requires_grad=True)
    product = matrix @ leaf
    assert (product[..., [0, 2, 3, 5], :] == 0).all()
    (gradient,) = torch.autograd.grad(product.sum(), leaf)
    assert (gradient[..., [1, 3, 4], :] == 0).all()


@pytest.mark.usefixtures("nan_filled_memory")
def test_a_matrix_without_entries_gives_zero():
    matrix = SparseMatrix.from_scipy(sp.csr_array((4, 3))).to(DEVICE)
    assert (matrix @ torch.ones(3, 2, device=DEVICE) == 0).all()


@pytest.mark.parametrize("shape", [(0, 2), (3, 0)])
def test_an_empty_result_is_empty(shape):
    rows, features = shape
    matrix = SparseMatrix.from_scipy(sp.csr_array((rows, 3))).to(DEVICE)
    assert (matrix @ torch.ones(2, 3, features, device=DEVICE)).shape == (2, rows, features)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("symmetric", [True, False])
def test_indices_may_be_32_or_64_bits_wide(symmetric, dtype):
    matrix = symmetric_matrix(8) if symmetric else random_matrix(9, 8, 0.4)
    matrix = indexed_by(matrix, dtype)
    assert matrix.col.dtype == dtype
    assert_equals_dense(matrix, 5)
    assert_equals_dense(matrix.with_values(matrix.values.expand(2, -1)), 5, (2,))


def test_strided_inputs_and_an_expanded_gradient_are_taken():
    matrix = random_matrix(9, 8, 0.4)
    v = torch.randn(5, 8, device=DEVICE).mT.requires_grad_()
    assert not v.is_contiguous()
    product = matrix @ v
    torch.testing.assert_close(product, matrix.to_dense() @ v, **FLOAT32)
    (gradient,) = torch.autograd.grad(product.sum(), v)
    torch.testing.assert_close(gradient, matrix.to_dense().mT @ torch.ones_like(product), **FLOAT32)


@pytest.mark.parametrize(("dtype", "taken"), [(torch.float32, 1), (torch.float64, 0)])
def test_the_kernel_takes_float32_only(dtype, taken, monkeypatch):
    calls = []
    run = spmm.spmm
    monkeypatch.setattr(spmm, "spmm", lambda *args: calls.append(args) or run(*args))
    matrix = random_matrix(9, 8, 0.4).to(DEVICE, dtype)
    v = torch.randn(8, 2, device=DEVICE, dtype=dtype)
    torch.testing.assert_close(matrix @ v, matrix.to_dense() @ v, **FLOAT32)
    assert len(calls) == taken
