"""Eq. 11: messages over a latent graph, against the two row-normalised products of the paper."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphglow.paper import pivots
from graphglow.paper.pivots import (
    EPS,
    BlendedStructure,
    KNNStructure,
    PivotStructure,
    propagate_over,
    propagate_uncut,
)

KERNELS = ["identity", "exp", "sigmoid"]


def factors(n=13, p=6, width=4, seed=0, grad=False):
    """Node values v [N, 3] and factors q, k."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        torch.randn(m, w, generator=generator).double() for m, w in ((n, 3), (n, width), (p, width))
    ]
    return [leaf.requires_grad_(grad) for leaf in made]


def literal(v, q, k, threshold, kernel, heads):
    """Gamma entry by entry, then RowNorm(Gamma) RowNorm(Gamma^T) v."""
    phi = {"identity": lambda s: s, "exp": torch.exp, "sigmoid": torch.sigmoid}[kernel]
    rows = []
    for one in q:
        values = []
        for other in k:
            parts = zip(one.chunk(heads), other.chunk(heads), strict=True)
            scores = [phi(a @ b) for a, b in parts]
            values.append(sum(scores) if kernel == "identity" else sum(scores) / heads)
        rows.append(torch.stack(values))
    gamma = torch.stack(rows)
    gamma = gamma if threshold is None else torch.where(gamma > threshold, gamma, 0.0)

    def row_norm(matrix):
        return matrix / matrix.sum(1, keepdim=True).clamp_min(EPS)

    return row_norm(gamma) @ (row_norm(gamma.T) @ v)


def same_values_and_gradients(one, other, leaves):
    torch.testing.assert_close(one, other)
    direction = torch.randn(one.shape, generator=torch.Generator().manual_seed(9)).double()
    found, expected = (
        torch.autograd.grad(out, leaves, direction, retain_graph=True) for out in (one, other)
    )
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("threshold", [0.0, 0.3])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("n", "p"), [(1, 1), (13, 6), (5, 9)])
def test_messages_are_two_row_normalised_products(n, p, kernel, threshold):
    leaves = v, q, k = factors(n, p, grad=True)
    found = PivotStructure(q, k, threshold, kernel, 2).propagate(v)
    same_values_and_gradients(found, literal(v, q, k, threshold, kernel, 2), leaves)


def test_gradients_are_those_of_finite_differences():
    v, q, k = factors(5, 3, grad=True)
    q.data, k.data = q.data.abs(), k.data.abs()  # away from the jump at the cut
    assert torch.autograd.gradcheck(lambda *x: PivotStructure(*x[1:]).propagate(x[0]), (v, q, k))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [1, 4, 13, 100])
def test_blocks_of_nodes_change_no_value_and_no_gradient(rows, kernel):
    leaves = v, q, k = factors(grad=True)
    structure = PivotStructure(q, k, 0.1, kernel, 2)
    same_values_and_gradients(
        structure.propagate_in_blocks(v, rows), structure.propagate(v), leaves
    )


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 30), p=st.integers(1, 9), rows=st.integers(1, 40), seed=st.integers(0, 99))
def test_the_result_does_not_depend_on_the_size_of_blocks(n, p, rows, seed):
    v, q, k = factors(n, p, seed=seed)
    structure = PivotStructure(q, k, 0.1)
    torch.testing.assert_close(structure.propagate_in_blocks(v, rows), structure.propagate(v))


def test_a_gamma_that_is_too_large_is_never_whole(monkeypatch):
    v, q, k = factors()
    expected = PivotStructure(q, k).propagate(v)
    monkeypatch.setattr(pivots, "LARGEST_GAMMA", 13 * 6 - 1)
    monkeypatch.setattr(pivots, "BLOCK_ELEMENTS", 12)
    shapes, real = [], PivotStructure.similarity
    monkeypatch.setattr(
        PivotStructure, "similarity", lambda self, q: shapes.append(len(q)) or real(self, q)
    )
    torch.testing.assert_close(PivotStructure(q, k).propagate(v), expected)
    assert max(shapes) == 2


def test_gamma_is_made_once_for_all_layers(monkeypatch):
    calls, real = [], PivotStructure.similarity
    monkeypatch.setattr(
        PivotStructure, "similarity", lambda self, q: calls.append(1) or real(self, q)
    )
    v, q, k = factors()
    structure = PivotStructure(q, k)
    structure.propagate(structure.propagate(v))
    assert len(calls) == 1


@pytest.mark.parametrize(("n", "p"), [(1, 1), (13, 6), (6, 6)])
def test_without_a_cut_gamma_is_never_formed_and_the_result_the_same(n, p, monkeypatch):
    leaves = v, q, k = factors(n, p)
    leaves = v, q, k = [v.requires_grad_(), q.abs().requires_grad_(), k.abs().requires_grad_()]
    expected = propagate_over(q @ k.T, v)
    monkeypatch.setattr(PivotStructure, "similarity", None)
    found = PivotStructure(q, k, None).propagate(v)
    same_values_and_gradients(found, expected, leaves)
    torch.testing.assert_close(propagate_uncut(v, q, k), expected)


def test_a_node_without_pivots_receives_zero_and_passes_finite_gradients():
    v, q, k = factors(grad=True)
    with torch.no_grad():
        q[3] = 0
        k[2] = 0
    out = PivotStructure(q, k).propagate(v)
    assert (out[3] == 0).all()
    assert (out[4] != 0).any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.square().sum(), (v, q, k)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_of_gamma_are_the_rows_of_the_whole(kernel):
    _, q, k = factors()
    structure = PivotStructure(q, k, 0.3, kernel, 2)
    torch.testing.assert_close(structure.similarity(q[2:7]), structure.gamma()[2:7])


# Few neighbours


def masked(q, k, neighbours):
    """Every row's largest entries, found one by one."""
    gamma = PivotStructure(q, k).gamma()
    mask = torch.zeros_like(gamma)
    for row, kept in zip(gamma.tolist(), mask, strict=True):
        kept[sorted(range(len(row)), key=row.__getitem__, reverse=True)[:neighbours]] = 1
    return gamma * mask


def test_few_neighbours_by_hand():
    q = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    k = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    two = torch.tensor([[1.0, 0.8, 0], [0, 0.96, 0.8], [0, 0, 0]])
    torch.testing.assert_close(KNNStructure(q, k, neighbours=2).gamma(), two)


@pytest.mark.parametrize("neighbours", [1, 3, 6, 1000])
def test_few_neighbours_are_the_masked_gamma(neighbours):
    leaves = v, q, k = factors(grad=True)
    structure = KNNStructure(q, k, neighbours=neighbours)
    same_values_and_gradients(
        structure.propagate(v), propagate_over(masked(q, k, neighbours), v), leaves
    )
    same_values_and_gradients(
        structure.propagate_in_blocks(v, 4), propagate_over(masked(q, k, neighbours), v), leaves
    )


def test_of_equals_always_the_same_are_kept():
    q = torch.ones(7, 3)
    first = KNNStructure(q, q[:5], neighbours=2).gamma()
    assert ((first > 0).sum(1) == 2).all()
    assert torch.equal(first, KNNStructure(q, q[:5], neighbours=2).gamma())


# Blended


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_blending_weighs_current_and_first(eta):
    v, q, k = factors()
    current, first = PivotStructure(q, k), PivotStructure(-q, k)
    expected = eta * current.propagate(v) + (1 - eta) * first.propagate(v)
    blended = BlendedStructure(current, first, eta)
    torch.testing.assert_close(blended.propagate(v), expected)
    whole = sum(left @ right.T for left, right in blended.factors())
    torch.testing.assert_close(whole @ v, expected)
