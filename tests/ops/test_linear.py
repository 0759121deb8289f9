"""``linear`` gives the numbers of ``eager`` where nothing is cut, at a cost without N * P."""

import pytest
import torch
from propagate_inputs import LargestTensor, inputs, value_and_gradients

from graphglow.ops.eager import eager
from graphglow.ops.linear import linear


def uncut(v, q, k):
    return eager(v, q, k, None, "identity", 1)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(("n", "p"), [(1, 1), (63, 5), (257, 64), (40, 40)])
def test_equals_eager_in_value_and_every_gradient(n, p, batch):
    tensors = inputs(n, p, case="identity uncut", batch=batch)
    for got, want in zip(
        value_and_gradients(linear, tensors), value_and_gradients(uncut, tensors), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9)


def test_never_forms_a_node_by_pivot_matrix():
    n, p = 300, 200
    leaves = [t.requires_grad_() for t in inputs(n, p, case="identity uncut")]
    with LargestTensor() as mode:
        linear(*leaves).sum().backward()
    assert mode.elements <= n * 8
