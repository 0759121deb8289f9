"""Replaying a step: without a GPU it is called, with one it is recorded, to the same numbers."""

import subprocess
import sys

import pytest
import torch
from graphglow.training.loop import WARM_UP

from graphglow.gnn.replay import Replay

CPU = torch.device("cpu")


class Walk:
    """A random walk in place, which counts how often Python takes a step."""

    def __init__(self, device):
        self.generator = torch.Generator(device).manual_seed(4)
        self.place = torch.zeros(5, device=device)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        draw = torch.rand(5, generator=self.generator, device=self.place.device)
        self.place.mul_(0.9).add_(draw)


def walked(device, count, *, enabled):
    walk = Walk(device)
    replay = Replay((walk.generator,), device, enabled=enabled)
    for _ in range(count):
        replay(walk)
    return walk, replay


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("count", [0, 1, WARM_UP, WARM_UP + 5])
def test_without_a_gpu_the_step_is_just_called(enabled, count):
    plain = Walk(CPU)
    for _ in range(count):
        plain()
    walk, replay = walked(CPU, count, enabled=enabled)
    assert walk.calls == replay.calls == count
    assert torch.equal(walk.place, plain.place)
    assert torch.equal(walk.generator.get_state(), plain.generator.get_state())
    assert not replay.enabled
    assert replay.graph is None
    assert replay.stream is None


def test_an_error_of_the_step_is_the_callers():
    def fail():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Replay((), CPU, enabled=True)(fail)


@pytest.mark.gpu
def test_on_a_gpu_a_step_that_is_not_enabled_is_just_called():
    walk, replay = walked(torch.device("cuda"), 10, enabled=False)
    assert walk.calls == 10
    assert replay.graph is None


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, WARM_UP, WARM_UP + 1, WARM_UP + 20])
def test_on_a_gpu_the_record_gives_the_same_numbers(count):
    device = torch.device("cuda")
    plain, _ = walked(device, count, enabled=False)
    walk, replay = walked(device, count, enabled=True)
    assert torch.equal(walk.place, plain.place)
    assert walk.calls == min(count, WARM_UP + 1)  # once more to record
    assert (replay.graph is not None) == (count > WARM_UP)
    draws = [torch.rand(5, generator=one.generator, device=device) for one in (walk, plain)]
    assert torch.equal(*draws)  # both generators stand at the same place


REFUSED = """
import warnings, torch
from graphglow.training.loop import Replay

device = torch.device("cuda")
generator = torch.Generator(device).manual_seed(4)
twin = torch.Generator(device).manual_seed(4)
place, expected = torch.zeros(5, device=device), torch.zeros(5, device=device)

def step():
    place.add_(torch.rand(5, generator=generator, device=device))
    float(place.sum())  # waits for the GPU: cannot be recorded

replay = Replay((generator,), device, enabled=True)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(6):
        replay(step)
        expected.add_(torch.rand(5, generator=twin, device=device))
assert [str(w.message)[:29] for w in said] == ["training without a CUDA graph"], said
assert replay.graph is None
assert torch.equal(place, expected), (place, expected)
"""


@pytest.mark.gpu
def test_where_recording_fails_calls_go_on_with_a_warning():
    """In a process of its own: a recording that broke off may leave traces."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REFUSED], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
