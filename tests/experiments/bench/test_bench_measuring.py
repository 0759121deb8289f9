"""The instruments: clock, peak memory, fresh processes, ceilings, roofline, rows."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from graphglow.experiments.bench import ceilings
from graphglow.experiments.bench.ceilings import Ceilings, measure_ceilings, tf32_allowed
from graphglow.experiments.bench.clock import time_calls
from graphglow.experiments.bench.fresh import in_fresh_process
from graphglow.experiments.bench.op import NAMED_BACKENDS
from graphglow.experiments.bench.peak import bytes_now, peak_since_reset, reset_peak, tensor_peak
from graphglow.experiments.bench.roofline import epoch_work, executed_flop, least_bytes, roofline
from graphglow.experiments.bench.rows import quotient, stamped

CPU = torch.device("cpu")


def test_the_clock_gives_the_median_of_warm_calls():
    naps = iter([0.2, *[0.002] * 1000])  # the first call, slow, is outside the clock
    timing = time_calls(lambda: time.sleep(next(naps)), CPU, min_seconds=0.02)
    assert 0.002 <= timing.median < 0.02
    assert timing.iqr >= 0
    assert timing.calls >= 1


def test_a_slow_call_is_timed_three_times():
    timing = time_calls(lambda: time.sleep(0.03), CPU, min_seconds=0.001)
    assert timing.calls == 3
    assert 0.03 <= timing.median < 0.2


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
    reset_peak(CPU)
    low = peak_since_reset(CPU)
    assert low < bytes_now(CPU) + 100_000_000
    again = torch.ones(60_000_000)
    assert peak_since_reset(CPU) > low + 200_000_000
    del again


def test_a_fresh_process_is_another_and_may_die():
    assert in_fresh_process(os.getpid) not in (None, os.getpid())
    assert in_fresh_process(os._exit, 9) is None
    with pytest.raises(FileNotFoundError):
        in_fresh_process(os.listdir, "no such folder")


ORPHANS = """
import time
from graphglow.experiments.bench.fresh import in_fresh_process
if __name__ == "__main__":
    in_fresh_process(time.sleep, 600)
"""


@pytest.mark.slow
def test_a_fresh_process_ends_with_its_parent_even_if_that_died_at_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ORPHANS)
    parent = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    found = set()
    try:
        end = time.monotonic() + 60
        while not found:
            assert time.monotonic() < end
            time.sleep(0.005)
            for pid in children.read_text().split():  # Python's tracker of resources is one too
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(int(pid))
    finally:
        time.sleep(0.6)
        parent.kill()  # while the child is still importing torch
        parent.wait()
    end = time.monotonic() + 60
    while any(map(_alive, found)):
        assert time.monotonic() < end
        time.sleep(0.05)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_ceilings_are_rates(monkeypatch, precision):
    monkeypatch.setitem(ceilings.MATMUL_SIDE, "cpu", 64)
    monkeypatch.setitem(ceilings.COPY_BYTES, "cpu", 2**16)
    found = measure_ceilings(CPU, precision, min_seconds=0.01)
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
    assert all(executed_flop(backend, n, p, w, f) for backend in NAMED_BACKENDS)
    assert executed_flop("unheard-of", n, p, w, f) is None


def test_eager_makes_the_operations_that_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    from graphglow.ops import pivot_propagate

    v, q, k = (torch.rand(*s, requires_grad=True) for s in ((7, 3), (7, 4), (5, 4)))
    for backend, threshold in (("eager", 0.0), ("chunked", 0.0)):
        with FlopCounterMode(display=False) as counter:
            out = pivot_propagate(v, q, k, threshold=threshold, backend=backend)
            torch.autograd.grad(out.sum(), (v, q, k))
        assert counter.get_total_flops() == sum(executed_flop(backend, 7, 5, 4, 3))


def test_the_work_of_an_epoch():
    n, p, w = 7, 5, 4
    ahead, back = least_bytes(n, p, w, 3)
    flop, moved = epoch_work("truncate", n, p, w, [3], 10)
    assert flop == 10 * (
        sum(executed_flop("eager", n, p, w, 3)) + executed_flop("eager", n, p, w, 3)[0]
    )
    assert moved == 10 * (2 * ahead + back)
    two, _ = epoch_work("truncate", n, p, w, [3, 3], 10)
    assert two == 2 * flop - 10 * 4 * 2 * n * p * w  # Gamma is made once for both
    assert epoch_work("affine", n, p, w, [3], 1)[0] == 16 * (n + p) * w * 3


def test_the_roofline_takes_the_lower_roof():
    assert least_bytes(7, 5, 4, 3) == (4 * (21 + 28 + 20 + 21), 4 * (2 * (21 + 28 + 20) + 21))
    fast_memory, slow_memory = Ceilings(1e9, 1e30), Ceilings(1e9, 1.0)
    flop, moved = sum(executed_flop("triton", 7, 5, 4, 3)), sum(least_bytes(7, 5, 4, 3))
    row = roofline("triton", 7, 5, 4, 3, 1.0, fast_memory)
    assert row["roof_ms"] == pytest.approx(1e3 * flop / 1e9)
    assert row["roof_share"] == row["ceiling_share"] == pytest.approx(flop / 1e9)
    assert row["useful_share"] == pytest.approx(sum(executed_flop("eager", 7, 5, 4, 3)) / 1e9)
    assert row["useful_share"] < row["ceiling_share"]
    row = roofline("triton", 7, 5, 4, 3, None, slow_memory)
    assert row["roof_ms"] == pytest.approx(1e3 * moved)
    assert row["ceiling_share"] is None
    assert roofline("unheard-of", 7, 5, 4, 3, 1.0, fast_memory)["roof_ms"] is None


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
