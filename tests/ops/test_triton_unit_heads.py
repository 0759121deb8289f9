"""The kernels of ``unit_heads`` against plain PyTorch: on the GPU, or in the interpreter."""

import math

import pytest
import torch

from graphglow.ops import unit_heads as plain
from graphglow.ops.unit_heads import CONSTANT_COLUMNS, SHORTEST, unit_heads
from interpreted import DEVICE, KERNEL_TEST, kernels

pytest.importorskip("triton")
pytestmark = [
    *KERNEL_TEST,  # a GPU divides by zero in silence, NumPy does not
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
]
fused = kernels("graphglow.ops.triton_unit_heads")

CONSTANTS = [None, math.sqrt(1 + 1e-5)]
FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}


def inputs(n, h, d, *, batch=(), batched_weight=False):
    generator = torch.Generator().manual_seed(n * h * d)
    shape = (*batch, h, d) if batched_weight else (h, d)
    return [torch.randn(*s, generator=generator) for s in ((*batch, n, d), shape)]


def value_and_gradients(tensors, constant, *, dtype, device, wanted=(True, True)):
    """By the kernels in float32, which take no float64."""
    leaves = [
        t.detach().to(device, dtype).requires_grad_(w) for t, w in zip(tensors, wanted, strict=True)
    ]
    out = unit_heads(*leaves, constant)
    generator = torch.Generator().manual_seed(9)
    direction = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    out.backward(direction.to(device, dtype))
    return [t if t is None else t.detach().cpu() for t in (out, *(leaf.grad for leaf in leaves))]


def assert_both_agree(tensors, constant, **options):
    got = value_and_gradients(tensors, constant, dtype=torch.float32, device=DEVICE, **options)
    want = value_and_gradients(tensors, constant, dtype=torch.float64, device="cpu", **options)
    for one, other in zip(got, want, strict=True):
        if other is None:
            assert one is None
            continue
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, **FLOAT32)
    return got


def test_the_kernels_take_float32_only():
    z, _ = inputs(3, 2, 4)
    assert plain.fused_usable(z.to(DEVICE))
    assert not plain.fused_usable(z.double().to(DEVICE))
    assert not plain.fused_usable(z.bfloat16().to(DEVICE))


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize(("n", "h", "d"), [(1, 1, 1), (7, 3, 5), (fused.ROWS, 4, 8), (70, 2, 33)])
def test_values_and_gradients_are_those_of_plain_pytorch(n, h, d, constant):
    assert_both_agree(inputs(n, h, d), constant)


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("batched_weight", [True, False])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_values_and_gradients_of_a_batch(batch, batched_weight, constant):
    assert_both_agree(inputs(40, 3, 5, batch=batch, batched_weight=batched_weight), constant)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_one_gradient_alone_is_the_same(wanted):
    assert_both_agree(inputs(33, 3, 5, batch=(2,)), 1.0, wanted=wanted)


@pytest.mark.usefixtures("nan_filled_memory")
@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_no_entry_is_left_unwritten(batch, constant):
    assert_both_agree(inputs(33, 3, 5, batch=batch, batched_weight=True), constant)


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_zero_rows_and_heads_give_zero_and_no_gradient(batch, constant):
    z, weight = inputs(5, 3, 4, batch=batch)
    z[..., [1, 4], :] = 0
    weight[1] = 0
    out, dz, dw = assert_both_agree([z, weight], constant)
    heads = out[..., :12].unflatten(-1, (3, 4))
    assert (heads[..., [1, 4], :, :] == 0).all()
    assert (heads[..., 1, :] == 0).all()
    assert (heads[..., [0, 2, 3], :, :][..., [0, 2], :] != 0).all()
    assert (dz[..., [1, 4], :] == 0).all()
    assert (dw[1] == 0).all()
    if constant is not None:  # the constant is there for every node
        assert out.shape[-1] == 12 + CONSTANT_COLUMNS
        torch.testing.assert_close(out[..., 12], torch.full_like(out[..., 12], constant / 2**0.5))
        assert (out[..., 13:] == 0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_very_short_and_long_vectors_become_unit_vectors(scale):
    z, weight = inputs(5, 3, 4)
    out = unit_heads((scale * z).to(DEVICE), weight.to(DEVICE)).cpu()
    torch.testing.assert_close(out, unit_heads(z.double(), weight.double()).float(), **FLOAT32)


def test_vectors_shorter_than_the_shortest_count_as_zero():
    z, weight = torch.full((2, 1), SHORTEST / 2, device=DEVICE), torch.ones(1, 1, device=DEVICE)
    assert (unit_heads(z, weight) == 0).all()


def test_strided_inputs_and_an_expanded_gradient_are_taken():
    z, weight = inputs(9, 3, 5, batch=(2,))
    z, weight = z.mT.contiguous().mT, weight.mT.contiguous().mT.expand(2, 3, 5)
    gradients = []
    for dtype, device in ((torch.float32, DEVICE), (torch.float64, "cpu")):
        leaves = [t.to(device, dtype).requires_grad_() for t in (z, weight)]
        assert not any(leaf.is_contiguous() for leaf in leaves)
        gradients.append(torch.autograd.grad(unit_heads(*leaves).sum(), leaves))
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got.cpu().double(), want, **FLOAT32)


def test_a_second_run_gives_the_same_bits():
    tensors = inputs(70, 3, 5)
    runs = [value_and_gradients(tensors, 1.0, dtype=torch.float32, device=DEVICE) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)
