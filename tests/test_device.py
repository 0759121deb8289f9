"""Where to compute, and what is said when memory ends."""

import pytest
import torch

from graphglow import device
from graphglow.device import (
    PEAK,
    check_fits,
    out_of_memory_hint,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.errors import InputError


@pytest.mark.parametrize(("present", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_the_gpu_if_there_is_one(monkeypatch, present, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    assert resolve_device("auto").type == expected
    assert resolve_device("cpu").type == "cpu"


def test_the_peak_is_in_bytes():
    assert 10**7 < peak_memory_bytes(torch.device("cpu")) < 10**12


def allocate_too_much():
    torch.empty(2**60, dtype=torch.float32)


def raising(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize(
    ("failing", "helps"),
    [
        (allocate_too_much, "a"),
        (raising(MemoryError()), "a"),
        (raising(RuntimeError("can't allocate memory: you tried to allocate 8000 bytes")), "a"),
        (raising(torch.OutOfMemoryError("CUDA out of memory.")), "--device cpu, a"),
        (raising(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")), "a"),
    ],
)
def test_running_out_of_memory_says_what_helps(failing, helps):
    rule = rf"^training on g must fit in memory; what helps: {helps} smaller g"
    with pytest.raises(InputError, match=rule), out_of_memory_hint("training on g", "a smaller g"):
        failing()


def test_other_errors_pass_through():
    with pytest.raises(RuntimeError, match=r"^other$"), out_of_memory_hint("training", "less"):
        raise RuntimeError("other")


def test_what_cannot_fit_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda device: 10**9)
    cpu = torch.device("cpu")
    check_fits("lds", 10**9, "g", cpu)
    with pytest.raises(
        InputError, match=r"lds must fit in memory; on g, .* 2 GB, and 1 GB are free"
    ):
        check_fits("lds", 2 * 10**9, "g", cpu)
    monkeypatch.setattr(device, "free_bytes", lambda device: None)
    check_fits("lds", 10**18, "g", cpu)


def test_free_memory_is_within_a_containers_limit(tmp_path, monkeypatch):
    meminfo, group = tmp_path / "meminfo", tmp_path / "cgroup"
    group.mkdir()
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    monkeypatch.setattr(device, "MEMINFO", meminfo)
    monkeypatch.setattr(device, "CGROUP", group)
    cpu = torch.device("cpu")
    assert device.free_bytes(cpu) == 50 * 1024
    for name, text in (("current", "1000"), ("max", "3000"), ("stat", "inactive_file 500\n")):
        (group / f"memory.{name}").write_text(text)
    assert device.free_bytes(cpu) == 2500
    (group / "memory.max").write_text("max\n")
    assert device.free_bytes(cpu) == 50 * 1024


@pytest.mark.skipif(not PEAK.exists(), reason="needs Linux")
def test_the_peak_of_a_process_is_measured_from_the_last_reset():
    cpu, size = torch.device("cpu"), 4 * 10**8
    torch.ones(size // 4).sum()  # freed again
    high = peak_memory_bytes(cpu)
    reset_peak_memory(cpu)
    assert peak_memory_bytes(cpu) < high - size // 2
