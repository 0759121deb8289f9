"""``dense`` in plain PyTorch gives the numbers of ``eager``: values and every gradient."""

import pytest
import torch
from propagate_inputs import CASES, inputs, value_and_gradients
from torch.utils._python_dispatch import TorchDispatchMode

from graphglow.ops.dense import dense, dense_gamma, propagate_dense
from graphglow.ops.eager import eager

SHAPES = [(1, 1), (63, 5), (257, 64)]  # N, P
SWITCH = torch.backends.cuda.matmul


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """On the CPU without Triton's interpreter there is no other path."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def both(case, precision="float32"):
    kernel, heads, threshold = CASES[case]

    def slow(v, q, k):
        return eager(v, q, k, threshold, kernel, heads)

    def fast(v, q, k):
        return dense(v, q, k, threshold, kernel, heads, precision)

    return slow, fast


def assert_both_agree(case, tensors):
    slow, fast = both(case)
    got, want = value_and_gradients(fast, tensors), value_and_gradients(slow, tensors)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == torch.float64
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("n", "p"), SHAPES)
def test_equals_eager_in_value_and_every_gradient(case, n, p):
    assert_both_agree(case, inputs(n, p, case=case))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_equals_eager_in_a_batch(case, batch):
    assert_both_agree(case, inputs(13, 5, case=case, batch=batch))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("case", CASES)
def test_gradcheck(case, batch):
    sizes = {"width": 4, "features": 2, "batch": batch, "margin": 1e-3}
    leaves = [t.requires_grad_() for t in inputs(5, 3, case=case, **sizes)]
    assert torch.autograd.gradcheck(both(case)[1], leaves)


@pytest.mark.parametrize("case", CASES)
def test_equals_eager_in_float32(case):
    slow, fast = both(case)
    tensors = inputs(63, 5, case=case, margin=3e-5)
    got, want = (
        value_and_gradients(fast, tensors, torch.float32),
        value_and_gradients(slow, tensors),
    )
    for one, other in zip(got, want, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_strided_inputs_and_an_expanded_gradient_are_taken():
    leaves = [t.mT.contiguous().mT for t in inputs(40, 9, case="identity cut at 0", batch=(2,))]
    gradients = []
    for function in both("identity cut at 0"):
        fresh = [t.detach().requires_grad_() for t in leaves]
        assert not fresh[1].is_contiguous()
        gradients.append(torch.autograd.grad(function(*fresh).sum(), fresh))
    for want, got in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("threshold", [0.0, 0.1])
def test_empty_rows_and_columns_pass_exactly_zero(threshold, precision):
    v, q, k = inputs(10, 4, case="identity uncut", batch=(2,))
    q[:, [0, 5]] *= -1  # two nodes below every pivot
    k[:, 2] = 0  # one pivot that no node reaches

    def fast(v, q, k):
        return dense(v, q, k, threshold, "identity", 1, precision)

    def slow(v, q, k):
        return eager(v, q, k, threshold, "identity", 1)

    got = value_and_gradients(fast, (v, q, k), torch.float32)
    out, dv, dq, dk = got
    assert (out[:, [0, 5]] == 0).all()
    assert (dv[:, [0, 5]] == 0).all()
    assert (dq[:, [0, 5]] == 0).all()
    assert (dk[:, 2] == 0).all()
    allowed = 0.05 if precision == "bfloat16" else 1e-5
    for one, other in zip(got, value_and_gradients(slow, (v, q, k)), strict=True):
        assert one.isfinite().all()
        assert (one - other).norm() <= allowed * other.norm()


@pytest.mark.parametrize("case", ["identity cut at 0", "identity uncut"])
def test_a_gamma_of_zeros_passes_zero_and_finite_gradients(case):
    v, q, k = inputs(6, 3, case="identity uncut")
    out, dv, dq, dk = value_and_gradients(both(case)[1], (v, 0 * q, k))
    assert (out == 0).all()
    assert (dv == 0).all()
    assert all(d.isfinite().all() for d in (dq, dk))


def test_sums_below_the_smallest_allowed_pass_gradients_as_eager_does():
    v, q, k = inputs(10, 4, case="identity uncut")
    q[3] *= 1e-15
    k[1] *= 1e-15
    slow, fast = both("identity cut at 0")
    got, want = value_and_gradients(fast, (v, q, k)), value_and_gradients(slow, (v, q, k))
    for one, other in zip(got, want, strict=True):
        for row, exact in zip(one, other, strict=True):  # their scales differ widely
            assert (row - exact).norm() <= 1e-8 * exact.norm()


class Products(TorchDispatchMode):
    """Lists each matrix product with the state of the switch for tf32."""

    def __init__(self):
        super().__init__()
        self.tf32 = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default):
            self.tf32.append(SWITCH.allow_tf32)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("needed", "products"),
    [("v", 2), ("q", 4), ("k", 4), ("vq", 4), ("vk", 4), ("qk", 5), ("vqk", 5)],
)
def test_only_the_gradients_asked_for_are_made(needed, products):
    gradients = []
    for function in both("identity cut at 0"):
        tensors = dict(zip("vqk", inputs(20, 30, case="identity cut at 0"), strict=True))
        leaves = [tensors[name].requires_grad_() for name in needed]
        loss = function(**tensors).square().sum()
        with Products() as made:
            gradients.append(torch.autograd.grad(loss, leaves))
    for want, got in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want)
    assert len(made.tf32) <= products  # of dense, the second; two without the gradient of Gamma


@pytest.mark.parametrize("case", CASES)
def test_gamma_made_once_for_two_layers_gets_the_gradients_of_both(case):
    kernel, heads, threshold = CASES[case]
    tensors = inputs(30, 7, case=case, batch=(2,))

    def twice(v, q, k):
        gamma = dense_gamma(q, k, threshold, kernel, heads)
        return propagate_dense(propagate_dense(v, gamma).tanh(), gamma)

    def eagerly(v, *factors):
        """The factors of each layer are leaves of their own."""
        hidden = eager(v, *factors[:2], threshold, kernel, heads).tanh()
        return eager(hidden, *factors[2:], threshold, kernel, heads)

    out, dv, dq, dk = value_and_gradients(twice, tensors)
    want = value_and_gradients(eagerly, [t.detach().clone() for t in (*tensors, *tensors[1:])])
    torch.testing.assert_close(out, want[0])
    torch.testing.assert_close(dv, want[1])
    torch.testing.assert_close(dq, want[2] + want[4])
    torch.testing.assert_close(dk, want[3] + want[5])


@pytest.mark.parametrize("case", CASES)
def test_in_bfloat16_errs_no_more_than_twice_what_eager_does(case):
    slow, fast = both(case, "bfloat16")
    sizes = {"width": 16, "features": 7}
    tensors = [t.bfloat16().double() for t in inputs(63, 17, case=case, **sizes)]
    truth = value_and_gradients(slow, tensors, torch.float32)
    reference = value_and_gradients(slow, tensors, torch.bfloat16)
    got = value_and_gradients(fast, tensors, torch.float32)
    for fast16, slow16, exact in zip(got, reference, truth, strict=True):
        assert fast16.dtype == torch.float32  # as the inputs
        allowed = 2 * (slow16 - exact).abs().max() + 1e-3 * exact.abs().max()
        assert (fast16 - exact).abs().max() <= allowed


def test_sums_are_not_rounded_to_bfloat16():
    """In bfloat16, 256 + 1 is 256."""
    made = dense_gamma(torch.ones(2049, 1), torch.ones(259, 1), 0.0, "identity", 1, "bfloat16")
    assert made.gamma.dtype == torch.bfloat16
    torch.testing.assert_close(made.inverse_rows, torch.full((2049, 1), 1 / 259))
    torch.testing.assert_close(made.inverse_columns, torch.full((259, 1), 1 / 2049))


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_the_switch_for_tf32_is_on_for_the_products_alone(precision, tf32_before):
    leaves = [t.requires_grad_() for t in inputs(9, 4, case="identity cut at 0")]
    with Products() as made:
        out = dense(*leaves, 0.0, "identity", 1, precision)
        assert SWITCH.allow_tf32 == tf32_before
        out.square().sum().backward()
    assert SWITCH.allow_tf32 == tf32_before
    assert len(made.tf32) == 3 + 5
    assert set(made.tf32) == {tf32_before or precision == "tf32"}


def test_the_switch_for_tf32_is_restored_after_an_error(tf32_before):
    v, q, k = inputs(9, 4, case="identity cut at 0")
    with pytest.raises(RuntimeError, match="shape"):
        dense(v, q, k[:, 1:], 0.0, "identity", 1, "tf32")
    with pytest.raises(RuntimeError, match="shape"):
        dense(v[1:], q, k, 0.0, "identity", 1, "tf32")
    assert SWITCH.allow_tf32 == tf32_before
