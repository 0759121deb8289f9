"""MixedLINKX: its equation, dense; that it knows its neighbours by name; and whose graph it is."""

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
    training,
)
from torch_geometric.data import Data

from graphglow import METHODS, LearnerConfig, PaperConfig, StructureLearner, fit, transfer
from graphglow.errors import InputError
from graphglow.gnn.backbones import MixedLINKX
from graphglow.gnn.propagation import drop_features


@pytest.mark.parametrize("encoder", ["gcn", "mlp"])
@pytest.mark.parametrize("num_layers", [2, 3])
def test_equals_the_dense_equation(num_layers, encoder):
    graph, structure = float64(small_data()), latent_structure()
    model = built(MixedLINKX, num_layers, encoder=encoder)
    operator = 0.4 * graph.adj.to_dense() + 0.6 * dense_latent(structure)
    rows = torch.nn.functional.normalize(raw_adjacency(graph), dim=1)
    h_a = rows @ model.weight_adj + model.bias_adj
    h_x = graph.x.to_dense() @ model.weight_x + model.bias_x
    first = hidden = h_a + h_x + torch.cat([h_a, h_x], dim=1) @ model.weight_both
    for weight, bias in zip(model.weights, model.biases, strict=True):
        hidden = first + operator @ torch.relu(hidden) @ weight + bias
    z, logits = evaluated(model, graph, structure)
    torch.testing.assert_close(z, hidden)
    torch.testing.assert_close(logits, torch.relu(hidden) @ model.weight_out + model.bias_out)
    z0 = model.encode(graph, None).z0
    torch.testing.assert_close(z0, graph.adj.to_dense() @ first if encoder == "gcn" else first)


@pytest.mark.parametrize("seeds", [(1,)])
def test_dropped_rows_have_the_gradient_of_what_stayed(seeds):
    """An edge may be dropped in one direction only: the pattern is symmetric, its values not."""
    dropped = drop_features(float64(small_data()).neighbour_rows, training(*seeds))
    v = torch.randn(20, 3, dtype=torch.float64).expand(*(len(seeds),) * (len(seeds) > 1), 20, 3)
    v = v.clone().requires_grad_()
    runs = dropped.values if len(seeds) > 1 else [dropped.values]
    dense = torch.stack([dropped.with_values(values).to_dense() for values in runs])
    dense = dense if len(seeds) > 1 else dense[0]
    assert not torch.equal(dense, dense.mT)
    (found,) = torch.autograd.grad((dropped @ v).square().sum(), v)
    torch.testing.assert_close(found, 2 * dense.mT @ dense @ v.detach())


def named_neighbours():
    """Two hubs of the same degree and features; a leaf's class is which of them it is joined to."""
    leaf = torch.arange(2, 42)
    y = torch.cat([torch.tensor([0, 1]), leaf % 2])
    part = torch.cat([torch.tensor([3, 3]), leaf // 2 % 3])  # the hubs are in no part
    return Data(
        x=torch.ones(42, 3),
        y=y,
        edge_index=torch.stack([leaf, leaf % 2]),
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
    )


def test_knows_which_neighbours_a_node_has_where_gcn_cannot():
    settings = {"epochs": 60, "dropout": 0.0, "device": "cpu"}
    learner = StructureLearner(LearnerConfig(embedding_size=8), seed=0)
    alone = PaperConfig(backbone="linkx", input_weight=1.0, refinements=1, **settings)
    gcn = fit("gcn", named_neighbours(), METHODS["gcn"].config(hidden=8, **settings))
    assert transfer(named_neighbours(), learner, alone).test_accuracy == 1.0
    assert gcn.test_accuracy == 0.5


def test_belongs_to_a_graph_of_its_size():
    with pytest.raises(InputError, match="graph it was built for, of 19 nodes; got one of 20"):
        built(MixedLINKX, num_nodes=19).encode(float64(small_data()), None)


def test_weights_of_a_graph_of_another_size_are_refused():
    with pytest.raises(RuntimeError, match="size mismatch for weight_adj"):
        built(MixedLINKX, num_nodes=19).load_state_dict(built(MixedLINKX).state_dict())
