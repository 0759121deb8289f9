"""``triton`` gives the numbers of ``eager``: on the GPU, or in Triton's interpreter without one."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from propagate_inputs import CASES, LargestTensor, inputs, value_and_gradients

from graphglow.ops import available_backends, choose_backend, pivot_propagate
from graphglow.ops.eager import eager
from interpreted import DEVICE, KERNEL_TEST, ON_GPU, kernels

pytest.importorskip("triton")
pytestmark = KERNEL_TEST
fused = kernels("graphglow.ops.triton_fused")

SIZES = {  # nodes, pivots, width, features, batch
    "identity cut at 0": [(1, 1, 3, 1, ()), (63, 5, 16, 2, ()), (257, 64, 16, 1, ())],
    "identity cut at 0.1": [(130, 17, 3, 7, ()), (20, 9, 300, 130, ()), (33, 5, 8, 3, (2,))],
    "identity uncut": [(63, 5, 16, 7, ()), (130, 17, 8, 3, ()), (9, 5, 8, 3, (2, 3))],
    "exp cut at 0": [(63, 5, 8, 2, ()), (9, 33, 132, 3, ())],
    "exp cut at 0.1": [(20, 5, 8, 2, ()), (9, 3, 8, 3, (2,))],
    "exp uncut": [(63, 5, 8, 2, ())],
    "exp of one head": [(63, 5, 8, 2, ())],
    "sigmoid cut at 0.1": [(63, 5, 8, 2, ()), (9, 33, 132, 3, ())],
    "sigmoid cut at 0.5": [(20, 5, 8, 2, ())],
    "sigmoid uncut": [(63, 5, 8, 7, ()), (9, 5, 70, 70, ())],
}
FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}
SMALL = dict.fromkeys(fused.HALF_TILES, fused.Tiles(16, 32, 4, 2))


def both(case, tiles=None):
    kernel, heads, threshold = CASES[case]

    def slow(v, q, k):
        return eager(v, q, k, threshold, kernel, heads)

    def fast(v, q, k):
        on_device = (t.to(DEVICE) for t in (v, q, k))
        return fused.triton_fused(*on_device, threshold, kernel, heads, tiles=tiles).cpu()

    return slow, fast


def scaled_inputs(n, p, *, case, width, **sizes):
    """Inputs away from the cut by more than float32 errs, with products that exp can take."""
    v, q, k = inputs(n, p, case=case, width=width, margin=3e-5, **sizes)
    wide = width > 16 and not case.startswith("identity")
    return (v, q * (16 / width) ** 0.5, k) if wide else (v, q, k)


def assert_close_to_scale(got, want, **tolerance):
    """Against the largest entry of the exact result: float32 sums lose their small entries.

    Where the exact one is 0 (one node, one pivot: the normalisation undoes any change), what
    cancels are terms of the size of the inputs.
    """
    scale = want.abs().max().clamp_min(0.1)
    torch.testing.assert_close(got.double() / scale, want / scale, **tolerance)


@pytest.mark.parametrize(
    ("case", "n", "p", "width", "features", "batch"),
    [(case, *sizes) for case in CASES for sizes in SIZES[case]],
)
def test_equals_eager_in_value_and_every_gradient(case, n, p, width, features, batch):
    slow, fast = both(case)
    tensors = scaled_inputs(n, p, case=case, width=width, features=features, batch=batch)
    for got, want in zip(
        value_and_gradients(fast, tensors, torch.float32),
        value_and_gradients(slow, tensors),
        strict=True,
    ):
        assert got.dtype == torch.float32
        assert got.shape == want.shape
        assert_close_to_scale(got, want, **FLOAT32)


@pytest.mark.parametrize(
    ("case", "tiles"),
    [
        ("identity cut at 0", fused.Tiles(16, 32, 4, 2)),
        ("identity cut at 0", fused.Tiles(32, 16, 4, 2, block_w=16)),
        ("identity cut at 0", fused.Tiles(32, 32, 4, 2, block_g=64)),
        ("sigmoid cut at 0.1", fused.Tiles(16, 32, 4, 2)),
    ],
)
def test_result_does_not_depend_on_the_tiles(case, tiles):
    tensors = scaled_inputs(20, 35, case=case, width=80, features=20)
    default = value_and_gradients(both(case)[1], tensors, torch.float32)
    other = value_and_gradients(
        both(case, dict.fromkeys(fused.HALF_TILES, tiles))[1], tensors, torch.float32
    )
    for one, another in zip(default, other, strict=True):
        torch.testing.assert_close(one, another, **FLOAT32)


@pytest.mark.parametrize("case", ["identity cut at 0", "exp cut at 0"])
def test_a_second_run_gives_the_same_bits(case):
    tensors = inputs(20, 9, case=case)
    fast = both(case, SMALL)[1]
    first = value_and_gradients(fast, tensors, torch.float32)
    for one, other in zip(first, value_and_gradients(fast, tensors, torch.float32), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize(
    ("case", "width", "features"),
    [
        ("identity cut at 0.1", 8, 3),
        ("identity uncut", 300, 70),
        ("exp cut at 0", 8, 3),
        ("sigmoid uncut", 8, 3),
    ],
)
def test_no_entry_is_left_unwritten(case, width, features):
    slow, fast = both(case, SMALL)
    tensors = scaled_inputs(33, 5, case=case, width=width, features=features)
    for got, want in zip(
        value_and_gradients(fast, tensors, torch.float32),
        value_and_gradients(slow, tensors),
        strict=True,
    ):
        assert got.isfinite().all()
        assert_close_to_scale(got, want, **FLOAT32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_and_columns_without_neighbours_equal_eager(dtype):
    slow, fast = both("identity cut at 0")
    v, q, k = inputs(10, 4, case="identity uncut")
    q[[0, 5]] *= -1  # two nodes below every pivot
    k[2] = 0  # one pivot that no node reaches
    got = value_and_gradients(fast, (v, q, k), dtype)
    want = value_and_gradients(slow, (v, q, k))
    assert (got[0][[0, 5]] == 0).all()
    assert (got[2][[0, 5]] == 0).all()
    tolerance = FLOAT32 if dtype == torch.float32 else {"rtol": 0, "atol": 0.03}
    for one, other in zip(got, want, strict=True):
        assert one.isfinite().all()
        assert_close_to_scale(one, other, **tolerance)


def test_sums_below_the_smallest_allowed_pass_gradients_as_eager_does():
    slow, fast = both("identity cut at 0")
    v, q, k = inputs(10, 4, case="identity uncut")
    q[3] *= 1e-15
    k[1] *= 1e-15
    got = value_and_gradients(fast, (v, q, k), torch.float32)
    for one, other in zip(got, value_and_gradients(slow, (v, q, k)), strict=True):
        for row, exact in zip(one.double(), other, strict=True):  # their scales differ widely
            assert (row - exact).norm() <= 1e-4 * exact.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["identity cut at 0", "identity uncut", "sigmoid cut at 0.1"])
def test_in_16_bits_errs_no_more_than_twice_what_eager_does(case, dtype):
    slow, fast = both(case)
    tensors = [t.to(dtype).double() for t in inputs(63, 17, case=case, width=16, features=7)]
    truth = value_and_gradients(slow, tensors)
    reference = value_and_gradients(slow, tensors, dtype)
    got = value_and_gradients(fast, tensors, dtype)
    for fast16, slow16, exact in zip(got, reference, truth, strict=True):
        assert fast16.dtype == dtype
        allowed = 2 * (slow16 - exact).abs().max() + 1e-3 * exact.abs().max()
        assert (fast16 - exact).abs().max() <= allowed


@pytest.mark.parametrize("features", [3, 70])
@pytest.mark.parametrize("needed", ["v", "q", "k", "vq", "vk", "qk"])
def test_only_the_gradients_asked_for_are_made(needed, features, monkeypatch):
    slow, fast = both("identity cut at 0")
    tensors = dict(
        zip("vqk", inputs(20, 9, case="identity cut at 0", features=features), strict=True)
    )
    launched = []
    for name in ("grad_q", "grad_k"):
        launch = getattr(fused, name)

        def counted(*args, name=name, launch=launch, **kwargs):
            launched.append(name)
            return launch(*args, **kwargs)

        monkeypatch.setattr(fused, name, counted)
    results = []
    for function, dtype in ((fast, torch.float32), (slow, torch.float64)):
        typed = {name: t.to(dtype) for name, t in tensors.items()}
        leaves = [typed[name].requires_grad_() for name in needed]
        results.append(torch.autograd.grad(function(**typed).square().sum(), leaves))
    for got, want in zip(*results, strict=True):
        assert_close_to_scale(got, want, **FLOAT32)
    expected = {"v": [], "q": ["grad_q"], "vq": ["grad_q"]}  # dq's pass also serves dk
    assert launched == expected.get(needed, ["grad_q", "grad_k"])


def test_strided_inputs_and_an_expanded_gradient_are_taken():
    slow, fast = both("identity cut at 0")
    v, q, k = (t.mT.contiguous().mT for t in inputs(40, 9, case="identity cut at 0"))
    leaves = [t.float().requires_grad_() for t in (v, q, k)]
    assert not leaves[1].is_contiguous()
    got = torch.autograd.grad(fast(*leaves).sum(), leaves)
    exact = [t.requires_grad_() for t in (v, q, k)]
    for one, other in zip(got, torch.autograd.grad(slow(*exact).sum(), exact), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4)


def test_the_result_may_be_changed_in_place():
    leaves = [t.float().requires_grad_() for t in inputs(9, 3, case="identity cut at 0")]
    out = both("identity cut at 0")[1](*leaves)
    assert (out.detach().clone() + 1 == out.add_(1)).all()


def test_no_tensor_forwards_or_backwards_holds_gamma():
    n, p = 200, 100
    leaves = [t.float().requires_grad_() for t in inputs(n, p, case="identity cut at 0")]
    with LargestTensor() as mode:
        both("identity cut at 0")[1](*leaves).sum().backward()
    assert mode.elements <= n * p / 2


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_the_door_takes_it_by_name(precision):
    v, q, k = (t.float().to(DEVICE) for t in inputs(40, 9, case="identity uncut"))
    assert "triton" in available_backends(DEVICE)
    got = pivot_propagate(v, q, k, backend="triton", precision=precision)
    want = pivot_propagate(v.double(), q.double(), k.double(), backend="eager")
    tolerance = 1e-5 if precision == "float32" else 2e-2
    assert got.dtype == torch.float32
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def test_auto_takes_it_for_large_graphs_on_a_gpu_only():
    q, k = torch.ones(100_000, 1, device=DEVICE), torch.ones(1000, 1, device=DEVICE)
    settings = {"threshold": 0.0, "kernel": "identity", "heads": 1}
    assert (choose_backend(q, k, **settings) == "triton") == ON_GPU
    assert choose_backend(q.double(), k.double(), **settings) == "chunked"


def test_float64_is_refused_in_one_sentence():
    tensors = inputs(4, 2, case="identity cut at 0")
    with pytest.raises(ValueError, match="'triton' takes float32, bfloat16 or float16; got"):
        pivot_propagate(*(t.to(DEVICE) for t in tensors), backend="triton")


@given(
    blocks=st.integers(1, 200_000), programs=st.integers(1, 2000), slots=st.sampled_from([4, 132])
)
def test_splits_keep_the_gpu_busy(blocks, programs, slots):
    splits = fused.count_splits(blocks, programs, slots)
    assert 1 <= splits <= min(blocks, 1 + 4 * slots // programs)

    def time(splits):
        return -(-programs * splits // slots) * (-(-blocks // splits) + fused.OUTSIDE_LOOP)

    assert time(splits) <= 1.05 * time(1)
    assert time(splits) <= 1.05 * time(max(1, min(blocks, slots // programs)))


@pytest.mark.parametrize("n", [1, 1000, 2235, 19717, 10_000_000])
def test_partial_sums_stay_a_few_megabytes(n):
    chip = fused.Chip(multiprocessors=132, shared_memory=232448)
    problem = fused.Problem(
        batch=1, n=n, p=1000, f=64, head_width=256, heads=1, kernel="identity", threshold=0.0,
        dtype=torch.bfloat16, precision="tf32", chip=chip, tiles={},
    )  # fmt: skip
    for dtype in fused.DTYPES:
        cast = dataclasses.replace(problem, dtype=dtype)
        splits, rows = cast.splits("grad_k")
        assert splits * rows >= n
        assert splits * 1000 * 256 * 4 <= 20e6
        if n >= 2235:
            blocks = 1000 / cast.tiles_of("to_pivots").block_p
            assert blocks * cast.splits("to_pivots")[0] >= 0.7 * 132


@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device and 20 GB of its memory")
def test_offsets_beyond_two_to_the_31():
    n, width = 2**31 // 256 + 200, 256
    q = torch.zeros(n, width, dtype=torch.bfloat16, device=DEVICE)
    q[:, 0] = 1
    q[-100:, 1] = 1
    q.requires_grad_()
    k = torch.eye(2, width, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    v = torch.ones(n, 1, dtype=torch.bfloat16, device=DEVICE)
    v[-100:] = 3
    out = fused.triton_fused(v, q, k, 0.0, "identity", 1)
    assert (out[:-100] == 1).all()  # 100 of 8 million nodes do not show in bfloat16
    assert (out[-100:] == 2).all()  # the mean of pivot 0, at 1, and of pivot 1, at 3
    dq, dk = torch.autograd.grad(out.sum(), (q, k))
    assert dk.isfinite().all()
    torch.testing.assert_close(dq[-100:, 1].float(), torch.full((100,), 0.5, device=DEVICE))


@pytest.mark.gpu
@pytest.mark.parametrize("features", [3, 7, 16, 32, 64])
@pytest.mark.parametrize(
    ("kernel", "heads", "width"),
    [
        *(("identity", 1, width) for width in (16, 32, 64, 128)),
        ("sigmoid", 4, 64),
        ("exp", 4, 128),
        ("exp", 1, 256),
    ],
)
def test_narrow_factors_on_a_large_graph(kernel, heads, width, features):
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
        out = pivot_propagate(*leaves, threshold=0.0, kernel=kernel, heads=heads, backend=backend)
        out.backward((v * 3).sin())
        found[backend] = [out.detach(), *(t.grad for t in leaves)]
    for got, want in zip(found["triton"], found["chunked"], strict=True):
        assert float((got - want).norm() / want.norm()) < 2e-3
