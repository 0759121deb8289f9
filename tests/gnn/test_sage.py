"""GraphSAGE by hand: the mean over neighbours without the node itself."""

import pytest
import torch
from gnn_graphs import (
    built,
    dense_latent,
    evaluated,
    float64,
    latent_structure,
    raw_adjacency,
    small_data,
)
from torch_geometric.data import Data

from graphglow.gnn.backbones import SAGE
from graphglow.graph import prepare


@pytest.mark.parametrize("input_weight", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("num_layers", [2, 3])
def test_equals_the_dense_equation(num_layers, input_weight):
    graph, structure, model = float64(small_data()), latent_structure(), built(SAGE, num_layers)
    adjacency = raw_adjacency(graph)
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp_min(1)
    operator = input_weight * mean + (1 - input_weight) * dense_latent(structure)
    before = graph.x.to_dense()
    for layer in range(num_layers):
        h = torch.relu(before) if layer else before
        z = before
        own, neighbour = model.self_weights[layer], model.neighbour_weights[layer]
        before = h @ own + operator @ h @ neighbour + model.biases[layer]
    found_z, logits = evaluated(model, graph, structure, input_weight)
    bounds = {"rtol": 1e-5, "atol": 1e-6}  # A_norm, from which the mean is taken, is float32
    torch.testing.assert_close(found_z, z, **bounds)
    torch.testing.assert_close(logits, before, **bounds)


def test_the_mean_weighs_edges_as_the_graph_does():
    """Node 0 hears of 1 and 2 at 1 : 3; nodes 3 and 4 have nobody."""
    data = Data(
        x=torch.eye(5),
        y=torch.tensor([0, 1, 0, 1, 0]),
        edge_index=torch.tensor([[0, 0], [1, 2]]),
        edge_weight=torch.tensor([1.0, 3.0]),
    )
    for part, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.arange(5) // 2 == part
    mean = prepare(data).neighbour_mean
    expected = torch.zeros(5, 5)
    expected[0, 1], expected[0, 2], expected[1, 0], expected[2, 0] = 0.25, 0.75, 1.0, 1.0
    torch.testing.assert_close(mean.to_dense(), expected)
    v = torch.randn(5, 2, requires_grad=True)
    (mean @ v).square().sum().backward()
    torch.testing.assert_close(v.grad, expected.T @ (2 * expected @ v.detach()))
