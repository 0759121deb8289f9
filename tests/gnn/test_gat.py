"""GAT: what attention is, against a dense softmax, and what it is not."""

import pytest
import torch
import torch.nn.functional as F
from gnn_graphs import (
    HIDDEN,
    built,
    dense_latent,
    evaluated,
    float64,
    latent_structure,
    raw_adjacency,
    small_data,
)

from graphglow.gnn.backbones import GAT
from graphglow.gnn.gat import Edges

V = torch.randn(20, HIDDEN, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def edges_of(graph):
    return Edges(*graph.entries, graph.looped)


def dense_attention(model, graph, v, layer, head):
    """The softmax over each row of A + I, [N, N]."""
    width = v.shape[1] // model.heads[layer]
    part = slice(head * width, (head + 1) * width)
    says, hears = (v[:, part] @ a[layer][part] for a in (model.sources, model.targets))
    score = F.leaky_relu(says[None, :] + hears[:, None], 0.2)
    there = raw_adjacency(graph) + torch.eye(20, dtype=torch.float64)
    return score.masked_fill(there == 0, -torch.inf).softmax(1)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_attention_is_a_softmax_over_each_nodes_entries(scale):
    """At the larger scale, scores differ by more than an exponential can hold."""
    graph, model = float64(small_data()), built(GAT, attention_heads=2)
    found = model.attention(0, scale * V, edges_of(graph))  # [E, H]
    assert model.heads == [2, 1]
    assert found.shape[1] == 2
    for head in range(2):
        dense = torch.zeros(20, 20, dtype=torch.float64)
        dense[graph.entries] = found[:, head].detach()
        torch.testing.assert_close(dense.sum(1), torch.ones(20, dtype=torch.float64))
        expected = dense_attention(model, graph, scale * V, 0, head)
        torch.testing.assert_close(dense, expected.detach())


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (2, 2), (4, 2), (5, 1), (8, 2), (12, 6)])
def test_heads_divide_what_was_asked_for_and_the_width(asked, given):
    assert built(GAT, 3, attention_heads=asked).heads == [given, given, 1]


def test_without_attention_vectors_it_is_the_mean_over_neighbours_and_self():
    graph, model = float64(small_data()), built(GAT)
    with torch.no_grad():
        for vector in [*model.sources, *model.targets]:
            vector.zero_()
    there = raw_adjacency(graph) + torch.eye(20, dtype=torch.float64)
    found = model.attend(0, V, edges_of(graph), None)
    torch.testing.assert_close(found, there @ V / there.sum(1, keepdim=True))


@pytest.mark.parametrize("input_weight", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("num_layers", [2, 3])
def test_equals_the_dense_equation(num_layers, input_weight):
    graph, structure, model = float64(small_data()), latent_structure(), built(GAT, num_layers)
    latent = dense_latent(structure)
    before = graph.x.to_dense()
    for layer in range(num_layers):
        z, h = before, F.elu(before) if layer else before
        v = h @ model.weights[layer]
        parts = [
            dense_attention(model, graph, v, layer, head) @ part
            for head, part in enumerate(v.chunk(model.heads[layer], dim=1))
        ]
        spread = torch.cat(parts, dim=1)
        before = input_weight * spread + (1 - input_weight) * latent @ v + model.biases[layer]
    found_z, logits = evaluated(model, graph, structure, input_weight)
    torch.testing.assert_close(found_z, z)
    torch.testing.assert_close(logits, before)
    parameters = list(model.parameters())
    for found, expected in zip(
        torch.autograd.grad(logits.square().sum(), parameters, materialize_grads=True),
        torch.autograd.grad(before.square().sum(), parameters, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)
