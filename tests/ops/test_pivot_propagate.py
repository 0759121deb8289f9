"""The door: what it checks, and which backend it takes."""

import importlib

import pytest
import torch
from graphglow.ops import BACKENDS, available_backends, choose_backend, pivot_propagate
from graphglow.ops.pivot_propagate import DENSE_LIMIT, DENSE_LIMIT_BESIDE_TRITON
from propagate_inputs import CASES, inputs

CUTTING = ["eager", "dense", "chunked"]


@pytest.mark.parametrize("case", CASES)
def test_every_backend_that_can_gives_the_same(case):
    kernel, heads, threshold = CASES[case]
    tensors = inputs(40, 6, case=case)
    settings = {"threshold": threshold, "kernel": kernel, "heads": heads}
    usable = [b for b in BACKENDS if b != "linear" or case == "identity uncut"]
    usable.remove("triton")  # takes no float64: see test_triton_fused.py
    truth = pivot_propagate(*tensors, **settings, backend="eager")
    assert len(usable) >= 4
    for backend in usable:
        torch.testing.assert_close(pivot_propagate(*tensors, **settings, backend=backend), truth)


@pytest.mark.parametrize("backend", ["auto", *CUTTING])
@pytest.mark.parametrize("threshold", [0.0, 0.1])
def test_a_node_with_no_pivot_above_the_threshold_gets_exactly_zero(backend, threshold):
    v, q, k = (t.requires_grad_() for t in inputs(12, 4, case="identity uncut"))
    sign = torch.ones(12, 1, dtype=torch.float64)
    sign[[0, 7]] = -1
    out = pivot_propagate(v, q * sign, k, threshold=threshold, backend=backend)
    assert (out[[0, 7]] == 0).all()
    assert (out[1] != 0).all()
    gradients = torch.autograd.grad(out.square().sum(), (v, q, k))
    assert all(g.isfinite().all() for g in gradients)
    assert (gradients[1][[0, 7]] == 0).all()


@pytest.mark.parametrize("backend", ["auto", *CUTTING])
def test_a_graph_with_no_similarity_at_all_gets_zero_and_finite_gradients(backend):
    v, q, k = (t.requires_grad_() for t in inputs(12, 4, case="identity uncut"))
    out = pivot_propagate(v, -q, k, threshold=0.0, backend=backend)
    assert (out == 0).all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (v, q, k)))


def ones(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype)


BAD = {
    "v must be a matrix": ((ones(3), ones(3, 4), ones(2, 4)), {}, "must be matrices"),
    "q must be a matrix": ((ones(3, 2), ones(3), ones(2, 4)), {}, "must be matrices"),
    "k must be a matrix": ((ones(3, 2), ones(3, 4), ones(4)), {}, "must be matrices"),
    "rows of v and q": ((ones(3, 2), ones(4, 4), ones(2, 4)), {}, "one row per node"),
    "batch of v and q": ((ones(2, 3, 2), ones(3, 4), ones(2, 4)), {}, "one row per node"),
    "width of q and k": ((ones(3, 2), ones(3, 4), ones(2, 5)), {}, "same width"),
    "batch of q and k": ((ones(1, 3, 2), ones(1, 3, 4), ones(2, 4)), {}, "q and k must"),
    "no pivot": ((ones(3, 2), ones(3, 4), ones(0, 4)), {}, "at least one pivot"),
    "types differ": (
        (ones(3, 2, dtype=torch.float64), ones(3, 4), ones(2, 4)),
        {},
        "one floating type",
    ),
    "integers": (
        (
            ones(3, 2, dtype=torch.int64),
            ones(3, 4, dtype=torch.int64),
            ones(2, 4, dtype=torch.int64),
        ),
        {},
        "one floating type",
    ),
    "devices differ": (
        (ones(3, 2), ones(3, 4), torch.ones(2, 4, device="meta")),
        {},
        "share a device",
    ),
    "negative threshold": ((ones(3, 2), ones(3, 4), ones(2, 4)), {"threshold": -0.1}, ">= 0"),
    "NaN threshold": ((ones(3, 2), ones(3, 4), ones(2, 4)), {"threshold": float("nan")}, ">= 0"),
    "infinite threshold": ((ones(3, 2), ones(3, 4), ones(2, 4)), {"threshold": 1e999}, ">= 0"),
    "no heads": ((ones(3, 2), ones(3, 4), ones(2, 4)), {"heads": 0}, "heads must divide"),
    "heads that do not divide": (
        (ones(3, 2), ones(3, 4), ones(2, 4)),
        {"heads": 3, "kernel": "exp"},
        "heads must divide",
    ),
    "unknown kernel": ((ones(3, 2), ones(3, 4), ones(2, 4)), {"kernel": "cubic"}, "kernel must"),
    "unknown backend": ((ones(3, 2), ones(3, 4), ones(2, 4)), {"backend": "fast"}, "backend must"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_in_one_line(case):
    tensors, settings, rule = BAD[case]
    with pytest.raises(ValueError, match=rule) as caught:
        pivot_propagate(*tensors, **settings)
    assert "\n" not in str(caught.value)
    assert "got" in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": 0.0},
        {"threshold": None, "kernel": "exp"},
        {"threshold": 0.1, "kernel": "sigmoid"},
    ],
)
def test_a_named_backend_that_cannot_do_it_refuses(settings):
    with pytest.raises(ValueError, match="backend 'linear' needs"):
        pivot_propagate(ones(3, 2), ones(3, 4), ones(2, 4), **settings, backend="linear")


@pytest.mark.parametrize(
    ("n", "p", "threshold", "kernel", "heads", "expected"),
    [
        (10, 5, None, "identity", 1, "linear"),
        (10**9, 10**6, None, "identity", 1, "linear"),
        (10, 5, None, "exp", 1, "dense"),
        (10, 5, 0.0, "identity", 1, "dense"),
        (DENSE_LIMIT // 1000, 1000, 0.0, "identity", 1, "dense"),
        (DENSE_LIMIT // 1000, 1000, 0.0, "identity", 4, "dense"),  # heads are folded into q and k
        (DENSE_LIMIT // 1000, 1000, 0.0, "exp", 4, "chunked"),
        (DENSE_LIMIT // 1000 + 1, 1000, 0.0, "identity", 1, "chunked"),
    ],
)
def test_auto_takes_linear_then_dense_then_chunked(n, p, threshold, kernel, heads, expected):
    q, k = torch.empty(n, 8, device="meta"), torch.empty(p, 8, device="meta")
    assert choose_backend(q, k, threshold=threshold, kernel=kernel, heads=heads) == expected


def test_auto_counts_batch_entries():
    for batch, expected in ((DENSE_LIMIT // 10**6, "dense"), (DENSE_LIMIT // 10**6 + 1, "chunked")):
        q = torch.empty(batch, 1000, 8, device="meta")
        assert choose_backend(q, q, threshold=0.0, kernel="identity", heads=1) == expected


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


def chosen_on_a_gpu(*batch, n, p, dtype=torch.float32, kernel="identity", heads=1, threshold=0.0):
    q, k = (torch.empty(*batch, rows, 8, device="meta", dtype=dtype) for rows in (n, p))
    q = q.as_subclass(OnGpu)
    return choose_backend(q, k, threshold=threshold, kernel=kernel, heads=heads)


@pytest.fixture
def gpu_backends(monkeypatch):
    """What a GPU of the test's choice can run: with Triton at first."""
    usable = ["eager", "dense", "chunked", "linear", "triton"]
    door = importlib.import_module("graphglow.ops.pivot_propagate")  # graphglow.ops has a function
    monkeypatch.setattr(door, "available_backends", lambda device: tuple(usable))
    return usable


LAST = {"n": DENSE_LIMIT_BESIDE_TRITON // 1000, "p": 1000}
"""The largest graph that ``dense`` gets beside ``triton``."""


@pytest.mark.usefixtures("gpu_backends")
def test_auto_on_a_gpu_with_triton_takes_dense_then_triton():
    beyond = LAST | {"n": LAST["n"] + 1}
    assert chosen_on_a_gpu(**LAST, threshold=None) == "linear"
    assert chosen_on_a_gpu(n=10**9, p=10**6, threshold=None) == "linear"
    for dtype in (torch.float32, torch.bfloat16):
        assert chosen_on_a_gpu(**LAST, dtype=dtype) == "dense"
        assert chosen_on_a_gpu(**beyond, dtype=dtype) == "triton"
    assert chosen_on_a_gpu(**LAST, heads=4) == "dense"  # heads are folded into q and k
    assert chosen_on_a_gpu(**beyond, kernel="exp", heads=4) == "dense"  # triton has no other kernel
    assert chosen_on_a_gpu(n=DENSE_LIMIT // 1000, p=1000, kernel="exp", heads=2) == "chunked"


@pytest.mark.usefixtures("gpu_backends")
def test_auto_on_a_gpu_with_triton_counts_the_entries_of_one_run():
    """Else a run would change its backend with the company it keeps."""
    assert chosen_on_a_gpu(100, **LAST) == "dense"
    assert chosen_on_a_gpu(10, 10, **LAST) == "dense"
    assert chosen_on_a_gpu(100, n=LAST["n"] + 1, p=1000) == "triton"


def test_auto_on_a_gpu_that_triton_cannot_serve_chooses_as_on_a_cpu(gpu_backends):
    doubles = {"dtype": torch.float64, "p": 1000}
    assert chosen_on_a_gpu(n=DENSE_LIMIT // 1000, **doubles) == "dense"
    assert chosen_on_a_gpu(n=DENSE_LIMIT // 1000 + 1, **doubles) == "chunked"
    gpu_backends.remove("triton")
    assert chosen_on_a_gpu(n=DENSE_LIMIT // 1000, p=1000) == "dense"
    assert chosen_on_a_gpu(n=DENSE_LIMIT // 1000 + 1, p=1000) == "chunked"
    assert chosen_on_a_gpu(2, n=DENSE_LIMIT // 1000, p=1000) == "chunked"


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_auto_gives_the_bits_of_the_backend_it_takes(precision):
    v, q, k = (t.float() for t in inputs(40, 6, case="identity cut at 0"))
    assert choose_backend(q, k, threshold=0.0, kernel="identity", heads=1) == "dense"
    auto, named = (
        pivot_propagate(v, q, k, backend=b, precision=precision) for b in ("auto", "dense")
    )
    assert torch.equal(auto, named)


def test_a_named_backend_that_cannot_run_here_is_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "triton" not in available_backends("cpu")
    with pytest.raises(RuntimeError, match="'triton' cannot run on cpu; usable here: eager, "):
        pivot_propagate(ones(3, 2), ones(3, 4), ones(2, 4), backend="triton")


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be one of float32, tf32, bfloat16; got"):
        pivot_propagate(ones(3, 2), ones(3, 4), ones(2, 4), precision="half")


@pytest.mark.parametrize("backend", CUTTING)
def test_in_bfloat16_the_result_and_the_gradients_keep_the_type_of_the_inputs(backend):
    leaves = [t.requires_grad_() for t in inputs(300, 40, case="identity uncut")]
    exact = pivot_propagate(*leaves, backend=backend)
    rounded = pivot_propagate(*leaves, backend=backend, precision="bfloat16")
    assert rounded.dtype == torch.float64
    assert 0 < (rounded - exact).abs().max() < 0.02 * exact.abs().max()
    for got, want in zip(
        torch.autograd.grad(rounded.square().sum(), leaves),
        torch.autograd.grad(exact.square().sum(), leaves),
        strict=True,
    ):
        assert got.dtype == torch.float64
        assert (got - want).norm() < 0.1 * want.norm()
