"""What does not fit is refused before it starts, by sizes and what is free."""

import os
from dataclasses import replace

import pytest
import torch
from small_fits import config_of, float64, small_data

from graphglow import device as memory
from graphglow.competitors import METHODS, fit
from graphglow.errors import InputError

CPU = torch.device("cpu")


@pytest.fixture
def free(monkeypatch):
    def say(size):
        monkeypatch.setattr(memory, "free_bytes", lambda device: size)

    return say


def test_what_does_not_fit_is_refused_in_one_sentence(free):
    free(3 * 10**9)
    with pytest.raises(InputError) as caught:
        memory.check_fits("lds", 45 * 10**9, "pubmed", CPU, "; less would do")
    assert str(caught.value) == (
        "lds must fit in memory; on pubmed, with these settings, it would need about "
        "45 GB, and 3 GB are free on cpu; less would do"
    )


@pytest.mark.parametrize("size", [45, 46, None])
def test_what_fits_or_cannot_be_known_passes(free, size):
    free(size)
    memory.check_fits("lds", 45, "pubmed", CPU, "")


def test_a_fit_that_would_not_fit_builds_nothing(free, monkeypatch):
    def never(graph, configs):
        raise AssertionError("it was built")

    free(10**9)
    large = replace(METHODS["gcn"], build=never, memory=lambda g, c: g.num_nodes * 10**9)
    monkeypatch.setitem(METHODS, "gcn", large)
    with pytest.raises(
        InputError, match="on small, with these settings, it would need about 45 GB"
    ):
        fit("gcn", small_data(), config_of("gcn"))


@pytest.mark.parametrize("name", [n for n in sorted(METHODS) if METHODS[n].memory is not None])
def test_estimates_grow_with_the_graph(name, free):
    method, config = METHODS[name], config_of(name)
    small, large = (method.memory(float64(small_data(num_nodes=n)), config) for n in (45, 180))
    assert isinstance(small, int)
    assert 0 < 2 * small < large
    free(1)
    with pytest.raises(InputError, match=f"{name} must fit in memory; on small"):
        fit(name, small_data(), config)


def test_free_memory_of_this_machine_is_plausible():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**20 < memory.free_bytes(CPU) <= total


def group(folder, limit, current, cached=0):
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 7\ninactive_file {cached}\n")
    return folder


@pytest.mark.parametrize("cached", [0, 400_000])  # files that can be dropped
def test_the_limit_of_a_container_is_respected(tmp_path, monkeypatch, cached):
    monkeypatch.setattr(memory, "CGROUP", group(tmp_path, 5_000_000, 3_500_000, cached))
    assert memory.free_bytes(CPU) == 1_500_000 + cached


@pytest.mark.parametrize("limit", ["max", 2**62])
def test_no_limit_or_a_vast_one_leaves_what_the_machine_has(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(memory, "CGROUP", group(tmp_path, limit, 1))
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:    12 kB\nHugePages: 0\n")
    assert memory.free_bytes(CPU) == 12 * 1024


def test_a_system_that_says_nothing_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "absent")
    assert memory.free_bytes(CPU) is None


@pytest.mark.gpu
def test_free_memory_of_a_gpu_is_plausible():
    device = torch.device("cuda")
    total = torch.cuda.get_device_properties(device).total_memory
    assert 2**20 < memory.free_bytes(device) <= total
