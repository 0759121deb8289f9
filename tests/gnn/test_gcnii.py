"""GCNII against its equation, dense, and its limits."""

import pytest
import torch
from gnn_graphs import built, dense_latent, evaluated, float64, latent_structure, small_data

from graphglow.gnn.backbones import GCNII


def operator_of(graph, structure):
    return 0.4 * graph.adj.to_dense() + 0.6 * dense_latent(structure)


def first_of(model, graph):
    return torch.relu(graph.x.to_dense() @ model.weight_in + model.bias_in)


@pytest.mark.parametrize("num_layers", [2, 5])
def test_equals_the_dense_equation(num_layers):
    graph, structure, model = float64(small_data()), latent_structure(), built(GCNII, num_layers)
    operator, first = operator_of(graph, structure), first_of(model, graph)
    h = first
    for layer, weight in enumerate(model.weights, start=1):
        beta = torch.log(torch.tensor(0.5 / layer + 1, dtype=torch.float64))
        identity = torch.eye(len(weight), dtype=torch.float64)
        before = (0.9 * operator @ h + 0.1 * first) @ ((1 - beta) * identity + beta * weight)
        h = torch.relu(before)
    z, logits = evaluated(model, graph, structure)
    torch.testing.assert_close(z, before)
    torch.testing.assert_close(logits, h @ model.weight_out + model.bias_out)


def test_alpha_one_ignores_the_structure():
    """Each layer starts from H^0 again: only the last one counts."""
    graph, model = float64(small_data()), built(GCNII, 3, teleport=1.0)
    first, beta = first_of(model, graph), model.beta(3)
    expected = (1 - beta) * first + beta * first @ model.weights[-1]
    z, logits = evaluated(model, graph, latent_structure())
    torch.testing.assert_close(z, expected)
    torch.testing.assert_close(logits, torch.relu(expected) @ model.weight_out + model.bias_out)


def test_beta_zero_is_appnp_on_the_hidden_layer(monkeypatch):
    """The operators and H^0 are non-negative, so the relu does nothing."""
    monkeypatch.setattr(GCNII, "THETA", 0.0)
    graph, structure, model = float64(small_data()), latent_structure(), built(GCNII, 4)
    operator, first = operator_of(graph, structure), first_of(model, graph)
    h = first
    for _ in range(4):
        h = 0.9 * operator @ h + 0.1 * first
    torch.testing.assert_close(evaluated(model, graph, structure)[0], h)
