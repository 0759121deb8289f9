"""The instruments: clock, peak memory, fresh processes, ceilings, roofline, rows."""

import os
import time

import pytest
import torch

from graphglow.lab.bench import measure
from graphglow.lab.bench.config import quotient, shown, stamped
from graphglow.lab.bench.measure import (
    Ceilings,
    in_fresh_process,
    tensor_peak,
    tf32_allowed,
)
from graphglow.lab.bench.op import executed_flop, least_bytes, op_roofline
from graphglow.ops import available_backends

CPU = torch.device("cpu")


def test_the_clock_gives_the_median_of_warm_calls():
    naps = iter([0.2, *[0.002] * 1000])  # the first call, slow, is outside the clock
    seconds = measure.median_seconds(lambda: time.sleep(next(naps)), 0.02)
    assert 0.002 <= seconds < 0.02


def test_peak_of_tensors_counts_what_lives_at_once():
    before = torch.ones(1_000_000)

    def step():
        a = before + 1  # 4 MB
        b = a + 1  # 8 MB together
        del a
        return b + 1  # 8 MB

    assert tensor_peak(step, CPU) == pytest.approx(8_000_000, rel=0.01)


def test_peak_of_the_process_is_that_since_the_reset():
    large = torch.ones(30_000_000)
    del large
    now = measure.reset_peak(CPU)
    low = measure.peak_since_reset(CPU)
    assert low < now + 100_000_000
    again = torch.ones(60_000_000)
    assert measure.peak_since_reset(CPU) > low + 200_000_000
    del again


@pytest.mark.slow
def test_a_fresh_process_is_another_and_may_die():
    assert in_fresh_process(os.getpid) not in (None, os.getpid())
    assert in_fresh_process(os._exit, 9) is None
    assert in_fresh_process(torch.empty, 2**60) is None  # more than any machine has
    with pytest.raises(FileNotFoundError):
        in_fresh_process(os.listdir, "no such folder")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_ceilings_are_rates(monkeypatch, precision):
    monkeypatch.setitem(measure.MATMUL_SIDE, "cpu", 64)
    monkeypatch.setitem(measure.COPY_BYTES, "cpu", 2**16)
    found = measure.ceilings(CPU, precision, 0.01)
    assert 1e6 < found.flop_per_second < 1e14
    assert 1e6 < found.bytes_per_second < 1e13


def test_tf32_is_as_before_afterwards():
    before = torch.get_float32_matmul_precision()
    with tf32_allowed(True):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_operations_of_a_backend():
    n, p, w, f = 7, 5, 4, 3
    u, x = 2 * n * p * w, 2 * n * p * f
    assert executed_flop("eager", n, p, w, f) == (u + 2 * x, 2 * u + 4 * x)
    assert sum(executed_flop("chunked", n, p, w, f)) == 6 * u + 6 * x
    assert sum(executed_flop("triton", n, p, w, f)) == 7 * u + 8 * x
    assert sum(executed_flop("linear", n, p, w, f)) == 12 * (n + p) * w * f
    assert all(executed_flop(backend, n, p, w, f) for backend in available_backends(CPU))


def test_eager_makes_the_operations_that_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    from graphglow.ops import pivot_propagate

    v, q, k = (torch.rand(*s, requires_grad=True) for s in ((7, 3), (7, 4), (5, 4)))
    for backend, threshold in (("eager", 0.0), ("chunked", 0.0)):
        with FlopCounterMode(display=False) as counter:
            out = pivot_propagate(v, q, k, threshold=threshold, backend=backend)
            torch.autograd.grad(out.sum(), (v, q, k))
        assert counter.get_total_flops() == sum(executed_flop(backend, 7, 5, 4, 3))


def test_the_roofline_takes_the_lower_roof():
    assert least_bytes(7, 5, 4, 3) == (4 * (21 + 28 + 20 + 21), 4 * (2 * (21 + 28 + 20) + 21))
    fast_memory, slow_memory = Ceilings(1e9, 1e30), Ceilings(1e9, 1.0)
    flop, moved = sum(executed_flop("triton", 7, 5, 4, 3)), sum(least_bytes(7, 5, 4, 3))
    row = op_roofline("triton", 7, 5, 4, 3, 1.0, fast_memory)
    assert row["roof_ms"] == pytest.approx(1e3 * flop / 1e9)
    assert row["roof_share"] == row["ceiling_share"] == pytest.approx(flop / 1e9)
    assert row["useful_share"] == pytest.approx(sum(executed_flop("eager", 7, 5, 4, 3)) / 1e9)
    assert row["useful_share"] < row["ceiling_share"]
    row = op_roofline("triton", 7, 5, 4, 3, None, slow_memory)
    assert row["roof_ms"] == pytest.approx(1e3 * moved)
    assert row["ceiling_share"] is None


def test_rows_name_machine_and_versions():
    (row,) = stamped("op", CPU, [{"nodes": 3}])
    assert (row["benchmark"], row["nodes"], row["device"]) == ("op", 3, "cpu")
    assert row["threads"] == torch.get_num_threads()
    assert {"command", "commit", "date", "machine", "versions"} <= set(row["provenance"])
    assert row["provenance"]["versions"]["torch"] == torch.__version__


def test_quotients_of_what_was_not_measured():
    assert quotient(6.0, 3.0) == 2.0
    assert quotient(None, 3.0) is None
    assert quotient(3.0, None) is None
    assert quotient(3.0, 0.0) is None


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("nodes", 20_000, "20,000"),
        ("both_ms", 77.04, "77"),
        ("both_ms", 3849.3, "3,849"),
        ("peak_bytes", 733_200_000, "733"),
        ("roof_share", 0.2441, "24.4 %"),
        ("peak_share_of_eager", 0.118, "11.8 %"),
        ("speedup_over_eager", 1.714, "1.71x"),
        ("ratio", 11.2, "11x"),
        ("gradient_error", 4.2e-7, "4e-07"),
        ("value_error", 0.0, "0"),
        ("val_accuracy", 0.7358, "73.58"),
        ("exponent", 0.9876, "0.99"),
        ("capture", False, "no"),
        ("picked", "dense", "dense"),
        ("both_ms", None, "out of memory"),
        ("peak_bytes", None, ""),
    ],
)
def test_fields_as_people_read_them(field, value, text):
    assert shown({field: value, "out_of_memory": value is None}, field) == text
