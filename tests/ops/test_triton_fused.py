"""``triton`` gives the numbers of ``eager``: on the GPU, or in Triton's interpreter without one."""

import pytest
import torch
from graphglow.ops import available_backends, choose_backend, pivot_propagate
from graphglow.ops.eager import eager
from propagate_inputs import (
    CASES,
    LargestTensor,
    assert_close_in_norm,
    assert_errs_at_most_twice,
    faint_inputs,
    gradients_of,
    inputs,
    lonely_inputs,
    value_and_gradients,
)

from interpreted import DEVICE, KERNEL_TEST, ON_GPU, kernels, on_a_gpu

pytest.importorskip("triton")
pytestmark = KERNEL_TEST
fused = kernels("graphglow.ops.triton_fused")

CUT, UNCUT = "identity cut at 0.1", "identity uncut"
FLOAT32 = 5e-5
"""Relative error of float32 products made of three in bfloat16."""


def both(case):
    threshold = CASES[case][2]

    def slow(v, q, k):
        return eager(v, q, k, threshold, "identity", 1)

    def fast(v, q, k):
        on_device = (t.to(DEVICE) for t in (v, q, k))
        return fused.triton_fused(*on_device, threshold).cpu()

    return slow, fast


def assert_equals_eager(case, tensors):
    slow, fast = both(case)
    got = value_and_gradients(fast, tensors, torch.float32)
    assert {one.dtype for one in got} == {torch.float32}
    assert_close_in_norm(got, value_and_gradients(slow, tensors), FLOAT32)


@pytest.mark.parametrize(
    ("case", "n", "p", "width", "features", "batch"),
    [
        (CUT, 20, 9, 300, 130, ()),  # wider than any tile
        (UNCUT, 63, 5, 16, 7, (2,)),
        *on_a_gpu(
            ("identity cut at 0", 1, 1, 3, 1, ()),
            ("identity cut at 0", 257, 64, 16, 1, ()),
            (CUT, 130, 17, 3, 7, ()),
            (UNCUT, 9, 5, 8, 3, (2, 3)),
        ),
    ],
)
def test_equals_eager_in_value_and_every_gradient(case, n, p, width, features, batch):
    sizes = {"width": width, "features": features, "batch": batch, "margin": 3e-5}
    assert_equals_eager(case, inputs(n, p, case=case, **sizes))


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize(
    "tiles",
    [
        fused.Tiles(16, 32, 4, 2),
        fused.Tiles(32, 16, 4, 2, block_w=16),
        *on_a_gpu(fused.Tiles(32, 32, 4, 2, block_g=64)),
    ],
)
def test_any_tiles_give_the_same_and_leave_no_entry_unwritten(tiles, monkeypatch):
    """With 35 nodes and small tiles, passes over pivots are split and each dimension has an end."""
    tensors = inputs(35, 20, case=CUT, width=80, features=20, margin=3e-5)
    monkeypatch.setattr(fused, "TILES", dict.fromkeys(fused.TILES, tiles))
    monkeypatch.setattr(fused, "FEW_ROWS", tiles.near)
    assert_equals_eager(CUT, tensors)


def test_a_second_run_gives_the_same_bits():
    fast = both(CUT)[1]
    runs = [value_and_gradients(fast, inputs(20, 9, case=CUT), torch.float32) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_and_columns_without_neighbours_equal_eager(dtype):
    slow, fast = both("identity cut at 0")
    got = value_and_gradients(fast, lonely_inputs(), dtype)
    assert (got[0][[0, 5]] == 0).all()
    assert (got[2][[0, 5]] == 0).all()
    bound = FLOAT32 if dtype == torch.float32 else 0.03
    assert_close_in_norm(got, value_and_gradients(slow, lonely_inputs()), bound)


def test_sums_below_the_smallest_allowed_pass_gradients_as_eager_does():
    slow, fast = both("identity cut at 0")
    got = value_and_gradients(fast, faint_inputs(), torch.float32)
    for one, other in zip(got, value_and_gradients(slow, faint_inputs()), strict=True):
        for row, exact in zip(one.double(), other, strict=True):  # their scales differ widely
            assert (row - exact).norm() <= 1e-4 * exact.norm()


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        (CUT, torch.bfloat16),
        (UNCUT, torch.float16),
        *on_a_gpu((UNCUT, torch.bfloat16), (CUT, torch.float16)),
    ],
)
def test_in_16_bits_errs_no_more_than_twice_what_eager_does(case, dtype):
    slow, fast = both(case)
    tensors = [t.to(dtype).double() for t in inputs(63, 17, case=case, width=16, features=7)]
    got = value_and_gradients(fast, tensors, dtype)
    assert {one.dtype for one in got} == {dtype}
    reference = value_and_gradients(slow, tensors, dtype)
    assert_errs_at_most_twice(got, reference, value_and_gradients(slow, tensors))


@pytest.mark.parametrize(
    ("needed", "features", "launched"),
    [
        ("v", 3, ["to_nodes"]),
        ("vq", 3, ["nodes"]),  # dv comes on the way
        ("vk", 70, ["to_nodes", "pivots"]),
        *on_a_gpu(
            ("q", 3, ["nodes"]),
            ("k", 3, ["pivots"]),
            ("vq", 70, ["nodes", "to_nodes"]),
            ("qk", 70, ["nodes", "pivots"]),
        ),
    ],
)
def test_only_the_gradients_asked_for_are_made(needed, features, launched, monkeypatch):
    slow, fast = both(CUT)
    tensors = inputs(20, 9, case=CUT, features=features, margin=3e-5)
    made, gradients, to_nodes = [], fused.gradients, fused.to_nodes

    def counted(problem, near, far, scale, nodes_near, dv):
        made.append("nodes" if nodes_near else "pivots")
        return gradients(problem, near, far, scale, nodes_near, dv)

    def counted_messages(*args, normalise):
        made.extend([] if normalise else ["to_nodes"])
        return to_nodes(*args, normalise=normalise)

    monkeypatch.setattr(fused, "gradients", counted)
    monkeypatch.setattr(fused, "to_nodes", counted_messages)
    got = gradients_of(fast, tensors, needed, torch.float32)
    assert_close_in_norm(got, gradients_of(slow, tensors, needed), FLOAT32)
    assert made == launched


def test_strided_inputs_and_an_expanded_gradient_are_taken():
    slow, fast = both(UNCUT)
    exact = [t.mT.contiguous().mT.requires_grad_() for t in inputs(20, 9, case=UNCUT)]
    leaves = [t.detach().float().requires_grad_() for t in exact]
    assert not leaves[1].is_contiguous()
    got = torch.autograd.grad(fast(*leaves).sum(), leaves)
    want = torch.autograd.grad(slow(*exact).sum(), exact)
    assert_close_in_norm(got, want, 1e-3)  # the sum is nearly constant


def test_no_tensor_holds_gamma_and_the_result_may_be_changed_in_place():
    n, p = 200, 100
    leaves = [t.float().requires_grad_() for t in inputs(n, p, case=CUT)]
    with LargestTensor() as mode:
        out = both(CUT)[1](*leaves)
        torch.autograd.grad(out.sum(), leaves, retain_graph=True)
    assert mode.elements <= n * p / 2
    assert (out.detach().clone() + 1 == out.add_(1)).all()


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_the_door_takes_it_by_name(precision):
    v, q, k = (t.float().to(DEVICE) for t in inputs(40, 9, case=UNCUT))
    assert "triton" in available_backends(DEVICE)
    got = pivot_propagate(v, q, k, backend="triton", precision=precision)
    want = pivot_propagate(v.double(), q.double(), k.double(), backend="eager")
    assert got.dtype == torch.float32
    assert (got - want).norm() <= (FLOAT32 if precision == "float32" else 2e-2) * want.norm()


def test_what_it_cannot_do_is_refused_in_one_sentence():
    v, q, k = (t.to(DEVICE) for t in inputs(4, 2, case=CUT))
    with pytest.raises(ValueError, match="'triton' takes float32, bfloat16 or float16; got"):
        pivot_propagate(v, q, k, backend="triton")
    with pytest.raises(ValueError, match="'triton' needs kernel='identity'; got 'exp'"):
        pivot_propagate(v.float(), q.float(), k.float(), kernel="exp", backend="triton")


def test_auto_takes_it_for_large_graphs_on_a_gpu_only():
    q, k = torch.ones(100_000, 1, device=DEVICE), torch.ones(1000, 1, device=DEVICE)
    settings = {"threshold": 0.0, "kernel": "identity", "heads": 1}
    assert (choose_backend(q, k, **settings) == "triton") == ON_GPU
    assert choose_backend(q.double(), k.double(), **settings) == "chunked"


@pytest.mark.parametrize("n", [1, 1000, 2235, 19717, 10_000_000])
def test_partial_sums_stay_a_few_megabytes_and_keep_the_gpu_busy(n):
    for dtype in fused.DTYPES:
        problem = fused.Problem(
            batch=1, n=n, p=1000, f=64, w=256, threshold=0.0, dtype=dtype, precision="tf32",
            chip=(132, 232448),
        )  # fmt: skip
        _, splits, rows, _ = problem.launch("gradients", nodes_near=False)
        assert splits * rows >= n
        assert splits * 1000 * 256 * 4 <= 20e6
        blocks, splits, _, _ = problem.launch("messages", nodes_near=False)
        assert n < 2235 or blocks * splits >= 0.7 * 132


@pytest.mark.gpu
def test_offsets_beyond_two_to_the_31():
    """Takes 20 GB of the GPU's memory."""
    n, width = 2**31 // 256 + 200, 256
    q = torch.zeros(n, width, dtype=torch.bfloat16, device=DEVICE)
    q[:, 0] = 1
    q[-100:, 1] = 1
    q.requires_grad_()
    k = torch.eye(2, width, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    v = torch.ones(n, 1, dtype=torch.bfloat16, device=DEVICE)
    v[-100:] = 3
    out = fused.triton_fused(v, q, k, 0.0)
    assert (out[:-100] == 1).all()  # 100 of 8 million nodes do not show in bfloat16
    assert (out[-100:] == 2).all()  # the mean of pivot 0, at 1, and of pivot 1, at 3
    dq, dk = torch.autograd.grad(out.sum(), (q, k))
    assert dk.isfinite().all()
    torch.testing.assert_close(dq[-100:, 1].float(), torch.full((100,), 0.5, device=DEVICE))


@pytest.mark.gpu
@pytest.mark.parametrize("features", [3, 7, 16, 32, 64])
@pytest.mark.parametrize("width", [16, 32, 64, 128, 256])
def test_narrow_factors_on_a_large_graph(width, features):
    """Tiles narrower than 64 gave NaN and wrong gradients on an H200; small graphs did not show it.

    Factors are positive, so that no entry is near the cut, where one rounding may flip it.
    """
    generator = torch.Generator("cuda").manual_seed(0)
    sizes = [(19717, features), (19717, width), (1000, width)]
    tensors = [torch.rand(size, generator=generator, device="cuda") for size in sizes]
    v, q, k = tensors[0] - 0.5, tensors[1] / width**0.5, tensors[2] / width**0.5
    found = {}
    for backend in ("triton", "chunked"):
        leaves = [t.clone().requires_grad_() for t in (v, q, k)]
        out = pivot_propagate(*leaves, threshold=0.0, backend=backend)
        out.backward((v * 3).sin())
        found[backend] = [out.detach(), *(t.grad for t in leaves)]
    assert_close_in_norm(found["triton"], [t.double() for t in found["chunked"]], 2e-3)
