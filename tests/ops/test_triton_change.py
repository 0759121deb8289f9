"""How far embeddings moved: by the kernel, and in plain PyTorch."""

import pytest
import torch

from graphglow.ops.change import squared_change
from interpreted import DEVICE, KERNEL_TEST, kernels

pytest.importorskip("triton")
pytestmark = KERNEL_TEST
fused = kernels("graphglow.ops.triton_change")

SHAPES = [(1, 1), (7, 5), (64, fused.BLOCK // 64), (5, fused.BLOCK // 5 + 1), (100, 100)]  # N, D
BATCHES = [(), (1,), (3,), (2, 3)]


def embeddings(n, d, batch=(), dtype=torch.float32):
    generator = torch.Generator().manual_seed(n * d)
    z, step = torch.randn(2, *batch, n, d, generator=generator, dtype=torch.float64)
    return z.to(dtype), (z + 0.1 * step).to(dtype)


def by_hand(z, z_next):
    z, z_next = z.double(), z_next.double()
    return torch.stack([(z_next - z).square().sum((-2, -1)), z.square().sum((-2, -1))], dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the kernel takes the first only
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_is_the_sum_of_squares_of_each_run(n, d, batch, dtype):
    z, z_next = embeddings(n, d, batch, dtype)
    got = squared_change(z.to(DEVICE), z_next.to(DEVICE)).cpu()
    assert got.dtype == dtype
    assert got.shape == (*batch, 2)
    torch.testing.assert_close(got.double(), by_hand(z, z_next), rtol=1e-5, atol=0)


@pytest.mark.usefixtures("nan_filled_memory")
def test_no_part_is_left_unwritten():
    z, z_next = embeddings(100, 100, (2,))
    parts = fused.partial_changes(z.to(DEVICE), z_next.to(DEVICE)).cpu()
    assert parts.shape == (2, 3, 2)
    torch.testing.assert_close(parts.double().sum(-2), by_hand(z, z_next), rtol=1e-5, atol=0)


def test_what_stands_still_has_moved_by_exactly_zero():
    z, _ = embeddings(9, 7)
    z = z.to(DEVICE)
    assert squared_change(z, z)[0] == 0
    assert squared_change(z, z)[1] > 0
    assert squared_change(0 * z, 0 * z).tolist() == [0, 0]


def test_strided_embeddings_are_taken():
    z, z_next = (t.mT.contiguous().mT for t in embeddings(9, 7, (2,)))
    assert not z.is_contiguous()
    got = squared_change(z.to(DEVICE), z_next.to(DEVICE)).cpu()
    torch.testing.assert_close(got.double(), by_hand(z, z_next), rtol=1e-5, atol=0)


def test_no_gradient_is_recorded():
    z, z_next = (t.to(DEVICE).requires_grad_() for t in embeddings(9, 7))
    assert not squared_change(z, z_next).requires_grad
