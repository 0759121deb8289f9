"""Every backend in plain PyTorch gives the numbers of ``eager``: values and every gradient."""

import pytest
import torch
from graphglow.ops.chunked import chunked
from graphglow.ops.dense import dense_gamma, propagate_dense, tf32_products
from graphglow.ops.eager import eager, linear
from hypothesis import given, settings
from hypothesis import strategies as st
from propagate_inputs import (
    CASES,
    LargestTensor,
    assert_close_in_norm,
    assert_errs_at_most_twice,
    dense,
    faint_inputs,
    gradients_of,
    inputs,
    lonely_inputs,
    value_and_gradients,
)
from torch.utils._python_dispatch import TorchDispatchMode

SWITCH = torch.backends.cuda.matmul
EXACT = {"rtol": 1e-8, "atol": 1e-9}
FAST = {
    "dense": dense,
    "chunked": chunked,
    "in blocks of 20": lambda *given: chunked(*given, rows=20),
    "linear": lambda v, q, k, *_: linear(v, q, k),
}
RUNS = [(b, case) for b in FAST for case in CASES if b != "linear" or case == "identity uncut"]
CUTTING = ["dense", "in blocks of 20"]


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """On the CPU without Triton's interpreter there is no other path."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def both(backend, case):
    kernel, heads, threshold = CASES[case]
    return tuple(
        lambda v, q, k, run=run: run(v, q, k, threshold, kernel, heads)
        for run in (eager, FAST[backend])
    )


def assert_both_agree(backend, case, tensors):
    slow, fast = both(backend, case)
    got, want = value_and_gradients(fast, tensors), value_and_gradients(slow, tensors)
    for one, other in zip(got, want, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, **EXACT)
    return got


@pytest.mark.parametrize(("n", "p", "batch"), [(1, 1, ()), (63, 40, ()), (13, 5, (2, 3))])
@pytest.mark.parametrize(("backend", "case"), RUNS)
def test_equals_eager_in_value_and_every_gradient(backend, case, n, p, batch):
    assert_both_agree(backend, case, inputs(n, p, case=case, batch=batch))


@pytest.mark.parametrize(("backend", "case"), RUNS)
def test_in_float32_errs_no_more_than_a_rounding(backend, case):
    slow, fast = both(backend, case)
    tensors = inputs(63, 5, case=case, margin=3e-5)
    got = value_and_gradients(fast, tensors, torch.float32)
    assert {one.dtype for one in got} == {torch.float32}
    assert_close_in_norm(got, value_and_gradients(slow, tensors), 1e-5)


@pytest.mark.parametrize(("backend", "case"), RUNS)
def test_gradients_agree_with_finite_differences(backend, case):
    leaves = [t.requires_grad_() for t in inputs(5, 3, case=case, width=4, margin=1e-3)]
    assert torch.autograd.gradcheck(both(backend, case)[1], leaves)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 40),
    p=st.integers(1, 12),
    rows=st.integers(1, 50),
    case=st.sampled_from(sorted(CASES)),
)
def test_result_does_not_depend_on_the_block_size(n, p, rows, case):
    kernel, heads, threshold = CASES[case]
    tensors = inputs(n, p, case=case, seed=rows)
    got = value_and_gradients(
        lambda *vqk: chunked(*vqk, threshold, kernel, heads, rows=rows), tensors
    )
    want = value_and_gradients(both("chunked", case)[0], tensors)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.parametrize("backend", CUTTING)
@pytest.mark.parametrize("case", ["identity cut at 0", "identity cut at 0.1"])
def test_empty_rows_and_columns_pass_exactly_zero(backend, case):
    out, dv, dq, dk = assert_both_agree(backend, case, lonely_inputs(batch=(2,)))
    for zero in (out[:, [0, 5]], dv[:, [0, 5]], dq[:, [0, 5]], dk[:, 2]):
        assert (zero == 0).all()


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_empty_rows_and_columns_pass_exactly_zero_rounded(precision):
    slow = both("dense", "identity cut at 0")[0]
    got = value_and_gradients(
        lambda v, q, k: dense(v, q, k, 0.0, "identity", 1, precision),
        lonely_inputs(),
        torch.float32,
    )
    out, dv, dq, dk = got
    for zero in (out[[0, 5]], dv[[0, 5]], dq[[0, 5]], dk[2]):
        assert (zero == 0).all()
    allowed = 0.05 if precision == "bfloat16" else 1e-5
    assert_close_in_norm(got, value_and_gradients(slow, lonely_inputs()), allowed)


@pytest.mark.parametrize("backend", CUTTING)
@pytest.mark.parametrize("case", ["identity cut at 0", "identity uncut"])
def test_a_gamma_of_zeros_passes_zero_and_finite_gradients(backend, case):
    v, q, k = inputs(6, 3, case="identity uncut")
    out, dv, dq, dk = value_and_gradients(both(backend, case)[1], (v, 0 * q, k))
    assert (out == 0).all()
    assert (dv == 0).all()
    assert all(d.isfinite().all() for d in (dq, dk))


@pytest.mark.parametrize("backend", CUTTING)
def test_sums_below_the_smallest_allowed_pass_gradients_as_eager_does(backend):
    slow, fast = both(backend, "identity cut at 0")
    got, want = value_and_gradients(fast, faint_inputs()), value_and_gradients(slow, faint_inputs())
    for one, other in zip(got, want, strict=True):
        for row, exact in zip(one, other, strict=True):  # their scales differ widely
            assert (row - exact).norm() <= 1e-8 * exact.norm()


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize(("backend", "case"), RUNS)
def test_no_entry_is_left_unwritten(backend, case):
    assert_both_agree(backend, case, inputs(63, 5, case=case))


@pytest.mark.parametrize("backend", CUTTING)
def test_strided_inputs_and_an_expanded_gradient_are_taken(backend):
    leaves = [t.mT.contiguous().mT for t in inputs(40, 9, case="identity cut at 0", batch=(2,))]
    found = []
    for function in both(backend, "identity cut at 0"):
        fresh = [t.detach().requires_grad_() for t in leaves]
        assert not fresh[1].is_contiguous()
        found.append(torch.autograd.grad(function(*fresh).sum(), fresh))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


class Products(TorchDispatchMode):
    """Lists each matrix product with the state of the switch for tf32."""

    def __init__(self):
        super().__init__()
        self.tf32 = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default):
            self.tf32.append(SWITCH.allow_tf32)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("needed", "products"), [("v", 5), ("q", 7), ("vk", 7), ("qk", 8)])
def test_dense_makes_only_the_gradients_asked_for(needed, products):
    slow, fast = both("dense", "identity cut at 0")
    tensors = inputs(20, 30, case="identity cut at 0")
    want = gradients_of(slow, tensors, needed)
    with Products() as made:
        got = gradients_of(fast, tensors, needed)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
    assert len(made.tf32) <= products  # three of them forwards


@pytest.mark.parametrize("case", CASES)
def test_gamma_made_once_for_two_layers_gets_the_gradients_of_both(case):
    kernel, heads, threshold = CASES[case]
    tensors = inputs(30, 7, case=case, batch=(2,))

    def twice(v, q, k):
        gamma = dense_gamma(q, k, threshold, kernel, heads)
        return propagate_dense(propagate_dense(v, gamma).tanh(), gamma)

    def eagerly(v, q, k):
        hidden = eager(v, q, k, threshold, kernel, heads).tanh()
        return eager(hidden, q, k, threshold, kernel, heads)

    want = value_and_gradients(eagerly, tensors)
    for one, other in zip(value_and_gradients(twice, tensors), want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("case", CASES)
def test_dense_in_bfloat16_errs_no_more_than_twice_what_eager_does(case):
    kernel, heads, threshold = CASES[case]
    slow = both("dense", case)[0]
    tensors = [t.bfloat16().double() for t in inputs(63, 17, case=case, width=16, features=7)]
    got = value_and_gradients(
        lambda v, q, k: dense(v, q, k, threshold, kernel, heads, "bfloat16"), tensors, torch.float32
    )
    truth = value_and_gradients(slow, tensors, torch.float32)
    assert {one.dtype for one in got} == {torch.float32}
    assert_errs_at_most_twice(got, value_and_gradients(slow, tensors, torch.bfloat16), truth)


def test_dense_does_not_round_sums_to_bfloat16():
    """In bfloat16, 256 + 1 is 256."""
    made = dense_gamma(torch.ones(2049, 1), torch.ones(259, 1), 0.0, "identity", 1, "bfloat16")
    assert made.gamma.dtype == torch.bfloat16
    torch.testing.assert_close(made.inverse_rows, torch.full((2049, 1), 1 / 259))
    torch.testing.assert_close(made.inverse_columns, torch.full((259, 1), 1 / 2049))


def saved_elements(function, tensors):
    """Sizes of the distinct tensors that autograd keeps for the backward pass."""
    kept = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = function(*[t.requires_grad_() for t in tensors])
    assert out.requires_grad
    return list(kept.values())


@pytest.mark.parametrize("case", ["identity cut at 0", "sigmoid cut at 0.5"])
def test_what_chunked_keeps_for_the_backward_pass_never_holds_gamma(case):
    n, p, width, features = 300, 200, 8, 3
    slow, fast = both("in blocks of 20", case)
    sizes = {"width": width, "features": features}
    assert max(saved_elements(slow, inputs(n, p, case=case, **sizes))) >= n * p
    kept = saved_elements(fast, inputs(n, p, case=case, **sizes))
    assert max(kept) <= n * width  # the largest is q itself
    more_pivots = saved_elements(fast, inputs(n, 2 * p, case=case, **sizes))
    assert sum(more_pivots) - sum(kept) <= p * (width + features + 1)


@pytest.mark.parametrize(
    ("backend", "case", "elements"),
    [
        ("in blocks of 20", "identity cut at 0", 20 * 200),
        ("in blocks of 20", "exp cut at 0.1", 20 * 200 * 4),
        ("linear", "identity uncut", 300 * 8),
    ],
)
def test_no_tensor_forwards_or_backwards_is_larger_than_a_block(backend, case, elements):
    largest = []
    for function in both(backend, case):
        leaves = [t.requires_grad_() for t in inputs(300, 200, case=case)]
        with LargestTensor() as mode:
            function(*leaves).sum().backward()
        largest.append(mode.elements)
    assert largest[0] >= 300 * 200
    assert largest[1] <= elements


def test_sums_over_many_blocks_do_not_saturate_in_bfloat16():
    """In bfloat16, 256 + 1 is 256: a column sum over blocks of one node would stop there."""
    n, p = 2000, 3
    v, q, k = torch.ones(n, 1), torch.ones(n, 1), torch.ones(p, 1)
    v[n // 2 :] = 3
    half = [t.bfloat16().requires_grad_() for t in (v, q, k)]
    out = chunked(*half, 0.0, "identity", 1, rows=1)
    torch.testing.assert_close(out, torch.full_like(out, 2.0))
    dv = torch.autograd.grad(out.sum(), half)[0]
    torch.testing.assert_close(dv, torch.ones_like(dv))


@pytest.fixture(params=[False, True], ids=["tf32 off before", "tf32 on before"])
def tf32_before(request):
    """The state of PyTorch's switch for tf32 that a test finds."""
    before = SWITCH.allow_tf32
    SWITCH.allow_tf32 = request.param
    yield request.param
    SWITCH.allow_tf32 = before


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_products_are_made_in_tf32_where_that_is_asked_for(precision, tf32_before):
    leaves = [t.float().requires_grad_() for t in inputs(9, 4, case="identity cut at 0")]
    with Products() as made:
        dense(*leaves, 0.0, "identity", 1, precision).sum().backward()
    assert SWITCH.allow_tf32 == tf32_before
    assert len(made.tf32) == 3 + 5
    assert set(made.tf32) == {tf32_before or precision == "tf32"}


def test_the_switch_for_tf32_is_restored_after_an_error(tf32_before):
    v, q, k = inputs(9, 4, case="identity cut at 0")
    for wrong in ((v, q, k[:, 1:]), (v[1:], q, k)):
        with pytest.raises(RuntimeError, match="shape"):
            dense(*wrong, 0.0, "identity", 1, "tf32")
    assert SWITCH.allow_tf32 == tf32_before


def test_switches_for_tf32_may_be_nested(tf32_before):
    with tf32_products(True):
        with tf32_products(False):
            assert SWITCH.allow_tf32
        assert SWITCH.allow_tf32
    assert SWITCH.allow_tf32 == tf32_before


@pytest.mark.skipif(not hasattr(SWITCH, "fp32_precision"), reason="an older PyTorch")
def test_a_precision_set_by_the_newer_interface_is_left_alone():
    before = SWITCH.fp32_precision
    SWITCH.fp32_precision = "tf32"
    try:
        with tf32_products(False):
            pass
        assert SWITCH.fp32_precision == "tf32"
    finally:
        SWITCH.fp32_precision = before
