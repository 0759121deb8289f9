"""``eager`` is the truth: held to Eq. 11 written as loops, and to finite differences."""

import pytest
import torch
from graphglow.ops.eager import eager
from propagate_inputs import CASES, inputs

from graphglow.paper.pivots import similarity


def literal_gamma(q, k, threshold, kernel, heads):
    """Entry by entry: the mean over heads of phi(q_h . k_h), cut."""
    phi = {"identity": lambda s: s, "exp": torch.exp, "sigmoid": torch.sigmoid}[kernel]
    gamma = torch.zeros(len(q), len(k), dtype=q.dtype)
    for u in range(len(q)):
        for p in range(len(k)):
            parts = zip(q[u].chunk(heads), k[p].chunk(heads), strict=True)
            value = torch.stack([phi(a @ b) for a, b in parts]).mean()
            gamma[u, p] = value if threshold is None or value > threshold else 0.0
    return gamma


@pytest.mark.parametrize("case", CASES)
def test_equals_the_equation_entry_by_entry(case):
    kernel, heads, threshold = CASES[case]
    v, q, k = inputs(7, 3, case=case)
    gamma = literal_gamma(q, k, threshold, kernel, heads)
    torch.testing.assert_close(
        similarity(q, k, threshold=threshold, kernel=kernel, heads=heads), gamma
    )
    expected = torch.zeros_like(v)
    for u in range(7):
        for p in range(3):
            if gamma[u, p] > 0:
                pivot = gamma[:, p] @ v / gamma[:, p].sum()
                expected[u] += gamma[u, p] / gamma[u].sum() * pivot
    torch.testing.assert_close(eager(v, q, k, threshold, kernel, heads), expected)


@pytest.mark.parametrize("case", CASES)
def test_gradients_agree_with_finite_differences(case):
    kernel, heads, threshold = CASES[case]
    leaves = [t.requires_grad_() for t in inputs(5, 3, case=case, width=4, margin=1e-3)]
    assert torch.autograd.gradcheck(
        lambda v, q, k: eager(v, q, k, threshold, kernel, heads), leaves
    )


@pytest.mark.parametrize("case", CASES)
def test_a_constant_stays_constant(case):
    kernel, heads, threshold = CASES[case]
    _, q, k = inputs(30, 6, case=case)
    out = eager(torch.ones(30, 2, dtype=torch.float64), q, k, threshold, kernel, heads)
    reached = similarity(q, k, threshold=threshold, kernel=kernel, heads=heads).sum(1) > 0
    assert reached.any()
    torch.testing.assert_close(out[reached], torch.ones_like(out[reached]))
    assert (out[~reached] == 0).all()


def test_a_similarity_equal_to_the_threshold_is_cut():
    q = torch.tensor([[0.5], [0.75]])
    gamma = similarity(q, torch.ones(1, 1), threshold=0.5)
    assert gamma.tolist() == [[0.0], [0.75]]
