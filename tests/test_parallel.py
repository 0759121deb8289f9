"""Blocks in a loop and on Ray: the same results, in order, whoever dies."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from graphglow.device import map_blocks
from graphglow.errors import InputError, StoppedError

NUMBERS = torch.arange(40_000.0)
PIECES = [range(start, start + 5000) for start in range(0, 40_000, 5000)]
SUMS = [float(NUMBERS[piece.start : piece.stop].sum()) for piece in PIECES]


def add_up(numbers, piece):
    return float(numbers[piece.start : piece.stop].sum())


def add_up_unless_killed(shared, piece):
    """The first worker at block 3 dies at it."""
    numbers, mark = shared
    if piece == PIECES[3] and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return add_up(numbers, piece)


def die(_, piece):
    os._exit(1)


def refuse(_, piece):
    raise InputError("This cannot be read.")


def wait_for(_, seconds):
    time.sleep(seconds)
    return seconds


def double(tensors, block):
    return tensors["sparse"].to_dense() @ (2 * block)


@pytest.fixture(scope="module")
def ray():
    found = pytest.importorskip("ray", reason="Ray is not installed")
    found.shutdown()  # another file's, whose workers do not know this module
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield "local"
        found.shutdown()


def test_a_loop_is_lazy():
    first = next(map_blocks(add_up, NUMBERS, iter(PIECES)))
    assert first == SUMS[0]
    with pytest.raises(InputError, match="workers must be >= 1; got 0"):
        next(map_blocks(add_up, NUMBERS, PIECES, workers=0))


@pytest.mark.slow
def test_ray_gives_the_results_of_a_loop_though_a_worker_is_killed(ray, tmp_path):
    shared = NUMBERS, str(tmp_path / "killed")
    assert list(map_blocks(add_up_unless_killed, shared, PIECES, workers=2, ray=ray)) == SUMS
    assert (tmp_path / "killed").exists()
    waits = [3.0, 0.1]
    assert list(map_blocks(wait_for, None, waits, workers=2, ray=ray, ordered=False)) == [0.1, 3.0]


@pytest.mark.slow
def test_ray_takes_views_and_sparse_tensors_and_returns_errors_as_they_are(ray):
    tensors = {"sparse": torch.eye(4).to_sparse()}
    blocks = torch.split(torch.arange(12.0).view(4, 3), 1, dim=1)
    found = torch.cat(list(map_blocks(double, tensors, blocks, workers=2, ray=ray)), 1)
    assert torch.equal(found, 2 * torch.arange(12.0).view(4, 3))
    with pytest.raises(InputError, match=r"^This cannot be read\.$"):
        list(map_blocks(refuse, None, PIECES, workers=2, ray=ray))
    with pytest.raises(StoppedError, match="Ray lost a block of work 4 times"):
        list(map_blocks(die, None, PIECES[:1], workers=2, ray=ray))
    with pytest.raises(InputError, match="no GPU"):
        next(map_blocks(add_up, NUMBERS, PIECES, ray=ray, gpus=1))
