"""Latent structures: drawn, blended, and in blocks of rows."""

import pytest
import torch
from graphglow.ops import pivot_propagate
from graphglow.ops.dense import dense_gamma

from graphglow.paper import BlendedStructure, PivotStructure, SampledStructure


def pivot_structure(seed=0, *, threshold=0.0, kernel="identity", heads=1):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    k = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    return PivotStructure(q, k, threshold=threshold, kernel=kernel, heads=heads)


V = torch.randn(9, 2, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


@pytest.mark.parametrize("kernel", ["identity", "exp", "sigmoid"])
def test_rows_of_gamma_are_the_rows_of_the_whole(kernel):
    structure = pivot_structure(threshold=0.3, kernel=kernel, heads=2)
    assert structure.gamma().shape == (9, 3)
    torch.testing.assert_close(structure.gamma(slice(2, 7)), structure.gamma()[2:7])


def test_a_drawn_structure_with_the_weights_of_gamma_propagates_like_it():
    structure = pivot_structure()
    torch.testing.assert_close(
        SampledStructure(structure.gamma()).propagate(V), structure.propagate(V)
    )


def test_a_drawn_structure_averages_over_shared_pivots():
    b = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    v = torch.tensor([[2.0], [4.0], [100.0]])
    # pivot 0 hears nodes 0 and 1, pivot 1 hears node 1, node 2 hears nobody
    assert SampledStructure(b).propagate(v).tolist() == [[3.0], [3.5], [0.0]]


def test_an_empty_draw_gives_zero_and_finite_gradients():
    b = torch.zeros(4, 2, requires_grad=True)
    out = SampledStructure(b).propagate(torch.ones(4, 3))
    out.sum().backward()
    assert (out == 0).all()
    assert b.grad.isfinite().all()


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_blending_weighs_current_and_first(eta):
    current, first = pivot_structure(1), pivot_structure(2)
    expected = eta * current.propagate(V) + (1 - eta) * first.propagate(V)
    torch.testing.assert_close(BlendedStructure(current, first, eta).propagate(V), expected)
    assert not torch.allclose(current.propagate(V), first.propagate(V))


@pytest.mark.parametrize("backend", ["auto", "eager", "dense", "chunked"])
@pytest.mark.parametrize("kernel", ["identity", "exp", "sigmoid"])
def test_a_batch_of_structures_is_each_of_them(backend, kernel):
    parts = [pivot_structure(seed, threshold=0.3, kernel=kernel, heads=2) for seed in range(3)]
    q, k = torch.stack([p.q for p in parts]), torch.stack([p.k for p in parts])
    batch = PivotStructure(q, k, 0.3, kernel, 2, backend=backend)
    v = torch.stack([V, V.flip(0), -V])
    for run, part in enumerate(parts):
        torch.testing.assert_close(batch.gamma()[run], part.gamma())
        torch.testing.assert_close(batch.gamma(slice(2, 7))[run], part.gamma(slice(2, 7)))
        torch.testing.assert_close(batch.propagate(v)[run], part.propagate(v[run]))


def test_the_runs_of_a_batch_may_blend_each_with_a_momentum_of_its_own():
    etas = (0.0, 0.3, 1.0)
    current, first = pivot_structure(1), pivot_structure(2)
    together = [
        PivotStructure(s.q.expand(3, -1, -1), s.k.expand(3, -1, -1), 0.0, "identity", 1)
        for s in (current, first)
    ]
    eta = torch.tensor(etas, dtype=torch.float64)[:, None, None]
    out = BlendedStructure(*together, eta).propagate(V.expand(3, -1, -1))
    for run, alone in enumerate(etas):
        expected = BlendedStructure(current, first, alone).propagate(V)
        torch.testing.assert_close(out[run], expected)


def test_a_named_backend_is_refused_where_it_cannot_do_it():
    structure = pivot_structure()
    named = PivotStructure(structure.q, structure.k, 0.0, "identity", 1, backend="linear")
    with pytest.raises(ValueError, match="linear"):
        named.propagate(V)


def test_gamma_is_computed_once_for_all_layers_with_the_same_gradients(monkeypatch):
    calls = []

    def counted(*args, **kwargs):
        calls.append(args)
        return dense_gamma(*args, **kwargs)

    monkeypatch.setattr("graphglow.paper.latent.dense_gamma", counted)
    gradients = []
    for share in (True, False):
        made = pivot_structure()
        q = made.q.clone().requires_grad_()
        shared = PivotStructure(q, made.k, 0.0, "identity", 1, backend="dense")
        layers = [
            shared if share else PivotStructure(q, made.k, 0.0, "identity", 1, backend="dense")
            for _ in range(3)
        ]
        v = V
        for layer in layers:
            v = layer.propagate(v)
        gradients.append(torch.autograd.grad(v.square().sum(), q)[0])
    assert len(calls) == 1 + 3
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("backend", ["dense", "chunked"])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_structure_propagates_in_the_precision_asked_for(backend, precision):
    made, v = pivot_structure(), V.float()
    q, k = made.q.float(), made.k.float()
    options = {"backend": backend, "precision": precision}
    got = PivotStructure(q, k, 0.0, "identity", 1, **options).propagate(v)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, pivot_propagate(v, q, k, threshold=0.0, **options))
    whole = PivotStructure(q, k, 0.0, "identity", 1, backend=backend).propagate(v)
    assert torch.equal(got, whole) == (precision != "bfloat16")  # a CPU has no tf32
    torch.testing.assert_close(got, whole, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("backend", ["eager", "dense", "chunked", "triton"])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_backend_and_precision_reach_the_operation(backend, precision, monkeypatch):
    """By their names: a CPU has no tf32 that would show, and no Triton."""
    made, calls = pivot_structure(threshold=0.2, kernel="exp", heads=2), []

    def door(v, q, k, **settings):
        assert q is made.q
        assert k is made.k
        calls.append(settings)
        return v

    def gamma(q, k, threshold, kernel, heads, precision):
        return door(
            None, q, k, threshold=threshold, kernel=kernel, heads=heads, precision=precision
        )

    monkeypatch.setattr("graphglow.paper.latent.pivot_propagate", door)
    monkeypatch.setattr("graphglow.paper.latent.dense_gamma", gamma)
    monkeypatch.setattr("graphglow.paper.latent.propagate_dense", lambda v, made: v)
    options = {"backend": backend, "precision": precision}
    PivotStructure(made.q, made.k, 0.2, "exp", 2, **options).propagate(V)
    (settings,) = calls
    assert settings.pop("backend", "dense") == backend
    assert settings == {"threshold": 0.2, "kernel": "exp", "heads": 2, "precision": precision}


@pytest.mark.parametrize(
    ("threshold", "kernel", "chosen", "made"),
    [(0.0, "identity", "dense", 1), (None, "exp", "dense", 1), (None, "identity", "linear", 0)],
)
def test_auto_makes_gamma_once_and_only_when_asked(threshold, kernel, chosen, made, monkeypatch):
    calls = []

    def counted(*args):
        calls.append(args)
        return dense_gamma(*args)

    monkeypatch.setattr("graphglow.paper.latent.dense_gamma", counted)
    structure = pivot_structure(threshold=threshold, kernel=kernel)
    assert structure.chosen_backend == chosen
    assert calls == []
    for v in (V, V.flip(0)):
        want = pivot_propagate(
            v, structure.q, structure.k, threshold=threshold, kernel=kernel, backend="eager"
        )
        torch.testing.assert_close(structure.propagate(v), want)
    assert len(calls) == made
