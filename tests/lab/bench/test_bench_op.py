import re

import pytest
import torch

from graphglow.errors import InputError
from graphglow.lab.bench import measure
from graphglow.lab.bench.config import compared
from graphglow.lab.bench.measure import Ceilings
from graphglow.lab.bench.op import OpBench, run_op

SMALL = {"pivots": 6, "width": 8, "features": 4, "min_seconds": 0.005, "device": "cpu"}


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch):
    monkeypatch.setattr(measure, "ceilings", lambda *_, **__: Ceilings(1e12, 1e10))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # other tests' way to run kernels here


def test_rows_of_every_backend_and_size():
    rows = list(run_op(OpBench(nodes=(30, 50), **SMALL)))
    backends = compared((), torch.device("cpu"))
    assert backends[0] == "eager"
    assert [(r["nodes"], r["backend"]) for r in rows] == [
        (n, b) for n in (30, 50) for b in backends
    ]
    for row in rows:
        assert min(row["forward_ms"], row["backward_ms"], row["both_ms"]) > 0
        assert row["peak_bytes"] > 0
        assert row["value_error"] < 1e-5
        assert row["gradient_error"] < 1e-4
        assert row["ceiling_tflops"] == 1.0
        assert row["ceiling_share"] == pytest.approx(row["tflops"])
        assert not row["out_of_memory"]


def test_ratios_are_to_eager_of_the_same_size():
    eager, chunked = run_op(OpBench(nodes=(40,), backends=("chunked", "eager"), **SMALL))
    assert (eager["backend"], chunked["backend"]) == ("eager", "chunked")
    assert eager["speedup_over_eager"] == eager["peak_share_of_eager"] == 1.0
    assert chunked["speedup_over_eager"] == eager["both_ms"] / chunked["both_ms"]
    assert chunked["peak_share_of_eager"] == chunked["peak_bytes"] / eager["peak_bytes"]
    (alone,) = run_op(OpBench(nodes=(40,), backends=("chunked",), **SMALL))
    assert alone["speedup_over_eager"] is None


def test_what_does_not_fit_is_a_row_too(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measure, "median_seconds", full)
    (row,) = run_op(OpBench(nodes=(40,), backends=("eager",), **SMALL))
    assert row["out_of_memory"]
    assert row["both_ms"] is row["ceiling_share"] is row["speedup_over_eager"] is None
    assert row["gflop"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": (0,)}, "nodes must be >= 1; got 0"),
        ({"pivots": 0}, "pivots must be >= 1; got 0"),
        ({"width": 1}, "width must be >= 2; got 1"),
        ({"features": 0}, "features must be >= 1; got 0"),
        ({"seed": -1}, "seed must be >= 0; got -1"),
        ({"backends": ("fast",)}, "backends on a cpu device must be one of eager, "),
        ({"min_seconds": 0.0}, "min_seconds must be > 0 and"),
        ({"precision": "float16"}, "precision must be one of float32, tf32, bfloat16"),
        ({"precision": "tf32"}, "precision tf32 must go with a GPU; got device cpu"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        list(run_op(OpBench(**SMALL | settings)))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_on_the_gpu(precision):
    # so large that neither a library's workspace nor the inputs count
    sizes = {"nodes": (50_000,), "pivots": 800, "width": 256, "features": 64, "min_seconds": 0.05}
    rows = {r["backend"]: r for r in run_op(OpBench(device="cuda", precision=precision, **sizes))}
    assert {"eager", "chunked", "linear", "triton"} <= set(rows)
    for row in rows.values():
        assert min(row["forward_ms"], row["backward_ms"], row["both_ms"]) > 0
        assert row["peak_bytes"] > 0
        assert row["value_error"] < (1e-4 if precision == "float32" else 0.1)
    assert rows["triton"]["peak_share_of_eager"] < 1
