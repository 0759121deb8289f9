"""Replaying a step on a GPU: it is recorded, to the same numbers."""

import pytest
import torch

from graphglow.gnn.train import Replay


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


def walked(count, *, recorded):
    walk = Walk("cuda")
    replay = Replay(walk.generator, torch.device("cuda"))
    for _ in range(count):
        if recorded:
            replay(walk)
        else:
            walk()
    return walk


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2, 20])
def test_on_a_gpu_a_record_gives_the_same_numbers(count):
    plain, recorded = (walked(count, recorded=recorded) for recorded in (False, True))
    assert torch.equal(plain.place, recorded.place)
    assert plain.calls == count
    assert recorded.calls == min(count, 2)  # the warm-up and the recording


@pytest.mark.gpu
def test_a_step_that_cannot_be_recorded_is_called_with_a_warning():
    walk = Walk("cuda")

    def reading():
        walk()
        walk.place.sum().item()

    replay = Replay(walk.generator, torch.device("cuda"))
    replay(reading)
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        replay(reading)
    plain = walked(2, recorded=False)
    assert torch.equal(walk.place, plain.place)
