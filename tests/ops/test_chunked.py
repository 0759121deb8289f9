"""``chunked`` gives the numbers of ``eager``, with memory that does not hold Gamma."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from propagate_inputs import CASES, LargestTensor, inputs, value_and_gradients

from graphglow.ops.chunked import chunked
from graphglow.ops.eager import eager

SHAPES = [(1, 1), (63, 5), (257, 64)]


def both(case, rows=None):
    kernel, heads, threshold = CASES[case]

    def slow(v, q, k):
        return eager(v, q, k, threshold, kernel, heads)

    def fast(v, q, k):
        return chunked(v, q, k, threshold, kernel, heads, rows=rows)

    return slow, fast


@pytest.mark.parametrize("rows", [None, 20])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("n", "p"), SHAPES)
def test_equals_eager_in_value_and_every_gradient(n, p, case, rows):
    slow, fast = both(case, rows)
    tensors = inputs(n, p, case=case)
    for got, want in zip(
        value_and_gradients(fast, tensors), value_and_gradients(slow, tensors), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("n", "p"), SHAPES)
def test_in_float32_errs_no_more_than_eager_does(n, p, case):
    slow, fast = both(case, rows=50)
    tensors = inputs(n, p, case=case, margin=1e-5)
    truth = value_and_gradients(slow, tensors)
    got = value_and_gradients(fast, tensors, torch.float32)
    reference = value_and_gradients(slow, tensors, torch.float32)
    for fast32, slow32, exact in zip(got, reference, truth, strict=True):
        assert fast32.dtype == torch.float32
        allowed = 2 * (slow32 - exact).abs().max() + 1e-5 * exact.abs().max().clamp_min(1)
        assert (fast32 - exact).abs().max() <= allowed


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
@pytest.mark.parametrize("case", CASES)
def test_batch_entries_are_independent(case, batch):
    slow, fast = both(case, rows=7)
    tensors = inputs(19, 4, case=case, batch=batch)
    got = value_and_gradients(fast, tensors)
    for one, other in zip(got, value_and_gradients(slow, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
    v, q, k = (t.flatten(0, -3) for t in tensors)
    alone = torch.stack([slow(*entry) for entry in zip(v, q, k, strict=True)])
    torch.testing.assert_close(got[0].flatten(0, -3), alone, rtol=1e-9, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    p=st.integers(1, 12),
    rows=st.integers(1, 50),
    case=st.sampled_from(sorted(CASES)),
    seed=st.integers(0, 99),
)
def test_result_does_not_depend_on_the_block_size(n, p, rows, case, seed):
    slow, fast = both(case, rows)
    tensors = inputs(n, p, case=case, seed=seed)
    for got, want in zip(
        value_and_gradients(fast, tensors), value_and_gradients(slow, tensors), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_rows_and_columns_without_neighbours_equal_eager(rows):
    slow, fast = both("identity cut at 0", rows)
    v, q, k = inputs(10, 4, case="identity uncut")
    q[[0, 5]] *= -1  # two nodes below every pivot
    k[2] = 0  # one pivot that no node reaches
    expected = value_and_gradients(slow, (v, q, k))
    got = value_and_gradients(fast, (v, q, k))
    assert (expected[0][[0, 5]] == 0).all()
    assert (got[0][[0, 5]] == 0).all()
    for one, other in zip(got, expected, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("rows", [4, 100])
def test_sums_below_the_smallest_allowed_pass_gradients_as_eager_does(rows):
    """Similarities above zero whose sum is clamped: the clamp passes no gradient."""
    slow, fast = both("identity cut at 0", rows)
    v, q, k = inputs(10, 4, case="identity uncut")
    q[3] *= 1e-15
    k[1] *= 1e-15
    assert 0 < (q @ k.T)[3].sum() < 1e-12
    assert 0 < (q @ k.T)[:, 1].sum() < 1e-12
    for got, want in zip(
        value_and_gradients(fast, (v, q, k)), value_and_gradients(slow, (v, q, k)), strict=True
    ):
        assert want.isfinite().all()
        for one, other in zip(got, want, strict=True):  # row by row: their scales differ widely
            assert (one - other).norm() <= 1e-8 * other.norm()


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("rows", [1, 10, 64])
@pytest.mark.parametrize("case", CASES)
def test_no_entry_is_left_unwritten(case, rows):
    slow, fast = both(case, rows)
    tensors = inputs(63, 5, case=case)
    for got, want in zip(
        value_and_gradients(fast, tensors), value_and_gradients(slow, tensors), strict=True
    ):
        assert got.isfinite().all()
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("case", ["identity cut at 0.1", "exp cut at 0.1", "sigmoid uncut"])
def test_gradients_agree_with_finite_differences(case):
    _, fast = both(case, rows=2)
    leaves = [t.requires_grad_() for t in inputs(5, 3, case=case, width=4, margin=1e-3)]
    assert torch.autograd.gradcheck(fast, leaves)


def test_only_the_gradients_asked_for_are_needed():
    slow, fast = both("identity cut at 0", rows=4)
    v, q, k = inputs(9, 3, case="identity cut at 0")
    q.requires_grad_()
    got = torch.autograd.grad(fast(v, q, k).square().sum(), q)[0]
    want = torch.autograd.grad(slow(v, q, k).square().sum(), q)[0]
    torch.testing.assert_close(got, want)


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


@pytest.mark.parametrize("case", ["identity cut at 0", "exp cut at 0", "sigmoid cut at 0.5"])
def test_what_is_kept_for_the_backward_pass_never_holds_gamma(case):
    n, p, width, features = 300, 200, 8, 3
    slow, fast = both(case, rows=10)
    sizes = {"width": width, "features": features}
    assert max(saved_elements(slow, inputs(n, p, case=case, **sizes))) >= n * p
    kept = saved_elements(fast, inputs(n, p, case=case, **sizes))
    assert max(kept) <= n * width  # the largest is q itself
    more_pivots = saved_elements(fast, inputs(n, 2 * p, case=case, **sizes))
    assert sum(more_pivots) - sum(kept) <= p * (width + features + 1)


@pytest.mark.parametrize("case", ["identity cut at 0", "exp cut at 0.1"])
def test_no_tensor_forwards_or_backwards_is_larger_than_a_block(case):
    n, p, rows = 300, 200, 10
    heads = CASES[case][1]
    largest = {}
    for name, function in zip(("slow", "fast"), both(case, rows), strict=True):
        leaves = [t.requires_grad_() for t in inputs(n, p, case=case)]
        with LargestTensor() as mode:
            function(*leaves).sum().backward()
        largest[name] = mode.elements
    assert largest["slow"] >= n * p
    assert largest["fast"] <= max(rows * p * heads, n * 8)


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
