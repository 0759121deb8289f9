"""The kernels of ``dense`` give the numbers of ``eager``: on the GPU, or in the interpreter."""

import dataclasses

import pytest
import torch
from graphglow.ops import pivot_propagate
from graphglow.ops.dense import FUSED_COLUMNS, FUSED_WIDTH, dense_gamma, propagate_dense
from graphglow.ops.eager import eager
from propagate_inputs import (
    CASES,
    assert_close_in_norm,
    assert_errs_at_most_twice,
    dense,
    gradients_of,
    inputs,
    lonely_inputs,
    value_and_gradients,
)

from interpreted import DEVICE, KERNEL_TEST, ON_GPU, kernels, on_a_gpu

pytest.importorskip("triton")
pytestmark = KERNEL_TEST
fused = kernels("graphglow.ops.triton_dense")

CUT, UNCUT = "identity cut at 0.1", "identity uncut"
FLOAT32 = 5e-5
"""Relative error of float32 products made of three in bfloat16."""


def both(case, precision="float32"):
    kernel, heads, threshold = CASES[case]

    def slow(v, q, k):
        return eager(v, q, k, threshold, kernel, heads)

    def fast(v, q, k):
        on_device = (t.to(DEVICE) for t in (v, q, k))
        return dense(*on_device, threshold, kernel, heads, precision).cpu()

    return slow, fast


def assert_equals_eager(case, tensors, precision="float32", bound=FLOAT32):
    slow, fast = both(case, precision)
    got = value_and_gradients(fast, tensors, torch.float32)
    assert {one.dtype for one in got} == {torch.float32}
    assert_close_in_norm(got, value_and_gradients(slow, tensors), bound)


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize(
    ("case", "n", "p", "width", "features", "batch"),
    [
        (CUT, 33, 130, 70, 2, ()),
        (UNCUT, 9, 5, 16, 64, (2,)),
        ("exp cut at 0.1", 9, 128, 8, 3, (2,)),
        *on_a_gpu(
            ("identity cut at 0", 1, 1, 3, 1, ()),
            ("identity cut at 0", 9, 128, 3, FUSED_WIDTH + 2, ()),
            (CUT, 65, 128, 16, 64, ()),
            (CUT, 9, 300, 3, 7, ()),
            (UNCUT, 5, 1, 16, 128, ()),
            (UNCUT, 3, 5, 3, 1, (2, 3)),
            ("sigmoid cut at 0.5", 20, 256, 8, 7, ()),
            ("sigmoid uncut", 20, 5, 8, 2, ()),  # no multiple of FUSED_COLUMNS
        ),
    ],
)
def test_equals_eager_in_value_and_every_gradient(case, n, p, width, features, batch):
    sizes = {"width": width, "features": features, "batch": batch, "margin": 3e-5}
    assert_equals_eager(case, inputs(n, p, case=case, **sizes))


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize(
    ("case", "n", "p", "batch"),
    [("identity cut at 0", 9, 5, (2,)), *on_a_gpu((UNCUT, 33, 130, ()), (UNCUT, 33, 130, (2,)))],
)
def test_in_tf32_the_librarys_product_is_cut_by_a_kernel(case, n, p, batch):
    tensors = inputs(n, p, case=case, batch=batch, margin=2e-3)
    assert_equals_eager(case, tensors, "tf32", bound=1e-2 if ON_GPU else FLOAT32)


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize(
    ("case", "n", "p", "features", "batch"),
    [
        (CUT, 20, 130, 2, (2,)),
        (UNCUT, 20, 5, FUSED_WIDTH + 2, ()),
        *on_a_gpu(
            ("identity cut at 0", 63, 17, 7, ()),
            (UNCUT, 70, 128, 64, ()),
            ("exp cut at 0.1", 20, 128, 3, ()),
            ("sigmoid cut at 0.5", 20, 128, 3, ()),
        ),
    ],
)
def test_in_bfloat16_errs_no_more_than_twice_what_eager_does(case, n, p, features, batch):
    slow, fast = both(case, "bfloat16")
    sizes = {"width": 16, "features": features, "batch": batch}
    tensors = [t.bfloat16().double() for t in inputs(n, p, case=case, **sizes)]
    got = value_and_gradients(fast, tensors, torch.float32)
    truth = value_and_gradients(slow, tensors, torch.float32)
    assert {one.dtype for one in got} == {torch.float32}
    assert_errs_at_most_twice(got, value_and_gradients(slow, tensors, torch.bfloat16), truth)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_empty_rows_and_columns_pass_exactly_zero(precision):
    slow, fast = both("identity cut at 0", precision)
    tensors = lonely_inputs(batch=(2,))
    got = value_and_gradients(fast, tensors, torch.float32)
    out, dv, dq, dk = got
    for zero in (out[:, [0, 5]], dv[:, [0, 5]], dq[:, [0, 5]], dk[:, 2]):
        assert (zero == 0).all()
    bound = FLOAT32 if precision == "float32" else 0.05
    assert_close_in_norm(got, value_and_gradients(slow, tensors), bound)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gamma_ends_with_columns_of_zeros(precision):
    _, q, k = (t.float().to(DEVICE) for t in inputs(9, 130, case=UNCUT, batch=(2,)))
    made = dense_gamma(q, k, None, "identity", 1, precision)
    assert made.gamma.shape == (2, 9, 2 * FUSED_COLUMNS)
    assert made.gamma.dtype == (torch.float32 if precision == "float32" else torch.bfloat16)
    assert (made.gamma[..., 130:] == 0).all()
    gamma = made.gamma[..., :130].float()
    torch.testing.assert_close(gamma, q @ k.mT, rtol=0.02, atol=0.02)
    torch.testing.assert_close(1 / made.inverse_rows[..., 0], gamma.sum(-1), rtol=1e-4, atol=0)
    columns = made.inverse_columns[..., :130, 0]
    torch.testing.assert_close(1 / columns, gamma.sum(-2), rtol=1e-4, atol=0)


def test_gamma_made_once_for_two_layers_gets_the_gradients_of_both():
    tensors = inputs(30, 7, case=CUT, margin=3e-5)

    def twice(v, q, k):
        v, q, k = (t.to(DEVICE) for t in (v, q, k))
        gamma = dense_gamma(q, k, 0.1, "identity", 1)
        return propagate_dense(propagate_dense(v, gamma).tanh(), gamma).cpu()

    def eagerly(v, q, k):
        return eager(eager(v, q, k, 0.1, "identity", 1).tanh(), q, k, 0.1, "identity", 1)

    got = value_and_gradients(twice, tensors, torch.float32)
    assert_close_in_norm(got, value_and_gradients(eagerly, tensors), FLOAT32)


@pytest.mark.parametrize("needed", ["v", "vk", "q", *on_a_gpu("k", "vq", "qk")])
def test_only_the_gradients_asked_for_are_made(needed, monkeypatch):
    made, backward, gamma_backward = [], fused.propagate_backward, fused.gamma_backward

    def counted_messages(grad, saved, cut, need_v, need_gamma, precision):
        made.extend(["v"] * need_v + ["gamma"] * need_gamma)
        return backward(grad, saved, cut, need_v, need_gamma, precision)

    def counted_factors(*args):
        made.extend(["q"] * args[-2] + ["k"] * args[-1])
        return gamma_backward(*args)

    monkeypatch.setattr(fused, "propagate_backward", counted_messages)
    monkeypatch.setattr(fused, "gamma_backward", counted_factors)
    slow, fast = both(CUT)
    tensors = inputs(20, 9, case=CUT, margin=3e-5)
    got = gradients_of(fast, tensors, needed, torch.float32)
    assert_close_in_norm(got, gradients_of(slow, tensors, needed), FLOAT32)
    assert set(made) == set(needed) | ({"gamma"} if needed != "v" else set())


def test_strided_inputs_and_an_expanded_gradient_are_taken():
    slow, fast = both(CUT)
    sizes = {"batch": (2,), "margin": 3e-5}
    exact = [t.mT.contiguous().mT.requires_grad_() for t in inputs(20, 9, case=CUT, **sizes)]
    leaves = [t.detach().float().requires_grad_() for t in exact]
    assert not leaves[1].is_contiguous()
    got = torch.autograd.grad(fast(*leaves).sum(), leaves)
    want = torch.autograd.grad(slow(*exact).sum(), exact)
    assert_close_in_norm(got, want, 1e-3)  # the sum is nearly constant


def test_a_second_run_gives_the_same_bits_which_may_be_changed_in_place():
    fast, tensors = both(CUT)[1], inputs(33, 9, case=CUT)
    runs = [value_and_gradients(fast, tensors, torch.float32) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)
    out = fast(*(t.float().requires_grad_() for t in tensors))
    assert (out.detach().clone() + 1 == out.add_(1)).all()


@pytest.mark.parametrize("programs", [8, *on_a_gpu(1)])
def test_any_number_of_splits_gives_the_same(programs, monkeypatch):
    """With few programs each goes through several blocks of nodes, the last one shorter."""
    monkeypatch.setattr(fused, "PROGRAMS", programs)
    tensors = inputs(150, 5, case=CUT, batch=(2,), margin=3e-5)
    assert_equals_eager(CUT, tensors)


@pytest.mark.parametrize("many_nodes", [0, *on_a_gpu(10**9)])
def test_any_tiles_give_the_same(many_nodes, monkeypatch):
    smaller = {
        name: dataclasses.replace(tiles, rows=32, columns=min(tiles.columns, 32), inner=16)
        for name, tiles in fused.TILES.items()
    }
    monkeypatch.setattr(fused, "MANY_NODES", many_nodes)
    monkeypatch.setattr(fused, "TILES", smaller)
    assert_equals_eager(CUT, inputs(70, 5, case=CUT, width=40, features=7, margin=3e-5))


@pytest.mark.parametrize(
    ("features", "p", "kernel", "precision", "dtype", "taken"),
    [
        (FUSED_WIDTH, 5, "identity", "bfloat16", torch.float32, "gamma and messages"),
        (FUSED_WIDTH + 1, 5, "identity", "float32", torch.float32, "gamma"),
        (3, 5, "identity", "tf32", torch.float32, "gamma"),
        (3, FUSED_COLUMNS, "exp", "float32", torch.float32, "messages"),
        (3, 5, "exp", "float32", torch.float32, "nothing"),
        (3, FUSED_COLUMNS, "identity", "float32", torch.float64, "nothing"),
        (3, FUSED_COLUMNS, "identity", "float32", torch.bfloat16, "nothing"),
    ],
)
def test_what_the_kernels_take(features, p, kernel, precision, dtype, taken, monkeypatch):
    calls = []
    for name, what in (("make_gamma", "gamma"), ("propagate_forward", "messages")):
        run = getattr(fused, name)

        def counted(*args, run=run, what=what):
            calls.append(what)
            return run(*args)

        monkeypatch.setattr(fused, name, counted)
    v, q, k = (t.to(DEVICE, dtype) for t in inputs(4, p, case=UNCUT, features=features))
    out = pivot_propagate(v, q, k, kernel=kernel, backend="dense", precision=precision)
    assert out.dtype == dtype
    assert (" and ".join(calls) or "nothing") == taken
