"""H2GCN: neighbourhoods by hand, and the rounds as one dense formula."""

import pytest
import torch
from gnn_graphs import built, dense_latent, evaluated, float64, latent_structure, small_data
from torch_geometric.data import Data

from graphglow.gnn.backbones import H2GCN
from graphglow.graph import prepare


def test_neighbourhoods_of_a_tiny_graph():
    """A triangle 0-1-2 with a tail 2-3-4, and 5 alone."""
    data = Data(
        x=torch.eye(6),
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
        edge_index=torch.tensor([[0, 0, 1, 2, 3, 3], [1, 2, 2, 3, 4, 3]]),
    )
    for part, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.arange(6) // 2 == part
    one, two = prepare(data).hops
    near = {(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)}
    far = {(0, 3), (1, 3), (2, 4)}  # the triangle's nodes are one step apart, not two
    degrees = [2, 2, 3, 2, 1, 0], [1, 1, 1, 2, 1, 0]
    for found, pairs, degree in ((one, near, degrees[0]), (two, far, degrees[1])):
        expected = torch.zeros(6, 6)
        for u, v in pairs:
            expected[u, v] = expected[v, u] = (degree[u] * degree[v]) ** -0.5
        torch.testing.assert_close(found.to_dense(), expected)


@pytest.mark.parametrize("input_weight", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("num_rounds", [2, 3])
def test_equals_the_dense_equation(num_rounds, input_weight):
    graph, structure, model = float64(small_data()), latent_structure(), built(H2GCN, num_rounds)
    one, two = (hop.to_dense() for hop in graph.hops)
    assert (one.diagonal() == 0).all()
    assert (two.diagonal() == 0).all()
    assert (one * two == 0).all()
    latent = dense_latent(structure)
    near = input_weight * one + (1 - input_weight) * latent
    far = input_weight * two + (1 - input_weight) * latent @ latent
    xw = graph.x.to_dense() @ model.weight
    rounds = [torch.relu(xw + model.bias)]
    for _ in range(num_rounds):
        rounds.append(torch.cat([near @ rounds[-1], far @ rounds[-1]], dim=1))
    z, logits = evaluated(model, graph, structure, input_weight)
    torch.testing.assert_close(z, near @ xw + model.bias)
    expected = torch.cat(rounds, dim=1) @ model.weight_out + model.bias_out
    torch.testing.assert_close(logits, expected)


def test_a_crowded_second_hop_multiplies_as_a_dense_matrix():
    """The leaves of a star are all two steps apart; those of a path are not."""
    for edges, crowded in (([[0] * 19, range(1, 20)], True), ([range(19), range(1, 20)], False)):
        data = small_data(num_nodes=20)
        data.edge_index = torch.tensor([list(ends) for ends in edges])
        _, two = float64(data).hops
        assert (two.dense is not None) == crowded
        v = torch.rand(20, 3, dtype=torch.float64, requires_grad=True)
        plain = two.with_values(two.values)
        assert plain.dense is None
        weight = torch.rand(20, 3, dtype=torch.float64)
        (grad,) = torch.autograd.grad(((two @ v) * weight).sum(), v)
        (expected,) = torch.autograd.grad(((plain @ v) * weight).sum(), v)
        torch.testing.assert_close(two @ v, plain @ v)
        torch.testing.assert_close(grad, expected)
