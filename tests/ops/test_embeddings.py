"""Unit vectors per head against ``F.normalize``, and how far embeddings moved."""

import math

import pytest
import torch
from graphglow.ops.embeddings import CONSTANT_COLUMNS, squared_change
from torch.nn import functional as F

from graphglow.paper.learner import unit_heads

SHAPES = [(1, 1, 1), (7, 3, 5), (11, 4, 8)]  # N, H, D
CONSTANTS = [None, 1.0, math.sqrt(1 + 1e-5)]


def inputs(n, h, d, *, batch=(), batched_weight=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n * h * d)
    z = torch.randn(*batch, n, d, generator=generator, dtype=dtype)
    shape = (*batch, h, d) if batched_weight else (h, d)
    weight = torch.randn(*shape, generator=generator, dtype=dtype)
    return z.requires_grad_(), weight.requires_grad_()


def by_normalize(z, weight, constant):
    """The H unit vectors over sqrt(H); with a constant, both over sqrt(2) and the constant last."""
    unit = F.normalize(z[..., :, None, :] * weight[..., None, :, :], dim=-1)  # [.., N, H, D]
    heads = unit.flatten(-2) / math.sqrt(weight.shape[-2])
    if constant is None:
        return heads
    zeros = heads.new_zeros(*heads.shape[:-1], CONSTANT_COLUMNS - 1)
    column = heads.new_full((*heads.shape[:-1], 1), constant)
    return torch.cat([heads, column, zeros], dim=-1) / math.sqrt(2)


def value_and_gradients(function, leaves):
    out = function(*leaves)
    generator = torch.Generator().manual_seed(9)
    direction = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, direction)]


def assert_both_agree(leaves, constant):
    got = value_and_gradients(lambda z, w: unit_heads(z, w, constant), leaves)
    want = value_and_gradients(lambda z, w: by_normalize(z, w, constant), leaves)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("n", "h", "d"), SHAPES)
@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_and_gradients_are_those_of_normalize(n, h, d, constant, dtype):
    assert_both_agree(inputs(n, h, d, dtype=dtype), constant)


@pytest.mark.parametrize("batched_weight", [True, False])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
@pytest.mark.parametrize("constant", CONSTANTS)
def test_values_and_gradients_of_a_batch(batched_weight, batch, constant):
    assert_both_agree(inputs(7, 3, 5, batch=batch, batched_weight=batched_weight), constant)


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradcheck(constant, batch):
    leaves = inputs(4, 2, 3, batch=batch)
    assert torch.autograd.gradcheck(lambda z, w: unit_heads(z, w, constant), leaves)


@pytest.mark.parametrize("wanted", [0, 1])
def test_one_gradient_alone_is_the_same(wanted):
    z, weight = inputs(7, 3, 5)
    both = value_and_gradients(unit_heads, (z, weight))[1:]
    leaves = [leaf.detach() for leaf in (z, weight)]
    leaves[wanted].requires_grad_()
    out = unit_heads(*leaves)
    generator = torch.Generator().manual_seed(9)
    out.backward(torch.randn(out.shape, generator=generator, dtype=torch.float64))
    torch.testing.assert_close(leaves[wanted].grad, both[wanted])
    assert leaves[1 - wanted].grad is None


def test_inner_products_are_mean_cosines():
    z, weight = inputs(7, 3, 5)
    cosine = torch.stack(
        [
            F.cosine_similarity((w * z)[:, None], (w * z)[None], dim=-1)
            for w in weight  # one head
        ]
    ).mean(0)
    q = unit_heads(z, weight)
    torch.testing.assert_close(q @ q.mT, cosine)
    affine = unit_heads(z, weight, 1.5)
    torch.testing.assert_close(affine @ affine.mT, (1.5**2 + cosine) / 2)


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_zero_rows_give_zero_and_no_gradient(constant, batch):
    z, weight = (leaf.detach() for leaf in inputs(5, 3, 4, batch=batch))
    z[..., [1, 4], :] = 0
    leaves = (z.requires_grad_(), weight.requires_grad_())
    out, dz, dw = value_and_gradients(lambda z, w: unit_heads(z, w, constant), leaves)
    assert (out[..., [1, 4], :12] == 0).all()
    assert (dz[..., [1, 4], :] == 0).all()
    assert (dz[..., [0, 2, 3], :] != 0).any()
    assert dw.isfinite().all()
    if constant is not None:  # the constant is there for every node
        torch.testing.assert_close(out[..., 12], torch.full_like(out[..., 12], constant / 2**0.5))
        assert (out[..., 13:] == 0).all()


def test_a_head_whose_weight_is_zero_gives_zero_and_no_gradient():
    z, weight = (leaf.detach() for leaf in inputs(5, 3, 4))
    weight[1] = 0
    out, dz, dw = value_and_gradients(unit_heads, (z.requires_grad_(), weight.requires_grad_()))
    heads = out.unflatten(-1, (3, 4))
    assert (heads[:, 1] == 0).all()
    assert (heads[:, [0, 2]] != 0).all()
    assert (dw[1] == 0).all()
    assert dz.isfinite().all()


def test_memory_that_was_never_written_does_not_show(monkeypatch):
    """``empty`` filled with NaN: every column of q is written, the constant's seven zeros too."""

    def filled_with_nan(tensor, *shape, **options):
        return tensor.new_full(shape, math.nan, **options)

    monkeypatch.setattr(torch.Tensor, "new_empty", filled_with_nan)
    z, weight = inputs(5, 3, 4)
    assert unit_heads(z, weight, 1.0).isfinite().all()
    assert unit_heads(z, weight).isfinite().all()


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_change_is_the_sum_of_squares_of_each_run(batch, dtype):
    generator = torch.Generator().manual_seed(0)
    z, step = torch.randn(2, *batch, 7, 5, generator=generator, dtype=dtype).requires_grad_()
    got = squared_change(z, z + step)
    assert got.dtype == dtype
    assert got.shape == (*batch, 2)
    assert not got.requires_grad
    want = [t.square().sum((-2, -1)) for t in (step, z)]
    torch.testing.assert_close(got, torch.stack(want, dim=-1).detach())
    assert (squared_change(z, z)[..., 0] == 0).all()
