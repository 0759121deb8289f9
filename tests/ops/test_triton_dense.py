"""The kernels of ``dense`` give the numbers of ``eager``: on the GPU, or in the interpreter."""

import dataclasses

import pytest
import torch
from propagate_inputs import CASES, inputs, value_and_gradients

from graphglow.ops import pivot_propagate
from graphglow.ops.dense import FUSED_COLUMNS, FUSED_WIDTH, dense, dense_gamma, propagate_dense
from graphglow.ops.eager import eager
from interpreted import DEVICE, KERNEL_TEST, ON_GPU, kernels

pytest.importorskip("triton")
pytestmark = KERNEL_TEST
fused = kernels("graphglow.ops.triton_dense")

SIZES = {  # nodes, pivots, width, features, batch
    "identity cut at 0": [
        (1, 1, 3, 1, ()),
        (70, 5, 16, 7, ()),
        (33, 130, 70, 2, ()),
        (9, 128, 3, 130, ()),  # wider than FUSED_WIDTH
    ],
    "identity cut at 0.1": [(65, 128, 16, 64, ()), (9, 300, 3, 7, ()), (33, 5, 16, 2, (2,))],
    "identity uncut": [
        (5, 1, 16, 128, ()),
        (70, 300, 16, 7, ()),
        (9, 130, 70, 64, (2,)),
        (5, 5, 3, 130, (2,)),
        (3, 5, 3, 1, (2, 3)),
    ],
    "exp cut at 0": [(40, 128, 8, 2, ())],
    "exp cut at 0.1": [(9, 128, 8, 3, (2,))],
    "sigmoid cut at 0.5": [(20, 256, 8, 7, ())],
    "sigmoid uncut": [(20, 5, 8, 2, ())],  # no multiple of FUSED_COLUMNS
}
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


def assert_close_in_norm(got, want, bound=FLOAT32):
    assert got.shape == want.shape
    assert got.isfinite().all()
    size = want.norm()
    size = size if size > 1e-9 else 1  # of one node and one pivot all gradients but dv cancel
    assert (got.double() - want).norm() <= bound * size


def assert_equals_eager(case, tensors, precision="float32", bound=FLOAT32):
    slow, fast = both(case, precision)
    got, want = (
        value_and_gradients(fast, tensors, torch.float32),
        value_and_gradients(slow, tensors),
    )
    for one, other in zip(got, want, strict=True):
        assert one.dtype == torch.float32
        assert_close_in_norm(one, other, bound)


def test_the_limits_of_both_modules_agree():
    assert fused.ALIGNED.value == FUSED_COLUMNS


@pytest.mark.parametrize(
    ("case", "n", "p", "width", "features", "batch"),
    [(case, *sizes) for case in SIZES for sizes in SIZES[case]],
)
def test_equals_eager_in_value_and_every_gradient(case, n, p, width, features, batch):
    sizes = {"width": width, "features": features, "batch": batch, "margin": 3e-5}
    assert_equals_eager(case, inputs(n, p, case=case, **sizes))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(
    ("case", "n", "p"), [("identity cut at 0", 9, 5), ("identity uncut", 33, 130)]
)
def test_in_tf32_gamma_is_cut_by_a_kernel(case, n, p, batch):
    tensors = inputs(n, p, case=case, batch=batch, margin=2e-3)
    assert_equals_eager(case, tensors, "tf32", bound=1e-2 if ON_GPU else FLOAT32)


@pytest.mark.parametrize(
    ("case", "n", "p", "features", "batch"),
    [
        ("identity cut at 0", 63, 17, 7, ()),
        ("identity cut at 0.1", 20, 130, 2, (2,)),
        ("identity uncut", 70, 128, 64, ()),
        ("identity uncut", 20, 5, 130, ()),
        ("exp cut at 0", 20, 128, 3, ()),
        ("sigmoid cut at 0.1", 20, 128, 3, ()),
    ],
)
def test_in_bfloat16_errs_no_more_than_twice_what_eager_does(case, n, p, features, batch):
    slow, fast = both(case, "bfloat16")
    sizes = {"width": 16, "features": features, "batch": batch}
    tensors = [t.bfloat16().double() for t in inputs(n, p, case=case, **sizes)]
    truth = value_and_gradients(slow, tensors, torch.float32)
    reference = value_and_gradients(slow, tensors, torch.bfloat16)
    got = value_and_gradients(fast, tensors, torch.float32)
    for fast16, slow16, exact in zip(got, reference, truth, strict=True):
        assert fast16.dtype == torch.float32
        allowed = 2 * (slow16 - exact).abs().max() + 1e-3 * exact.abs().max()
        assert (fast16 - exact).abs().max() <= allowed


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize(
    ("case", "p", "features", "batch"),
    [
        ("identity cut at 0", 5, 3, ()),
        ("identity cut at 0.1", 5, 17, (2,)),
        ("identity uncut", 130, 3, ()),
        ("identity uncut", 5, 130, ()),
        ("exp cut at 0", 128, 3, ()),
    ],
)
def test_no_entry_is_left_unwritten(case, p, features, batch, precision):
    tensors = inputs(33, p, case=case, features=features, batch=batch, margin=3e-5)
    bound = FLOAT32 if precision == "float32" else 0.3  # rounding may carry entries over the cut
    assert_equals_eager(case, tensors, precision, bound)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("threshold", [0.0, 0.1])
def test_empty_rows_and_columns_pass_exactly_zero(threshold, precision):
    case = f"identity cut at {threshold:g}"
    v, q, k = inputs(10, 4, case="identity uncut", batch=(2,))
    q[:, [0, 5]] *= -1  # two nodes below every pivot
    k[:, 2] = 0  # one pivot that no node reaches
    slow, fast = both(case, precision)
    got = value_and_gradients(fast, (v, q, k), torch.float32)
    out, dv, dq, dk = got
    for zero in (out[:, [0, 5]], dv[:, [0, 5]], dq[:, [0, 5]], dk[:, 2]):
        assert (zero == 0).all()
    for one, other in zip(got, value_and_gradients(slow, (v, q, k)), strict=True):
        assert_close_in_norm(one, other, FLOAT32 if precision == "float32" else 0.05)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gamma_ends_with_columns_of_zeros(precision):
    _, q, k = (t.float().to(DEVICE) for t in inputs(9, 130, case="identity uncut", batch=(2,)))
    made = dense_gamma(q, k, None, "identity", 1, precision)
    assert made.gamma.shape == (2, 9, 2 * FUSED_COLUMNS)
    assert made.gamma.dtype == (torch.float32 if precision == "float32" else torch.bfloat16)
    assert (made.gamma[..., 130:] == 0).all()
    gamma = made.gamma[..., :130].float()
    torch.testing.assert_close(gamma, q @ k.mT, rtol=0.02, atol=0.02)
    torch.testing.assert_close(1 / made.inverse_rows[..., 0], gamma.sum(-1), rtol=1e-4, atol=0)
    columns = made.inverse_columns[..., :130, 0]
    torch.testing.assert_close(1 / columns, gamma.sum(-2), rtol=1e-4, atol=0)


@pytest.mark.parametrize("case", ["identity cut at 0", "identity uncut"])
def test_gamma_made_once_for_two_layers_gets_the_gradients_of_both(case):
    kernel, heads, threshold = CASES[case]
    tensors = inputs(30, 7, case=case, margin=3e-5)

    def twice(v, q, k):
        v, q, k = (t.to(DEVICE) for t in (v, q, k))
        gamma = dense_gamma(q, k, threshold, kernel, heads)
        return propagate_dense(propagate_dense(v, gamma).tanh(), gamma).cpu()

    def eagerly(v, q, k):
        hidden = eager(v, q, k, threshold, kernel, heads).tanh()
        return eager(hidden, q, k, threshold, kernel, heads)

    got = value_and_gradients(twice, tensors, torch.float32)
    for one, other in zip(got, value_and_gradients(eagerly, tensors), strict=True):
        assert_close_in_norm(one, other)


@pytest.mark.parametrize("needed", ["v", "q", "k", "vq", "vk", "qk"])
def test_only_the_gradients_asked_for_are_made(needed, monkeypatch):
    launched = []
    backward, grad_q = fused.propagate_backward, fused._grad_q

    def counted_backward(*args, need_v, need_gamma, **settings):
        launched.extend(["v"] * need_v + ["gamma"] * need_gamma)
        return backward(*args, need_v=need_v, need_gamma=need_gamma, **settings)

    def counted_grad_q(*args):
        launched.append("q")
        return grad_q(*args)

    monkeypatch.setattr(fused, "propagate_backward", counted_backward)
    monkeypatch.setattr(fused, "_grad_q", counted_grad_q)
    results = []
    slow, fast = both("identity cut at 0")
    tensors = dict(zip("vqk", inputs(20, 9, case="identity cut at 0", margin=3e-5), strict=True))
    for function, dtype in ((fast, torch.float32), (slow, torch.float64)):
        typed = {name: t.to(dtype) for name, t in tensors.items()}
        leaves = [typed[name].requires_grad_() for name in needed]
        results.append(torch.autograd.grad(function(**typed).square().sum(), leaves))
    for got, want in zip(*results, strict=True):
        assert_close_in_norm(got, want)
    assert set(launched) == set(needed) - {"k"} | ({"gamma"} if needed != "v" else set())


def test_strided_inputs_and_an_expanded_gradient_are_taken():
    slow, fast = both("identity cut at 0")
    sizes = {"batch": (2,), "margin": 3e-5}
    tensors = [t.mT.contiguous().mT for t in inputs(40, 9, case="identity cut at 0", **sizes)]
    leaves = [t.float().requires_grad_() for t in tensors]
    assert not leaves[1].is_contiguous()
    got = torch.autograd.grad(fast(*leaves).sum(), leaves)
    exact = [t.requires_grad_() for t in tensors]
    for one, other in zip(got, torch.autograd.grad(slow(*exact).sum(), exact), strict=True):
        assert_close_in_norm(one, other, 1e-3)  # the sum is nearly constant


def test_a_second_run_gives_the_same_bits():
    tensors = inputs(33, 9, case="identity cut at 0")
    fast = both("identity cut at 0")[1]
    first = value_and_gradients(fast, tensors, torch.float32)
    for one, other in zip(first, value_and_gradients(fast, tensors, torch.float32), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("programs", [1, 8])
def test_any_number_of_splits_gives_the_same(programs, monkeypatch):
    """With few programs each goes through several blocks of nodes, the last one shorter."""
    monkeypatch.setattr(fused, "PROGRAMS", programs)
    tensors = inputs(150, 5, case="identity cut at 0", batch=(2,), margin=3e-5)
    assert_equals_eager("identity cut at 0", tensors)


@pytest.mark.parametrize("many_nodes", [0, 10**9])
def test_any_tiles_give_the_same(many_nodes, monkeypatch):
    smaller = {
        name: dataclasses.replace(tiles, rows=32, columns=min(tiles.columns, 32), inner=16)
        for name, tiles in fused.TILES.items()
    }
    case = "identity cut at 0"
    tensors = inputs(70, 5, case=case, width=40, features=7, margin=3e-5)
    monkeypatch.setattr(fused, "MANY_NODES", many_nodes)
    assert_equals_eager(case, tensors)
    monkeypatch.setattr(fused, "TILES", smaller)
    assert_equals_eager(case, tensors)


@pytest.mark.parametrize(
    ("features", "p", "kernel", "precision", "dtype", "taken"),
    [
        (FUSED_WIDTH, 5, "identity", "float32", torch.float32, "gamma and messages"),
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
    tensors = inputs(4, p, case="identity uncut", features=features)
    v, q, k = (t.to(DEVICE, dtype) for t in tensors)
    out = pivot_propagate(v, q, k, kernel=kernel, backend="dense", precision=precision)
    assert out.dtype == dtype
    assert (" and ".join(calls) or "nothing") == taken


def test_the_result_may_be_changed_in_place():
    leaves = [t.float().requires_grad_() for t in inputs(9, 3, case="identity cut at 0")]
    out = both("identity cut at 0")[1](*leaves)
    assert (out.detach().clone() + 1 == out.add_(1)).all()
