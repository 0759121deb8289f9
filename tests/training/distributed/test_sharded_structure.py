"""On one rank, a sharded structure is Eq. 11: ``eager`` is the truth, in value and gradients."""

import pytest
import torch

from graphglow.ops.eager import eager
from graphglow.training.distributed import Ranks
from graphglow.training.distributed import structure as module
from graphglow.training.distributed.structure import sharded_structure
from graphglow.training.distributed.task import own_pivots
from tiny_graphs import learner

KINDS = [
    {"similarity": "cosine"},
    {"similarity": "cosine", "threshold": 0.3},
    {"similarity": "cosine", "delta": "affine"},
    {"similarity": "dot"},
    {"similarity": "rbf"},
    {"similarity": "attention"},
]


CASES = [(backend, kind) for backend in ("auto", "dense", "chunked") for kind in KINDS]


@pytest.mark.parametrize(("backend", "kind"), [*CASES, ("linear", KINDS[2])], ids=str)
def test_propagation_and_gradients_are_those_of_eager(monkeypatch, backend, kind):
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 70)  # blocks of a few rows, the last one short
    theta = learner(**kind).double()
    g = torch.Generator().manual_seed(0)
    z = torch.randn(37, 6, generator=g, dtype=torch.float64, requires_grad=True)
    v = torch.randn(37, 4, generator=g, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(37, 4, generator=g, dtype=torch.float64)
    pivots = torch.tensor([30, 1, 2, 17, 5])
    inputs = (z, v, *theta.parameters())

    structure = sharded_structure(
        theta,
        z,
        own_pivots(pivots, torch.arange(37)),
        Ranks(),
        backend=backend,
        precision="float32",
    )
    out = structure.propagate(v)
    q, k = theta(z, pivots)
    local = structure.local
    expected = eager(v, q, k, local.threshold, local.kernel, local.heads)
    torch.testing.assert_close(out, expected)
    for got, true in zip(
        torch.autograd.grad((out * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(got, true)


def test_auto_takes_linear_then_dense_then_chunked(monkeypatch):
    z = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    pivots = own_pivots(torch.arange(5), torch.arange(20))

    def chosen(**kind):
        made = sharded_structure(
            learner(**kind), z, pivots, Ranks(), backend="auto", precision="float32"
        )
        return made.chosen_backend

    assert chosen(delta="affine") == "linear"
    assert chosen() == "dense"
    monkeypatch.setattr(module, "DENSE_LIMIT", 99)
    assert chosen() == "chunked"


def test_chunked_keeps_no_block_for_the_backward_pass(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 7 * 50)
    z = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    kept = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        structure = sharded_structure(
            learner(),
            z,
            own_pivots(torch.arange(50), torch.arange(1000)),
            Ranks(),
            backend="chunked",
            precision="float32",
        )
        structure.propagate(z)
    assert sum(kept.values()) < 1000 * 50 / 2  # Gamma has 50,000 entries; q has 12,000
