"""APPNP against the power iteration, dense, and its limits."""

import pytest
import torch
from gnn_graphs import built, dense_latent, evaluated, float64, latent_structure, small_data

from graphglow.gnn.backbones import APPNP


def mlp(model, graph):
    h = graph.x.to_dense()
    for layer, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
        h = (torch.relu(h) if layer else h) @ weight + bias
    return h


@pytest.mark.parametrize("num_layers", [2, 3])
def test_alpha_one_is_the_mlp(num_layers):
    graph, model = float64(small_data()), built(APPNP, num_layers, teleport=1.0)
    logits = evaluated(model, graph, latent_structure())[1]
    torch.testing.assert_close(logits, mlp(model, graph))


@pytest.mark.parametrize("input_weight", [0.0, 0.4, 1.0])
def test_many_steps_solve_personalised_pagerank(input_weight):
    """alpha (I - (1 - alpha) M)^-1 h0; the operators' norm is at most one."""
    graph, structure = float64(small_data()), latent_structure()
    model = built(APPNP, steps=200, teleport=0.2)
    operator = input_weight * graph.adj.to_dense() + (1 - input_weight) * dense_latent(structure)
    inverse = torch.linalg.inv(torch.eye(20, dtype=torch.float64) - 0.8 * operator)
    logits = evaluated(model, graph, structure, input_weight)[1]
    torch.testing.assert_close(logits, 0.2 * inverse @ mlp(model, graph))


def test_embeddings_are_the_first_layer_on_the_mixed_structure():
    graph, structure, model = float64(small_data()), latent_structure(), built(APPNP)
    operator = 0.4 * graph.adj.to_dense() + 0.6 * dense_latent(structure)
    z = evaluated(model, graph, structure)[0]
    expected = operator @ graph.x.to_dense() @ model.weights[0] + model.biases[0]
    torch.testing.assert_close(z, expected)
    assert (z < 0).any()
