"""Sparse products and unit vectors by kernels: on the GPU, or in the interpreter."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphglow.ops.embeddings import CONSTANT_COLUMNS

from graphglow.linalg.sparse import SparseMatrix
from graphglow.linalg.triton_support import kernels_for
from graphglow.paper.learner import SHORTEST, unit_heads
from interpreted import DEVICE, KERNEL_TEST, kernels, on_a_gpu

pytest.importorskip("triton")
pytestmark = [
    *KERNEL_TEST,  # a GPU divides by zero in silence, NumPy does not
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
]
small = kernels("graphglow.ops.triton_small")

FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


def test_the_kernels_take_float32_only():
    z = torch.ones(2, 2, device=DEVICE)
    assert kernels_for(z, "triton_small") is small
    assert kernels_for(z.double(), "triton_small") is None
    assert kernels_for(z.bfloat16(), "triton_small") is None


# ------------------------------------------------------------------------------- sparse products


def random_matrix(rows, cols, density):
    rng = np.random.default_rng(0)
    scipy = sp.random_array((rows, cols), density=density, rng=rng, data_sampler=rng.normal)
    return SparseMatrix.from_scipy(scipy).to(DEVICE)


def symmetric_matrix(size):
    half = random_matrix(size, size, 0.2).to_dense()
    csr = (half + half.mT).to_sparse_csr()
    return SparseMatrix.symmetric(csr.crow_indices(), csr.col_indices(), csr.values(), size)


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


@pytest.mark.parametrize(
    ("rows", "cols", "density", "features"),
    [
        (13, 60, 0.3, 70),
        (2, 150, 1.0, 1),  # rows longer than a block
        *on_a_gpu((1, 1, 1.0, 1), (7, 5, 0.3, 2), (13, 60, 0.3, 5), (2, 40, 1.0, 64)),
    ],
)
def test_matmul_and_gradient_equal_the_dense_ones(rows, cols, density, features):
    assert_equals_dense(random_matrix(rows, cols, density), features)


@pytest.mark.parametrize("batch", [(2, 3), *on_a_gpu(((1,),), ((3,),))])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_batch_of_runs_shares_the_values(symmetric, batch):
    matrix = symmetric_matrix(8) if symmetric else random_matrix(9, 8, 0.4)
    assert_equals_dense(matrix, 5, batch)


@pytest.mark.parametrize("symmetric", [True, False])
def test_each_run_of_a_batch_may_have_values_of_its_own(symmetric):
    matrix = symmetric_matrix(8) if symmetric else random_matrix(9, 8, 0.4)
    scale = torch.tensor([[1.0], [-2.0], [0.5]], device=DEVICE)
    assert_equals_dense(matrix.with_values(matrix.values * scale), 7, (3,))


@pytest.mark.usefixtures("nan_filled_memory")
def test_rows_without_entries_give_exactly_zero():
    coo = sp.coo_array(([1.5, -2.0, 3.0], ([1, 1, 4], [0, 2, 2])), shape=(6, 5))
    matrix = SparseMatrix.from_scipy(coo).to(DEVICE)
    assert_equals_dense(matrix, 3, (2,))
    leaf = torch.randn(2, 5, 3, device=DEVICE, requires_grad=True)
    product = matrix @ leaf
    assert (product[..., [0, 2, 3, 5], :] == 0).all()
    (gradient,) = torch.autograd.grad(product.sum(), leaf)
    assert (gradient[..., [1, 3, 4], :] == 0).all()
    empty = SparseMatrix.from_scipy(sp.csr_array((4, 3))).to(DEVICE)
    assert (empty @ torch.ones(3, 2, device=DEVICE) == 0).all()


@pytest.mark.parametrize("shape", [(0, 2), (3, 0)])
def test_an_empty_result_is_empty(shape):
    rows, features = shape
    matrix = SparseMatrix.from_scipy(sp.csr_array((rows, 3))).to(DEVICE)
    assert (matrix @ torch.ones(2, 3, features, device=DEVICE)).shape == (2, rows, features)


@pytest.mark.parametrize("symmetric", [True, False])
def test_indices_may_be_64_bits_wide(symmetric):
    matrix = symmetric_matrix(8) if symmetric else random_matrix(9, 8, 0.4)
    assert matrix.col.dtype == torch.int32
    parts = {name: getattr(matrix, name) for name in ("crow", "col", "crow_t", "col_t", "order")}
    wide = {name: part if part is None else part.long() for name, part in parts.items()}
    assert_equals_dense(dataclasses.replace(matrix, **wide), 5)


def test_strided_vectors_and_an_expanded_gradient_are_taken():
    matrix = random_matrix(9, 8, 0.4)
    v = torch.randn(5, 8, device=DEVICE).mT.requires_grad_()
    assert not v.is_contiguous()
    product = matrix @ v
    torch.testing.assert_close(product, matrix.to_dense() @ v, **FLOAT32)
    (gradient,) = torch.autograd.grad(product.sum(), v)
    torch.testing.assert_close(gradient, matrix.to_dense().mT @ torch.ones_like(product), **FLOAT32)


# --------------------------------------------------------------------------- unit vectors per head


def heads_of(n, h, d, *, batch=(), batched_weight=False):
    """Random z and weight."""
    generator = torch.Generator().manual_seed(n * h * d)
    shape = (*batch, h, d) if batched_weight else (h, d)
    return [torch.randn(*s, generator=generator) for s in ((*batch, n, d), shape)]


def value_and_gradients(tensors, constant, *, dtype, device, wanted=(True, True)):
    """By the kernels in float32, which take no float64."""
    leaves = [
        t.detach().to(device, dtype).requires_grad_(w) for t, w in zip(tensors, wanted, strict=True)
    ]
    out = unit_heads(*leaves, constant)
    generator = torch.Generator().manual_seed(9)
    direction = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    out.backward(direction.to(device, dtype))
    return [t if t is None else t.detach().cpu() for t in (out, *(leaf.grad for leaf in leaves))]


def assert_both_agree(tensors, constant, **options):
    got = value_and_gradients(tensors, constant, dtype=torch.float32, device=DEVICE, **options)
    want = value_and_gradients(tensors, constant, dtype=torch.float64, device="cpu", **options)
    for one, other in zip(got, want, strict=True):
        if other is None:
            assert one is None
            continue
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, **FLOAT32)
    return got


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("constant", [None, math.sqrt(1 + 1e-5)])
@pytest.mark.parametrize(
    ("n", "h", "d", "batch", "batched_weight"),
    [
        (70, 2, 33, (), False),
        (40, 3, 5, (2, 3), True),
        *on_a_gpu(
            (1, 1, 1, (), False), (small.HEAD_ROWS, 4, 8, (), False), (40, 3, 5, (3,), False)
        ),
    ],
)
def test_values_and_gradients_are_those_of_plain_pytorch(n, h, d, batch, batched_weight, constant):
    assert_both_agree(heads_of(n, h, d, batch=batch, batched_weight=batched_weight), constant)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_one_gradient_alone_is_the_same(wanted):
    assert_both_agree(heads_of(33, 3, 5, batch=(2,)), 1.0, wanted=wanted)


@pytest.mark.parametrize("constant", [None, 1.0])
def test_zero_rows_and_heads_give_zero_and_no_gradient(constant):
    z, weight = heads_of(5, 3, 4, batch=(2,))
    z[..., [1, 4], :] = 0
    weight[1] = 0
    out, dz, dw = assert_both_agree([z, weight], constant)
    heads = out[..., :12].unflatten(-1, (3, 4))
    assert (heads[..., [1, 4], :, :] == 0).all()
    assert (heads[..., 1, :] == 0).all()
    assert (heads[..., [0, 2, 3], :, :][..., [0, 2], :] != 0).all()
    assert (dz[..., [1, 4], :] == 0).all()
    assert (dw[1] == 0).all()
    if constant is not None:  # the constant is there for every node
        assert out.shape[-1] == 12 + CONSTANT_COLUMNS
        torch.testing.assert_close(out[..., 12], torch.full_like(out[..., 12], constant / 2**0.5))
        assert (out[..., 13:] == 0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_very_short_and_long_vectors_become_unit_vectors(scale):
    z, weight = heads_of(5, 3, 4)
    out = unit_heads((scale * z).to(DEVICE), weight.to(DEVICE)).cpu()
    torch.testing.assert_close(out, unit_heads(z.double(), weight.double()).float(), **FLOAT32)
    tiny = torch.full((2, 1), SHORTEST / 2, device=DEVICE)  # counts as zero
    assert (unit_heads(tiny, torch.ones(1, 1, device=DEVICE)) == 0).all()


def test_strided_embeddings_and_an_expanded_gradient_are_taken():
    z, weight = heads_of(9, 3, 5, batch=(2,))
    z, weight = z.mT.contiguous().mT, weight.mT.contiguous().mT.expand(2, 3, 5)
    gradients = []
    for dtype, device in ((torch.float32, DEVICE), (torch.float64, "cpu")):
        leaves = [t.to(device, dtype).requires_grad_() for t in (z, weight)]
        assert not any(leaf.is_contiguous() for leaf in leaves)
        gradients.append(torch.autograd.grad(unit_heads(*leaves).sum(), leaves))
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got.cpu().double(), want, **FLOAT32)


def test_a_second_run_gives_the_same_bits():
    tensors = heads_of(70, 3, 5)
    runs = [value_and_gradients(tensors, 1.0, dtype=torch.float32, device=DEVICE) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)
